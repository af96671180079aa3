"""The difference between two states of some code, as a line and as a unified diff."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from contrasweep.code.version import parsed
from contrasweep.errors import plural

_FILES_NAMED = 3  # files that the line of a difference names


@dataclass(frozen=True)
class Change:
    """One file that differs between two states of the code, in more than comments, docstrings and formatting.

    `kind` is `added`, `removed` or `changed`. `lines` is the number of lines that differ. Where 3 lines were replaced
    by 5, these are 5.
    """

    file: str
    kind: str
    lines: int

    def __str__(self) -> str:
        return f"{self.file} {self.kind} ({plural(self.lines, 'line')})"


@dataclass(frozen=True)
class Difference:
    """The files that differ, by name, and all of them as one unified diff, as text; "" where none differs."""

    changes: tuple[Change, ...]
    diff: str

    def __str__(self) -> str:
        """Return `mythesis/method.py changed (12 lines)`, or "no difference"; of many files the first three by name."""
        if not self.changes:
            return "no difference"
        first_changes = ", ".join(map(str, self.changes[:_FILES_NAMED]))
        if len(self.changes) <= _FILES_NAMED:
            return first_changes
        return f"{first_changes} and {plural(len(self.changes) - _FILES_NAMED, 'more file')}"

    def summary(self) -> str:
        """Return how much differs: `12 lines differ in 1 module`."""
        lines = sum(change.lines for change in self.changes)
        modules = len(self.changes)
        return f"{plural(lines, 'line')} {'differs' if lines == 1 else 'differ'} in {plural(modules, 'module')}"


def difference(
    old: Mapping[str, str], new: Mapping[str, str], names: tuple[str, str] = ("old", "new")
) -> Difference:
    """Return what differs between the files `old` and the files `new` (file name -> text).

    A file of which only comments, docstrings or formatting differ is left out. `names` are the two folders that the
    unified diff names: `old/method.py` and `new/method.py`.
    """
    changes: list[Change] = []
    texts: list[str] = []
    for file in sorted({*old, *new}):
        if file not in old:
            kind = "added"
        elif file not in new:
            kind = "removed"
        # The digest of a parsed source leaves out comments, docstrings and formatting.
        elif parsed(old[file].encode())[0] == parsed(new[file].encode())[0]:
            continue
        else:
            kind = "changed"
        old_lines = old.get(file, "").splitlines()
        new_lines = new.get(file, "").splitlines()
        # Of each piece that was replaced, the longer of its two sides counts.
        pieces = difflib.SequenceMatcher(a=old_lines, b=new_lines, autojunk=False).get_opcodes()
        count = sum(max(i2 - i1, j2 - j1) for part, i1, i2, j1, j2 in pieces if part != "equal")
        changes.append(Change(file, kind, count))
        texts += difflib.unified_diff(
            old_lines, new_lines, f"{names[0]}/{file}", f"{names[1]}/{file}", lineterm=""
        )
    return Difference(tuple(changes), "".join(f"{line}\n" for line in texts))
