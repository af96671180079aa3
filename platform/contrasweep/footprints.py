"""What each trial of a study needs: measured in its own cell, else estimated, else declared, else the default."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.calibration import MARGIN, MARGIN_UNMEASURED
from cluster.errors import ClusterError
from cluster.footprint import Footprint, LearnedFootprint, OnType
from cluster.inventory import Inventory
from cluster.memory import Workload
from cluster.packing import Placement, default_footprint, options, why_not
from contrasweep import canonical
from contrasweep.learned import CPU, Learned, Peak, calibration_key, cell_key
from contrasweep.planning import find_trainable
from contrasweep.spec import Study
from contrasweep.trial import Trial

MEASURED, ESTIMATED, DECLARED, DEFAULT = "measured", "estimated", "declared", "default"
Cell = tuple[str, str, str]
"""Trainable, config as canonical text, digest of the data: what replicates have in common."""
GPU_HOST_GIB = 3.0
"""Host memory of a trial on a GPU before it is measured: torch with CUDA's libraries holds two or three GiB."""


@dataclass(frozen=True)
class Need:
    """A trial's footprint and where it comes from; `why` says why there is no estimate where one was tried."""

    footprint: Footprint
    source: str
    why: str = ""


@dataclass(frozen=True)
class _Sized:
    """A workload and its count in GiB."""

    workload: Workload
    counted_gib: float

    def key(self, host: str) -> str:
        return calibration_key(host, self.workload.architecture)


class Footprints:
    """The needs of a study's trials on the hosts of `inventory`.

    GPU memory, by type of GPU: the highest measured peak of the same cell; else what the memory model predicts from
    the trainable's `memory` (see `contrasweep.trial`); else the arm's `footprint`. An arm that declares a footprint
    keeps its other fields; one that does not gets the cores its trainable names, or the default.
    """

    def __init__(self, study: Study, inventory: Inventory, learned: Learned) -> None:
        self.study, self.inventory, self.learned = study, inventory, learned
        self.hooks = {name: getattr(find_trainable(arm, f"arms.{name}.trainable"), "memory", None) for name, arm in study.arms.items()}
        self._sized: dict[Cell, _Sized | None] = {}
        self._whys: dict[Cell, str] = {}
        self._counts: dict[Any, float] = {}
        self._needs: dict[Cell, Need] = {}
        self._options: dict[Footprint, list[Placement]] = {}

    def of(self, trial: Trial) -> Need:
        """What `trial` needs; the same for all replicates of its cell."""
        cell = _cell(trial)
        if cell not in self._needs:
            footprint, source = self._footprint(trial, cell)
            self._needs[cell] = Need(footprint, source, self._whys.get(cell, ""))
        return self._needs[cell]

    def options(self, trial: Trial) -> list[Placement]:
        """Every way to place `trial`, smallest GPU first; empty: it fits no host."""
        footprint = self.of(trial).footprint
        if footprint not in self._options:
            self._options[footprint] = options(footprint, self.inventory)
        return self._options[footprint]

    def why_not(self, trial: Trial) -> str:
        """Why `trial` fits no host, and how its need is known."""
        need = self.of(trial)
        return f"{why_not(need.footprint, self.inventory)} ({need.source})"

    def notes(self, trial: Trial) -> dict[str, Any]:
        """What its record must say so that the memory model can learn from it."""
        sized = self._size(trial, _cell(trial))
        return {"architecture": sized.workload.architecture, "counted_gib": round(sized.counted_gib, 4)} if sized else {}

    def learn(self, peak: Peak) -> None:
        """Take note of what one more trial took."""
        self.learned.add(peak)
        self._needs.clear()

    def overflowed(self, trial: Trial, gpu: str, limit_gib: float) -> None:
        """`trial` ran out of `limit_gib` of memory on this type of GPU: its like need more from the start."""
        if sized := self._size(trial, _cell(trial)):
            self.learned.gpu.observe_out_of_memory(sized.key(gpu), sized.counted_gib, limit_gib)
            self._needs.clear()

    def _footprint(self, trial: Trial, cell: Cell) -> tuple[Footprint, str]:
        hint, sized = self.study.arms[trial.arm].footprint, self._size(trial, cell)
        seen = self.learned.cells.get(cell_key(*cell), {})
        base = hint or self._undeclared(sized)
        if not base.wants_gpu:
            return (base, DECLARED) if hint else self._on_host(base, sized, seen)
        known = [found for gpu in self.inventory.gpu_types if (found := self._on_type(gpu.type, base, sized, seen))]
        if not known:
            return base, DECLARED if hint else ESTIMATED if sized else DEFAULT
        peaks = [peak.host_memory_gib * MARGIN for peak in seen.values() if not hint]
        most = max((entry for entry, _ in known), key=lambda entry: entry.gpu_memory_gib)
        footprint = LearnedFootprint(
            gpu_memory_gib=most.gpu_memory_gib, margin=most.margin, gpu_busy=most.gpu_busy, types=tuple(entry for entry, _ in known),
            host_memory_gib=_rounded(max(peaks, default=base.host_memory_gib)), cpus=base.cpus, gpus=hint.gpus if hint else 0.0,
            gpu_types=base.gpu_types,
        )  # fmt: skip
        return footprint, MEASURED if any(source == MEASURED for _, source in known) else ESTIMATED

    def _undeclared(self, sized: _Sized | None) -> Footprint:
        """Where the arm declares nothing: the device and the cores that the trainable names, else the default."""
        default = default_footprint(self.inventory)
        if sized is None:
            return default
        work = sized.workload
        if work.device == "cpu" or (work.device == "auto" and not self.inventory.gpus):
            return Footprint(cpus=work.cpus, host_memory_gib=default.host_memory_gib)
        memory = self.learned.gpu.predict(sized.key(""), sized.counted_gib)
        return Footprint(gpu_memory_gib=memory, margin=MARGIN_UNMEASURED, cpus=work.cpus, host_memory_gib=GPU_HOST_GIB)

    def _on_type(self, gpu: str, base: Footprint, sized: _Sized | None, seen: Mapping[str, Peak]) -> tuple[OnType, str] | None:
        """What is known of the GPU memory on one type, and how; None: nothing but what `base` says."""
        measured = {host: peak for host, peak in seen.items() if peak.gpu_memory_gib}
        if gpu in measured:
            there = measured[gpu]
            return OnType(gpu, there.gpu_memory_gib, there.margin, max(there.gpu_busy, base.gpu_busy)), MEASURED
        if sized:
            predicted, margin = self.learned.gpu.predict(sized.key(gpu), sized.counted_gib), self.learned.gpu.margin(sized.key(gpu))
            return OnType(gpu, predicted, margin, base.gpu_busy), ESTIMATED
        if measured:
            most = max(peak.gpu_memory_gib for peak in measured.values())
            return OnType(gpu, most, MARGIN_UNMEASURED, base.gpu_busy), MEASURED
        return None

    def _on_host(self, base: Footprint, sized: _Sized | None, seen: Mapping[str, Peak]) -> tuple[Footprint, str]:
        if CPU in seen:
            return replace(base, host_memory_gib=_rounded(seen[CPU].host_memory_gib * MARGIN)), MEASURED
        if sized:
            return replace(base, host_memory_gib=_rounded(self.learned.host.predict(sized.key(CPU), sized.counted_gib))), ESTIMATED
        return base, DEFAULT

    def _size(self, trial: Trial, cell: Cell) -> _Sized | None:
        """Ask the trainable, and count each shape once. Whatever goes wrong there, the plan goes on without it."""
        if cell not in self._sized:
            hook, self._sized[cell] = self.hooks[trial.arm], None
            try:
                if hook is not None:
                    work: Workload = hook(trial.config, trial.data)
                    shape = (work.architecture, work.shape, work.precision, work.optimizer_states, work.resident_bytes)
                    if shape not in self._counts:
                        self._counts[shape] = work.count().gib
                    self._sized[cell] = _Sized(work, self._counts[shape])
            except ClusterError as error:
                self._whys[cell] = str(error)
            except Exception as error:  # the trainable is the user's
                self._whys[cell] = f"{trial.trainable} cannot say its memory ({type(error).__name__}: {error})"
        return self._sized[cell]


def _cell(trial: Trial) -> Cell:
    text = trial.config.text if isinstance(trial.config, canonical.Config) else canonical.dumps(trial.config)
    return trial.trainable, text, trial.data.digest


def _rounded(gib: float) -> float:
    """Up to the next half: trials whose shares are equal reuse each other's processes."""
    return math.ceil(2 * gib) / 2
