"""The place of each trial on the cluster's hosts; a trial that ran out of memory gets a larger place."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from ray.tune import PlacementGroupFactory

from contrasweep.cluster import out_of_memory
from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.packing import Placement, choose, slots_on
from contrasweep.planning.footprints import CellKey, Footprints, cell_of
from contrasweep.planning.learned import peak_of
from contrasweep.running.run_context import PlaceDescription, TrialDescription
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial


class Placements:
    """Gives each trial its place when it is handed out, by the memory that trials of its cell have taken so far.

    A trial goes to the smallest type of GPU that fits it and has room. Where all fitting types are full, it goes to the
    type that will be free soonest. Trials that fit no host, or ran out of memory on the largest, end as infeasible.
    """

    def __init__(self, footprints: Footprints) -> None:
        self.footprints = footprints
        self.inventory = footprints.inventory
        # trial id -> the trial and its place, from its handing out to its record
        self.placed: dict[str, tuple[Trial, Placement]] = {}
        # (arm, cell) -> the largest place that one of its trials got after it ran out of memory
        self.raised: dict[tuple[str, CellKey], Placement] = {}
        # ids of trials that ran out of memory where no host has more
        self.infeasible: set[str] = set()
        # whether memory or hosts have become known since trials were placed
        self.places_outdated = False

    def fits(self, trial: Trial) -> bool:
        """Return whether some host can hold `trial`."""
        return trial.id in self.placed or bool(self.footprints.options(trial))

    def grow(self, inventory: Inventory) -> None:
        """Choose places on the hosts of `inventory` from now on, because hosts have joined."""
        self.footprints.grow(inventory)
        self.inventory = inventory
        self.places_outdated = True

    def place(self, trial: Trial) -> Placement:
        """Return the place of `trial`: share of a GPU, cores and memory, on a type of host.

        It is chosen at the first call, and stays the same until the trial ends or runs out of memory.
        """
        if trial.id in self.placed:
            _, present = self.placed[trial.id]
            return present
        # The largest that one of its cell got after an error, else that of `choose`.
        place = self.raised.get((trial.arm, cell_of(trial)))
        if place is None:
            # type of GPU -> how many GPUs of it trials hold, in shares
            load: defaultdict[str | None, float] = defaultdict(float)
            for _, placement in self.placed.values():
                load[placement.gpu] += float(placement.share)
            place = choose(self.footprints.options(trial), load, self.inventory)
        self.placed[trial.id] = trial, place
        return place

    def place_again(self, waiting: Iterable[Trial]) -> list[Trial]:
        """Choose new places for the trials in `waiting`, in their order, by what is known of their memory now.

        Return those whose new place needs other resources of Ray than the earlier one. A trial that fits no host any
        more keeps its place.
        """
        self.places_outdated = False
        fitting = [trial for trial in waiting if self.footprints.options(trial)]
        before = {trial.id: self.place_description(trial) for trial in fitting}
        # All of them give up their places first; then `place_description` gives each a new one.
        for trial in fitting:
            del self.placed[trial.id]
        return [trial for trial in fitting if self.place_description(trial) != before[trial.id]]

    def place_description(self, trial: Trial) -> PlaceDescription:
        """Return the place of `trial` as plain values, for its worker and for `bundles`.

        `limit_host_memory` is true where the arm declares its resources and has no GPU: the trial may then use no more
        host memory than it has reserved.
        """
        placement = self.place(trial)
        declared = self.footprints.study.arms[trial.arm].resources
        return {
            "resources": self._requested(trial, placement).resources(),
            "labels": placement.label_selector(),
            "limit_host_memory": declared is not None and not placement.gpu,
        }

    def _requested(self, trial: Trial, placement: Placement) -> Placement:
        """Return `placement` with the resources that Ray is asked for, which may include more host memory.

        With a GPU, or where the arm declares its resources, it stays as it is. Otherwise Ray is asked for at least a
        quarter of the memory that goes with the trial's cores. This memory is cores times GiB per core, on the host
        with the fewest GiB per core. So small trials ask for the same resources whatever is learned of their memory,
        and Ray can run one after the other in one process.
        """
        if placement.gpu or self.footprints.study.arms[trial.arm].resources:
            return placement
        hosts = [node for node in self.inventory.nodes if node.cpus and slots_on(placement, node)]
        gib_of_cores = min(
            (placement.cpus * node.memory_gib / node.cpus for node in hosts), default=0.0
        )
        return replace(placement, host_memory_gib=max(placement.host_memory_gib, gib_of_cores / 4))

    def notes(self, trial: Trial) -> TrialNotes:
        """Return the notes for the record of `trial`: its share of GPUs, and the memory that was expected for it."""
        return TrialNotes(gpus=float(self.place(trial).share)).joined(self.footprints.notes(trial))

    def after_error(self, trial: Trial, error: str) -> PlacementGroupFactory | None:
        """Return the larger resources with which a trial that ran out of memory is tried again.

        None where the traceback `error` has nothing to do with memory, or where no host has more. In the second case
        the trial is infeasible from now on.
        """
        placement = self.place(trial)
        memory = out_of_memory.exhausted_memory(error)
        if memory is None:
            return None
        # Trials of this cell take more GPU memory than the trial's share of this type of GPU has.
        if memory == "gpu" and placement.gpu is not None:
            gpu_gib = self.inventory.gpu(placement.gpu).memory_gib
            self.footprints.overflowed(trial, placement.gpu, gpu_gib * float(placement.share))
        declared = self.footprints.study.arms[trial.arm].resources
        gpu_types = declared.gpu_types if declared else ()
        larger = out_of_memory.larger_place(
            self._requested(trial, placement), memory, self.inventory, gpu_types
        )
        if larger is None:
            self.infeasible.add(trial.id)
            return None
        # Further trials of this cell begin with the largest place that one of them has needed.
        self.placed[trial.id] = trial, larger
        key = trial.arm, cell_of(trial)
        known = self.raised.get(key, larger)
        if (larger.share, larger.host_memory_gib) >= (known.share, known.host_memory_gib):
            self.raised[key] = larger
        return _bundles(self.place_description(trial))

    def ended(self, record: Record) -> None:
        """Free the place of a trial that has its record, and learn how much memory it took.

        Later trials of its cell get their places by that.
        """
        trial, _ = self.placed.pop(record.trial_id, (None, None))
        # The memory of its cell is measured now. So its trials need no place that `after_error` has guessed.
        if trial is not None and record.gpu_memory_gib:
            self.raised.pop((trial.arm, cell_of(trial)), None)
        peak = peak_of(record)
        if peak is not None:
            self.footprints.learn(peak)
            self.places_outdated = True


def bundles(config: TrialDescription) -> PlacementGroupFactory:
    """Return the resources that Ray is asked for, for the trial of a description.

    Ray Tune calls this function with the trial's config.
    """
    return _bundles(config["place"])


def _bundles(place: PlaceDescription) -> PlacementGroupFactory:
    """Return the resources of a place, and the label that its node must have, as one bundle of Ray."""
    labels = {"bundle_label_selector": [dict(place["labels"])]} if place["labels"] else {}
    return PlacementGroupFactory([dict(place["resources"])], **labels)
