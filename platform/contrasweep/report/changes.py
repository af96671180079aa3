"""What is new in a page since an older one, so that a browser that has the older one need not fetch all of it again."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

Change = tuple[int, int] | str
"""Characters `start` to `end` (exclusive) of the older text, counted in UTF-16 as JavaScript does, or new text."""
PIECE = re.compile(r"(?<=\n)|(?<=\],)|(?<=>)")
"""Ends of lines, of rows of JSON, and of HTML tags: in a report about 40 characters each."""


def changes(old: str, new: str) -> list[Change]:
    """`new` as parts of `old` and text that it lacks, in order; in time that grows with their lengths alone.

    Where `old` has a piece several times, the one that goes on from the last is taken, else the next after it, so that
    there are few parts; each choice gives `new`.
    """
    before = _pieces(old)
    places: dict[str, list[int]] = defaultdict(list)
    for place, piece in enumerate(before):
        places[piece].append(place)
    parts: list[tuple[int, int] | list[str]] = []  # places of pieces, or new ones
    after = 0
    for piece in _pieces(new):
        last = parts[-1] if parts else None
        where = _next(places.get(piece, ()), after)
        if where is None:
            if isinstance(last, list):
                last.append(piece)
            else:
                parts.append([piece])
            continue
        if isinstance(last, tuple) and where == after:
            parts[-1] = (last[0], where + 1)
        else:
            parts.append((where, where + 1))
        after = where + 1
    at = list(accumulate(map(_units, before), initial=0))
    return ["".join(part) if isinstance(part, list) else (at[part[0]], at[part[1]]) for part in parts]


def _pieces(text: str) -> list[str]:
    return [piece for piece in PIECE.split(text) if piece]


def _next(places: Sequence[int], after: int) -> int | None:
    """The first of the sorted `places` from `after` on, else the first of all; None where there are none."""
    if not places:
        return None
    at = bisect_left(places, after)
    return places[at] if at < len(places) else places[0]


def _units(text: str) -> int:
    """UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
