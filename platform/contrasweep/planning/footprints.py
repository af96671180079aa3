"""What each trial of a study needs: measured in its own cell, else estimated, else declared, else the default."""

import functools
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from contrasweep import canonical
from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.memory import GIB, NO_WORK, Work, Workload
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
from contrasweep.imports import TRAINING, in_one_line, is_installed
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
Cell = tuple[str, str, str]
"""Trainable, config as canonical text, digest of the data: what replicates have in common."""
GPU_HOST_GIB = 3.0
"""Host memory of a trial on a GPU before it is measured: torch with CUDA's libraries holds two or three GiB."""


@dataclass(frozen=True)
class Requirement:
    """A trial's footprint and its source: `measured`, `estimated`, `declared` or `default`.

    `why` is the reason why there is no estimate, where one was tried; else "".
    """

    footprint: Footprint
    source: str
    why: str = ""


class Estimate(NamedTuple):
    """The memory of a training of an architecture in GiB before calibration, the work of a step, a checkpoint's GiB.

    A checkpoint holds the network and what the optimiser keeps.
    """

    architecture: str
    gib: float
    work: Work = NO_WORK
    checkpoint_gib: float = 0.0


class Footprints:
    """The requirements of a study's trials on the hosts of `inventory`.

    GPU memory, by type of GPU: the highest measured peak of the same cell; else what the memory model predicts from
    the trainable's `memory` (see `contrasweep.trial`); else the arm's `resources`. An arm that declares them
    keeps its other fields; one that does not gets the cores its trainable names, or the default.
    """

    def __init__(self, study: Study, inventory: Inventory, learned: Learned) -> None:
        self.study = study
        self.inventory = inventory
        self.learned = learned
        self.trainables = {
            name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in study.arms.items()
        }
        self._workloads: dict[Cell, Workload | None] = {}
        # shape of a workload -> what was counted; None where it could not be
        self._counts: dict[Hashable, Estimate | None] = {}
        self._whys: dict[Cell, str] = {}  # why a cell has no estimate
        self._requirements: dict[tuple[str, Cell], Requirement] = {}
        self._options = functools.cache(lambda footprint: options(footprint, self.inventory))

    def of(self, trial: Trial) -> Requirement:
        """Return the footprint of `trial` and how it is known; it is the same for all replicates.

        Where the user's code raises an error as the network is built, it is a default, with the reason as `why`. Raises
        `SpecError` where that code calls sys.exit.
        """
        cell = cell_of(trial)
        if (trial.arm, cell) not in self._requirements:
            footprint, source = self._footprint(trial)
            self._requirements[trial.arm, cell] = Requirement(
                footprint, source, self._whys.get(cell, "")
            )
        return self._requirements[trial.arm, cell]

    def options(self, trial: Trial) -> list[Placement]:
        """Return every way to place `trial`, smallest GPU first; empty where it fits no host."""
        return self._options(self.of(trial).footprint)

    def slots(self, placement: Placement) -> int:
        """Return how many trials of this placement all hosts hold at once if they run no others."""
        return sum(slots_on(placement, node) * node.count for node in self.inventory.nodes)

    def most_slots(self, trials: Iterable[Trial]) -> int:
        """Return how many of `trials` run at once on the whole cluster, if all were of the kind that fits most often.

        1 where none fits a host.
        """
        kinds = {placement for trial in trials for placement in self.options(trial)}
        return max(map(self.slots, kinds), default=1)

    def check(self, trials: Iterable[Trial]) -> None:
        """Raise `SpecError` with the needs of the smallest trial if none of `trials` fits a host.

        If one of them fits, others that do not are no error here. Without trials nothing is raised.
        """
        if (smallest := self.missing(trials)) is not None:
            raise SpecError(
                "a trial must fit one host of the cluster",
                place=f"arms.{smallest.arm}.resources",
                hint=f"of the smallest one: {self.why_not(smallest)}",
            )

    def missing(self, trials: Iterable[Trial]) -> Trial | None:
        """Return the trial that needs least if none of `trials` fits a host; else None, without trials too.

        Least is by GPU memory, then by host memory, then by cores.
        """
        # One trial for each footprint is enough to ask.
        different = list({self.of(trial): trial for trial in trials}.values())
        if any(map(self.options, different)):
            return None

        def need(trial: Trial) -> tuple[float, float, float]:
            """Return what trials are ranked by."""
            footprint = self.of(trial).footprint
            return footprint.gpu_memory_gib, footprint.host_memory_gib, footprint.cpus

        return min(different, key=need, default=None)

    def why_not(self, trial: Trial) -> str:
        """Return why `trial` fits no host, and in brackets how its requirement is known."""
        requirement = self.of(trial)
        return f"{why_not(requirement.footprint, self.inventory)} ({requirement.source})"

    def notes(self, trial: Trial) -> TrialNotes:
        """Return what the record of `trial` must contain so that the memory model can learn from it.

        Empty notes where its memory cannot be counted.
        """
        if (counted := self._counted(trial)) is None:
            return TrialNotes()
        return TrialNotes(architecture=counted.architecture, counted_gib=round(counted.gib, 4))

    def grow(self, inventory: Inventory) -> None:
        """Place trials on the hosts of `inventory` from now on; footprints are worked out anew for them."""
        self.inventory = inventory
        self._requirements.clear()
        self._options.cache_clear()

    def learn(self, peak: Peak) -> None:
        """Add the peaks of one more trial to what is known."""
        self.learned.add(peak)
        self._requirements.clear()

    def overflowed(self, trial: Trial, gpu: str, limit_gib: float) -> None:
        """Record that `trial` ran out of memory within `limit_gib` on GPUs of this type.

        Later trials of the same kind are given more memory from their start. Where its memory cannot be counted,
        nothing is learned.
        """
        if (counted := self._counted(trial)) is not None:
            self.learned.gpu.observe_out_of_memory(
                calibration_key(gpu, counted.architecture), counted.gib, limit_gib
            )
            self._requirements.clear()

    def _footprint(self, trial: Trial) -> tuple[Footprint, str]:
        """Return a trial's footprint, and where it is from: measured, estimated, declared or the default."""
        hint = self.study.arms[trial.arm].resources
        work = self._workload(trial)
        measured = self.learned.cells.get(cell_key(*cell_of(trial)), {})
        base = hint or self._undeclared(work)
        # Of a trial without a GPU only host memory is worked out, and only where none is declared.
        if not base.wants_gpu:
            return (base, DECLARED) if hint else self._on_host(base, trial, measured.get(CPU))
        # What is known of each type of GPU: its entry, and whether it was measured or estimated.
        types = [
            on_type
            for gpu in self.inventory.gpu_types
            if (on_type := self._on_type(gpu.type, base, trial, measured))
        ]
        if not types:
            return base, DECLARED if hint else DEFAULT
        # What holds for every type is what the most demanding one needs; `types` has each by itself.
        most = max((entry for entry, _ in types), key=lambda entry: entry.gpu_memory_gib)
        # Declared resources stand; otherwise host memory is the highest measured peak with a margin.
        hosts = [peak.host_memory_gib * MARGIN for peak in measured.values() if not hint]
        footprint = LearnedFootprint(
            gpu_memory_gib=most.gpu_memory_gib,
            margin=most.margin,
            gpu_busy=most.gpu_busy,
            types=tuple(entry for entry, _ in types),
            host_memory_gib=_rounded(max(hosts, default=base.host_memory_gib)),
            cpus=base.cpus,
            # Of a trial that takes one GPU, its memory decides the place.
            gpus=max(
                hint.gpus if hint else 0.0, float(work.gpus) if work and work.gpus > 1 else 0.0
            ),
            gpu_types=base.gpu_types,
        )
        return footprint, MEASURED if any(source == MEASURED for _, source in types) else ESTIMATED

    def _undeclared(self, work: Workload | None) -> Footprint:
        """Return the footprint of an arm that declares nothing, before its memory is known.

        It has the device and cores that the trainable names.
        """
        default = default_footprint(self.inventory)
        if work is None:
            return default
        # `auto` takes a GPU where there is one.
        if work.device == "cpu" or (work.device == "auto" and not self.inventory.gpus):
            return replace(default, gpus=0.0, cpus=work.cpus)
        return replace(default, gpus=float(work.gpus), cpus=work.cpus, host_memory_gib=GPU_HOST_GIB)

    def _on_type(
        self, gpu: str, base: Footprint, trial: Trial, seen: Mapping[str, Peak]
    ) -> tuple[OnType, str] | None:
        """Return what is known of the GPU memory on one type, and how it is known; None where only `base` is known.

        `seen` is type of host -> the peaks measured of the trial's cell. Best is a peak on this type, then the memory
        model, then the highest peak on other types with the margin of what was not measured here.
        """
        measured = {host: peak for host, peak in seen.items() if peak.gpu_memory_gib}
        if gpu in measured:
            there = measured[gpu]
            return OnType(
                gpu, there.gpu_memory_gib, there.margin, max(there.gpu_busy, base.gpu_busy)
            ), MEASURED
        if (counted := self._counted(trial)) is not None:
            key = calibration_key(gpu, counted.architecture)
            predicted = self.learned.gpu.predict(key, counted.gib)
            return OnType(gpu, predicted, self.learned.gpu.margin(key), base.gpu_busy), ESTIMATED
        if measured:
            most = max(peak.gpu_memory_gib for peak in measured.values())
            return OnType(gpu, most, MARGIN_UNMEASURED, base.gpu_busy), MEASURED
        return None

    def _on_host(self, base: Footprint, trial: Trial, seen: Peak | None) -> tuple[Footprint, str]:
        """Return the footprint of a trial without GPU, `base` with its host memory, and how that is known.

        It is measured (`seen`, with a margin), else predicted by the memory model, else that of `base`.
        """
        if seen:
            return replace(base, host_memory_gib=_rounded(seen.host_memory_gib * MARGIN)), MEASURED
        if (counted := self._counted(trial)) is not None:
            key = calibration_key(CPU, counted.architecture)
            predicted = self.learned.host.predict(key, counted.gib)
            return replace(base, host_memory_gib=_rounded(predicted)), ESTIMATED
        return base, DEFAULT

    def _workload(self, trial: Trial) -> Workload | None:
        """Return the workload that the trainable declares for a trial; None where it declares none or fails.

        Why it failed is kept for `of`. It is asked once for each cell.
        """
        cell = cell_of(trial)
        if cell not in self._workloads:
            hook = getattr(self.trainables[trial.arm], "memory", None)
            self._workloads[cell] = None  # so that one that fails is not asked again
            try:
                self._workloads[cell] = hook(trial.config, trial.data) if hook else None
            except ClusterError as error:
                self._whys[cell] = str(error)
            except (Exception, SystemExit) as error:  # the trainable is the user's
                self._whys[cell] = (
                    f"{trial.trainable} cannot say its memory ({type(error).__name__}: {error})"
                )
        return self._workloads[cell]

    def seconds(self, trial: Trial) -> float | None:
        """Return about how many seconds the training of `trial` takes, on a GPU of speed 1 of the inventory.

        It follows from the counted work of its steps: the most that any type which it may go to says. None for what
        goes to no GPU or to one whose peak is not known, and where the trainable does not say how many steps a trial
        has.
        """
        work = self._workload(trial)
        counted = self._counted(trial)
        if work is None or counted is None or not work.steps:
            return None
        # Seconds on a type, at the share of it that the trial gets, times the speed of the type are those at speed 1.
        speeds = {gpu.type: gpu.speed for gpu in self.inventory.gpu_types}
        half = work.precision != "fp32"
        shares = {
            place.gpu: min(1.0, float(place.share)) for place in self.options(trial) if place.gpu
        }
        by_gpu = [(gpu, counted.work.seconds(gpu, half, share)) for gpu, share in shares.items()]
        scaled = [speeds[gpu] * seconds for gpu, seconds in by_gpu if seconds is not None]
        return work.steps * max(scaled) if scaled else None

    def operations(self, trial: Trial) -> float | None:
        """Return the floating-point operations of the whole training of `trial`; None where they are not counted."""
        work = self._workload(trial)
        counted = self._counted(trial)
        # 0 means that the trainable does not say how many steps a trial has, or that the work of one is not known.
        return work.steps * counted.work.operations or None if work and counted else None

    def checkpoint_gib(self, trial: Trial) -> float | None:
        """The counted size of a checkpoint of `trial`: network and optimiser; None where it cannot be counted."""
        counted = self._counted(trial)
        return None if counted is None else counted.checkpoint_gib

    def _counted(self, trial: Trial) -> Estimate | None:
        """Return what a trial's training keeps in memory, counted once for each shape; None where it cannot be counted.

        Why it cannot is kept for `of`. Raises `SpecError` where the user's code calls sys.exit as the trial is built.
        """
        work = self._workload(trial)
        if work is None:
            return None
        shape = (
            work.architecture,
            work.shape,
            work.precision,
            work.optimizer_states,
            work.resident_bytes,
            work.gpus,
        )
        if shape not in self._counts:
            self._counts[shape] = None
            try:
                # A step that the trainable counted itself needs no PyTorch here; `parameters` are bytes.
                if work.step or is_installed(TRAINING):
                    count = work.count()
                    checkpoint = count.parameters * (1 + count.optimizer_states) / work.gpus / GIB
                    self._counts[shape] = Estimate(
                        work.architecture, count.gib, count.work, checkpoint
                    )
            except ClusterError as error:
                self._whys[cell_of(trial)] = str(error)
            except SystemExit as error:  # a part of the user's, as it is built
                hint = f"{in_one_line(error)}; a part must not call sys.exit"
                raise SpecError(
                    "the trial cannot be built", place=f"arms.{trial.arm}", hint=hint
                ) from None
        return self._counts[shape]


def cell_of(trial: Trial) -> Cell:
    """Return what `trial` has in common with its replicates: its trainable, config and data, not its fold and seed."""
    text = (
        trial.config.text
        if isinstance(trial.config, canonical.Config)
        else canonical.dumps(trial.config)
    )
    return trial.trainable, text, trial.data.digest


def _rounded(gib: float) -> float:
    """Return GiB up to the next half: trials whose shares are equal reuse each other's processes."""
    return math.ceil(2 * gib) / 2
