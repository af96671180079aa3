"""Claims of papers beside what the studies that ask about them decided: the page docs/claims.md."""

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from docs.claims_ledger import Claim

from contrasweep.canonical import label
from contrasweep.code import CurrentCode
from contrasweep.errors import ContrasweepError, NotStagedError, SpecError, choose_from, duration
from contrasweep.imports import import_from_here, import_path
from contrasweep.planning.code_comparison import compare_code
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan, plan_staged
from contrasweep.reporting import write_report
from contrasweep.results.results import Results
from contrasweep.running.driver import run as run_study
from contrasweep.statistics.comparison import Relevance, Verdict, in_words, relevance_of
from contrasweep.storage.record import COUNTING
from contrasweep.study import file
from contrasweep.study.grid import DATA_AXIS
from contrasweep.terminal_text import write

NOT_RUN = "not run"
NOT_SHOWN = "not shown here"
ESTIMATES = "estimates.json"
LEDGER = "docs.claims_ledger:CLAIMS"
UNNAMED = "its records do not name"
"""In the note of an estimate whose trials' code is not known."""
FRESH_SEEDS = 6000
"""The first of the seeds that no study of a ledger uses but to be asked again."""


@cache
def load_study(path: str) -> Any:
    """Return the study at a dotted path, which several claims ask."""
    return file.load_study(path)


@dataclass(frozen=True)
class Estimate:
    """The result of one study for one claim; `decision` is about the claim's arm, `scores` are means by arm."""

    decision: Verdict
    difference: float
    low: float
    high: float
    p: float
    n: int
    scores: dict[str, float]
    trials: int
    hours: float
    changed: int  # of its trials, those that the current code would make otherwise
    until: str  # the day of its last trial
    complete: bool = True
    note: str = ""  # what else is to be known of its numbers
    ends: dict[str, tuple[float, float]] = field(
        default_factory=dict
    )  # 95 % interval of each arm's mean

    def verdict(self, margin: float | None) -> str:
        """Return the verdict in words; while the study runs, that it runs."""
        relevance = relevance_of(self.low, self.high, margin)
        return in_words(self.decision, relevance) if self.complete else "running"

    def span(self) -> str:
        """The difference with its interval and the number of replicates."""
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}], n {self.n}"


@dataclass(frozen=True)
class Kept:
    """What earlier pages found: estimates by study, arms and cell, and means by study, arm and metric."""

    estimates: dict[str, Estimate] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, reports: Path | None) -> "Kept":
        """Return what the file `ESTIMATES` in the folder of reports has; nothing where there is none."""
        path = None if reports is None else reports / ESTIMATES
        if path is None or not path.is_file():
            return cls()
        found = json.loads(path.read_text())
        return cls(
            {key: Estimate(**one) for key, one in found["estimates"].items()}, found["means"]
        )

    def to_json(self) -> str:
        """Return the text of the file."""
        estimates = {key: vars(one) for key, one in self.estimates.items()}
        return (
            json.dumps({"estimates": estimates, "means": self.means}, indent=1, sort_keys=True)
            + "\n"
        )


@dataclass(frozen=True)
class Row:
    """A claim with its study's estimate, `first`, and that of the same study on seeds that it never used, `fresh`.

    `earlier` is what the claim came to where it was asked otherwise. Each is None where it was not run. `elsewhere` are
    the means of floor and cross-entropy that other studies have.
    """

    claim: Claim
    study: Any  # an AblationGrid or a Sweep
    first: Estimate | None = None
    fresh: Estimate | None = None
    earlier: Estimate | None = None
    elsewhere: dict[str, float] = field(default_factory=dict)
    cost: str = ""  # what the claim's full study would take

    @property
    def decides(self) -> Estimate | None:
        """Return the estimate that decides: of fresh seeds once all were run, as nothing was chosen by them."""
        return self.fresh if self.fresh and self.fresh.complete else self.first

    @property
    def verdict(self) -> str:
        """Return the verdict on the claim's arm, in words, or that its study was not run, or is running."""
        return (
            NOT_RUN
            if self.decides is None
            else self.decides.verdict(self.study.smallest_difference)
        )

    @property
    def scores(self) -> dict[str, float]:
        """Means by arm, of the estimate that decides and of other studies."""
        return (self.decides.scores if self.decides else {}) | self.elsewhere

    def stands(self, arm: str) -> bool:
        """Whether an arm surely does more than one that learns nothing: its interval against the floor's, or its mean.

        It must be above by more than the smallest difference. An arm without a floor stands.
        """
        seen = self.decides
        floor = self.claim.floor
        if floor not in self.scores or seen is None:
            return True
        sign = 1 if self.study.mode == "max" else -1
        least = min(sign * end for end in seen.ends.get(arm, (seen.scores[arm],)))
        most = max(sign * end for end in seen.ends.get(floor, (self.scores[floor],)))
        return bool(least > most + self.study.smallest_difference)

    @property
    def held(self) -> str:
        """Whether the claim held, in words, with the data and settings that it was asked at."""
        seen = self.decides
        claim = self.claim
        if seen is None or not seen.complete:
            return self.verdict
        word = held(
            seen.decision,
            relevance_of(seen.low, seen.high, self.study.smallest_difference),
            claim.same,
        )
        if word == NOT_SHOWN:
            return word
        # What the arm that is ahead says rests on that it learned; that the other one learned less is what is claimed.
        ahead = {"better": [claim.arm], "worse": [claim.against]}.get(
            "" if word == "held" and claim.same else seen.decision
        )
        if low := [arm for arm in ahead or [claim.arm, claim.against] if not self.stands(arm)]:
            verb = "are" if len(low) > 1 else "is"
            least = self.study.smallest_difference
            return f"{NOT_SHOWN}: {' and '.join(low)} {verb} not surely {least:g} above the floor"
        made = " by construction" * bool(claim.construction)
        return f"{word}{made} on {claim.on}" + f", {claim.under}" * bool(claim.under)


def held(decision: Verdict, relevance: Relevance | None, same: bool) -> str:
    """Whether a claim held by the verdict on its arm: held, contradicted, or not shown here.

    A claim that two arms do as well (`same`) holds where the difference is surely less than matters, and is
    contradicted where there surely is one that may matter. A claim that an arm is better is contradicted where the arm
    is worse, or surely within less than matters.
    """
    sure = decision in ("better", "worse")
    if same:
        return "held" if relevance == "below" else "contradicted" if sure else NOT_SHOWN
    if decision == "better":
        return "held, by less than matters" if relevance == "below" else "held"
    return NOT_SHOWN if decision == "undecided" else "contradicted"


def fresh_study(study: Any, seeds: int) -> Any:
    """Return the study on so many seeds from `FRESH_SEEDS` on, which it never used; it is judged once, at the end."""
    numbers = list(range(FRESH_SEEDS, FRESH_SEEDS + seeds))
    return replace(study, name=f"{study.name}-fresh", seeds=numbers, replicates=None)


def write_page(
    of: str,
    names: Sequence[str] = (),
    *,
    storage: str,
    run: bool = False,
    cluster: Path | None = None,
    output: Path | None = None,
    reports: Path | None = None,
) -> None:
    """Write the page of the claims at the dotted path `of` to the file `output`, or print it.

    `names` are the studies whose claims are meant, all where none is given. With `run` the studies are run first, and
    again on fresh seeds where a claim says how many. With an inventory file `cluster` each claim says what its full
    study would take there. `reports` is a folder for a report of each study and for `ESTIMATES`: what the storage has
    is written there, and what it lacks is read from there.
    """
    known = chosen(claims_at(of), names)
    if run:
        for path, seeds in dict.fromkeys((claim.study, claim.fresh) for claim in known):
            study: Any = load_study(path)
            try:
                for one in [study, fresh_study(study, seeds)] if seeds else [study]:
                    run_study(one, storage=storage, tracking=None)
            except NotStagedError as error:  # the others can be asked all the same
                print(f"{path} is not run: {error}", file=sys.stderr)
    kept = Kept.of(reports)
    rows = [read(claim, storage, kept) for claim in known]
    if cluster is not None:
        full = dict.fromkeys(claim.full for claim in known if claim.full)
        costs = {study: paper_scale_cost(study, storage, cluster) for study in full}
        rows = [replace(row, cost=costs.get(row.claim.full, "")) for row in rows]
    if reports is not None:
        # Of a study with fresh seeds their report alone: what decides.
        for name in {f"{row.study.name}{'-fresh' * bool(row.claim.fresh)}" for row in rows}:
            with suppress(SpecError):  # not in the storage: the report of an earlier page stays
                write_report(Results.load(name, storage), "markdown", output=reports / f"{name}.md")
        write(kept.to_json().encode(), reports / ESTIMATES)
    write(page(rows, reports, _seen_from(output, reports)).encode(), output)


def claims_at(path: str) -> list[Claim]:
    """Return the list of claims at a dotted path; `SpecError` where there is none."""
    import_from_here()
    known = import_path(path, kind="list of claims", also_allowed=list)
    if (
        not isinstance(known, list)
        or not known
        or not all(isinstance(claim, Claim) for claim in known)
    ):
        raise SpecError(
            "claims are a list of docs.claims_ledger.Claim",
            place="--of",
            value=path,
            hint="such as docs.claims_ledger:CLAIMS",
        )
    return known


def _seen_from(page: Path | None, reports: Path | None) -> str:
    """Return the folder of reports as the page links to it."""
    return (
        ""
        if reports is None
        else Path(os.path.relpath(reports, page.parent if page else Path())).as_posix()
    )


def chosen(claims: Sequence[Claim], names: Sequence[str]) -> list[Claim]:
    """Return the claims whose studies have these names, in the order of `claims`; all of them where no name is given.

    A name is a study's in its module (`MINING`), in a storage (`survey-mining`) or with its module
    (`contrasweep.search_spaces.survey:MINING`). Raises `SpecError` where no claim's study has it.
    """
    if not names:
        return list(claims)
    study_names = {claim.study: load_study(claim.study).name for claim in claims}
    called = [
        {claim.study, claim.study.partition(":")[2], study_names[claim.study]} for claim in claims
    ]
    for name in names:
        if not any(name in each for each in called):
            raise SpecError(
                "no claim is asked by a study of this name",
                place="NAME",
                value=name,
                hint=choose_from("studies", list(study_names.values()), name),
            )
    return [claim for claim, each in zip(claims, called, strict=True) if each & set(names)]


def read(claim: Claim, storage: str, kept: Kept | None = None) -> Row:
    """Return the claim with its study's results in `storage`, else those of `kept`, which gets what the storage has.

    Raises `SpecError` where the study, or the one at the paper's scale, has no such arms.
    """
    study: Any = load_study(claim.study)
    kept = kept or Kept()
    for role in ("arm", "against", "floor", "cross_entropy"):
        name = getattr(claim, role)
        if name is not None and "/" not in name:
            _has_arm(study, role, name)
    for name in (claim.full_arms or [claim.arm, claim.against]) if claim.full else ():
        _has_arm(load_study(claim.full), "full", name)
    elsewhere: dict[str, float] = {}
    for name in (claim.floor, claim.cross_entropy):
        if name is not None and "/" in name:
            elsewhere |= _elsewhere("floor or cross_entropy", name, study, storage, kept)
    first = _estimate(claim, study, storage, kept)
    fresh = (
        _estimate(claim, fresh_study(study, claim.fresh), storage, kept) if claim.fresh else None
    )
    return Row(claim, study, first, fresh, kept.estimates.get(claim.earlier), elsewhere)


def _has_arm(study: Any, role: str, name: str) -> None:
    if name not in study.arms:
        raise SpecError(
            f"the study {study.name} has no such arm",
            place=role,
            value=name,
            hint=f"its arms: {', '.join(study.arms)}",
        )


def _key(claim: Claim, study: Any) -> str:
    at = [f"{axis}={value}" for axis, value in (claim.at or {}).items()]
    return "/".join([study.name, claim.arm, claim.against, *at])


def _estimate(claim: Claim, study: Any, storage: str, kept: Kept) -> Estimate | None:
    key = _key(claim, study)
    try:
        results = Results.load(study.name, storage)
    except SpecError:
        return kept.estimates.get(key)
    frame = results.to_frame()
    done = frame[frame["status"].isin(COUNTING)]
    here = done
    for axis, value in (claim.at or {}).items():
        here = here[(here[axis] == value) | ~here["arm"].isin([claim.arm, claim.against])]
    if not {claim.arm, claim.against} <= set(here["arm"]):
        return kept.estimates.get(key)
    planned = plan(study, storage=storage)
    records = list(results.trial_records.values())
    changed = compare_code(
        results.records,
        records,
        planned.example_trials,
        CurrentCode(planned.study.functions),
        planned.total,
    )
    seen = results.compare(claim.arm, claim.against, at=claim.at)
    estimate = Estimate(
        seen.decision,
        seen.difference,
        seen.low,
        seen.high,
        seen.p_value,
        seen.n,
        {str(arm): float(mean) for arm, mean in here.groupby("arm")[results.metric].mean().items()},
        len(done),
        float(done["seconds"].sum()) / 3600,
        len(changed.trial_ids()),
        datetime.fromtimestamp(max(record.ended for record in records), UTC).date().isoformat(),
        results.complete,
        ends=_ends(results, claim),
    )
    if estimate.complete:
        kept.estimates[key] = estimate
    return estimate


def _ends(results: Results, claim: Claim) -> dict[str, tuple[float, float]]:
    at = {axis: label(value) for axis, value in (claim.at or {}).items()}
    table = results.table(rows=["arm", *at])
    ends = {}
    for (row, _), cell in table.cells.items():
        named = dict(zip(["arm", *at], row, strict=True))
        if cell.mean is not None and all(
            named[axis] in (value, label(None)) for axis, value in at.items()
        ):
            ends[named["arm"]] = (
                cell.mean if cell.low is None else cell.low,
                cell.mean if cell.high is None else cell.high,
            )
    return ends


def _elsewhere(role: str, name: str, asks: Any, storage: str, kept: Kept) -> dict[str, float]:
    """Return the mean of an arm of another study, by the metric of the one that `asks`; empty where it was not run.

    Where both go over datasets, the mean is of those that `asks` has.
    """
    path, _, arm = name.rpartition("/")
    study: Any = load_study(path)
    if arm not in study.arms or study.data != asks.data:
        raise SpecError(
            f"a {role} of another study is one of its arms, on the same data",
            place=role,
            value=name,
            hint=f"on {study.data} it has the arms {', '.join(study.arms)}; {asks.name} is on {asks.data}",
        )
    shared = (asks.axes or {}).get(DATA_AXIS) if DATA_AXIS in (study.axes or {}) else None
    key = "/".join([study.name, arm, asks.metric, *(shared or [])])
    try:
        frame = Results.load(study.name, storage).to_frame()
    except SpecError:
        return {name: kept.means[key]} if key in kept.means else {}
    frame = frame if shared is None else frame[frame[DATA_AXIS].isin(shared)]
    values = frame[frame["status"].isin(COUNTING) & (frame["arm"] == arm)].get(asks.metric)
    if values is None or values.empty:
        return {}
    kept.means[key] = float(values.mean())
    return {name: kept.means[key]}


HEAD = """# Claims of papers, and what studies decided

Each claim is asked by a study that two cores run in minutes to two hours, on small networks and small data: a row
holds for what it says it was asked on, and is no verdict on the paper's own scale. The smallest difference of interest
was declared before a study was run and is justified where the study is declared. Settings were chosen on other data
than those that decide, unless a section says otherwise.

- **Held?** A claim that an arm is better is *contradicted* where it is worse, or the difference is surely less than
  matters either way. A claim that two arms do as well is *held* where that is so, and *contradicted* where there surely
  is a difference. The rest is *not shown here*. Either word needs that the arm ahead (both, where they do as well)
  is surely above the **floor**, an arm that learns nothing of the kind, by more than the smallest difference: the 95 %
  intervals of their means say so. *By construction*: the data or the loss make it so, and the claim is not counted.
- **Fresh** estimates are of a fixed number of seeds that the study had never used, judged once; they decide. Without
  them the **first** one decides, of the study as declared, which may stop at a look: it is a little too large then.
- Intervals and verdicts count all comparisons and looks of their study (first ones beside fresh ones: 95 % each). They
  do not count that a study was declared more than once, that one test part decides many studies, or what another
  choice of settings would have given: most were chosen by one seed.
- **CE**: the mean of a network that cross-entropy alone trains on the same data. It is no ceiling and is not tested.
- **At the paper's scale** stands a study of such arms that was not run. Its hours follow from its counted work.
"""
HOW = """
`python -m docs.claims_page --run --cluster INVENTORY --output FILE --reports FOLDER` makes this page again, and
`python -m docs.claims_page NAME ...` shows only what the studies of these names decided. Estimates that the storage
lacks are those of an earlier page, which FOLDER/estimates.json keeps.
"""
INVENTORY = "docs/cluster/example-inventory.yaml"
"""The hosts that a study at the paper's scale is planned for: the example, in whose place a reader puts their own."""
COLUMNS = ("", "claim", "held?", "difference [interval]", "smallest", "floor", "CE")


def page(rows: Sequence[Row], reports: Path | None = None, seen: str = "") -> str:
    """Return the page in Markdown: a table of claims, then each study with how it asked.

    `reports` is the folder with a report of each study that was run, NAME.md, and `seen` how the page names it.
    """
    counts = Counter(
        re.split(",|:| on ", row.held)[0]
        for row in rows
        if not row.claim.construction or not row.decides
    )
    said = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    made = sum(bool(row.claim.construction and row.decides) for row in rows)
    said += f"; {made} held by construction" * bool(made)
    lines = [
        HEAD,
        f"Of {len(rows)} claims: {said}.",
        *_totals(rows),
        "",
        f"| {' | '.join(COLUMNS)} |",
    ]
    lines += ["|---" * len(COLUMNS) + "|"]
    lines += [f"| {number} | {' | '.join(_cells(row))} |" for number, row in enumerate(rows, 1)]
    lines += ["", "What decided how often:", "", *_uses(rows), HOW]
    for study in dict.fromkeys(row.claim.study for row in rows):
        asked = {number: row for number, row in enumerate(rows, 1) if row.claim.study == study}
        lines += ["", *_section(asked, reports, seen)]
    return "\n".join(lines) + "\n"


def _totals(rows: Sequence[Row]) -> list[str]:
    """Return what a reader must know of all rows: fresh estimates, cross-entropy, trials of other code."""
    lines = []
    if any(row.decides for row in rows):
        lines.append(
            f"{sum(bool(row.fresh and row.fresh.complete) for row in rows)} have an estimate from fresh seeds."
        )
    beside = [
        row
        for row in rows
        if row.decides and row.claim.cross_entropy in row.scores and row.study.mode == "max"
    ]
    if beside:
        above = sum(
            max(row.scores[row.claim.arm], row.scores[row.claim.against]) > _ce(row)
            for row in beside
        )
        lines.append(
            f"In {above} of {len(beside)} rows with cross-entropy beside them one of the two arms is above it."
        )
    if other := sum(
        bool(row.decides and (row.decides.changed or UNNAMED in row.decides.note)) for row in rows
    ):
        lines.append(
            f"Trials of {other} were made by other code than that which wrote this page, or by code not named."
        )
    return lines


def _ce(row: Row) -> float:
    return row.scores[row.claim.cross_entropy or ""]


def _uses(rows: Sequence[Row]) -> list[str]:
    """Return a table of what decides the studies, with how often each was used so far."""
    studies = {row.claim.study: row for row in rows}
    used: dict[str, list[int]] = {}
    for row in studies.values():
        part = (
            "the test part"
            if row.study.folds is None
            else f"{row.study.folds} folds held out in turn"
        )
        data = (row.study.labels or {}).get(row.study.data, row.study.data).partition("?")[0]
        where = used.setdefault(f"{data}, {part}", [0, 0, 0])
        times = row.claim.declared - (row.decides is None) + bool(row.fresh and row.fresh.complete)
        shown = sum(other.claim.study == row.claim.study for other in rows)
        for i, count in enumerate((1, times, shown * times)):
            where[i] += count
    lines = [
        "| data | studies | times asked, fresh seeds and earlier declarations too | verdicts on claims |"
    ]
    return [
        *lines,
        "|---|---|---|---|",
        *(f"| {name} | {a} | {b} | {c} |" for name, (a, b, c) in used.items()),
    ]


def _cells(row: Row) -> list[str]:
    claim = row.claim
    seen = row.decides
    return [
        claim.says,
        f"**{row.held}**",
        "–" if seen is None else seen.span() if seen.complete else "running",
        f"{row.study.smallest_difference:g}",
        _score(row, claim.floor),
        _score(row, claim.cross_entropy),
    ]


def _score(row: Row, arm: str | None) -> str:
    return "–" if arm is None or arm not in row.scores else f"{row.scores[arm]:.3f}"


def _section(asked: dict[int, Row], reports: Path | None, seen: str) -> list[str]:
    """Return what a study decided, by the number of each claim that it asks, and its commands."""
    row = next(iter(asked.values()))
    claim = row.claim
    decides = row.decides
    lines = [f"## {row.study.description or row.study.name}", ""]
    for number, one in asked.items():
        lines += [f"- **{number}** {one.claim.source}. {_numbers(one)}"]
        if one.claim.construction:
            lines += [f"  By construction: {one.claim.construction}."]
    if claim.before:
        lines += [f"- Declared {_times(claim.declared)}; before, {claim.before}."]
    lines += [f"- Settings: {claim.tried}."] * bool(claim.tried)
    if decides is not None:
        few = f"{decides.n} of {claim.fresh} seeds were run; " * (
            decides is row.fresh and decides.n < claim.fresh
        )
        code = ", by other code than today's" * bool(decides.changed) + f". {decides.note}" * bool(
            decides.note
        )
        link = _link(
            f"{row.study.name}-fresh" if decides is row.fresh else row.study.name, reports, seen
        )
        hours = f"{60 * decides.hours:.0f} minutes of training, until {decides.until}"
        lines += [f"- {few}{decides.trials} trials, {hours}{code}.{link}"]
    for full, cost in {
        one.claim.full: one.cost or "not planned" for one in asked.values() if one.claim.full
    }.items():
        lines += [
            f"- At the paper's scale: `contrasweep plan {full} --cluster {INVENTORY}`: {cost}."
        ]
    stage = f"contrasweep data stage {claim.stage}\n" * bool(claim.stage)
    return [*lines, "", f"```\n{stage}contrasweep run {claim.study}\n```"]


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _numbers(row: Row) -> str:
    """Return the verdict on the claim's arms with their means, and what other estimates there are."""
    seen = row.decides
    claim = row.claim
    if seen is None or not seen.complete:
        return f"{row.verdict[0].upper()}{row.verdict[1:]}."
    means = ", ".join(
        f"{arm} {seen.scores[arm]:.3f}"
        + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if (ends := seen.ends.get(arm)) else "")
        for arm in (claim.arm, claim.against)
    )
    others = [f"first {row.first.span()}"] if row.first and row.first is not seen else []
    others += [f"asked before {row.earlier.span()}"] if row.earlier else []
    end = f"; {'; '.join(others)}" * bool(others)
    return f"{row.study.metric}: {claim.arm} is {row.verdict}, p = {seen.p:.2g}; {means}{end}."


def _link(name: str, reports: Path | None, seen: str) -> str:
    there = reports is not None and (reports / f"{name}.md").is_file()
    return f" [Its report]({seen}/{name}.md)." if there else ""


def paper_scale_cost(study: str, storage: str, cluster: Path) -> str:
    """Trials, wall and GPU hours of `study` on the hosts of the inventory file `cluster`, and what is not in them."""
    declared = load_study(study)
    labels = declared.labels or {}
    planned, missing = plan_staged(declared, storage=storage)
    unknown = [one for one in missing if not one.described]
    waiting = "".join(
        f"; {one.waiting} on {labels.get(one.name, one.name)}, whose size is not known before it is staged, left out"
        for one in unknown
    )
    if planned is None:
        return f"not planned{waiting}"
    seen = forecast(planned, storage, cluster, missing)
    hosts = ", ".join(
        f"{node.count * node.gpus} {node.gpu.type}" for node in seen.inventory.nodes if node.gpu
    )
    trials = (
        "as many trials as its budget pays for"
        if planned.total is None
        else f"{planned.total} trials"
    )
    if seen.makespan is None:
        return f"{trials} on {hosts}, hours unknown until one has finished{waiting}"
    least = "about " * seen.counted
    hours = (
        f"{least}{duration(3600 * seen.makespan.hours)} and {seen.makespan.gpu_hours:.3g} GPU-hours"
    )
    return f"{trials} on {hosts}, {hours}{waiting}"


def main() -> None:
    """`python -m docs.claims_page [NAME]...`; bad input ends it with a line and status 2."""
    parser = argparse.ArgumentParser(prog="python -m docs.claims_page", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="studies whose claims are meant: MINING, survey-mining",
    )
    parser.add_argument("--of", default=LEDGER, metavar="MODULE:NAME", help="the list of claims")
    parser.add_argument("--storage", default="./contrasweep-runs")
    parser.add_argument(
        "--run", action="store_true", help="run their studies first, and on fresh seeds"
    )
    parser.add_argument(
        "--cluster", type=Path, help="inventory file for the studies at the papers' scale"
    )
    parser.add_argument("--output", type=Path, help="file to write the page to, in Markdown")
    parser.add_argument(
        "--reports", type=Path, help=f"folder for a report of each study, and for {ESTIMATES}"
    )
    given = vars(parser.parse_args())
    try:
        write_page(given.pop("of"), given.pop("names"), **given)
    except ContrasweepError as error:
        print(f"claims_page: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
