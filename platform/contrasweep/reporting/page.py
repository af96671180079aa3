"""The HTML report: one self-contained file, readable without a network, on a laptop, a phone and in the dark.

A section is a function that says what it shows, and a template that lays it out, `templates/sections/KEY.html`; it is
left out where there is nothing to show.
"""

import importlib.metadata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from contrasweep.errors import error_of, plural
from contrasweep.reporting.charts import curves_section, slices_section
from contrasweep.reporting.data import ReportData, Variables
from contrasweep.reporting.formats import render_template
from contrasweep.reporting.svg import COLOURS
from contrasweep.reporting.trials import TONES, trials_section
from contrasweep.results.answer import Answer
from contrasweep.storage.record import Phase, Status

MAX_CAUSES = 20
"""The most groups of failures that are shown."""
MAX_SENTENCES = 6
"""How many verdicts are told as sentences where there are many."""


def html_report(data: ReportData, *, written: datetime | None = None) -> str:
    """Return the report of a study as one HTML document, which needs no other file and no network.

    It says when it was `written` (default: now).
    """
    # A section whose function returns nothing is left out.
    sections = []
    for key, (title, variables_of) in SECTIONS.items():
        variables = variables_of(data)
        if variables:
            body = render_template(f"sections/{key}.html", **variables)
            sections.append({"key": key, "title": title, "body": body})
    document = data.document
    return render_template(
        "page.html",
        name=document.name,
        description=document.description,
        summary=_summary(data),
        notes=data.notes,
        counts=list(data.all_trials["status"].value_counts().items()),
        tones=TONES,
        datasets=sorted({(dataset.name, dataset.synthetic) for dataset in document.datasets}),
        study_link=data.study_link,
        arms=[(data.names(arm), data.colour(arm) % COLOURS) for arm in data.arms],
        sections=sections,
        written=written or datetime.now(UTC),
    )


def _summary(data: ReportData) -> str:
    """Return the line below the title: metric, arms and trials, of a sweep those of its search too."""
    size = plural(len(data.frame), "trial")
    if data.trials_of_sweep is not None:
        searched = int((data.trials_of_sweep["phase"] == Phase.SEARCH).sum())
        size = f"{plural(searched, 'trial')} of the search, {len(data.frame)} of the confirmation"
    better = "larger" if data.document.mode == "max" else "smaller"
    return (
        f"{data.names(data.metric)}, {better} is better · {plural(len(data.arms), 'arm')} · {size}"
    )


def _answer(data: ReportData) -> Variables:
    """Return what the section of verdicts shows: the study's verdicts in words, then exploratory comparisons."""
    answers = [answer for answer in data.answers if answer.pairs]
    return {
        "names": data.names,
        "groups": [_group(answer) for answer in answers],
        "notes": answers[0].notes if answers else [],
    }


def _group(answer: Answer) -> Variables:
    """Return what the page shows of one answer, by name.

    `first` has the comparisons that are told as sentences, and `decided` counts the decided ones. `rows` has a table of
    all comparisons where there are many or they are exploratory; else it is empty.
    """
    pairs = answer.pairs
    # Two more than are told of many are still all told.
    few = len(pairs) <= MAX_SENTENCES + 2
    return {
        "answer": answer,
        "first": answer.leading(len(pairs) if few else MAX_SENTENCES),
        "rows": [] if few and answer.decisive else answer.rows(),
        "decided": sum(pair.decided for pair in pairs),
    }


def _table(data: ReportData) -> Variables:
    """Return what the section of tables shows: the report's table, and that of the arms over all axes, if any."""
    return {
        "table": data.table,
        "overall": data.overall,
        "axes": list(map(data.names, data.axes)),
        "linked": bool(data.links),
        "ui_command": data.ui_command,
    }


def _failures(data: ReportData) -> Variables:
    """Return the failed trials in groups of one error message, with one whole traceback for each group.

    The largest groups come first, and `MAX_CAUSES` of them are returned. `omitted` is the number of groups less
    `MAX_CAUSES`: above 0 where groups are left out. Empty without failed trials.
    """
    statuses = [status for status in Status if status.failed or status.infeasible]
    failed = data.frame[data.frame["status"].isin(statuses)]
    if failed.empty:
        return {}
    errors = failed["error"].fillna("").astype(str)
    # The group of a trial: the word for its cause, and the line of its error or without one its status.
    lines = []
    for error, status, cause in zip(errors, failed["status"], failed["cause"], strict=True):
        raised = error_of(error.strip() or str(status))
        lines.append(f"{cause}: {raised}" if isinstance(cause, str) else raised)
    groups = sorted(
        failed.assign(cause=lines, error=errors).groupby("cause"), key=lambda item: -len(item[1])
    )
    failures = []
    for line, part in groups[:MAX_CAUSES]:
        trial_ids = list(map(str, part["trial_id"]))
        more = " …" if len(trial_ids) > 8 else ""
        arms = part["arm"].value_counts().items()
        failures.append(
            {
                "count": len(part),
                "cause": str(line)[:300],
                "arms": ", ".join(f"{data.names(str(arm))} ({n})" for arm, n in arms),
                "trials": ", ".join(trial_ids[:8]) + more,
                "traceback": part["error"].iloc[0][-4000:].strip("\n"),
                "log": data.log_command(trial_ids[0]),
            }
        )
    return {"failures": failures, "omitted": len(groups) - MAX_CAUSES}


def _again(data: ReportData) -> Variables:
    """Return what is needed to run the study again: commands, digests of data and code, versions of packages."""
    document = data.document
    datasets = []
    for dataset in document.datasets:
        synthetic = " (synthetic)" if dataset.synthetic else ""
        datasets.append([f"{dataset.name}{synthetic}", dataset.digest or "–"])
    content = {
        "commands": list(document.commands),
        "plan_digest": document.plan_digest,
        "datasets": datasets,
        "versions": [[name, version] for name, version in document.versions.items()],
        "code": data.code,
        "archived": data.archived,
    }
    return content if any(content.values()) else {}


SECTIONS: Mapping[str, tuple[str, Callable[[ReportData], Variables]]] = {
    "answer": ("The answer", _answer),
    "table": ("The table", _table),
    "advice": ("What would decide", lambda data: {"advice": data.advice} if data.advice else {}),
    "slices": ("Slices", slices_section),
    "curves": ("Learning curves", curves_section),
    "search": ("Search", lambda data: vars(data.search_notes) if data.search_notes.costs else {}),
    "figures": ("Figures of trials", lambda data: {"images": data.images} if data.images else {}),
    "trials": ("All trials", trials_section),
    "failures": ("Failures", _failures),
    "numbers": (
        "What the numbers mean",
        lambda data: {
            "margin": data.document.smallest_difference,
            "version": data.document.versions.get(
                "contrasweep", importlib.metadata.version("contrasweep")
            ),
        },
    ),
    "again": ("To run it again", _again),
}
"""Key of a section (its address, its template) -> its heading, and the function that gives its template's variables."""
