"""Trackers by address: MLflow's store, `tensorboard:FOLDER`, `wandb:FOLDER`, or a class of the user's."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contrasweep.defaults import OF_STUDY, TRACKING
from contrasweep.errors import SpecError, choose_from
from contrasweep.imports import import_from_here, import_path, install_command, is_installed
from contrasweep.secrets import redacted
from contrasweep.storage.names import check_slashes
from contrasweep.tracking.folders import TensorBoardTracker, WandbTracker
from contrasweep.tracking.mlflow.address import TrackingAddress, checked_uri
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.tracker import TrackedStudy, Tracker

Addresses = str | Sequence[str] | None
NONE = "none"
FOLDERS: dict[str, Callable[[str, TrackedStudy], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}
"""Kinds of trackers that write into a folder: `KIND:FOLDER`."""
TRACKERS: dict[str, Callable[..., object]] = {"mlflow": Server, **FOLDERS}
TRACKER_METHODS = ("start", "report", "finish", "close")
"""Methods that a tracker has to have."""


@dataclass(frozen=True)
class Trackers:
    """The checked addresses at which a study is shown.

    `store` is MLflow's address (it may be `none`), and `others` are the addresses of other trackers. `notify` are
    commands that are told of events; they show no trials.
    """

    store: TrackingAddress
    others: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether nothing is tracked; commands may be told of events all the same."""
        return self.store.is_none and not self.others

    def __str__(self) -> str:
        stores = [] if self.store.is_none and self.others else [self.store]
        return ",".join([*stores, *self.others])


def tracking_of(tracking: Addresses, declared: Addresses) -> Addresses:
    """Return the addresses to use: `tracking`, unless that is OF_STUDY, which means what the study has `declared`.

    A study that declares none (None) has the default, MLflow's file `sqlite:///mlflow.db`.
    """
    if tracking != OF_STUDY:
        return tracking
    return TRACKING if declared is None else declared


def checked_tracking(
    tracking: Addresses,
    *,
    notify: Addresses = None,
    connect: bool = True,
) -> Trackers:
    """Return the checked addresses, in a form that holds for any working directory, and the commands of `notify`.

    Args:
        tracking: One or several addresses; one text may hold several with commas. None, "" or `none`: no tracking.
        notify: A command or several; each counts once.
        connect: Whether servers are asked if they are there; False where another machine will use them.

    Raises:
        SpecError: An address cannot be one, or there are two of MLflow.
        StorageError: A store cannot be written, or does not answer.
    """
    stores, others = parted(tracking)
    if len(stores) > 1:
        raise SpecError(
            "one MLflow store at a time", place="tracking", value=[redacted(uri) for uri in stores]
        )
    store = checked_uri(stores[0] if stores else NONE, connect=connect)
    commands = dict.fromkeys([notify] if isinstance(notify, str) else notify or ())
    return Trackers(store, tuple(map(_checked, others)), tuple(commands))


def parted(tracking: Addresses) -> tuple[list[str], list[str]]:
    """Return two lists, in order: MLflow's addresses, and those of other trackers. Nothing is checked.

    A text may hold several addresses with commas between them. The word `none` and empty texts are left out.
    """
    texts = tracking.split(",") if isinstance(tracking, str) else list(tracking or ())
    uris = [text.strip() for text in texts if text.strip() not in ("", NONE)]
    return [uri for uri in uris if _is_mlflow(uri)], [uri for uri in uris if not _is_mlflow(uri)]


def _is_mlflow(uri: str) -> bool:
    """Return whether `uri` is an address of MLflow's, and not `KIND:FOLDER` or `module:Class` of another tracker.

    An address of MLflow's has `://`, or is a path.
    """
    return "://" in uri or ":" not in uri or uri.startswith((".", "/"))


def _checked(uri: str) -> str:
    """Return `uri`, the address of a tracker that is not MLflow's, unchanged; `SpecError` where it cannot work.

    It cannot where its class lacks a method, its folder is missing from the address, or its package is not installed.
    """
    kind, _, folder = uri.partition(":")
    if kind not in FOLDERS:
        _check_class(uri)
    elif not folder:
        raise SpecError(
            "this tracker needs a folder",
            place="tracking",
            value=uri,
            hint=f"for example {kind}:./runs",
        )
    elif kind == "wandb" and not is_installed(kind):
        raise SpecError(
            "the package wandb is not installed",
            place="tracking",
            value=uri,
            hint=install_command(kind),
        )
    return uri


def _check_class(uri: str) -> None:
    """Import the class of a tracker at `module:Class`, without making an object of it.

    Raises `SpecError` where it lacks a method of `TRACKER_METHODS`, or is not built of a study.
    """
    check_slashes(uri, "tracking")
    import_from_here()
    target = import_path(uri, "tracking", "tracker")
    for name in TRACKER_METHODS:
        if not callable(getattr(target, name, None)):
            kind = uri.partition(":")[0]
            raise SpecError(
                f"a tracker has the calls {', '.join(TRACKER_METHODS)}",
                place="tracking",
                value=uri,
                hint=f"it has no {name}; {choose_from('kinds', list(TRACKERS), kind)}",
            )
    try:
        inspect.signature(target).bind("study")
    except TypeError as error:
        hint = f"{error}; it is built as Class(study), a contrasweep.tracking.TrackedStudy"
        raise SpecError(
            "a tracker takes the study", place="tracking", value=uri, hint=hint
        ) from None
