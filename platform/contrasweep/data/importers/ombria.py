"""OMBRIA's pairs of Sentinel-2 crops before and after floods (Drakonakis et al., IEEE JSTARS 2022), from its lists.

The lists group crops by blocks of 40 tiles. A block may have tiles of several events, and an event tiles in several
blocks, so that folds by block test a network on floods that it has seen. The data do not name events. But tiles are
numbered scene by scene, and their colours change where a scene ends. `EVENT_STARTS` are the nine change points of the
tiles' mean colours before and after, found by dynamic programming over squared deviations, without labels. The ten
stretches between them are taken for events.
"""

import re
from bisect import bisect_right
from pathlib import Path
from typing import Literal

from contrasweep.data.content import Content, Importer, Published, published_images
from contrasweep.data.importers import image_pairs
from contrasweep.errors import DataError
from contrasweep.schema import checked

EVENT_STARTS = (31, 108, 313, 342, 405, 436, 603, 721, 737)
"""Number of the first tile of each event but the first."""


@checked
class Settings:
    """Settings of OMBRIA."""

    classes: Literal[5, 4] = 5
    """Which of the two sets of labels."""
    events: Literal["blocks", "all"] = "blocks"
    """`blocks`: the five folds of the list; `all`: each of the ten events is a fold."""


def _read(source: Path, settings: Settings) -> Content:
    """Return the pairs of OMBRIA's list in the folder `source`, with the folds that `settings.events` names."""
    path = source / f"pairs_{settings.classes}class.csv"
    rows = image_pairs.list_rows(path)
    if settings.events == "blocks":
        return image_pairs.of_rows(path, rows, image_pairs.Settings())
    for row in rows:
        number = re.search(r"(\d+)\.png$", row["pre"])
        if number is None:
            raise DataError(
                f"{path}, line {row.line}: {row['pre']} has no tile number, as S2_before_0001.png has"
            )
        # Its event is the number of later events that have begun by this tile; the first one is 0.
        row["group"] = f"event-{bisect_right(EVENT_STARTS, int(number[1]))}"
    return image_pairs.of_rows(path, rows, image_pairs.Settings(folds="groups"))


def _published(settings: Settings) -> Published:
    """Return the description of OMBRIA, with the numbers of pairs in its lists."""
    rows = {"train": {4: 3_396, 5: 2_538}[settings.classes]}
    return published_images(rows, settings.classes, (64, 64, 3), image_pairs.SIDES)


OMBRIA = Importer(
    _read,
    "Sentinel-2 crops before and after floods, 5 or 4 classes of flooded share, folds by block or by event",
    "no licence file: local use, cite IEEE JSTARS 2022 (9723593), do not redistribute",
    "the folder of pairs_5class.csv, pairs_4class.csv and S2/",
    Settings,
    published=_published,
)
