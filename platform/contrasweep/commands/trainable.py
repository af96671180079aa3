"""The trainable that runs a command.

What the command is given, in environment variables, and where it names them as placeholders:

    CONTRASWEEP_TRIAL                       the trial as JSON: id, study, arm, config, fold, seed, data (name, digest,
                                            uri, classes)
    CONTRASWEEP_METRICS      {metrics}      the file that it may append its metrics to
    CONTRASWEEP_CHECKPOINTS  {checkpoints}  a folder for its checkpoints
    CONTRASWEEP_RESUME       {resume}       the folder of the checkpoint to go on from; not there in a first attempt
    CONTRASWEEP_FOLDER       {folder}       the trial's own folder, empty as the command starts

A line of metrics is a JSON object, `{"step": 1, "accuracy": 0.5}`. Besides numbers it may have `checkpoint` (the name
of a folder in CONTRASWEEP_CHECKPOINTS), `artifacts` (name -> file) and `items` (name -> a score for each test item).
Without such lines, metrics are read from its output and its files: `commands.metrics`.

The command runs in the trial's own folder, which begins with links to what the project has; in the project's where it
names `{folder}`. Status 0 ends its trial as done, any other as failed. A trial that is stopped sends SIGTERM to the
command, and SIGKILL half a minute later to all that it has started.
"""

import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from contrasweep.cluster.git import git
from contrasweep.commands import COMMAND, OPTIONS, placeholders
from contrasweep.commands.files import KNOWN_FILES
from contrasweep.commands.metrics import Metrics
from contrasweep.commands.process import Process
from contrasweep.config import Config, MutableConfig
from contrasweep.imports import project_folder
from contrasweep.trial import Report, Trial

log = logging.getLogger(__name__)
POLL_S = 0.2
RUN_FILES = (
    ".*",
    "__pycache__",
    "*.ckpt",
    "*.err",
    "*.log",
    "*.out",
    "*.pt",
    "*.pth*",
    "*.safetensors",
    "*_logs",
    "checkpoint*",
    "ckpt*",
    "history*",
    "log",
    "logs",
    "metrics*",
    "mlflow.db",
    "mlruns",
    "multirun",
    "out",
    "output",
    "outputs",
    "result*",
    "run",
    "runs",
    "save",
    "saved*",
    "saves",
    "wandb",
    *(name for names in KNOWN_FILES.values() for name in names),
)
"""Names of what earlier runs may have left in a project: not linked into the folders of trials."""
DATA_NAMES = "data*"
"""Names, as a pattern, of files and folders that are linked though git ignores them."""


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Run the command of `trial` to its end, and yield a report for each row of its metrics.

    `resume` is the folder of the checkpoint to go on from (None: a first attempt). Raises `CommandFailed` where the
    command ended with another status than 0, `ProcessLostError` where others killed it, `OSError` where it could not be
    started. However it ends, nothing of the command is left.
    """
    from contrasweep.commands import dataset

    command: list[str] = trial.config[COMMAND]
    options = placeholders.Options(**trial.config.get(OPTIONS, {}))
    config = {key: value for key, value in trial.config.items() if key not in (COMMAND, OPTIONS)}
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as name:
        scratch = Path(name)
        folder = trial.folder or scratch / "folder"
        checkpoints = scratch / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        checkpoints.mkdir()
        file = scratch / "metrics.jsonl"
        metrics = Metrics(options.metrics, folder, file, checkpoints, resume)
        paths = {"metrics": str(file), "checkpoints": str(checkpoints), "folder": str(folder)}
        if resume is not None:
            paths["resume"] = str(resume)
        # What is the trial's own. Settings and data are written to files in those forms that the command names.
        named = placeholders.fields(command)
        values: MutableConfig = {
            "study": trial.study,
            "arm": trial.arm,
            "fold": trial.fold,
            "seed": trial.seed,
            "trial": trial.id,
            "resume": None,
            **paths,
        }
        if "config" in placeholders.names(command):
            # A program of W&B reads its seed from there, and not from its flag. So the value stands there by the name
            # of the flag before the placeholder, `random_seed` for `--random_seed {seed}`.
            flags = {
                flag.lstrip("-"): values[word[1:-1]]
                for flag, word in itertools.pairwise(command)
                if word in ("{seed}", "{fold}")
            }
            values |= _settings(config, flags, scratch)
        for form, export in {"data": dataset.export, "data:images": dataset.export_images}.items():
            if form in named:
                values[form] = str(export(trial.data, trial.fold, scratch / form))
        home = project_folder(command)
        environment = _environment(trial, config, paths, values, home)
        # A command that is given the trial's folder runs in the project's; any other command in the trial's, with links
        # to the project.
        if "folder" in named:
            runs_in = home
            words = placeholders.filled(command, config, values, options.names)
            links: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        else:
            runs_in = folder
            words = placeholders.filled(command, config, values, options.names, home)
            links = _linked(home, folder, options)
        with links:
            process = Process(words, runs_in, environment)
            try:
                while not process.ended(POLL_S):
                    yield from metrics.reports(process.output())
                # What a command that failed has left is not whole.
                yield from metrics.reports(process.output(), ended=process.returncode == 0)
                process.check()
            finally:
                process.stop()


def _environment(
    trial: Trial, config: Config, paths: Mapping[str, str], values: Config, home: Path
) -> dict[str, str]:
    """Return the environment variables for the trial's command: those of this process, and our own.

    The command finds the programs beside this Python interpreter first, and the modules of the project `home`. `paths`
    is name -> path for the variables such as CONTRASWEEP_METRICS. `values` are the placeholders' values. In
    CONTRASWEEP_TRIAL the data has a `folder` where the command has asked for `{data}` or `{data:images}`.
    """
    programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    modules = filter(None, [str(home), os.environ.get("PYTHONPATH")])
    manifest = trial.data
    data: MutableConfig = {
        "name": manifest.name,
        "digest": manifest.digest,
        "uri": manifest.uri,
        "classes": list(manifest.classes),
    }
    folder = values.get("data", values.get("data:images"))
    if folder:
        data["folder"] = folder
    labels = {name: values[name] for name in ("study", "arm", "fold", "seed")}
    described = {"id": trial.id, **labels, "config": config, "data": data}
    return {
        **os.environ,
        "PATH": os.pathsep.join(programs),
        "PYTHONUNBUFFERED": "1",  # a pattern is looked for in each line as it is printed
        "PYTHONPATH": os.pathsep.join(modules),
        "CONTRASWEEP_TRIAL": json.dumps(described),
        **{f"CONTRASWEEP_{name.upper()}": path for name, path in paths.items()},
    }


@contextlib.contextmanager
def _linked(home: Path, folder: Path, options: placeholders.Options) -> Iterator[None]:
    """Link the files and folders at the top of the project into the trial's `folder`, while the context lasts.

    So the command, which runs in `folder`, finds them by relative paths. Files that earlier runs have left in the
    project are not linked, since no trial may read or write what another has written. They are known by their names
    (`RUN_FILES`), by the metrics that are read from them, or because git ignores them and they are no data. Entries
    that the arm's `code` names are always linked. A warning names the linked files and folders that have changed
    meanwhile.
    """
    names, left_out = _entries(home, folder, options.metrics)
    # Names that begin with a dot or an underscore, as those of caches, are not told.
    hidden = sorted(name for name in left_out if name[0] not in "._")
    if hidden:
        why = "as runs leave such, metrics are read there, or git ignores them; the arm's `code` links what it names"
        print(f"relative paths do not reach {', '.join(hidden)} of the project, {why}", flush=True)
    links = []
    began = time.time()
    for name in [*names, *options.code]:
        link = folder / name
        # An entry that the trial's folder has already, as from an earlier attempt, stays. Nothing is linked outside of
        # that folder.
        if not os.path.lexists(link) and ".." not in link.parts:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(home / name)
            links.append(link)
    try:
        yield
        # What was changed has a newer time than the command's start; Python's own cache changes a folder too.
        present = [link for link in links if link.exists() and not (link / "__pycache__").exists()]
        changed = [link.name for link in present if link.stat().st_mtime > began]
        if changed:
            why = "where the command writes them, trials share them: name them in .gitignore, or write into {folder}"
            log.warning("%s of the project changed as the command ran; %s", ", ".join(changed), why)
    finally:
        for link in links:
            if link.is_symlink():
                link.unlink()


def _entries(home: Path, folder: Path, metrics: Collection[str]) -> tuple[list[str], list[str]]:
    """Return two lists of names at the top of the project: those to link into the trial's `folder`, and others.

    `home` is the project's folder. The others are files and folders that runs have left. `metrics` are the entries of
    the arm's `metrics`: names and patterns of files that metrics are read from.
    """
    # What git ignores is mostly what runs have written; data are an exception.
    ignored = _ignored(home)
    names = []
    left_out = []
    for entry in home.iterdir():
        name = entry.name.lower()
        is_of_runs = any(fnmatch(name, pattern) for pattern in RUN_FILES)
        is_read = any(_is_read(entry, source) for source in metrics)
        is_ignored = entry.name in ignored and not fnmatch(name, DATA_NAMES)
        # What leads out of the project is linked though git ignores it: it is mostly a link to data.
        if is_of_runs or is_read or (is_ignored and entry.resolve().is_relative_to(home)):
            left_out.append(entry.name)
        # The trial's folder may lie in the project.
        elif entry not in folder.parents:
            names.append(entry.name)
    return names, left_out


def _is_read(entry: Path, source: str) -> bool:
    """Return whether the entry `source` of `metrics` names the project's file or folder `entry`, or a file in it."""
    first, *below = Path(source.replace("**/", "")).parts or [""]
    if not fnmatch(entry.name, first):
        return False
    # A folder that is named by a pattern counts only if it has such a file: the pattern may match any folder.
    return first == entry.name or not below or any(entry.glob("/".join(below)))


def _ignored(home: Path) -> set[str]:
    """Return the names of the files and folders that git ignores in a project; empty where there is no git.

    Of an ignored folder the name stands alone, without the files in it.
    """
    try:
        listed = git(
            home, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
        )
    except (OSError, subprocess.SubprocessError):
        return set()
    return {os.fsdecode(name.rstrip(b"/")) for name in listed.split(b"\0")}


def _settings(config: Config, flags: Config, folder: Path) -> dict[str, str]:
    """Write the settings to files in `folder`, one for each form of `{config}`, and return placeholder -> path.

    W&B's form has each value below a key `value`. It has the trial's seed and fold too, in `flags`: flag -> value.
    """
    import yaml

    plain = json.loads(json.dumps(config))  # lists in place of tuples, for YAML
    texts = {
        "config": json.dumps(plain, indent=1),
        "config:yaml": yaml.safe_dump(plain, sort_keys=False),
        "config:wandb": yaml.safe_dump(
            {key: {"value": value} for key, value in (plain | dict(flags)).items()}, sort_keys=False
        ),
    }
    paths = {}
    for form, text in texts.items():
        # config.json, config-yaml.yaml and config-wandb.yaml
        ending = "yaml" if ":" in form else "json"
        path = folder / f"{form.replace(':', '-')}.{ending}"
        path.write_text(text)
        paths[form] = str(path)
    return paths


train.settings = placeholders.CommandSettings  # type: ignore[attr-defined]
