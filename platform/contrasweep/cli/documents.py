"""What `--json` prints: each document with its version, as plain JSON.

A document is one JSON object whose first member, `schema`, says its name and version: `report/2`. `contrasweep schema
report` prints its JSON schema (see `contrasweep.cli.schemas`), and `docs/schemas.json` has all of them; a test compares
both with what commands print. A number that is not finite or not known is null. Names that a study chooses (axes,
metrics, settings) are keys of a mapping of their own, so that none hides a key of ours. A changed type needs a larger
version.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from contrasweep.errors import SpecError

VERSIONS: Mapping[str, int] = {
    "report": 2,
    "jobs": 2,
    "compare": 2,
    "submit": 2,
    "decide": 2,
    "watch": 2,
}
"""The version of each document that has changed; of all others it is 1."""


def version_of(name: str) -> str:
    """Return the name of a document with its version, `report/2`, as its member `schema` has it."""
    return f"{name}/{VERSIONS.get(name, 1)}"


def dumps(name: str, value: Mapping[str, object]) -> str:
    """Return the text of the document `name` with the members `value`: plain JSON that begins with its version.

    Numbers that are not finite become null. Whether the members are those of the schema is not checked.
    """
    from pydantic_core import to_json

    # pydantic writes dataclasses, dates and enumerations; read back, its text is indented like every document.
    plain = json.loads(to_json(value, inf_nan_mode="null", fallback=_plain))
    return json.dumps({"schema": version_of(name), **plain}, indent=1)


def _plain(value: Any) -> object:
    """Return a value that pydantic cannot write, as one that it can write: NumPy's numbers as Python's numbers.

    A missing value of pandas becomes None, and anything else its text.
    """
    if type(value).__name__ == "NAType":
        return None
    return value.item() if hasattr(value, "item") else str(value)


_TOKEN = re.compile(r"(?:[0-9a-f]{8})+")
"""A token of `polled`: eight digits for each member."""


def polled(members: Mapping[str, object], since: str | None) -> dict[str, object]:
    """Return `token`, a token of these `members`, and `changed`: the names of members that differ from `since`.

    A token has eight hexadecimal digits for each member, of its digest, so that nothing need be stored between two
    calls. `since` is the token of an earlier call; None: `changed` is None too. A member that is gone is not named.
    `SpecError` where `since` is no token.
    """
    digests = dict[str, str]()
    for name, value in members.items():
        # The name is part of it, so that two members with the same value have digests of their own.
        text = name + json.dumps(value, sort_keys=True, default=str)
        digests[name] = hashlib.sha256(text.encode()).hexdigest()[:8]
    changed = None
    if since is not None:
        if not _TOKEN.fullmatch(since):
            hint = "`token` of an earlier answer of the same command"
            raise SpecError("this is no token", place="--since", value=since, hint=hint)
        before = re.findall(".{8}", since)
        changed = [name for name, digest in digests.items() if digest not in before]
    # A document without members has a token too: digits that are no member's.
    return {"token": "".join(digests.values()) or "0" * 8, "changed": changed}
