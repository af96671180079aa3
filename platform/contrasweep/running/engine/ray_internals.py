"""Every use of what Ray does not promise: its private modules and attributes, and the words of its errors.

Each use has a reason and a guard. As a run starts, `lacking` names the features whose private names this release of Ray
does not have, and the run goes on without them. No other module touches the names below.
"""

import contextlib
import operator
import pkgutil
import re
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.tune.experiment import Trial as TuneTrial

HOST_LOST = re.compile(r"its node has died|actor is temporarily unavailable")
"""Ray's words for an actor that was lost with its host: the host has given no sign for a while, or the connection broke
and within a second no host said that the process had ended."""
FAILURE = re.compile(r"^Failure # \d+ .*\n", re.MULTILINE)
"""The line before each traceback in the file of a trial's errors."""
RAISED = re.compile(r"(\x1b\[\d+m)?ray::")
"""The beginning of the traceback of an error that a living worker raised."""
NEVER_RAN = "The actor never ran"
"""Ray's words for an actor whose process never began."""
SLOW_START = re.compile("timed out during startup|Timed out waiting for file .*gcs_server_port")
"""Ray's words when its processes took longer to start than Ray waits."""
GCS_WAIT = "RAY_gcs_server_port_wait_time_s"
"""The environment variable with the seconds that Ray waits for its GCS. No other thread runs in this time."""


@dataclass(frozen=True)
class Feature:
    """The private names of Ray that a feature needs, and the consequence, in words, where Ray lacks one of them."""

    names: tuple[str, ...]
    without: str


_CONTROLLER = "ray.tune.execution.tune_controller.TuneController"
_CACHE = "ray.tune.execution.class_cache"
_NODE = "ray._private.worker.global_worker.node"
CALLBACKS = Feature(
    ("ray.air._internal.usage.tag_callbacks",), "a run starts seconds later, as Ray imports MLflow"
)
CREDENTIALS = Feature(
    (f"{_CACHE}.ENV_VARS_TO_PROPAGATE", f"{_CACHE}.TRAIN_ENV_VARS_TO_PROPAGATE"),
    "Ray writes AWS keys of this process's environment to its logs",
)
PREEMPTED = Feature(
    ("ray.exceptions.RayActorError.preempted",),
    "a host that is lost counts as a failure of its trials",
)
REFUSED = Feature(
    tuple(
        f"{_CONTROLLER}.{name}"
        for name in ("_on_trial_reset", "_remove_actor", "_schedule_trial_actor")
    ),
    "a trial whose worker's process cannot take it ends as failed",
)
PENDING = Feature(
    tuple(
        f"{_CONTROLLER}.{name}" for name in ("_set_trial_status", "_unstage_trial_with_resources")
    ),
    "trials that wait keep the places that they got first",
)
LOCATION = Feature(
    ("ray.tune.experiment.Trial.set_ray_actor",),
    "each worker is asked for its host as it begins a trial, in vain",
)
_MANAGER = "ray.air.execution.resources.placement_group.PlacementGroupResourceManager"
PLACES = Feature(
    (f"{_MANAGER}.request_resources", f"{_MANAGER}.cancel_resource_request"),
    "for each trial a placement group is made that nobody uses",
)
REGISTRY = Feature(
    ("ray.tune.registry._global_registry.contains", "ray.tune.registry._global_registry.get"),
    "the driver reads its trainable from Ray's GCS several times a trial",
)
SIGTERM = Feature(
    ("ray._private.utils.set_sigterm_handler",),
    "SIGTERM while Ray starts may end this process without its line",
)
AUTHENTICATION = Feature(
    ("ray._raylet.Config.initialize", "ray._raylet.AuthenticationTokenLoader.instance"),
    "after a run on a Ray of its own, this process may start no actor on a cluster that asks for no token",
)
PROCESSES = Feature(
    (f"{_NODE}.all_processes", f"{_NODE}.raylet_socket_name"),
    "the death of Ray itself is seen after a minute, by Ray",
)
ACTORS = Feature(("ray._private.state.actors",), "of a silent trial no stack is kept")
FEATURES = (
    CALLBACKS,
    CREDENTIALS,
    PREEMPTED,
    REFUSED,
    PENDING,
    LOCATION,
    PLACES,
    REGISTRY,
    SIGTERM,
    AUTHENTICATION,
    PROCESSES,
    ACTORS,
)
TRIAL_NAMES = (
    "run_metadata.num_failures",
    "run_metadata.metric_analysis",
    "run_metadata.metric_n_steps",
    "run_metadata.last_result",
    "temporary_state.ray_actor",
    "_default_result_or_future",
)
"""Attributes of Tune's trial object."""


def lacking() -> Iterator[str]:
    """Yield a line for each feature that is off because Ray lacks its names. Ray must be connected."""
    for feature in FEATURES:
        missing = [name for name in feature.names if not _has(name)]
        if missing:
            yield f"Ray {ray.__version__} has no {missing[0]}: {feature.without}"
    # The class has no attributes of an instance, so a trial is made and looked at.
    trial = TuneTrial("none", stub=True)
    for name in TRIAL_NAMES:
        try:
            operator.attrgetter(name)(trial)
        except AttributeError:
            yield f"Ray {ray.__version__} has no {name} of a trial: retries are counted by Ray alone, memory is kept"
            return


_managers: weakref.WeakSet[Any] = weakref.WeakSet()  # those of Tune that have requested groups


def adapt(say: Callable[[str], object]) -> Callable[[], None]:
    """Change Ray Tune's treatment of workers, hosts and credentials for a run.

    Return a function to call in each turn of Tune's loop, which removes unused placement groups (`keep_places`). `say`
    receives the lines of `lacking`.
    """
    for line in lacking():
        say(line)
    leave_callbacks_alone()
    forgive_lost_hosts()
    replace_refusing_workers(say)
    keep_credentials()
    ask_no_location()
    return keep_places()


def leave_callbacks_alone() -> None:
    """Keep Ray from counting callbacks for its usage statistics, which would import MLflow and take seconds."""
    if _has_all(CALLBACKS):
        _object_at("ray.air._internal.usage").tag_callbacks = lambda callbacks: False


def keep_credentials() -> None:
    """Keep Tune from copying this process's AWS keys to its actors: Ray would write them to readable logs."""
    if _has_all(CREDENTIALS):
        cache = _object_at(_CACHE)
        cache.ENV_VARS_TO_PROPAGATE = cache.TRAIN_ENV_VARS_TO_PROPAGATE


def forgive_lost_hosts() -> None:
    """Keep Tune from counting the loss of a host as a failure. Ray itself does so only for an announced loss."""
    if _has_all(PREEMPTED):
        ray.exceptions.RayActorError.preempted = property(
            lambda error: (
                getattr(error, "_preempted", False) or HOST_LOST.search(str(error)) is not None
            )
        )


def replace_refusing_workers(say: Callable[[str], object]) -> None:
    """Make Tune replace a worker that answers `TuneTrial.reset` with a text, because it cannot take the next trial.

    The worker is stopped, and the trial waits for a new one. Tune alone would end the trial. `say` receives each text
    once.
    """
    if not _has_all(REFUSED):
        return
    controllers = _object_at(_CONTROLLER)
    told_texts = set[str]()
    # Tune's own method, also where an earlier run of this process has replaced it.
    plain = getattr(controllers._on_trial_reset, "plain", controllers._on_trial_reset)

    def on_trial_reset(controller: Any, trial: Any, answer: bool | str) -> None:
        """Do as Tune does, but for an answer that is a text: drop the worker, and queue its trial for another one."""
        if not isinstance(answer, str):
            plain(controller, trial, answer)
            return
        if answer not in told_texts:
            told_texts.add(answer)
            say(answer)
        # Tune's own steps: unlink the trial and its actor, stop the actor, and request a new one for the trial.
        controller._resetting_trials.remove(trial)
        actor = controller._trial_to_actor.pop(trial)
        del controller._actor_to_trial[actor]
        trial.set_ray_actor(None)
        controller._remove_actor(actor)
        controller._schedule_trial_actor(trial)

    on_trial_reset.plain = plain  # type: ignore[attr-defined]
    controllers._on_trial_reset = on_trial_reset


def ask_no_location() -> None:
    """Keep Tune from asking each worker for its host, because nobody reads the answer: a call less for each trial."""
    if _has_all(LOCATION):
        TuneTrial.set_ray_actor = lambda trial, actor: setattr(
            trial.temporary_state, "ray_actor", actor
        )


def keep_places() -> Callable[[], None]:
    """Keep the placement group that Tune has requested for a trial and does not need, for the next trial.

    Tune requests a group for each trial, and gives it up where the trial takes over another's worker. The next request
    for the same resources is now served by such a group, where Tune alone would remove it and make another.

    Returns a function to be called in each turn of Tune's loop: it removes the groups that were given up a turn ago and
    not requested since.
    """
    if not _has_all(PLACES):
        return lambda: None
    managers = _object_at(_MANAGER)
    # Groups that Tune has given up in this turn of its loop, and in the turn before, as (manager, request).
    given_up_now = list[tuple[Any, Any]]()
    given_up_before = list[tuple[Any, Any]]()
    # Tune's own methods, also where an earlier run of this process has replaced them.
    request = getattr(managers.request_resources, "plain", managers.request_resources)
    cancel = getattr(managers.cancel_resource_request, "plain", managers.cancel_resource_request)

    def request_resources(manager: Any, resource_request: Any) -> None:
        """Take a group of an equal request that was given up; request a new one if there is none."""
        _managers.add(manager)
        for given_up in (given_up_before, given_up_now):
            if (manager, resource_request) in given_up:
                given_up.remove((manager, resource_request))
                return
        request(manager, resource_request)

    def cancel_resource_request(manager: Any, resource_request: Any) -> None:
        """Keep the group, for `request_resources` or `remove_unused`."""
        given_up_now.append((manager, resource_request))

    def remove_unused() -> None:
        """Remove the groups that were given up a turn ago and not asked for since."""
        while given_up_before:
            cancel(*given_up_before.pop())
        given_up_before.extend(given_up_now)
        given_up_now.clear()

    request_resources.plain = request  # type: ignore[attr-defined]
    cancel_resource_request.plain = cancel  # type: ignore[attr-defined]
    managers.request_resources = request_resources
    managers.cancel_resource_request = cancel_resource_request
    return remove_unused


def give_back_places() -> None:
    """Remove the placement groups of runs that were interrupted, and with them the workers there.

    Tune leaves them to the garbage collector, so that the next run on a Ray that stays would wait for their cores.
    """
    for manager in list(_managers):
        manager.clear()


@contextlib.contextmanager
def registry_read_once() -> Iterator[None]:
    """Make Tune read each trainable from the GCS once, and not for every trial, within the `with` block."""
    if not _has_all(REGISTRY):
        yield
        return
    registry = _object_at("ray.tune.registry._global_registry")
    cached = dict[tuple[str, str], Any]()
    read = registry.get
    register = registry.register

    def get(category: str, key: str) -> Any:
        """Return an entry of the registry, which is read from the GCS once."""
        if (category, key) not in cached:
            cached[category, key] = read(category, key)
        return cached[category, key]

    def register_anew(category: str, key: str, value: Any) -> None:
        """Set an entry of the registry, which is then read again."""
        cached.pop((category, key), None)
        register(category, key, value)

    contains = registry.contains
    replacements = {
        "get": get,
        "register": register_anew,
        "contains": lambda category, key: (category, key) in cached or contains(category, key),
    }
    # Attributes of the object hide the methods of its class, until they are deleted.
    vars(registry).update(replacements)
    try:
        yield
    finally:
        for name in replacements:
            del vars(registry)[name]


def waiting_for_resources(controller: Any) -> list[Any]:
    """Return Tune's trials whose actors wait for resources, in the order in which they were handed out.

    `controller` is the controller that Tune passes to a scheduler. [] where this Ray lacks the names.
    """
    tune = getattr(controller, "_tune_controller", None)
    if tune is None or not _has_all(PENDING):
        return []
    pending = set(tune._actor_manager.pending_actors)
    waiting = [trial for trial, actor in tune._trial_to_actor.items() if actor in pending]
    # A trial that takes over another's actor does not wait for resources.
    return [
        trial
        for trial in waiting
        if trial.status == TuneTrial.PENDING and trial not in tune._resetting_trials
    ]


def request_again(controller: Any, trial: Any, resources: Any) -> None:
    """Let Tune request the bundles `resources` for a trial of `waiting_for_resources`, in place of its earlier ones."""
    tune = controller._tune_controller
    # The trial's actor, which has not begun, is given up with its request.
    actor = tune._trial_to_actor.pop(trial)
    del tune._actor_to_trial[actor]
    tune._remove_actor(actor)
    if trial in tune._staged_trials:
        tune._unstage_trial_with_resources(trial)
    # Tune keeps pending trials sorted by their resources, so the trial is not pending while these change.
    tune._set_trial_status(trial, TuneTrial.PAUSED)
    trial.update_resources(resources)
    tune._set_trial_status(trial, TuneTrial.PENDING)


@contextlib.contextmanager
def no_sigterm_handler() -> Iterator[None]:
    """Keep Ray from setting its handler of SIGTERM as it starts, within the `with` block; no public setting does this.

    Ray's handler raises SystemExit, which no caller expects. At the end of the block the earlier handler is set again,
    in case this Ray sets its handler by a function of another name.
    """
    with contextlib.ExitStack() as undo:
        before = signal.getsignal(signal.SIGTERM)
        if before is not None and threading.current_thread() is threading.main_thread():
            undo.callback(signal.signal, signal.SIGTERM, before)
        if _has_all(SIGTERM):
            utils = _object_at("ray._private.utils")
            undo.callback(setattr, utils, "set_sigterm_handler", utils.set_sigterm_handler)
            utils.set_sigterm_handler = bool  # does nothing
        yield


def forget_authentication() -> None:
    """Make Ray read its way of authentication again; Ray caches the first reading."""
    if _has_all(AUTHENTICATION):
        _object_at("ray._raylet.Config").initialize("")
        _object_at("ray._raylet.AuthenticationTokenLoader").instance().reset_cache()


def own_processes() -> tuple[dict[str, subprocess.Popen[bytes]], str] | None:
    """Return the processes of Ray that this process has started, by kind, and the path of the raylet's socket.

    Kinds are such as `raylet` and `gcs_server`. None where this Ray lacks the names.
    """
    if not _has_all(PROCESSES):
        return None
    node = _object_at(_NODE)
    return {
        kind: entries[0].process for kind, entries in node.all_processes.items() if entries
    }, node.raylet_socket_name


def place_of(actor: Any) -> tuple[int, str] | None:
    """Return the process id of an actor and the id of its node; None where this Ray lacks the names."""
    if not _has_all(ACTORS):
        return None
    entry = _object_at("ray._private.state.actors")(actor._actor_id.hex())
    return int(entry["Pid"]), entry["Address"]["NodeID"]


def call_actor(actor: Any) -> None:
    """Send an actor a call that does nothing. Nobody waits for its answer."""
    with contextlib.suppress(AttributeError):
        actor.__ray_ready__.remote()


def forgive(trial: Any) -> None:
    """Reset Tune's count of a trial's failures, because the trial has made progress."""
    with contextlib.suppress(AttributeError):
        trial.run_metadata.num_failures = 0


def give_up_next(trial: Any) -> None:
    """Make the next failure of a Tune trial its last one."""
    with contextlib.suppress(AttributeError):
        trial.run_metadata.num_failures = trial.max_failures + 1


def actor_of(trial: Any) -> Any:
    """Return the actor of a Tune trial; None where it has none."""
    return getattr(getattr(trial, "temporary_state", None), "ray_actor", None)


def forget(trial: Any) -> None:
    """Free the memory that Tune holds for a trial that has ended.

    Tune keeps every trial to the end of a run, with statistics of its results and the answer of the worker's first
    call. The answer holds 25 kB in Ray. Nothing needs either. Where this Ray has other attributes, the memory is not
    freed.
    """
    with contextlib.suppress(AttributeError):
        metadata = trial.run_metadata
        metadata.metric_analysis = {}
        metadata.metric_n_steps = {}
        metadata.last_result = {"done": True}
        trial._default_result_or_future = None
        trial.evaluated_params = {}
        trial.experiment_tag = ""


def _has_all(feature: Feature) -> bool:
    """Return whether this Ray has all names of a feature."""
    return all(_has(name) for name in feature.names)


def _has(name: str) -> bool:
    """Return whether this Ray has an object at a dotted name."""
    try:
        _object_at(name)
    except (ImportError, AttributeError):
        return False
    return True


def _object_at(name: str) -> Any:
    """Return the object at a dotted name of Ray; `ImportError` or `AttributeError` where there is none."""
    return pkgutil.resolve_name(name)
