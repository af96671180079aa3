"""Submission of a study as a job on a cluster, with the files that the job needs."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from contrasweep.cluster import package, submission
from contrasweep.cluster.inventory import read_inventory
from contrasweep.cluster.jobs import Job
from contrasweep.code.version import versions
from contrasweep.config import Config
from contrasweep.defaults import OF_STUDY
from contrasweep.errors import PackageMissingError, SpecError, StorageError
from contrasweep.planning.planner import plan
from contrasweep.running import probe
from contrasweep.running.declaration import who
from contrasweep.running.prepare import Changed, check_plan, run_flags
from contrasweep.running.study_code import write_submitted
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.study.file import as_study, load_study, to_plain
from contrasweep.study.sweep import Study
from contrasweep.study.trainables import paths_without_pytorch
from contrasweep.tracking.kinds import FOLDERS, checked_tracking, tracking_of

STUDY_FILE = "submitted-study.yaml"
HOSTS_FILE = "submitted-hosts.yaml"
CODE_FILE = "submitted-code.json"
"""The files that a job gets beside the user's code: study, inventory, and digests of the code."""


def submit(
    study: Study | str | Path | Config,
    *,
    address: str,
    storage: str,
    tracking: str | Sequence[str] | None = OF_STUDY,
    sets: Sequence[str] = (),
    max_concurrent: int | None = None,
    extend: bool = False,
    spend: bool = False,
    retry_failed: bool = False,
    rerun: Sequence[str] = (),
    changed: Changed = "stop",
    cluster: Path | None = None,
    working_dir: Path | None = None,
) -> Job:
    """Send a study to a Ray cluster as a job, with the code in `working_dir`.

    The job gets a file with the resolved fields of the study, so that it runs the study as it was read here. If its
    code is not the code here, it stops before it spends anything.

    Before anything is queued, the study is checked, with its datasets and its name in `storage`. So are the dashboard's
    address, Ray's token, and the versions of Ray here and there. The cluster must reach `storage` and `tracking`, and
    must not be running the study already.

    Args:
        study: The study, its name (`module:NAME`), a YAML file, or a mapping of its fields.
        address: The cluster's Ray dashboard, `http://HEAD:8265`.
        storage: `s3://bucket/prefix`, or a folder that the cluster reaches.
        tracking: As for `run`; a server needs to be reached from the cluster alone.
        sets: Changes of fields, `"path=value"` each, of a study that is named or a file.
        max_concurrent: Trials at once, at most.
        extend: Keep the trials of another plan of this name and add to them.
        spend: Count arms that are added as a look.
        retry_failed: Run failed trials again.
        rerun: Arms, cells (`ARM/axis=value`) or trials that run again.
        changed: What is done with trials of other code: "stop", "rerun" or "accept".
        cluster: Inventory file of the hosts that the cluster has or can start.
        working_dir: The folder whose code is sent; default: the current one.

    Returns:
        The job, which belongs to the cluster now.

    Raises:
        ContrasweepError: The study is wrong.
        SubmissionError: The cluster does not answer or refuses (`contrasweep.cluster.errors`).

    Example:
        >>> cs.submit(study, address="http://127.0.0.1:1", storage="./contrasweep-runs")
        Traceback (most recent call last):
        ...
        contrasweep.cluster.errors.SubmissionError: no Ray dashboard answers at http://127.0.0.1:1 ...
    """
    declared = load_study(str(study), sets) if isinstance(study, str | Path) else as_study(study)
    # The address is made absolute, because the job has another working directory.
    storage = open_store(storage).uri
    # The storage may be out of this machine's reach. The submission asks the cluster whether it reaches the storage. A
    # dataset that comes with the package is staged by the job.
    try:
        planned = plan(declared, storage=storage)
        if not paths_without_pytorch(declared):
            check_plan(planned, StudyRecords(storage, declared.name), extend=extend, spend=spend)
    except (StorageError, PackageMissingError) as error:
        print(f"the job alone checks the study's data and name: {error}", file=sys.stderr)
    # Only the cluster must reach the tracking server. Everybody may read the command of a job, so an address with a
    # password is refused.
    addresses = tracking_of(tracking, declared.tracking)
    trackers = checked_tracking(addresses, connect=False)
    # purpose -> address or folder that the cluster must reach
    uris = {"storage": storage}
    if not trackers.store.is_none:
        uris["tracking"] = trackers.store
    # Other trackers are `KIND:FOLDER` if they write into a folder, else the dotted path of the user's class.
    parts = (tracker.partition(":") for tracker in trackers.others)
    uris |= {f"tracking {kind}": folder for kind, _, folder in parts if kind in FOLDERS}
    # The job's command, which finds its files beside the sent code.
    words = [
        "python",
        "-m",
        "contrasweep",
        "run",
        STUDY_FILE,
        "--storage",
        storage,
        "--tracking",
        str(trackers),
    ]
    options = {"extend": extend, "spend": spend, "retry_failed": retry_failed, "rerun": rerun}
    words += ["--submitted-code", CODE_FILE, *run_flags(changed, max_concurrent, options)]
    words += ["--cluster", HOSTS_FILE] if cluster else []
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        return submission.submit(
            words,
            address=address,
            working_dir=Path(working_dir or Path.cwd()),
            uris=uris,
            probe=Path(probe.__file__),
            name=declared.name,
            files=_write_job_files(declared, cluster, Path(folder)),
            metadata={"commit": versions().get("commit", ""), "by": who()},
        )


def files_to_send(
    study: str, *, sets: Sequence[str] = (), cluster: Path | None = None
) -> Mapping[str, int]:
    """Return path -> bytes of each file that `submit` would send from the current folder.

    `sets` are changes of fields, `cluster` an inventory file, as `submit` takes them. Nothing is sent.
    """
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        files = package.contents(
            Path.cwd(), _write_job_files(load_study(study, sets), cluster, Path(folder))
        )
        return {name: path.stat().st_size for name, path in files.items()}


def _write_job_files(study: Study, cluster: Path | None, folder: Path) -> dict[str, Path]:
    """Write into `folder` the files that a job needs beside the user's code; return them by their names in the job.

    They are the resolved study, the digests of its code, and the inventory file `cluster`, if there is one. Raises
    `SpecError` for a trainable that is a function, since the file of a study names trainables.
    """
    if study.functions:
        path = next(iter(study.functions))
        raise SpecError(
            "a job reads its study from a file, which names a trainable by its path",
            place="trainable",
            value=path,
            hint=f'trainable="{path}", of a module that the job has too',
        )
    (folder / STUDY_FILE).write_text(yaml.safe_dump(to_plain(study), sort_keys=False))
    write_submitted(study, folder / CODE_FILE)
    files = {name: folder / name for name in (STUDY_FILE, CODE_FILE)}
    if cluster is not None:
        read_inventory(cluster)  # raises for a broken file, before anything is sent
        files[HOSTS_FILE] = cluster
    return files
