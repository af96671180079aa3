"""Hosts of cohorts as named Ray actors: one for each run, node, GPU, cohort key and number.

A member finds a host by its name, and starts one where no host has a free slot.
"""

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from contrasweep.cluster.guard import guard
from contrasweep.errors import ProcessLostError
from contrasweep.processes import sweep_scratch
from contrasweep.running.run_context import RunContext, TrialDescription
from contrasweep.running.stacks import answer_signal
from contrasweep.running.worker.orphans import guard_children
from contrasweep.trainables.fusing.host.host import Answer, CohortHost
from contrasweep.trainables.fusing.host.messages import Message
from contrasweep.trainables.fusing.place import cohort_place
from contrasweep.trainables.fusing.protocol import Cohort, cohorts_of
from contrasweep.trial import Trial

ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""What a host takes over from its first member: its part of the machine."""
NAMESPACE = "contrasweep"
MAX_HOSTS = 1024
"""Hosts of one cohort key on one GPU, or on the cores of one node, that a member asks for a slot."""
MAX_LOST, PAUSE_S = 60, 0.5
"""How often a member meets a host that ends just now before it gives up, and how long it waits after each."""


class HostActor:
    """A `CohortHost` as a Ray actor of several threads."""

    def __init__(self, context: RunContext, described: TrialDescription, environment: Mapping[str, str | None]) -> None:
        for name, value in environment.items():  # before anything imports torch
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        answer_signal()
        guard_children()
        sweep_scratch()
        self.context, self.cohort = context, cohort_place(described)
        me = ray.get_runtime_context().current_actor
        share = self.cohort.gpu_share
        self.host = CohortHost(
            self._open,
            self.cohort.slots,
            in_step=context.chunk_s == 0,
            on_idle=lambda: ray.kill(me),
            limits=lambda: guard(gpu_share=share if 0 < share <= 1 else None),
        )

    def attach(self, described: TrialDescription, resume: str | None, pid: int, folder: str) -> tuple[Answer, str]:
        """See `CohortHost.attach`; with it the name of the engine."""
        answer = self.host.attach(self.context.trial(described), Path(resume) if resume else None, pid, Path(folder))
        return answer, self.host.engine

    def take(self, token: int, wait_s: float) -> list[Message]:
        """See `CohortHost.take`."""
        return self.host.take(token, wait_s)

    def detach(self, token: int) -> None:
        """See `CohortHost.detach`."""
        self.host.detach(token)

    def _open(self, trial: Trial) -> Cohort:
        function = self.context.function(trial.trainable)
        return cohorts_of(function).open(trial, self.cohort.slots, self.cohort.engine)


class HostConnection:
    """A member's place in a host; `engine` is the host's."""

    def __init__(self, context: RunContext, described: TrialDescription, resume: Path | None, folder: Path) -> None:
        """Attach the trial that `described` describes to a host on this node.

        The host copies the files of the trial's reports into `folder`. Raises `ProcessLostError` where none takes it.
        """
        self.context, self.described = context, described
        arguments = (described, None if resume is None else str(resume), os.getpid(), str(folder))
        number = lost = 0
        while number < MAX_HOSTS and lost < MAX_LOST:
            actor = self._host(number)
            try:
                answer, self.engine = ray.get(actor.attach.remote(*arguments))
            except ray.exceptions.RayActorError:
                lost += 1
                time.sleep(PAUSE_S)
                continue
            if isinstance(answer, Message):
                answer.raise_failure()
            if isinstance(answer, int):
                self.actor, self.token = actor, answer
                return
            number += 1  # it is full
        raise ProcessLostError("no host of its cohort took the trial")

    def take(self, wait_s: float) -> list[Message]:
        """Return the trial's next events; `ProcessLostError` where the host has died."""
        try:
            messages: list[Message] = ray.get(self.actor.take.remote(self.token, wait_s))
            return messages
        except ray.exceptions.RayActorError as error:
            raise ProcessLostError(f"the host of its cohort died ({str(error).splitlines()[0]})") from None

    def detach(self) -> None:
        """Leave the cohort without waiting."""
        self.actor.detach.remote(self.token)

    def _host(self, number: int) -> Any:
        name = self._name(number)
        try:
            return ray.get_actor(name, NAMESPACE)
        except ValueError:  # there is none of this name
            pass
        slots = cohort_place(self.described).slots
        node = ray.get_runtime_context().get_node_id()
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "get_if_exists": True,
            "lifetime": "detached",  # it outlives the member that started it
            "num_cpus": 0,
            "max_concurrency": 2 * slots + 8,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }
        environment = {name: os.environ.get(name) for name in ENVIRONMENT}
        return ray.remote(HostActor).options(**options).remote(self.context, self.described, environment)

    def _name(self, number: int) -> str:
        cohort = cohort_place(self.described)
        node = ray.get_runtime_context().get_node_id()
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES") if cohort.gpu_share else None
        return f"{prefix(self.context)}{node[:16]}-{gpu or 'cpu'}-{cohort.key}-{cohort.slots}-{number}"


def prefix(context: RunContext) -> str:
    """Return the prefix of the names of a run's host actors."""
    return f"contrasweep-cohort-{context.run}-"


def end_hosts(context: RunContext) -> None:
    """End the hosts of a run that has ended; without Ray they have ended already."""

    def end() -> None:
        with contextlib.suppress(Exception):
            for actor in ray.util.list_named_actors(all_namespaces=True):
                if actor["namespace"] == NAMESPACE and actor["name"].startswith(prefix(context)):
                    with contextlib.suppress(ValueError):
                        ray.kill(ray.get_actor(actor["name"], NAMESPACE))

    ending = threading.Thread(target=end, name="end-cohorts", daemon=True)  # a Ray that has died answers nothing
    ending.start()
    ending.join(timeout=5.0)
