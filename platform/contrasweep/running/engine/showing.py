"""A run as it is shown: on the terminal or in a notebook, and kept in the storage for `contrasweep watch`."""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from contrasweep.live.displays import display_here
from contrasweep.live.live_file import LiveFile
from contrasweep.live.progress import Progress, axes_as_text, cell_of
from contrasweep.live.state import ArmState, RunState
from contrasweep.planning.plan import Plan
from contrasweep.results.rendering import display_names
from contrasweep.storage import compact
from contrasweep.storage.records import StudyRecords

INTERRUPTED = "interrupted"


@contextmanager
def showing(plan: Plan, records: StudyRecords, finished: Collection[str], slots: float) -> Iterator[Progress]:
    """Show the run of what of `plan` is not `finished`, as long as this is open."""
    study, own = plan.study, plan.own(finished)
    state = RunState(
        study=study.name,
        metric=study.metric,
        mode=study.mode,
        storage=records.storage,
        total=plan.total,
        before=len(own),
        slots=slots,
        began=time.time(),
        arms={name: ArmState() for name in study.arms},
        labels=dict(display_names(study.labels or {}, [*study.arms, *plan.varied, study.metric]).names),
    )
    axes = plan.varied
    trials = () if plan.declared_search is not None else plan.trials
    planned = {t.id: cell_of(t.arm, axes_as_text(axes, t.config, t.data.name)) for t in trials if t.id not in own}
    earlier = list(compact.read_records(records, records.etags(), only=own).values())
    progress = Progress(state, axes, [display_here(), LiveFile(records)], planned, earlier)
    progress.open()
    try:
        yield progress
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        progress.close(INTERRUPTED if interrupted else f"{type(error).__name__}: {error}")
        raise
    progress.close()
