"""Faults at random moments: they are injected one after another while a study runs, in as many studies as it takes."""

import random
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence

from benchmarks.faults.study import FaultStudy, Row

Process = subprocess.Popen[bytes]
Hit = Callable[[Process], bool]
"""Does it to the running command; False where there is nothing just now that it could happen to."""
LIMIT_S = 240.0  # after which nothing more is injected
MAX_STUDIES = 12
SETTLE_S = 1.5  # an epoch that ends so soon after a fault had begun before it


def inject(
    new_study: Callable[[], FaultStudy],
    faults: Sequence[tuple[str, Hit]],
    rng: random.Random,
    *,
    between_s: tuple[float, float] = (0.2, 2.0),
    limit_s: float = LIMIT_S,
) -> list[Row]:
    """Inject `faults` (kind, what does it) in their order; where the command ends, it is given again, and where a
    study is done, another one begins."""
    rows: dict[str, Row] = {}
    todo = deque(faults)
    until = time.monotonic() + limit_s
    for _ in range(MAX_STUDIES):
        study = new_study()
        kinds = set[str]()
        seen = dict[str, str]()
        process = study.start()
        study.wait_for_epoch(process)
        while todo and time.monotonic() < until:
            time.sleep(rng.uniform(*between_s))
            if process.poll() == 0:
                break
            process, ended = _going_on(study, process)
            if ended:
                break
            seen |= study.recorded()
            kind, hit = todo[0]
            began = time.monotonic()
            printed = study.output.stat().st_size
            if process.poll() is not None or not hit(process):
                continue
            todo.popleft()
            kinds.add(kind)
            row = rows.setdefault(kind, Row(kind))
            row.injected += 1
            time.sleep(max(0.0, SETTLE_S - (time.monotonic() - began)))
            before = len(study.epochs())
            if not study.wait_for_epoch(process, before):
                process, ended = _going_on(study, process)
                study.wait_for_epoch(process, before)
            if len(study.epochs()) > before:
                row.recovery_s.append(round(time.monotonic() - began, 1))
            row.message = row.message or study.message(printed)
        if process.wait() != 0 or len(study.recorded()) < study.trials:
            study.finish()
        judged = study.judge(seen)
        for kind in kinds:
            rows[kind].add(judged)
        if not todo or time.monotonic() > until:
            break
    return list(rows.values())


def _going_on(study: FaultStudy, process: Process) -> tuple[Process, bool]:
    """The command that runs the study now, given again where it has ended; whether the study is done."""
    tries = 0
    while process.poll() is not None and tries < 4:
        if process.returncode == 0:
            return process, True
        process = study.start()
        tries = tries + 1
        study.wait_for_epoch(process)
    return process, False
