"""Every use of what Ray does not promise: its private modules and attributes, and the words of its errors.

`pyproject.toml` allows one minor release of Ray, whose names these are; the long tests run each of them before it
allows another. No other module touches the names below.
"""

import contextlib
import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray import _raylet
from ray._private import state, utils
from ray.air._internal import usage
from ray.air.execution import PlacementGroupResourceManager
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as TuneTrial

_on_trial_reset = TuneController._on_trial_reset
"""Tune's own method, also where a run of this process has replaced it."""
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


def adapt(say: Callable[[str], object]) -> None:
    """Change Ray Tune for a run, by the functions below and two more settings.

    A lost host is then no failure of its trial, and a worker that cannot take the next trial is replaced. Tune does not
    copy AWS keys to workers, where logs would show them, and does not import MLflow for its statistics. `say` receives
    lines for the user.
    """
    # Ray counts callbacks for its usage statistics, which would import MLflow and take seconds.
    usage.tag_callbacks = lambda callbacks: False
    # Tune copies this process's AWS keys to its actors: Ray would write them to readable logs.
    class_cache.ENV_VARS_TO_PROPAGATE = class_cache.TRAIN_ENV_VARS_TO_PROPAGATE
    forgive_lost_hosts()
    replace_refusing_workers(say)


def forgive_lost_hosts() -> None:
    """Make Tune not count the loss of a host as a failure of the trial.

    Ray itself leaves out only losses that the cluster has announced (preemption).
    """
    ray.exceptions.RayActorError.preempted = property(
        lambda error: error._preempted or HOST_LOST.search(str(error)) is not None
    )


def replace_refusing_workers(say: Callable[[str], object]) -> None:
    """Make Tune replace a worker whose `TuneTrial.reset` returns a text: the reason why it cannot take the next trial.

    Tune stops the worker, and the trial waits for a new one. Without this change, Tune would end the trial. `say`
    receives each different text once.
    """
    told_texts = set[str]()

    def on_trial_reset(controller: Any, trial: Any, answer: bool | str) -> None:
        """Do as Tune does, but for an answer that is a text: drop the worker, and queue its trial for another one."""
        if not isinstance(answer, str):
            _on_trial_reset(controller, trial, answer)
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

    TuneController._on_trial_reset = on_trial_reset


def give_back_places() -> None:
    """Remove the placement groups that interrupted runs have left in Ray, and the workers in them.

    Tune leaves this to the garbage collector. Where Ray stays connected, the next run would wait for their cores.
    """
    for kept in gc.get_objects():
        if type(kept) is PlacementGroupResourceManager:
            kept.clear()


def waiting_for_resources(controller: Any) -> list[Any]:
    """Return Tune's trials whose actors wait for resources, in the order in which they were handed out.

    `controller` is the controller that Tune passes to a scheduler.
    """
    tune = controller._tune_controller
    pending = set(tune._actor_manager.pending_actors)
    # A trial that takes over another's actor does not wait for resources.
    return [
        trial
        for trial, actor in tune._trial_to_actor.items()
        if actor in pending
        and trial.status == TuneTrial.PENDING
        and trial not in tune._resetting_trials
    ]


def request_again(controller: Any, trial: Any, resources: Any) -> None:
    """Make Tune ask Ray for the resources `resources` for a waiting trial, in place of those that it asked for before.

    `trial` is one of `waiting_for_resources`.
    """
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

    Ray's handler raises SystemExit, which no caller expects.
    """
    plain = utils.set_sigterm_handler
    utils.set_sigterm_handler = bool  # does nothing
    try:
        yield
    finally:
        utils.set_sigterm_handler = plain


def forget_authentication() -> None:
    """Make Ray read anew how it must authenticate; otherwise it keeps what it has read first."""
    raylet: Any = _raylet  # compiled, without types
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def place_of(actor: Any) -> tuple[int, str]:
    """Return the id of an actor's process, and the hexadecimal id of the node of Ray on which it runs."""
    entry = state.actors(actor._actor_id.hex())
    return int(entry["Pid"]), entry["Address"]["NodeID"]


def call_actor(actor: Any) -> None:
    """Send an actor a call that does nothing. Nobody waits for its answer."""
    actor.__ray_ready__.remote()


def forgive(trial: Any) -> None:
    """Reset Tune's count of a trial's failures, because the trial has made progress."""
    trial.run_metadata.num_failures = 0


def give_up_next(trial: Any) -> None:
    """Make the next failure of a Tune trial its last one."""
    trial.run_metadata.num_failures = trial.max_failures + 1


def actor_of(trial: Any) -> Any:
    """Return the actor of a Tune trial; None where it has none."""
    return trial.temporary_state.ray_actor


def forget(trial: Any) -> None:
    """Free the memory that Tune holds for a trial that has ended.

    Tune keeps every trial to the end of a run, with statistics of its results and the answer of the worker's first
    call. The answer holds 25 kB in Ray. Nothing needs either.
    """
    metadata = trial.run_metadata
    metadata.metric_analysis = {}
    metadata.metric_n_steps = {}
    metadata.last_result = {"done": True}
    trial._default_result_or_future = None
    trial.evaluated_params = {}
    trial.experiment_tag = ""
