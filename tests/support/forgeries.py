"""Forged storages: files of an honest one, each changed in each way that fits its kind, with right digests.

`cells` lists them: a kind of file (its name, with ids and numbers left out) and a way to forge it. `forge` makes one.
"""

import hashlib
import json
import os
import pickle
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contrasweep import canonical
from contrasweep.storage.record import RECORD_FILE, id_of

Draw = random.Random
HEADER = re.compile(rb'\{"format_version": (\d+), "digest": "[0-9a-f]{64}",\n')
VARIES = re.compile(r"[0-9a-f]{12,}|20\d\d-\d\d-\d\dT[^/]*|\d{6,}[\w-]*|(?<=/)\d+(?=[/.])")
"""Parts of names that differ between files of one kind."""
NAMING = re.compile(
    "trainable|tracking|notify|loss|function|uri|storage|command|pid|host|process|study|data|name|start"
)
"""Members on whose values a command may act: these are forged first."""


class Payload:
    """Unpickling it imports a package that nobody but a storage names."""

    def __reduce__(self):
        return __import__, ("planted",)


def hostile(draw, harm):
    """A value that does harm where it is imported, run, opened, asked, ended, or taken for a place."""
    outside = harm["outside"]
    server = f"127.0.0.1:{harm['port']}"
    return draw.choice(
        [
            "planted:X",
            "planted:train",
            "planted.deeper:X",
            "planted",
            "runs.small.evil:X",
            "antigravity:fly",
            "mlflow.pyfunc:load_model",
            "builtins:exec",
            "os:system",
            "subprocess:run",
            "contrasweep.cli:main",
            f"http://{server}",
            f"http://alice:pw@{server}/x?y",
            f"s3://bucket@{server}/x",
            f"gs://{server}/x",
            f"hf:{server}",
            f"http://{server}",
            f"postgresql://{server}/db",
            f"file://{outside}",
            f"sqlite:///{outside}/x.db",
            f"tensorboard:{outside}/tb",
            f"wandb:{outside}/w",
            f"memory://{outside}",
            f"{outside}/x",
            "../../outside/x",
            "../../../outside/secret",
            f"{outside}/secret",
            "/dev/stdin",
            "~",
            f"$(touch {outside}/x)",
            f"x; touch {outside}/x",
            f"`touch {outside}/x`",
            f"\x1b]0;{outside}\x07",
            "\0",
            "env:MLFLOW_TRACKING_PASSWORD",
            "{env}",
            "${MLFLOW_TRACKING_PASSWORD}",
            "%s%n",
            "x" * 100_000,
            "\ud800",
            harm["pid"],
            -1,
            0,
            2**63,
            1e308,
            None,
            True,
            [],
            {},
            ["planted:X"],
            {"planted:X": "planted:X"},
        ]
    )


def places(value, path=()):
    """The paths of all members of a document."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def some(draw, paths):
    """One to three of the paths, the deepest first."""
    return sorted(draw.sample(paths, min(len(paths), draw.randint(1, 3))), key=len, reverse=True)


def put(document, path, value):
    at(document, path[:-1])[path[-1]] = value


def named(document, draw, harm):
    """Values on which a command may act become hostile ones."""
    known = [
        path
        for path in places(document)
        if NAMING.search(str(path)) and isinstance(at(document, path), str)
    ]
    for path in some(draw, known):
        put(document, path, hostile(draw, harm))


def values(document, draw, harm):
    for path in some(draw, list(places(document))):
        put(document, path, hostile(draw, harm))


def texts(document, draw, harm):
    """Texts become hostile ones, so that types stay."""
    for path in some(
        draw, [path for path in places(document) if isinstance(at(document, path), str)]
    ):
        put(document, path, str(hostile(draw, harm)))


def lacking(document, draw, harm):
    for path in some(draw, list(places(document)))[:1]:
        del at(document, path[:-1])[path[-1]]


def shapes(document, draw, harm):
    for path in some(draw, list(places(document))):
        put(
            document,
            path,
            draw.choice([None, [], {}, "", 0, -1, [[]], {"": {}}, True, "x", [None]]),
        )


def keys(document, draw, harm):
    """A mapping has a member of a hostile name."""
    inner = draw.choice(
        [
            at(document, path)
            for path in [(), *places(document)]
            if isinstance(at(document, path), dict)
        ]
    )
    inner[str(hostile(draw, harm))] = draw.choice([*inner.values(), None])


JSON = {
    "named": named,
    "values": values,
    "texts": texts,
    "lacking": lacking,
    "shapes": shapes,
    "keys": keys,
}


def in_json(change):
    """Forge a JSON file by a change of its document. A digest is that of its new content."""

    def forge(path, draw, harm):
        raw = path.read_bytes()
        header = HEADER.match(raw)
        document = json.loads(b"{" + raw[header.end() :] if header else raw)
        change(document, draw, harm)
        text = json.dumps(document, sort_keys=True, indent=1)
        if not header:
            path.write_text(text)
            return
        body = text.removeprefix("{\n").encode()
        digest = hashlib.sha256(body).hexdigest().encode()
        path.write_bytes(b'{"format_version": %b, "digest": "%b",\n' % (header[1], digest) + body)

    return forge


def another_trial(path, draw, harm):
    """A record of another trainable or other settings, under the id that these give, with the trial's other files."""
    record = json.loads(b"{" + path.read_bytes().partition(b"\n")[2])
    record[draw.choice(["trainable", "arm"])] = str(hostile(draw, harm))[:100].replace(
        "\ud800", "x"
    )
    record["config"][draw.choice(list(record["config"]))] = str(hostile(draw, harm))
    seen = RECORD_FILE.decode(path.read_bytes(), path.name)
    like = replace(seen, trainable=record["trainable"], arm=record["arm"])
    old = record["trial_id"]
    new = id_of(like, canonical.dumps(record["config"]))
    record["trial_id"] = new
    path.write_bytes(RECORD_FILE.encode(record))
    study = path.parents[2]
    path.parent.rename(study / "records" / new)
    if (study / "trials" / old).is_dir():
        (study / "trials" / old).rename(study / "trials" / new)
    table = pq.read_table(study / "plan.parquet")
    ids = [new if value == old else value for value in table["trial_id"].to_pylist()]
    arms = [
        record["arm"] if value == new else arm
        for value, arm in zip(ids, table["arm"].to_pylist(), strict=True)
    ]
    for name, column in {"trial_id": ids, "arm": arms}.items():
        table = table.set_column(table.column_names.index(name), name, [pa.array(column)])
    pq.write_table(table, study / "plan.parquet")


def columns(path, draw, harm):
    table = pq.read_table(path)
    name = draw.choice(table.column_names)
    pq.write_table(
        table.drop_columns([name])
        if draw.random() < 0.5
        else table.rename_columns({name: "planted:X"}),
        path,
    )


def column_values(path, draw, harm):
    """A column of texts has hostile ones; one of numbers has others, or is one of texts."""
    table = pq.read_table(path)
    for name in draw.sample(table.column_names, min(len(table.column_names), 2)):
        kind = table[name].type
        draws = [str(hostile(draw, harm)).replace("\ud800", "x") for _ in range(len(table))]
        if pa.types.is_integer(kind) and draw.random() < 0.5:
            column = pa.array([draw.choice([-1, 0, 2**40, None]) for _ in draws], pa.int64())
        elif pa.types.is_floating(kind) and draw.random() < 0.5:
            column = pa.array(
                [draw.choice([float("nan"), float("inf"), -1e308, None]) for _ in draws],
                pa.float64(),
            )
        else:
            column = pa.array(draws)
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, path)


def rows(path, draw, harm):
    table = pq.read_table(path)
    pq.write_table(
        draw.choice([table.slice(0, 0), pa.concat_tables([table, table]), table.slice(1)]), path
    )


def metadata(path, draw, harm):
    """What a reader may take for settings: pandas' metadata, and the table's own."""
    entries = {
        "pandas": json.dumps({"index_columns": ["planted:X"], "columns": []}),
        "planted": "planted:X",
    }
    pq.write_table(pq.read_table(path).replace_schema_metadata(entries), path)


def archive_members(path, draw, harm):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (
            "../../../outside/x",
            f"{harm['outside']}/x",
            "planted/__init__.py",
            "a" * 500,
            "link",
        ):
            archive.writestr(name, "import planted\n" * draw.randint(1, 10**5))


def torch_payload(path, draw, harm):
    """A checkpoint of PyTorch's own format whose pickle imports something."""
    import torch

    torch.save({"model": Payload(), "step": 1}, path)


def torch_other(path, draw, harm):
    """A checkpoint with other members, or other tensors, than the trainable has saved."""
    import torch

    state = torch.load(path, weights_only=True)
    plain = {
        str(key): draw.choice([value, torch.zeros(3), "planted:X", None, {}])
        for key, value in state.items()
    }
    torch.save(draw.choice([plain, [], "planted:X", {}, torch.zeros(2)]), path)


def array_payload(path, draw, harm):
    """An array of Python objects, which NumPy would unpickle."""
    import numpy as np

    np.savez(path, weights=np.array([Payload()], object), epoch=1)


def cut(path, draw, harm):
    raw = path.read_bytes()
    path.write_bytes(raw[: draw.randint(0, max(0, len(raw) - 1))])


def pickled(path, draw, harm):
    path.write_bytes(pickle.dumps(Payload()))


def noise(path, draw, harm):
    path.write_bytes(
        draw.choice(
            [b"import planted\n", b"\x1b]0;x\x07" * 9, draw.randbytes(300), b"[" * 10**5, b"{}"]
        )
    )


def pipe(path, draw, harm):
    path.unlink()
    os.mkfifo(path)


def link(path, draw, harm):
    path.unlink()
    path.symlink_to(Path(harm["outside"]) / draw.choice(["secret", "nothing", "."]))


def folder(path, draw, harm):
    path.unlink()
    path.mkdir()
    (path / "x").write_bytes(pickle.dumps(Payload()))


ANY = {"cut": cut, "pickled": pickled, "noise": noise, "pipe": pipe, "link": link, "folder": folder}
BY_SUFFIX: dict[str, dict[str, Callable[[Path, Draw, dict[str, Any]], None]]] = {
    ".json": {name: in_json(change) for name, change in JSON.items()},
    ".parquet": {
        "columns": columns,
        "column values": column_values,
        "rows": rows,
        "metadata": metadata,
    },
    ".zip": {"members": archive_members},
    ".pt": {"payload": torch_payload, "other": torch_other},
    ".npz": {"payload": array_payload},
}
"""The ways to forge a file, by the end of its name; `ANY` are those of every file."""


def kinds(made):
    """The kinds of files in a storage `runs/` and a cache `cache/`, named without what differs between those of a kind.

    Of each the files of every study; "" for what belongs to none.
    """
    found = {}
    for path in sorted(path for path in made.rglob("*") if path.is_file()):
        file = path.relative_to(made).as_posix()
        study = "/".join(file.split("/")[:2])
        study = study if (made / study / "study.json").is_file() else ""
        kind = VARIES.sub("*", file.replace(study, "runs/*", 1) if study else file)
        found.setdefault(kind, {}).setdefault(study, []).append(file)
    return found


def cells(made):
    """Every kind of file, with every way to forge it."""
    return [
        (kind, way)
        for kind, files in kinds(made).items()
        for way in (
            *ways(kind),
            *(["another trial"] if kind == "runs/*/records/*/record.json" else []),
        )
    ]


def ways(file):
    return {**BY_SUFFIX.get(Path(file).suffix, {}), **ANY}


def forge(made, cell, seed, harm):
    """Forge some files of a kind in one way, in each study one at least; none where an earlier cell has left no file of
    the kind. The same seed gives the same storage."""
    kind, way = cell
    draw = Draw(f"{seed} {kind} {way}")
    for files in kinds(made).get(kind, {}).values():
        for file in draw.sample(files, draw.randint(1, len(files))):
            change = another_trial if way == "another trial" else ways(file)[way]
            change(made / file, draw, harm)
