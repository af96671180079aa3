"""What each trial of a study needs: measured in its own cell, else estimated, else declared, else the default."""

import functools
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.memory import Work, Workload
from contrasweep.cluster.packing import (
    Footprint,
    LearnedFootprint,
    OnType,
    Placement,
    default_footprint,
    options,
    slots_on,
    why_not,
)
from contrasweep.errors import SpecError
from contrasweep.imports import TRAINING_PACKAGE, in_one_line, is_installed
from contrasweep.planning.learned import (
    CPU,
    MARGIN,
    MARGIN_UNMEASURED,
    Learned,
    Peak,
    calibration_key,
    cell_key,
)
from contrasweep.storage.record import TrialNotes
from contrasweep.study.sweep import Study
from contrasweep.study.trainables import find_trainable
from contrasweep.trial import Trial

MEASURED = "measured"
ESTIMATED = "estimated"
DECLARED = "declared"
DEFAULT = "default"
"""The sources of a requirement; see `Footprints`."""
CellKey = tuple[str, str, str]
"""Trainable, config as canonical text, digest of the data: what replicates have in common."""
GPU_HOST_GIB = 3.0
"""Host memory of a trial on a GPU before it is measured: torch with CUDA's libraries holds two or three GiB."""


@dataclass(frozen=True)
class Requirement:
    """The memory, cores and GPUs that a trial needs (its footprint), and where these numbers come from."""

    footprint: Footprint
    source: str  # `measured`, `estimated`, `declared` or `default`
    why: str  # reason why memory could not be estimated; "" where it could, or nothing was tried


class Estimate(NamedTuple):
    """The memory and the operations of a training step, counted from the network and the batch without running it."""

    architecture: str
    gib: float  # memory, before calibration
    work: Work  # of one step


class Footprints:
    """The requirements of a study's trials on the hosts of `inventory`.

    A requirement is taken from the first of its sources that has it:

    - GPU memory on a type of GPU: the highest measured peak of the same cell; what the memory model predicts from the
      trainable's `memory` (see `contrasweep.trial`); the arm's `resources`.
    - All else of an arm with `resources`: what these say.
    - Host memory of an arm without `resources`: the highest measured peak of the cell; for a trial without a GPU, what
      the memory model predicts; a default.
    - Cores of an arm without `resources`: what the trainable names; a default.
    """

    def __init__(self, study: Study, inventory: Inventory, learned: Learned) -> None:
        """Prepare the requirements of the trials of `study` on the hosts of `inventory`.

        `learned` has what earlier trials have taught: the peaks of memory measured in each cell, and the memory model.
        """
        self.study = study
        self.inventory = inventory
        self.learned = learned
        self.trainables = {
            name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in study.arms.items()
        }
        self._workloads: dict[CellKey, Workload | None] = {}
        # Shape of a workload -> what was counted; None where nothing could be counted.
        self._counts: dict[Hashable, Estimate | None] = {}
        self._whys: dict[CellKey, str] = {}  # why a cell has no estimate
        # By arm and cell, because two arms with the same cell may declare different resources.
        self._requirements: dict[tuple[str, CellKey], Requirement] = {}
        # Footprint -> the ways to place a trial that has it.
        self._options = functools.cache(lambda footprint: options(footprint, self.inventory))

    def of(self, trial: Trial) -> Requirement:
        """Return what `trial` requires, which is the same for all replicates of its cell.

        Where the user's code raises an error as the network is built, nothing is estimated, and `why` is the reason.
        Raises `SpecError` where that code calls sys.exit.
        """
        cell = cell_of(trial)
        if (trial.arm, cell) not in self._requirements:
            footprint, source = self._footprint(trial)
            self._requirements[trial.arm, cell] = Requirement(
                footprint, source, self._whys.get(cell, "")
            )
        return self._requirements[trial.arm, cell]

    def options(self, trial: Trial) -> list[Placement]:
        """Return every way to place `trial`, smallest GPU first; [] where it fits no host."""
        return self._options(self.of(trial).footprint)

    def slots(self, placement: Placement) -> int:
        """Return how many trials with this placement run at once on all hosts, if no others run there."""
        return sum(slots_on(placement, node) * node.count for node in self.inventory.nodes)

    def most_slots(self, trials: Iterable[Trial]) -> int:
        """Return the largest number of `slots` that a placement of any of `trials` has; 1 where none fits a host."""
        placements = {placement for trial in trials for placement in self.options(trial)}
        return max(map(self.slots, placements), default=1)

    def check(self, trials: Iterable[Trial]) -> None:
        """Raise `SpecError` with the needs of the smallest trial if none of `trials` fits a host.

        It is no error if some of them fit and others do not, or if there are no trials.
        """
        smallest = self.smallest_if_none_fits(trials)
        if smallest is not None:
            raise SpecError(
                "a trial must fit one host of the cluster",
                place=f"arms.{smallest.arm}.resources",
                hint=f"of the smallest one: {self.why_not(smallest)}",
            )

    def smallest_if_none_fits(self, trials: Iterable[Trial]) -> Trial | None:
        """Return the smallest of `trials` if none of them fits a host; None if one fits or there are no trials.

        The smallest needs least GPU memory; of several, least host memory, then fewest cores.
        """
        # One trial for each requirement is enough.
        different = list({self.of(trial): trial for trial in trials}.values())
        if any(map(self.options, different)):
            return None

        def need(trial: Trial) -> tuple[float, float, float]:
            """Return GPU memory in GiB, host memory in GiB and cores, by which trials are compared in this order."""
            footprint = self.of(trial).footprint
            return footprint.gpu_memory_gib, footprint.host_memory_gib, footprint.cpus

        return min(different, key=need, default=None)

    def why_not(self, trial: Trial) -> str:
        """Return a text that says why `trial` fits no host, and in brackets how its requirement is known."""
        requirement = self.of(trial)
        return f"{why_not(requirement.footprint, self.inventory)} ({requirement.source})"

    def notes(self, trial: Trial) -> TrialNotes:
        """Return what the record of `trial` must contain so that the memory model can learn from it.

        The notes are empty where its memory cannot be counted.
        """
        counted = self._counted(trial)
        if counted is None:
            return TrialNotes()
        return TrialNotes(architecture=counted.architecture, counted_gib=round(counted.gib, 4))

    def grow(self, inventory: Inventory) -> None:
        """Replace the hosts by those of `inventory`, to which hosts were added.

        Requirements are computed again for these.
        """
        self.inventory = inventory
        self._requirements.clear()
        self._options.cache_clear()

    def learn(self, peak: Peak) -> None:
        """Take the measured memory of one more trial into account. Requirements are computed again."""
        self.learned.add(peak)
        self._requirements.clear()

    def overflowed(self, trial: Trial, gpu: str, limit_gib: float) -> None:
        """Let the memory model learn that `trial` needs more than `limit_gib` of GPUs of the type `gpu`.

        Later trials of the same kind then get more memory. Nothing is learned where its memory cannot be counted.
        """
        counted = self._counted(trial)
        if counted is not None:
            self.learned.gpu.observe_out_of_memory(
                calibration_key(gpu, counted.architecture), counted.gib, limit_gib
            )
            self._requirements.clear()

    def _footprint(self, trial: Trial) -> tuple[Footprint, str]:
        """Return a trial's footprint, and its source: `measured`, `estimated`, `declared` or `default`."""
        declared = self.study.arms[trial.arm].resources
        workload = self._workload(trial)
        # Type of GPU, or `CPU` -> peaks measured of the trial's cell.
        measured = self.learned.cells.get(cell_key(*cell_of(trial)), {})
        base = declared or self._undeclared(workload)
        # A trial without a GPU needs host memory and cores alone.
        if not base.wants_gpu:
            return (base, DECLARED) if declared else self._on_host(base, trial, measured.get(CPU))
        known = (self._on_type(gpu.type, base, trial, measured) for gpu in self.inventory.gpu_types)
        # What is needed on each type of GPU -> its source; types of which nothing is known are left out.
        sources = dict(filter(None, known))
        if not sources:
            return base, DECLARED if declared else DEFAULT
        # On types of which nothing is known, a trial gets what it needs on the most demanding known type.
        most_demanding = max(sources, key=attrgetter("gpu_memory_gib"))
        # What was measured of host memory counts only where none is declared.
        host_memory_gib = base.host_memory_gib
        if measured and not declared:
            host_memory_gib = MARGIN * max(peak.host_memory_gib for peak in measured.values())
        # Where no number of GPUs is declared (0), the memory decides which share of a GPU the trial gets.
        gpus = declared.gpus if declared else 0.0
        if workload and workload.gpus > 1:
            gpus = max(gpus, float(workload.gpus))
        footprint = LearnedFootprint(
            gpu_memory_gib=most_demanding.gpu_memory_gib,
            margin=most_demanding.margin,
            gpu_busy=most_demanding.gpu_busy,
            types=tuple(sources),
            host_memory_gib=_rounded(host_memory_gib),
            cpus=base.cpus,
            gpus=gpus,
            gpu_types=base.gpu_types,
        )
        return footprint, MEASURED if MEASURED in sources.values() else ESTIMATED

    def _undeclared(self, workload: Workload | None) -> Footprint:
        """Return a first footprint of a trial whose arm declares no resources: device, cores and a default of memory.

        `workload` is what the trainable says of device and cores; None: it says nothing.
        """
        default = default_footprint(self.inventory)
        if workload is None:
            return default
        # `auto` takes a GPU where there is one.
        if workload.device == "cpu" or (workload.device == "auto" and not self.inventory.gpus):
            return replace(default, gpus=0.0, cpus=workload.cpus)
        return replace(
            default, gpus=float(workload.gpus), cpus=workload.cpus, host_memory_gib=GPU_HOST_GIB
        )

    def _on_type(
        self, gpu: str, base: Footprint, trial: Trial, peaks: Mapping[str, Peak]
    ) -> tuple[OnType, str] | None:
        """Return the GPU memory that a trial needs on one type of GPU, and its source; None where nothing is known.

        `peaks` is type of host -> the peaks measured of the trial's cell. A peak on this type is taken first, then what
        the memory model predicts. After these comes the highest peak on other types, with a larger margin.
        """
        measured = {host: peak for host, peak in peaks.items() if peak.gpu_memory_gib}
        if gpu in measured:
            peak = measured[gpu]
            busy = max(peak.gpu_busy, base.gpu_busy)
            return OnType(gpu, peak.gpu_memory_gib, peak.margin, busy), MEASURED
        counted = self._counted(trial)
        if counted is not None:
            key = calibration_key(gpu, counted.architecture)
            predicted = self.learned.gpu.predict(key, counted.gib)
            return OnType(gpu, predicted, self.learned.gpu.margin(key), base.gpu_busy), ESTIMATED
        if measured:
            highest = max(peak.gpu_memory_gib for peak in measured.values())
            return OnType(gpu, highest, MARGIN_UNMEASURED, base.gpu_busy), MEASURED
        return None

    def _on_host(self, base: Footprint, trial: Trial, peak: Peak | None) -> tuple[Footprint, str]:
        """Return `base` with the host memory of a trial without GPU whose arm declares no resources, and its source.

        The host memory is the measured `peak` of its cell with a margin; without one, what the memory model
        predicts; else that of `base`.
        """
        if peak:
            return replace(base, host_memory_gib=_rounded(peak.host_memory_gib * MARGIN)), MEASURED
        counted = self._counted(trial)
        if counted is not None:
            key = calibration_key(CPU, counted.architecture)
            predicted = self.learned.host.predict(key, counted.gib)
            return replace(base, host_memory_gib=_rounded(predicted)), ESTIMATED
        return base, DEFAULT

    def _workload(self, trial: Trial) -> Workload | None:
        """Return the workload that the trainable declares for a trial; None where it declares none or fails.

        The trainable is asked once for each cell. The reason of a failure is kept for `of`.
        """
        cell = cell_of(trial)
        if cell not in self._workloads:
            hook = getattr(self.trainables[trial.arm], "memory", None)
            self._workloads[cell] = None  # so that a trainable that fails is not asked again
            try:
                self._workloads[cell] = hook(trial.config, trial.data) if hook else None
            except ClusterError as error:
                self._whys[cell] = str(error)
            except (Exception, SystemExit) as error:  # the user's code may raise anything
                self._whys[cell] = (
                    f"{trial.trainable} cannot say its memory ({type(error).__name__}: {error})"
                )
        return self._workloads[cell]

    def seconds(self, trial: Trial) -> float | None:
        """Return about how many seconds the training of `trial` takes, on a GPU with `speed` 1 in the inventory.

        They follow from the counted work of its steps, on the slowest type of GPU where `trial` may run. None where it
        runs on no GPU, or on types whose peak of operations is not known, and where the trainable does not say how many
        steps a trial has.
        """
        workload = self._workload(trial)
        counted = self._counted(trial)
        if workload is None or counted is None or not workload.steps:
            return None
        speeds = {gpu.type: gpu.speed for gpu in self.inventory.gpu_types}
        half_precision = workload.precision != "fp32"
        # The share of each type of GPU that the trial would get.
        shares = {place.gpu: float(place.share) for place in self.options(trial) if place.gpu}
        steps_s = []
        for gpu, share in shares.items():
            step_s = counted.work.seconds(gpu, half_precision, share)
            if step_s is not None:
                # Seconds on a type times its speed are seconds at speed 1.
                steps_s.append(speeds[gpu] * step_s)
        return workload.steps * max(steps_s) if steps_s else None

    def _counted(self, trial: Trial) -> Estimate | None:
        """Return the memory and work that are counted of a trial's network; None where nothing can be counted.

        They are counted once for each shape of workload. `of` returns the reason of a failure, which is kept here.
        Raises `SpecError` where the user's code calls sys.exit as the network is built.
        """
        workload = self._workload(trial)
        if workload is None:
            return None
        shape = (
            workload.architecture,
            workload.shape,
            workload.precision,
            workload.optimizer_states,
            workload.resident_bytes,
            workload.gpus,
        )
        if shape not in self._counts:
            self._counts[shape] = None
            try:
                # A step that the trainable counted itself needs no PyTorch here.
                if workload.step or is_installed(TRAINING_PACKAGE):
                    count = workload.count()
                    self._counts[shape] = Estimate(workload.architecture, count.gib, count.work)
            except ClusterError as error:
                self._whys[cell_of(trial)] = str(error)
            except SystemExit as error:  # a part of the network may be the user's code
                hint = f"{in_one_line(error)}; a part must not call sys.exit"
                raise SpecError(
                    "the trial cannot be built", place=f"arms.{trial.arm}", hint=hint
                ) from None
        return self._counts[shape]


def cell_of(trial: Trial) -> CellKey:
    """Return what `trial` has in common with its replicates: its trainable, config and data, not its fold and seed."""
    return trial.trainable, trial.config_text, trial.data.digest


def _rounded(gib: float) -> float:
    """Return GiB rounded up to a half, because trials with equal requirements reuse each other's processes."""
    return math.ceil(2 * gib) / 2
