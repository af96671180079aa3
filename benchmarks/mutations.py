"""Put defects into a copy of the tree, one at a time, and see whether the tests that should catch each do.

    python -m benchmarks.mutations [--only WORD] [--workers 2] [--output benchmarks/results]

A `Mutant` replaces one text of one file. Its text must stand in that file exactly once: `misplaced` names those of
which it does not, and nothing runs then (tests/test_mutations.py looks at each commit). The test that caught it before,
by mutations.md, runs first, and all of its tests where that one passes. All that runs must pass without a mutant. A
mutant is caught where a test fails, or does not end within `LIMIT_S`.
"""

import argparse
import importlib
import multiprocessing
import os
import platform
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    "platform",
    "trainables",
    "search_spaces",
    "cluster",
    "tests",
    "benchmarks",
    "docs",
    "pyproject.toml",
)
LIMIT_S = 600.0
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(
    ["pytest", "hypothesis", "numpy", "pandas", "pyarrow.parquet", "scipy.stats", "pydantic"]
)
"""Processes in which the libraries of others are there already."""
PASSED = 0
FAILED = 1
"""What pytest returns where every test passed, and where one failed."""
BROKEN = -1


@dataclass(frozen=True)
class Mutant:
    """A deliberate defect: `before` becomes `after` in `file`. `tests` are pytest's arguments."""

    area: str
    what: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


def _mutants(area: str, file: str, tests: str, *changes: tuple[str, ...]) -> list[Mutant]:
    """Mutants of one file: each change is (what, before, after), and other tests where these are not its own."""
    return [
        Mutant(area, what, file, before, after, tuple((own[0] if own else tests).split()))
        for what, before, after, *own in changes
    ]


PLATFORM = "platform/contrasweep"
TESTS = "tests/contrasweep"
STORE = f"{TESTS}/storage/test_store.py"
S3 = f"{TESTS}/storage/test_s3_retry.py"
TRUST = f"{TESTS}/storage/test_trust.py"
LEASE = f"{TESTS}/storage/test_lease.py"
EXECUTION = f"{TESTS}/running/worker/test_execution.py"
ATTEMPTS = f"{TESTS}/running/worker/test_attempts.py"
CHECKPOINTS = f"{TESTS}/running/worker/test_checkpoint_writer.py"
DESIGN = f"{TESTS}/statistics/test_design.py"
STATISTICS = f"{TESTS}/statistics/test_statistics.py"
SESSION = "tests/transcripts/test_transcripts.py::test_a_session_prints_what_it_printed"
EXAMPLE = f"{SESSION}[documented]"
VERDICTS = f"{SESSION}[verdicts]"
PLAN = f"{TESTS}/planning/test_plan.py"
GROUP_SEQUENTIAL = f"{TESTS}/statistics/test_group_sequential.py"
PRUNERS = f"{TESTS}/tuning/test_pruners.py"
HOSTILE = f"{TESTS}/reporting/test_hostile_names.py"
WRITTEN = f"{TESTS}/storage/test_written_is_read.py"

MUTANTS = (
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/store.py",
        STORE,
        (
            "a file is not flushed to the disk",
            "        file.flush()\n        os.fsync(file.fileno())\n",
            "",
        ),
        (
            "an etag is the size alone",
            'f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"',
            'f"{status.st_size}"',
        ),
        ("a link is followed", "os.O_RDONLY | os.O_NOFOLLOW |", "os.O_RDONLY |", TRUST),
        ("a key may lead out of the folder", ' or ".." in key.split("/")', "", TRUST),
        (
            "an object larger than the limit is read",
            "> limit:\n                raise too_large",
            "> 2**60:\n                raise too_large",
        ),
        (
            "a second writer with if_absent wins",
            "        return source.samefile(target)",
            "        return True",
        ),
        (
            "a listing is not sorted",
            "listed = sorted(key for key in keys",
            "listed = list(key for key in keys",
        ),
        (
            "a missing file cannot be deleted",
            ".unlink(missing_ok=True)\n\n    def copy",
            ".unlink()\n\n    def copy",
        ),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/s3.py",
        f"{S3} {STORE}",
        (
            "a 412 after a second try is our own write",
            "return head is not None and _digest(head) == digest",
            "return tries > 1",
            S3,
        ),
        (
            "a 412 is never our own write",
            "return head is not None and _digest(head) == digest",
            "return False",
            S3,
        ),
        (
            "the digest of what is read is not checked",
            "_check(hashlib.sha256(data).hexdigest(), response)",
            "pass",
            STORE,
        ),
        (
            "any digest will do",
            "if stated and stated != digest:",
            "if stated and not digest:",
            STORE,
        ),
        (
            "a page of a listing is the last",
            'if not page.get("IsTruncated"):',
            "if True:",
            f"{STORE} {TESTS}/storage/test_compact.py",
        ),
        (
            "a condition is not sent",
            """            place["IfNoneMatch"] = "*"\n""",
            "            pass\n",
            STORE,
        ),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/s3_retry.py",
        S3,
        (
            "nothing is tried again",
            "        return time.monotonic() < deadline\n\n    def _is_counted",
            "        return False\n\n    def _is_counted",
        ),
        (
            "a refusal is tried for ever",
            "return attempt < DENIED_ATTEMPTS",
            "return time.monotonic() < deadline",
        ),
        (
            "a busy server is no reason to try again",
            "(status >= 500 and status != 501)",
            "(status == 501)",
        ),
        ("a full disk here is waited out", "and not is_local(error)", ""),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/json_file.py",
        f"{TRUST} {WRITTEN}",
        (
            "the digest of a JSON file is not checked",
            "if _digest(body) != header[2].decode():",
            "if not _digest(body):",
            TRUST,
        ),
        (
            "a file of another format is read",
            "    if stated != version:",
            "    if stated < 0:",
            f"{TRUST} {TESTS}/storage/test_formats.py",
        ),
        (
            "unknown fields are taken",
            'ConfigDict(extra="forbid", strict=True)',
            'ConfigDict(extra="ignore", strict=True)',
            TRUST,
        ),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/names.py",
        TRUST,
        ("a name may be ..", 'if not name or name in (".", "..") or', "if not name or"),
        (
            "a file name may lead out of its folder",
            'if ".." in parts or parts[0] == "":',
            "if False:",
        ),
        (
            "a name may have control characters",
            '"\\\\" in name or not name.isprintable()',
            '"\\\\" in name',
        ),
        (
            "a label may have control characters",
            "if len(text) > MAX_NAME or not text.isprintable():",
            "if len(text) > MAX_NAME:",
            f"{TRUST} {HOSTILE} {WRITTEN}",
        ),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/record.py",
        WRITTEN,
        (
            "an error text has no bound",
            "    if len(data) <= ERROR_BYTES:",
            "    if len(data) <= 2**40:",
        ),
        (
            "a trial may end before it started",
            '"ended": max(unix_time(measured.get("ended", 0.0)), started),',
            '"ended": unix_time(measured.get("ended", 0.0)),',
        ),
        (
            "a clock before 1970 is believed",
            "else seconds, 0.0), MAX_TIME)",
            "else seconds, -1e9), MAX_TIME)",
        ),
        (
            "a lost host is a loss",
            "return self not in (Cause.METHOD, Cause.TIME_LIMIT)",
            "return False",
            VERDICTS,
        ),
        (
            "a time limit is no loss",
            "return self not in (Cause.METHOD, Cause.TIME_LIMIT)",
            "return self is not Cause.METHOD",
            VERDICTS,
        ),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/records.py",
        f"{TRUST} {STORE} {EXECUTION}",
        (
            "the record of another trial is taken",
            "if record.trial_id != trial_id:",
            "if not record.trial_id:",
            f"{TRUST} {TESTS}/storage/test_compact.py",
        ),
        (
            "a second record overwrites the first",
            "record.to_json(), if_absent=True)",
            "record.to_json())",
            ATTEMPTS,
        ),
    ),
    *_mutants(
        "storage",
        f"{PLATFORM}/storage/archive.py",
        f"{TESTS}/storage/test_archive.py",
        (
            "a move that was interrupted is not finished",
            "        return\n",
            ("        pass\n    return\n"),
        ),
        (
            "a search that was made since is lost where trials are restored",
            "if present or any(map(has_files, _places([], archived.searches))):",
            "if present:",
        ),
        (
            "the oldest trials are restored in place of the newest",
            "when = when or max(by_name)",
            "when = when or min(by_name)",
        ),
        (
            "a move may lead out of its study",
            'if place.partition("/")[0] not in FOLDERS and place not in WHOLE_FILES:',
            "if False:",
            f"{TESTS}/storage/test_archive.py {TRUST}",
        ),
    ),
    *_mutants(
        "accounts",
        f"{PLATFORM}/running/engine/accounts.py",
        f"{TESTS}/running/engine/test_accounts.py",
        (
            "a report of the same step resets the count of lost hosts",
            "<= active.step:",
            "< active.step:",
        ),
        (
            "the seconds of a trial that was stopped early are forgotten",
            "if record.status.stopped_early and active.seconds is not None:",
            "if False:",
        ),
    ),
    *_mutants(
        "accounts",
        f"{PLATFORM}/running/engine/accounts.py",
        f"{TESTS}/running/engine/test_overdue.py",
        (
            "the time to a first report counts as an interval",
            "mean = means[clock.arm]\n        mean.total",
            "mean = self._intervals[clock.arm]\n        mean.total",
        ),
    ),
    *_mutants(
        "accounts",
        f"{PLATFORM}/planning/budget.py",
        f"{TESTS}/planning/test_budget.py",
        (
            "what an earlier attempt trained is dropped at a restart",
            "self.unfinished.setdefault(trial_id, Unfinished(paused, gpus))",
            "self.unfinished[trial_id] = Unfinished(paused, gpus)",
        ),
    ),
    *_mutants(
        "campaign",
        f"{PLATFORM}/campaign/campaign.py",
        f"{TESTS}/campaign/test_deciding.py",
        (
            "a failed incumbent is no gain",
            "difference = 0.0 if math.isnan(candidate) else largest_gain",
            "difference = 0.0",
        ),
    ),
    *_mutants(
        "campaign",
        f"{PLATFORM}/statistics/referee.py",
        f"{TESTS}/statistics/test_referee.py",
        ("equal size is simpler", "len(saved) and saved[0] > 0", "len(saved) and saved[0] >= 0"),
        (
            "a candidate that is not simpler may lose as much as matters",
            "return self.margin if self.simpler and self.margin is not None else 0.0",
            "return self.margin if self.margin is not None else 0.0",
        ),
    ),
    *_mutants(
        "campaign",
        f"{PLATFORM}/results/ledger.py",
        f"{TESTS}/results/test_ledger.py",
        (
            "a superseded decision stands",
            "return None if not decisions or decisions[-1].superseded else decisions[-1]",
            "return None if not decisions else decisions[-1]",
        ),
    ),
    *_mutants(
        "tracking",
        f"{PLATFORM}/tracking/notify.py",
        f"{TESTS}/tracking/test_notify.py",
        (
            "looks of earlier runs are told again",
            "sum(look.taken < self.began for look in log.looks)",
            "0",
        ),
    ),
    *_mutants(
        "tracking",
        f"{PLATFORM}/tracking/follower.py",
        f"{TESTS}/tracking/test_trackers.py",
        (
            "archived trials are not dropped",
            "            self._drop(trial_id)\n        changed",
            "            pass\n        changed",
        ),
    ),
    *_mutants(
        "lease",
        f"{PLATFORM}/storage/lease.py",
        LEASE,
        (
            "without conditional writes nobody looks who was the last to write",
            "created = self._read(key).token == self.holder.token",
            "pass",
        ),
        (
            "a lease that cannot be read for a moment is taken over",
            'holder.token not in ("", self.holder.token)',
            "holder.token != self.holder.token",
        ),
        (
            "a storage that is away is the holder's silence",
            "time.monotonic() - started_at > POLL_S + HEARTBEAT_S",
            "False",
        ),
        (
            "a holder that lives here is not seen",
            "        if holder.lives_here:\n",
            "        if False:\n",
        ),
        (
            "renewals are no sign of life",
            "if newest_holder.renewals > holder.renewals:",
            "if False:",
        ),
        (
            "nobody learns that the lease is lost",
            "if generation > self.generation or (is_others and generation == self.generation):",
            "if False:",
        ),
        (
            "the lease is created over another",
            "created = self.store.write(key, self._content(), if_absent=True)",
            "created = self.store.write(key, self._content())",
        ),
        (
            "the lease is not given back",
            "self.holder = replace(self.holder, released=True)",
            "self.holder = replace(self.holder, released=False)",
        ),
        (
            "a lease that was given back is waited for",
            "if not holder.released:",
            "if generation:",
        ),
        (
            "renewals are not counted up",
            "renewals=self.holder.renewals + 1",
            "renewals=self.holder.renewals",
        ),
        (
            "a dead process of this machine is waited for",
            "if holder.lives_here is False:",
            "if False:",
        ),
    ),
    *_mutants(
        "lease",
        f"{PLATFORM}/storage/attempts.py",
        ATTEMPTS,
        (
            "an attempt never asks",
            "if time.monotonic() - self.last_checked < ASK_AFTER_S:",
            "if True:",
        ),
        ("a later attempt is not believed", "if latest.token != self.owner.token:", "if False:"),
        (
            "attempts are not counted",
            "1 if before is None else before.attempts + 1",
            "1",
            EXECUTION,
        ),
    ),
    *_mutants(
        "resume",
        f"{PLATFORM}/storage/checkpoints.py",
        EXECUTION,
        (
            "a damaged checkpoint is used",
            "if not (to / name).exists() or canonical.file_digest(to / name) != digest:",
            "if not (to / name).exists():",
        ),
        (
            "the older checkpoint stays",
            'replaced = old.step == step or keep != "all"',
            "replaced = old.step == step",
        ),
        (
            "the best checkpoint goes",
            "and (best is None or old.place != best.place)",
            "",
            "tests/contrasweep/running/test_cleaning.py",
        ),
        (
            "the marker is written before the files",
            "        for name, path in files_of(folder).items():\n            files[name]",
            '        MARKER_FILE.write(self.store, f"{self.prefix}/latest.json", asdict(Saved(step, {})))\n'
            "        for name, path in files_of(folder).items():\n            files[name]",
        ),
        (
            "nobody is asked before the marker",
            "        check()\n        # The best",
            "        # The best",
            f"{ATTEMPTS} {CHECKPOINTS}",
        ),
    ),
    *_mutants(
        "resume",
        f"{PLATFORM}/running/worker/execution.py",
        f"{EXECUTION} {CHECKPOINTS}",
        (
            "seconds before a resume are forgotten",
            "seconds=before.seconds,",
            "seconds=0.0,",
            EXECUTION,
        ),
        (
            "a resumed trial starts now",
            "unix_time() if before.started is None else before.started",
            "unix_time()",
            f"{EXECUTION} {ATTEMPTS}",
        ),
        (
            "checkpoints are stored before their reports",
            "        self.reports.write(items=True)\n        store()",
            "        store()",
            f"{EXECUTION} {CHECKPOINTS} {ATTEMPTS}",
        ),
        (
            "a checkpoint is not copied",
            "shutil.copyfile(path, self._copy / name)",
            "(self._copy / name).write_bytes(b'')",
            CHECKPOINTS,
        ),
        (
            "a checkpoint that waits is lost at the trial's end",
            "        try:\n            self._store_waiting()",
            "        try:\n            pass",
            CHECKPOINTS,
        ),
        (
            "other code that trained it is forgotten",
            "dict.fromkeys(digest for digest in earlier if digest != code.digest)",
            "()",
            f"{EXECUTION} tests/transcripts/test_transcripts.py",
        ),
    ),
    *_mutants(
        "resume",
        f"{PLATFORM}/running/worker/execution.py",
        EXECUTION,
        (
            "steps may go back",
            "        if step < 0 or (self.rows and step <= self.step and not revised):",
            "        if False:",
            f"{EXECUTION} {ATTEMPTS}",
        ),
        (
            "a resumed trial counts from 0",
            "self.step = saved.step if saved and self.rows else 0",
            "self.step = 0",
            f"{EXECUTION} {ATTEMPTS}",
        ),
        (
            "artifacts of earlier reports are forgotten",
            "dict.fromkeys([*self.artifacts, *report.artifacts])",
            "dict.fromkeys(report.artifacts)",
        ),
        (
            "later scores are not stored",
            "if items and self._item_scores:",
            "if False:",
        ),
    ),
    *_mutants(
        "resume",
        f"{PLATFORM}/running/worker/execution.py",
        f"{EXECUTION} {ATTEMPTS}",
        (
            "NaN is a last value like any other",
            "if final is not None and math.isfinite(final):",
            "if final is not None:",
            EXECUTION,
        ),
        (
            "a record is written without its reports",
            "            reports.write(items=True)\n",
            "",
        ),
        (
            "an attempt that was superseded writes its record",
            (
                "            # Checked once more, because the upload of a checkpoint may take long.\n"
                "            self.claim.check()\n"
            ),
            "",
            ATTEMPTS,
        ),
        (
            "a fault of the storage fails the trial",
            (
                "            if (\n"
                "                isinstance(error, StorageError | ProcessLostError)\n"
                "                or out_of_memory.exhausted_memory(error) is not None\n"
                "            ):\n"
            ),
            "            if out_of_memory.exhausted_memory(error) is not None:\n",
        ),
    ),
    *_mutants(
        "statistics",
        f"{PLATFORM}/statistics/family.py",
        f"{DESIGN} {STATISTICS} {EXAMPLE}",
        (
            "Holm's p-values may fall",
            "np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))",
            "p[order] * np.arange(len(p), 0, -1)",
        ),
        ("Holm's factors are turned round", "np.arange(len(p), 0, -1)", "np.arange(1, len(p) + 1)"),
        (
            "every comparison has all of alpha",
            "return self.alpha / max(1, self.size)\n",
            "return self.alpha\n",
        ),
        (
            "a margin leaves Holm's steps",
            "if self.margin is None:\n            return holm(",
            "if True:\n            return holm(",
        ),
        (
            "the interval is one of alpha",
            "return self.alpha / max(1, len(p_values) - min(before, decided))",
            "return self.alpha",
        ),
        (
            "cells are counted once",
            "        return sum(\n",
            "        return max(\n",
            f"{DESIGN} {SESSION}[cells]",
        ),
    ),
    *_mutants(
        "statistics",
        f"{PLATFORM}/statistics/design.py",
        f"{DESIGN} {EXAMPLE} {STATISTICS}",
        (
            "a mean over folds with replicates missing weighs every replicate alike",
            "weights = 1 / (units * np.bincount(folds))[folds]",
            "weights = np.full(len(folds), 1 / len(folds))",
        ),
        (
            "folds are independent",
            "return 1 / (self.folds - 1) if self.folds else 0.0",
            "return 0.0",
        ),
        (
            "overlap is that of one more fold",
            "return 1 / (self.folds - 1) if",
            "return 1 / self.folds if",
        ),
        (
            "degrees of freedom are the folds",
            "            most = folds - 1.0\n",
            "            most = float(folds)\n",
        ),
        (
            "the fold's component has all of the residual subtracted",
            "max(0.0, (gain - SUBTRACTED * noise) / per_unit)",
            "max(0.0, (gain - noise) / per_unit)",
        ),
        (
            "seeds of a fold are as many folds",
            "+ components.residual / (folds * self.seeds)",
            "+ components.residual / (folds * folds * self.seeds)",
        ),
        (
            "a test is one-sided",
            "alpha / 2)) * self.standard_error",
            "alpha)) * self.standard_error",
        ),
        (
            "few seeds are judged by the sign-flip test",
            "smallest_p(self.seeds) <= level else",
            "smallest_p(self.seeds) <= 1 else",
        ),
        (
            "seeds are a degree of freedom more",
            "        return self.seeds - 1.0\n",
            "        return float(self.seeds)\n",
        ),
    ),
    *_mutants(
        "statistics",
        f"{PLATFORM}/statistics/resampling.py",
        f"{STATISTICS} {DESIGN}",
        ("the observed pattern is not counted", "return (1 + int(", "return (0 + int("),
        ("ties do not count", "(smaller <= tie).sum()", "(smaller < -tie).sum()"),
        ("the smallest p is half of it", "return 2.0 ** (1 - n) if", "return 2.0 ** (-n) if"),
    ),
    *_mutants(
        "statistics",
        f"{PLATFORM}/statistics/group_sequential.py",
        GROUP_SEQUENTIAL,
        (
            "all of alpha is spent at each look",
            "due = np.maximum(allowed(one_sided, min(1.0, looks.times[look])) - spent, 0.0)",
            "due = one_sided",
        ),
        ("looks do not know of each other", "        spent = spent + due\n", ""),
        (
            "a test of looks is one-sided",
            "one_sided = np.asarray(alphas) / 2",
            "one_sided = np.asarray(alphas)",
        ),
    ),
    *_mutants(
        "statistics",
        f"{PLATFORM}/statistics/comparison.py",
        f"{DESIGN} {VERDICTS}",
        (
            "better and worse are turned round",
            'return "better" if mode == "max" else "worse"',
            'return "worse" if mode == "max" else "better"',
        ),
        (
            "a verdict does not wait",
            "        if not pair.gaps.pending:\n            low, high",
            "        if True:\n            low, high",
        ),
        ("equivalence ignores the lower end", "max(-low, high) < margin", "high < margin"),
        (
            "looks cost nothing",
            "factors = [LEVEL_DIVISOR**count for count in",
            "factors = [1.0 for count in",
        ),
    ),
    *_mutants(
        "pairing",
        f"{PLATFORM}/statistics/evidence.py",
        f"{DESIGN} {VERDICTS}",
        (
            "a failure helps its arm",
            'worse = -1.0 if mode == "max" else 1.0',
            'worse = 1.0 if mode == "max" else -1.0',
        ),
        (
            "failures are left out",
            "    if not arm.failed.any() and not np.isfinite(unlucky).any():",
            "    if True:",
        ),
        (
            "a missing trial is still to run",
            "pending=int((~known & ~ended).sum()),",
            "pending=int((~known & ~arm_a.failed & ~arm_b.failed).sum()),",
        ),
        (
            "a replicate may lack a cell",
            "needed = len(np.unique(self.cell[known])) if in_all_cells else 1",
            "needed = 1",
        ),
        (
            "arms stand the other way round",
            "d = np.where(ended, np.nan, a - b)",
            "d = np.where(ended, np.nan, b - a)",
        ),
        (
            "a loss is of the mean size",
            "np.fmax.at(size, self.cell, np.abs(d))",
            "np.fmin.at(size, self.cell, np.abs(d))",
        ),
    ),
    *_mutants(
        "pairing",
        f"{PLATFORM}/results/building.py",
        VERDICTS,
        (
            "an arm that is worse than the reference is marked as best",
            "rivals = {best} if reference is None else set(places)",
            "rivals = {best}",
            f"{TESTS}/reporting/test_report.py",
        ),
        (
            "what fits no host is a loss",
            "missing = outside | np.isin(status, UNFIT)",
            "missing = outside",
            VERDICTS,
        ),
        (
            "pairs are by position",
            ("            first = places[a][in_both]\n            second = places[b][in_both]\n"),
            "            first, second = (np.sort(at[at >= 0])[: len(in_both)] for at in (places[a], places[b]))\n",
            f"{SESSION}[shaped]",
        ),
        (
            "seeds are not told apart",
            'keys = list(zip(part["cell"], part["fold"], part["seed"], strict=True))',
            'keys = list(zip(part["cell"], part["fold"], part["cell"], strict=True))',
            f"{VERDICTS} {TESTS}/results/test_results.py",
        ),
        (
            "a value that is not finite counts",
            "np.isnan(values)] = NO_VALUE",
            "np.isinf(values)] = NO_VALUE",
            f"{VERDICTS} {TESTS}/results/test_results.py {TESTS}/reporting/test_report.py",
        ),
        (
            "the better arm does not come first",
            "if gain < 0:",
            "if gain > 0:",
            f"{VERDICTS} {TESTS}/results/test_results.py",
        ),
    ),
    *_mutants(
        "pairing",
        f"{PLATFORM}/planning/grid.py",
        PLAN,
        (
            "arms have other seeds",
            "whole_config, data, fold, seed, origin)",
            "whole_config, data, fold, seed + len(arm), origin)",
            f"{PLAN} {TESTS}/planning/test_plans.py",
        ),
    ),
    *_mutants(
        "pairing",
        f"{PLATFORM}/planning/starts.py",
        f"{TESTS}/test_mirrored.py",
        (
            "the best to start from is the largest",
            'sign = 1 if document.mode == "max" else -1',
            "sign = 1",
        ),
    ),
    *_mutants(
        "pairing",
        f"{PLATFORM}/live/overview.py",
        f"{TESTS}/test_mirrored.py",
        (
            "the best of a storage's study is the largest",
            'sign = 1 if document.mode == "max" else -1',
            "sign = 1",
        ),
    ),
    *_mutants(
        "resume",
        f"{PLATFORM}/running/prepare.py",
        f"{TESTS}/running/test_prepare.py",
        (
            "what a search has gone on from runs again",
            "record.missing and record.notes.phase != Phase.SEARCH",
            "record.missing",
        ),
    ),
    *_mutants(
        "pruning",
        f"{PLATFORM}/tuning/pruners/halving.py",
        PRUNERS,
        (
            "the worst go on",
            "key=lambda config: (-values[config], config))",
            "key=lambda config: (values[config], config))",
        ),
        (
            "one fold decides",
            "return statistics.fmean(values) if values and len(values) == len(at_rung) else None",
            "return statistics.fmean(values) if values else None",
        ),
        (
            "a failed trial keeps its value",
            "if trial in self.ended and (self.ended[trial] or not history)",
            "if trial in self.ended and not history",
        ),
        (
            "all go on",
            "ranked[: max(1, len(alive) // self.reduction)]",
            "ranked[: max(1, len(alive) - 1)]",
        ),
        ("small is large", 'self.sign = 1.0 if mode == "max" else -1.0', "self.sign = 1.0"),
        (
            "NaN goes on",
            "self.sign * value if abs(value) <= LARGEST else -math.inf",
            "self.sign * value",
        ),
    ),
    *_mutants(
        "pruning",
        f"{PLATFORM}/tuning/pruners/stopping_rule.py",
        PRUNERS,
        (
            "ASHA compares with the last",
            "values[step] < at_rung[kept - 1]",
            "values[step] < at_rung[-1]",
        ),
        (
            "ASHA stops at each step",
            "            if min(at_or_past) == step:\n",
            "            if at_or_past:\n",
        ),
        (
            "other folds are peers",
            "            if other != trial and self.folds.get(other) == self.folds.get(trial)\n",
            "            if other != trial\n",
        ),
        (
            "median stopping has no grace",
            "        if step < self.grace_steps or len(means) < self.min_trials:\n",
            "        if len(means) < self.min_trials:\n",
        ),
    ),
    *_mutants(
        "escaping",
        f"{PLATFORM}/reporting/formats.py",
        HOSTILE,
        (
            "a formula with @ is computed",
            'FORMULA = ("=", "+", "-", "@",',
            'FORMULA = ("=", "+", "-",',
        ),
        ("a column's name is a formula", ".rename(columns=inert_cell)", ""),
    ),
    *_mutants(
        "escaping",
        f"{PLATFORM}/results/rendering.py",
        f"{HOSTILE} {TESTS}/reporting/test_paper.py {TESTS}/reporting/test_report.py",
        ("templates escape nothing", "autoescape=True", "autoescape=False"),
        (
            "a backslash is a command",
            "return SPECIAL.get(character, character)",
            "return character",
        ),
    ),
    *_mutants(
        "escaping",
        f"{PLATFORM}/reporting/svg.py",
        HOSTILE,
        (
            "a series' name is markup",
            'data-name="{escape(s.name)}">{"".join(parts)}',
            'data-name="{s.name}">{"".join(parts)}',
        ),
    ),
    *_mutants(
        "escaping",
        f"{PLATFORM}/errors.py",
        f"{HOSTILE} {TESTS}/test_terminal_text.py {TRUST}",
        (
            "an error's text moves the cursor",
            'character if character.isprintable() else " " for character in text',
            "character for character in text",
        ),
    ),
    *_mutants(
        "escaping",
        f"{PLATFORM}/secrets.py",
        f"{TESTS}/running/test_secrets.py",
        (
            "a password in a query is shown",
            'parts[number] = f"{name}={HIDDEN}" if value and not goes_on else HIDDEN',
            "parts[number] = parts[number]",
        ),
        (
            "a password in an address is shown",
            'return f"{user}:{HIDDEN}@" if colon else f"{user}@"',
            'return f"{user_and_password}@"',
        ),
    ),
)


def misplaced(root: Path = ROOT) -> list[str]:
    """A line for each mutant whose text does not stand exactly once in its file, or that names no test file."""
    lines = []
    for mutant in MUTANTS:
        path = root / mutant.file
        count = path.read_text().count(mutant.before) if path.exists() else 0
        if count != 1 or mutant.before == mutant.after:
            lines.append(f"{mutant.file}: {mutant.what}: its text stands {count} times")
        lines += [
            f"{mutant.what}: no {t}"
            for t in mutant.tests
            if t.startswith("tests/") and not (root / t.partition("::")[0]).exists()
        ]
    return lines


def copy_of_the_tree() -> Path:
    """A copy of what tests need, with links as they are."""
    copy = Path(tempfile.mkdtemp(prefix="contrasweep-mutations-"))
    leave = shutil.ignore_patterns("__pycache__", ".*cache")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=leave)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def outcome(tree: Path, tests: Sequence[str], limit_s: float = LIMIT_S) -> tuple[int | None, str]:
    """Run pytest on `tests` in a copy of the tree: its exit status (None: over `limit_s`) and the first failure."""
    with tempfile.NamedTemporaryFile("r") as printed:
        process = WARM.Process(target=_pytest, args=(str(tree), tuple(tests), printed.name))
        process.start()
        process.join(limit_s)
        if process.is_alive():
            process.kill()
            return None, ""
        output = printed.read()
    failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if failed:
        return process.exitcode, failed[0].split(" - ")[0].partition(" ")[2]
    if process.exitcode != FAILED:
        return process.exitcode, output[-300:]
    return BROKEN, output[-300:]  # the process itself failed, and no test


def _pytest(tree: str, tests: Sequence[str], printed: str) -> None:
    """Run pytest in this process, into which no module of ours is imported yet but this one; then end the process."""
    os.chdir(tree)
    sys.dont_write_bytecode = True
    sys.path[:] = [
        f"{tree}/platform",
        tree,
        *(path for path in sys.path if not path.startswith(str(ROOT)) or "site-packages" in path),
    ]
    os.environ |= {"PYTHONPATH": f"{tree}/platform:{tree}", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] in ("benchmarks", "tests", "contrasweep")
    ]:
        del sys.modules[name]
    with open(printed, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    status = importlib.import_module("pytest").main(
        ["-q", "-x", "-p", "no:cacheprovider", "-m", "not long and not nightly", *tests]
    )
    sys.stdout.flush()
    os._exit(status)


def caught_before(page: Path, root: Path = ROOT) -> dict[str, str]:
    """The test that caught each mutant in the run that a page of results is of, where it is still there."""
    found = {}
    if page.exists():
        for line in page.read_text().splitlines():
            if "::" in line:
                what, test = (line.strip("| ").split(" | ")[at] for at in (1, 3))
                file, _, name = test.partition("::")
                path = root / TESTS / file
                if path.exists() and f"def {name.partition('[')[0]}(" in path.read_text():
                    found[what] = f"{TESTS}/{test}"
    return found


def failing_without(mutants: Sequence[Mutant], first: Mapping[str, str]) -> str:
    """The first of the tests that would run and that fails in the tree as it is; "" where all pass."""
    tree = copy_of_the_tree()
    try:
        alone = {first[mutant.what] for mutant in mutants if mutant.what in first}
        whole = [test for mutant in mutants if mutant.what not in first for test in mutant.tests]
        files = {test for test in whole if test.startswith("tests/")}
        files |= {test for test in alone if test.partition("::")[0] not in files}
        answer, test = outcome(tree, sorted(files), 10 * LIMIT_S)
        return "" if answer == PASSED else test
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def fate(tree: Path, mutant: Mutant, first: str = "") -> tuple[str, str]:
    """Put a mutant into the copy, run its tests (`first` before the others), and take it out.

    Returns how it ended, and the test that caught it.
    """
    path = tree / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        answer, test = outcome(tree, [first]) if first else (PASSED, "")
        if answer not in (FAILED, None):
            answer, test = outcome(tree, mutant.tests)
    finally:
        path.write_text(text)
    if answer is None:
        return "caught", "its tests did not end"
    return {PASSED: ("survived", ""), FAILED: ("caught", test)}.get(
        answer, ("not run", f"pytest ended with {answer}: {test}")
    )


def run(
    mutants: Sequence[Mutant], workers: int, first: Mapping[str, str]
) -> dict[Mutant, tuple[str, str]]:
    """The fate of every mutant, several at a time, each in a copy of its own."""
    waiting: queue.Queue[Mutant] = queue.Queue()
    for mutant in mutants:
        waiting.put(mutant)
    fates: dict[Mutant, tuple[str, str]] = {}

    def work() -> None:
        tree = copy_of_the_tree()
        try:
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                fates[mutant] = fate(tree, mutant, first.get(mutant.what, ""))
                said, test = fates[mutant]
                line = (
                    f"{len(fates):3}/{len(mutants)} {said}: {mutant.area}: {mutant.what} ({test})"
                )
                print(line[:300], flush=True)
        finally:
            shutil.rmtree(tree, ignore_errors=True)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {mutant: fates[mutant] for mutant in mutants}


def report(fates: dict[Mutant, tuple[str, str]], seconds: float) -> str:
    """The page of results."""
    caught = sum(fate == "caught" for fate, _ in fates.values())
    lines = [
        "# Deliberate defects, and the tests that caught them\n",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores shared with other work, Python "
        f"{platform.python_version()}; `python -m benchmarks.mutations`, {seconds / 60:.0f} min.\n",
        f"**{caught} of {len(fates)} caught ({100 * caught / len(fates):.1f} %)**, each by the tests named for it "
        "alone (`-m 'not long'`).\n",
    ]
    for title, word in (("Survived", "survived"), ("Not run", "not run")):
        left = [(mutant, why) for mutant, (fate, why) in fates.items() if fate == word]
        if left:
            lines.append(f"{title}:\n")
            lines += [
                f"- {m.area}: {m.what} (`{m.file}`){': ' + why if why else ''}" for m, why in left
            ]
            lines.append("")
    lines += ["| area | defect | file | caught by |", "|---|---|---|---|"]
    for mutant, (fate, test) in fates.items():
        by = test.removeprefix(f"{TESTS}/") if fate == "caught" else fate
        lines.append(
            f"| {mutant.area} | {mutant.what} | {mutant.file.removeprefix(f'{PLATFORM}/')} | {by} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the mutants, and write mutations.md where none was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a word in the area, the file or the defect")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if lines := misplaced():
        raise SystemExit("\n".join(lines))
    chosen = [m for m in MUTANTS if options.only in f"{m.area} {m.file} {m.what}"]
    first = caught_before(options.output / "mutations.md")
    if failed := failing_without(chosen, first):
        raise SystemExit(f"a test fails without any defect, so that it can catch none: {failed}")
    began = time.monotonic()
    text = report(run(chosen, options.workers, first), time.monotonic() - began)
    print(text)
    if not options.only:
        (options.output / "mutations.md").write_text(text)


if __name__ == "__main__":
    main()
