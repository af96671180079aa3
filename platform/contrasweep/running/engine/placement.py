"""The place of each trial: its footprint packed on the cluster's hosts, with more memory after it ran out of it."""

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from ray.tune import PlacementGroupFactory

from contrasweep.cluster import out_of_memory
from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.packing import Placement, slots_on
from contrasweep.planning.footprints import Cell, Footprints, cell_of
from contrasweep.planning.learned import peak_of
from contrasweep.running.run_context import PlaceDescription, TrialDescription
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial


class Placements:
    """Gives each trial its place when it is handed out, by what is known of its cell by then.

    A trial goes to the smallest type of GPU that fits it while there is room on that type, and where all are full to
    the type that has the least waiting. Trials end `infeasible` that fit no host, or ran out of memory on the largest.
    """

    def __init__(self, footprints: Footprints) -> None:
        self.footprints = footprints
        self.inventory = footprints.inventory
        # by trial id, from its handing out to its record
        self.placed: dict[str, tuple[Trial, Placement]] = {}
        # (arm, cell) -> the largest place that a trial of it was given after it ran out of memory
        self.raised: dict[tuple[str, Cell], Placement] = {}
        # ids of trials that ran out of memory where no host has more
        self.infeasible: set[str] = set()
        self.outdated = False  # whether more is known since trials were placed

    def fits(self, trial: Trial) -> bool:
        """Return whether some host can hold `trial`."""
        return trial.id in self.placed or bool(self.footprints.options(trial))

    def grow(self, inventory: Inventory) -> None:
        """Place on these hosts from now on."""
        self.footprints.grow(inventory)
        self.inventory = inventory
        self.outdated = True

    def place(self, trial: Trial) -> Placement:
        """Return the place of `trial`, which is the same until the trial has ended or ran out of memory."""
        if trial.id not in self.placed:
            self.placed[trial.id] = trial, self._choose(trial)
        return self.placed[trial.id][1]

    def place_again(self, waiting: Iterable[Trial]) -> list[Trial]:
        """Place trials that wait for their place by what is known by now, in their order.

        Return those for which Ray is to be asked for something else than before. A trial that fits no host any more
        keeps its place.
        """
        self.outdated = False
        fitting = [trial for trial in waiting if self.footprints.options(trial)]
        before = {trial.id: self.described(trial) for trial in fitting}
        for trial in fitting:
            del self.placed[trial.id]
        # `described` places each anew, the first one on what all of them have left.
        return [trial for trial in fitting if self.described(trial) != before[trial.id]]

    def described(self, trial: Trial) -> PlaceDescription:
        """Return the placement of `trial` as plain values, for its worker and `bundles`.

        A trial without GPU whose arm declares its resources is kept to its host memory.
        """
        placement = self.place(trial)
        hint = self.footprints.study.arms[trial.arm].resources
        return {
            "resources": self._asked(trial, placement).resources(),
            "labels": placement.label_selector(),
            "limit_host_memory": hint is not None and not placement.gpu,
        }

    def _asked(self, trial: Trial, placement: Placement) -> Placement:
        """Return the resources that Ray is asked for.

        A trial without GPU asks for at least a quarter of the host memory that goes with its cores on the smallest
        host. Small trials then ask for the same, whatever is learned of their memory, and Ray lets one take over the
        process of the last. A trial with a GPU, or with a declared footprint, asks for just that.
        """
        if placement.gpu or self.footprints.study.arms[trial.arm].resources:
            return placement
        hosts = [node for node in self.inventory.nodes if node.cpus and slots_on(placement, node)]
        of_cores = min(
            (placement.cpus * node.memory_gib / node.cpus for node in hosts), default=0.0
        )
        return replace(placement, host_memory_gib=max(placement.host_memory_gib, of_cores / 4))

    def notes(self, trial: Trial) -> TrialNotes:
        """Return what the record of `trial` says of its place and its memory."""
        return TrialNotes(gpus=float(self.place(trial).share)).joined(self.footprints.notes(trial))

    def after_error(self, trial: Trial, error: str) -> PlacementGroupFactory | None:
        """Return new bundles for a trial that ended in `error`; None if it is tried again as it was.

        Then the error has nothing to do with memory, or no host has more, which makes the trial infeasible.
        """
        now = self.place(trial)
        memory = out_of_memory.which(error)
        if memory is None:
            return None
        # Its cell takes more than it had on this type: GPU memory by its share.
        if memory == "gpu" and now.gpu is not None:
            self.footprints.overflowed(
                trial, now.gpu, self.inventory.gpu(now.gpu).memory_gib * float(now.share)
            )
        larger = out_of_memory.retry(self._asked(trial, now), memory, self.inventory)
        if larger is None:
            self.infeasible.add(trial.id)
            return None
        # Further trials of this cell begin with as much.
        self.placed[trial.id] = trial, larger
        key = trial.arm, cell_of(trial)
        self.raised[key] = max(
            larger,
            self.raised.get(key, larger),
            key=lambda place: (place.share, place.host_memory_gib),
        )
        return _bundles(self.described(trial))

    def ended(self, record: Record) -> None:
        """Free the trial's placement and learn from its record how much memory it took."""
        trial, _ = self.placed.pop(record.trial_id, (None, None))
        # What its cell takes is known now, so nothing is guessed from the error any more.
        if trial is not None and record.gpu_memory_gib:
            self.raised.pop((trial.arm, cell_of(trial)), None)
        if (peak := peak_of(record)) is not None:
            self.footprints.learn(peak)
            self.outdated = True

    def _choose(self, trial: Trial) -> Placement:
        """Return the place of a trial by what is known now.

        It is on the smallest type of GPU with room, else on the one that is free soonest.
        """
        if (larger := self.raised.get((trial.arm, cell_of(trial)))) is not None:
            return larger
        options = self.footprints.options(trial)
        # GPUs of each type that trials hold
        load: defaultdict[str | None, float] = defaultdict(float)
        for _, placement in self.placed.values():
            load[placement.gpu] += float(placement.share)

        def waiting(option: Placement) -> float:
            """Return what would be held of each GPU of this type with this trial, by its speed; 0 without a GPU."""
            gpu = self.inventory.gpu(option.gpu) if option.gpu else None
            if gpu is None:
                return 0.0
            return (load[option.gpu] + float(option.share)) / (
                self.inventory.count(gpu.type) * gpu.speed
            )

        # The smallest type comes first.
        for option in options:
            if not option.gpu or load[option.gpu] + option.share <= self.inventory.count(
                option.gpu
            ):
                return option
        return min(options, key=waiting)


def bundles(described: TrialDescription) -> PlacementGroupFactory:
    """Return the resources to ask Ray for, from a trial's description alone: Tune calls this on its own copy."""
    return _bundles(described["place"])


def _bundles(place: PlaceDescription) -> PlacementGroupFactory:
    return _factory(tuple(place["resources"].items()), tuple(place["labels"].items()))


@functools.lru_cache(maxsize=256)  # one for all trials that ask for the same: it is kept with each
def _factory(
    resources: tuple[tuple[str, float], ...], labels: tuple[tuple[str, str], ...]
) -> PlacementGroupFactory:
    return PlacementGroupFactory(
        [dict(resources)], **({"bundle_label_selector": [dict(labels)]} if labels else {})
    )
