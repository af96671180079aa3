"""OMBRIA's pairs of Sentinel-2 crops before and after floods (Drakonakis et al., IEEE JSTARS 2022), as lists have them.

The lists group crops by blocks of 40 tiles, which several events share and which share events: folds by block test a
network on floods that it has seen. The data name no event. Tiles are numbered scene by scene, though, and where a scene
ends, their colours change at once: `EVENT_STARTS` are the nine change points of the tiles' mean colours before and
after (dynamic programming over squared deviations, no label read), and the ten stretches between them stand for events.
"""

import re
from bisect import bisect_right
from pathlib import Path
from typing import Literal

from contrasweep.data import columns
from contrasweep.data.content import Content, Importer, Published
from contrasweep.data.importers import image_pairs
from contrasweep.errors import DataError
from contrasweep.schema import checked

EVENT_STARTS = (31, 108, 313, 342, 405, 436, 603, 721, 737)
"""The number of the first tile of every stretch but the first."""


@checked
class Settings:
    """Settings of OMBRIA.

    `classes`: 5 or 4, which of the two label sets. `events`: `blocks`, the five folds of the list; `all`, each of the
    ten events a fold; `split`, every other event a fold, to choose settings on, and the rest the test split, to decide
    with them. `normalise`: the colours of each event (or block), each side by itself, brought to one mean and
    deviation.
    """

    classes: Literal[5, 4] = 5
    events: Literal["blocks", "all", "split"] = "blocks"
    normalise: bool = False


def _read(source: Path, settings: Settings) -> Content:
    """Return the pairs of OMBRIA's list in the folder `source`.

    With `events` other than `blocks` each event is a group, and so a fold; with `split` every other one is for test.
    """
    path = source / f"pairs_{settings.classes}class.csv"
    rows = image_pairs.list_rows(path)
    if settings.events != "blocks":
        for row in rows:
            # Events alternate between training and test: the odd ones are for test.
            event = _event(path, row)
            row["group"] = f"event-{event}"
            if settings.events == "split" and event % 2:
                row["split"] = "test"
    return image_pairs.of_rows(
        path,
        rows,
        image_pairs.Settings(
            folds="list" if settings.events == "blocks" else "groups",
            normalise="group" if settings.normalise else "none",
        ),
    )


def _event(path: Path, row: image_pairs.Row) -> int:
    """Return the event, from 0, that the tile of `row` is of, by the number at the end of its name.

    `DataError`, with `path` and line, where the name has none.
    """
    number = re.search(r"(\d+)\.png$", row["pre"])
    if number is None:
        raise DataError(
            f"{path}, line {row.line}: {row['pre']} has no tile number, as S2_before_0001.png has"
        )
    return bisect_right(EVENT_STARTS, int(number[1]))


def _published(settings: Settings) -> Published:
    """Return the numbers of pairs in the lists; tiles of odd events are the test split of `split`."""
    train, test = {4: (2_047, 1_349), 5: (1_538, 1_000)}[settings.classes]
    rows = {"train": train, "test": test} if settings.events == "split" else {"train": train + test}
    sides = {side: columns.spec("uint8", (64, 64, 3)) for side in ("pre", "post")}
    return Published("image-pair", rows, tuple(map(str, range(settings.classes))), sides)


OMBRIA = Importer(
    _read,
    "Sentinel-2 crops before and after floods, 5 or 4 classes of flooded share, folds by block or by event",
    "no licence file: local use, cite IEEE JSTARS 2022 (9723593), do not redistribute",
    "the folder of pairs_5class.csv, pairs_4class.csv and S2/",
    Settings,
    published=_published,
)
