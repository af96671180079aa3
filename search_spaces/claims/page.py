"""Claims of papers beside what the studies that ask about them decided: the page docs/claims.md."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contrasweep.code import CurrentCode
from contrasweep.errors import NotStagedError, SpecError, choose_from
from contrasweep.imports import import_from_here, import_path
from contrasweep.planning.code_comparison import compare_code
from contrasweep.planning.durations import duration
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan, plan_staged
from contrasweep.report import write, write_report
from contrasweep.results.results import Results
from contrasweep.running.driver import run as run_study
from contrasweep.search_spaces.claims.ledger import Claim
from contrasweep.statistics.comparison import Comparison
from contrasweep.storage.record import COUNTING
from contrasweep.study.file import load_study

NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """A claim with what its study came to; `comparison` is None where it was not run."""

    claim: Claim
    study: Any  # an AblationGrid or a Sweep
    comparison: Comparison | None = None
    scores: dict[str, float] = field(default_factory=dict)  # mean of the metric by arm, and of the ceiling
    trials: int = 0
    hours: float = 0.0
    complete: bool = False
    changed: int = 0  # of its trials, those that the current code would make otherwise
    ended: str = ""  # the day of its last trial
    cost: str = ""  # what the claim's full study would take

    @property
    def verdict(self) -> str:
        """Return the verdict on the claim's arm, or that its study was not run, or is running."""
        if self.comparison is None:
            return NOT_RUN
        return self.comparison.verdict if self.complete else "running"

    @property
    def below_floor(self) -> bool:
        """Whether neither of the two arms reaches the floor, so that the better one is of no use as it was trained."""
        claim, scores = self.claim, self.scores
        if claim.floor not in scores:
            return False
        sign = 1 if self.study.mode == "max" else -1
        return max(sign * scores[claim.arm], sign * scores[claim.against]) < sign * scores[claim.floor]

    @property
    def remarks(self) -> list[str]:
        """What a reader of the verdict must know beside it."""
        lines = []
        if self.below_floor:
            lines.append(f"both arms are below the floor, {self.claim.floor}")
        if self.changed:
            lines.append(
                f"{self.changed} of {self.trials} trials were made by other code than that which wrote this page"
            )
        return lines


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
    """Write the page of the claims at the dotted path `of` to the file `output`, or print it: `contrasweep claims`.

    `names` are the studies whose claims are meant, all where none is given. With `run` the studies are run first. With
    an inventory file `cluster` each claim says what its full study would take there. `reports` is a folder for a report
    of each study.
    """
    known = chosen(claims_at(of), names)
    if run:
        for study in dict.fromkeys(claim.study for claim in known):
            try:
                run_study(load_study(study), storage=storage, tracking=None)
            except NotStagedError as error:  # the others can be asked all the same
                print(f"{study} is not run: {error}", file=sys.stderr)
    rows = [read(claim, storage) for claim in known]
    if cluster is not None:
        full = dict.fromkeys(claim.full for claim in known if claim.full)
        costs = {study: paper_scale_cost(study, storage, cluster) for study in full}
        rows = [replace(row, cost=costs.get(row.claim.full, "")) for row in rows]
    if reports is not None:
        for name in {row.study.name for row in rows if row.comparison is not None}:
            write_report(Results.load(name, storage), "markdown", output=reports / f"{name}.md")
    write(page(rows, _seen_from(output, reports)).encode(), output)


def claims_at(path: str) -> list[Claim]:
    """Return the list of claims at a dotted path; `SpecError` where there is none."""
    import_from_here()
    known = import_path(path, kind="list of claims", of=list)
    if not isinstance(known, list) or not known or not all(isinstance(claim, Claim) for claim in known):
        raise SpecError(
            "claims are a list of contrasweep.search_spaces.claims.Claim",
            place="--of",
            value=path,
            hint="such as contrasweep.search_spaces.claims:CLAIMS",
        )
    return known


def _seen_from(page: Path | None, reports: Path | None) -> str:
    """Return the folder of reports as the page links to it."""
    return "" if reports is None else Path(os.path.relpath(reports, page.parent if page else Path())).as_posix()


def chosen(claims: Sequence[Claim], names: Sequence[str]) -> list[Claim]:
    """Return the claims whose studies have these names, in the order of `claims`; all of them where no name is given.

    A name is a study's in its module (`MINING`), in a storage (`survey-mining`) or with its module
    (`contrasweep.search_spaces.survey:MINING`). Raises `SpecError` where no claim's study has it.
    """
    if not names:
        return list(claims)
    study_names = {claim.study: load_study(claim.study).name for claim in claims}
    called = [{claim.study, claim.study.partition(":")[2], study_names[claim.study]} for claim in claims]
    for name in names:
        if not any(name in each for each in called):
            raise SpecError(
                "no claim is asked by a study of this name",
                place="NAME",
                value=name,
                hint=choose_from("studies", list(study_names.values()), name),
            )
    return [claim for claim, each in zip(claims, called, strict=True) if each & set(names)]


def read(claim: Claim, storage: str) -> Row:
    """Return the claim with its study's results in `storage`. `SpecError` where the study has no such arms."""
    study: Any = load_study(claim.study)
    for role in ("arm", "against", "floor", "ceiling"):
        name = getattr(claim, role)
        if name is not None and "/" not in name and name not in study.arms:
            raise SpecError(
                f"the study {study.name} has no such arm",
                place=role,
                value=name,
                hint=f"its arms: {', '.join(study.arms)}",
            )
    try:
        results = Results.load(study.name, storage)
    except SpecError:
        return Row(claim, study)
    frame = results.to_frame()
    done = frame[frame["status"].isin(COUNTING)]
    if not {claim.arm, claim.against} <= set(done["arm"]):
        return Row(claim, study)
    planned, records = plan(study, storage=storage), list(results.trial_records.values())
    changed = compare_code(
        results.records, records, planned.sample_trials, CurrentCode(planned.study.functions), planned.total
    )
    scores = {str(arm): float(mean) for arm, mean in done.groupby("arm")[results.metric].mean().items()}
    for role in ("floor", "ceiling"):
        if "/" in (name := getattr(claim, role) or ""):
            scores |= _elsewhere(role, name, study, storage)
    return Row(
        claim,
        study,
        results.compare(claim.arm, claim.against),
        scores,
        len(done),
        float(done["seconds"].sum()) / 3600,
        results.complete,
        len(changed.trial_ids()),
        datetime.fromtimestamp(max(record.ended for record in records), UTC).date().isoformat(),
    )


def _elsewhere(role: str, name: str, asks: Any, storage: str) -> dict[str, float]:
    """Return the mean of an arm of another study, by the metric of the one that `asks`; empty where it was not run."""
    path, _, arm = name.rpartition("/")
    study: Any = load_study(path)
    if arm not in study.arms or study.data != asks.data:
        raise SpecError(
            f"a {role} of another study is one of its arms, on the same data",
            place=role,
            value=name,
            hint=f"on {study.data} it has the arms {', '.join(study.arms)}; {asks.name} is on {asks.data}",
        )
    try:
        frame = Results.load(study.name, storage).to_frame()
    except SpecError:
        return {}
    values = frame[frame["status"].isin(COUNTING) & (frame["arm"] == arm)].get(asks.metric)
    return {} if values is None or values.empty else {name: float(values.mean())}


HEAD = """# Claims of papers, and what studies decided

Each claim is asked by a study that two cores run in minutes. Its smallest difference of interest was declared before it
was run and is justified beside it; its settings were chosen on other data than those that decide; replicates were added
until a verdict was reached or out of reach. *Equivalent* is within the smallest difference of interest, also where
the difference is shown; verdicts count all comparisons and looks of a study, the intervals here do not. Floor and
ceiling are arms of the same table or of another study of the same data: *below the floor*, a difference is real and
neither arm of use as it was trained.
Small networks on small data: a verdict here holds for what was run, and is no verdict on the paper's own scale, for
which each section names the study and an inventory of hosts: there `plan` says which GPUs hold it, what is to be
staged, and the hours, counted from the operations of its steps until a trial has run.
`contrasweep claims --run --cluster INVENTORY --output FILE --reports FOLDER` makes this page again, and `contrasweep
claims NAME ...` shows only what the studies of these names decided.
"""
INVENTORY = "docs/cluster/example-inventory.yaml"
"""The hosts that a study at the paper's scale is planned for: the example, in whose place a reader puts their own."""


def page(rows: Sequence[Row], reports: str = "") -> str:
    """Return the page in Markdown: a table of verdicts, then each claim with how it was asked.

    `reports` is the folder, as seen from the page, with a report of each study that was run, NAME.md.
    """
    counts = Counter(row.verdict for row in rows)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    changed = sum(bool(row.changed) for row in rows)
    other = f" Trials of {changed} were made by other code than that which wrote this page." if changed else ""
    lines = [
        HEAD,
        f"Of {len(rows)} claims: {said}.{other}",
        "",
        "| claim | verdict | difference [95 %] | smallest | replicates | floor | ceiling |",
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    for number, row in enumerate(rows, 1):
        lines += ["", *_section(number, row, reports)]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    claim, seen = row.claim, row.comparison
    smallest = row.study.smallest_difference
    if seen is None:
        return [claim.says, NOT_RUN, "–", _number(smallest), "–", "–", "–"]
    return [
        claim.says,
        f"**{row.verdict}**" + ", below the floor" * row.below_floor,
        f"{seen.difference:+.3f} [{seen.low:+.3f}, {seen.high:+.3f}]",
        _number(smallest),
        str(seen.n),
        _score(row, claim.floor),
        _score(row, claim.ceiling),
    ]


def _score(row: Row, arm: str | None) -> str:
    return "–" if arm is None or arm not in row.scores else f"{row.scores[arm]:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _section(number: int, row: Row, reports: str) -> list[str]:
    claim, seen = row.claim, row.comparison
    lines = [f"## {number}. {claim.says}", "", f"{claim.source}. {row.study.description}."]
    if seen is not None:
        means = ", ".join(f"{arm} {score:.3f}" for arm, score in row.scores.items())
        lines += [
            "",
            f"{claim.arm} against {claim.against}, {row.study.metric}: {row.verdict}, {seen.difference:+.4f} "
            f"[{seen.low:+.4f}, {seen.high:+.4f}], p = {seen.p_value:.3g}, {seen.n} replicates. Means: {means}. "
            f"{row.trials} trials, {60 * row.hours:.0f} minutes of training in all, until {row.ended}.",
            *(f"{remark[0].upper()}{remark[1:]}." for remark in row.remarks),
            *([f"[Its report]({reports}/{row.study.name}.md): table, verdicts, looks."] if reports else []),
        ]
    if claim.tried:
        lines += ["", f"Settings: {claim.tried}."]
    if row.cost:
        lines += ["", f"At the paper's scale: {row.cost}."]
    lines += ["", "```", f"contrasweep run {claim.study}", f"contrasweep report {claim.study} --format html"]
    if claim.full:
        lines += [f"contrasweep plan {claim.full} --cluster {INVENTORY}   # at the paper's scale"]
    return [*lines, "```"]


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
    hosts = ", ".join(f"{node.count * node.gpus} {node.gpu.type}" for node in seen.inventory.nodes if node.gpu)
    trials = "as many trials as its budget pays for" if planned.total is None else f"{planned.total} trials"
    if seen.makespan is None:
        return f"{trials} on {hosts}, hours unknown until one has finished{waiting}"
    least = "at least about " * seen.counted
    hours = f"{least}{duration(3600 * seen.makespan.hours)} and {seen.makespan.gpu_hours:.3g} GPU-hours"
    return f"{trials} on {hosts}, {hours}{waiting}"
