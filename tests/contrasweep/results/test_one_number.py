"""Over generated studies with gaps, looks and extensions: one number for one quantity in every form of a report, and no
line that contradicts itself."""

import dataclasses
import html
import io
import json
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from generated import Generated
from refusals import refused
from sweeps import finished, record_of, sweep

import contrasweep as cs
from contrasweep import Arm
from contrasweep.cli.documents import dumps
from contrasweep.cli.mcp_server import Tools
from contrasweep.cli.reports import summary
from contrasweep.live.overview import overviews
from contrasweep.reporting import render, render_comparison, report_data
from contrasweep.reporting.trials import trials_section
from contrasweep.results.rendering import NONE
from contrasweep.running import publish
from contrasweep.storage.record import Phase
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.tracker import TrackedStudy


def seeds(fast, every):
    """Of generated studies; `make test-long` has the others."""
    return [
        *range(fast),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(fast, every)),
    ]


NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?!\w)")
SAID = re.compile(
    r"(?P<a>\w+) (?:(?:is (?P<word>better|worse) than|against|and) (?P<b>\w+)|- (?P<other>\w+))"
    r"(?:(?P<size>, by less than matters| and it matters|, unclear whether it matters)"
    r"| (?:is (?P<undecided>undecided)|are (?P<equivalent>equivalent)))?: "
    r"(?P<difference>[-+][\d.]+(?:e-?\d+)?)(?: \[(?P<low>[-+][\d.]+), (?P<high>[-+][\d.]+)\])?"
    r"(?:, p (?P<p>[=<] [\d.e-]+))?(?:, within ±(?P<within>[\d.e-]+)|; (?P<margin>[\d.e-]+) would matter)?"
)


def shown_cells(text, form):
    """The numbers of each cell of the printed table, row by row."""
    if form == "html":
        cells = re.findall(r"<td[^>]*><details><summary>(.*?)</summary>", text, re.DOTALL)
        return [NUMBER.findall(re.sub(r"<[^>]*>", "", cell)) for cell in cells]
    lines = text.splitlines()
    if form == "latex":
        body = text[text.index(r"\midrule") :]  # the mean and what is behind it are two columns
        body = body.replace(r" & {\scriptsize", " ").replace(r"\multicolumn{2}{c}", "")
        rows = [line.split(" & ") for line in body.splitlines() if line.endswith(r" \\")]
    elif form == "markdown":
        rows = [
            re.split(r"\s*\|\s*", line.strip().strip("|").strip())
            for line in lines
            if line.startswith("|")
        ][2:]
    else:
        first = next(
            i for i, line in enumerate(lines) if re.fullmatch(r"[─\s]+", line) and line.strip()
        )
        block = lines[first + 1 :]
        rows = [re.split(r"\s{2,}", line.strip()) for line in block[: block.index("")]]
    return [NUMBER.findall(cell) for row in rows for cell in row[1:]]


def one_line(text):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).replace("\u00a0", " ").split())


def never_contradicts_itself(sentence, comparison, mode):
    """Of the printed digits alone: better or worse exactly where the interval leaves out 0 and p is at most alpha."""
    parts = [
        part
        for part in re.split(r"\. Decided at look \d+ \(\d+ \w+\): ", sentence)
        if "all values" not in part
    ]
    for part in parts:
        found = SAID.search(part)
        assert found, part
        low, high = (float(found[end]) if found[end] else None for end in ("low", "high"))
        if found["other"]:  # exploratory: an interval and a p, and no verdict
            continue
        verdict = (
            f"{found['word']}{found['size'] or ''}"
            if found["word"]
            else found["undecided"] or found["equivalent"]
        )
        assert part is not parts[0] or verdict == comparison.verdict, part
        excludes = low is not None and (low > 0 or high < 0)
        assert excludes == bool(found["word"]), part
        if found["word"]:
            above = low > 0
            assert (found["word"] == "better") == (above == (mode == "max")), part
        if found["p"] and found["p"].startswith("="):
            assert (float(found["p"][2:]) <= comparison.alpha) == bool(found["word"]), part
        margin = comparison.family.margin
        if found["equivalent"]:
            assert low is not None and -margin <= low <= 0 <= high <= margin, part
        if found["word"]:
            assert bool(found["size"]) == (margin is not None), part
        if found["size"]:  # rounded ends may be the margin itself
            held = {
                " and it matters": max(low, -high) >= margin,
                ", by less than matters": max(-low, high) <= margin,
            }
            assert held.get(found["size"], True), part


def holds_for(row, alpha, mode):
    """The same of unrounded numbers."""
    low, high = (row[end] for end in ("low", "high"))
    known = low is not None and np.isfinite(low) and high is not None and np.isfinite(high)
    above = bool(known and low > 0)
    below = bool(known and high < 0)
    better, worse = (above, below) if mode == "max" else (below, above)
    assert (row["direction"] == "better") == better and (row["direction"] == "worse") == worse, row
    assert row["verdict"].split(" and ")[0].split(",")[0] in (
        row["direction"],
        "equivalent",
        "undecided",
    ), row
    assert (row["p_value"] is None) == (row["n"] < 2), row
    assert (row["p_value"] is not None and row["p_value"] <= alpha) == (better or worse), row
    if row["verdict"] == "equivalent":
        assert -row["smallest_difference"] < low <= high < row["smallest_difference"]
        assert row["equivalence_p"] <= alpha


def check(results):
    frame = results.to_frame()
    mode = results.document.mode
    alpha = results.document.alpha
    metric = results.metric
    done = frame[(frame["status"] == "done") & np.isfinite(frame[metric])]
    axes = results.axes
    means = done.groupby("arm")[metric].mean()
    published = publish._means(
        results
    )  # what MLflow's page of the study shows beside its group rows
    assert published == pytest.approx({f"{metric}/{arm}": mean for arm, mean in means.items()})
    in_the_page = []
    for table in [results.table(), *([results.table(["arm"], [])] if axes else [])]:
        rows = table.to_frame()
        factors = ["arm", *axes] if "batch_size" in rows else ["arm"]
        own = done.groupby(factors)[metric].agg(["mean", "size", "min", "max"])
        expected = []
        for row in rows.to_dict("records"):
            key = tuple(int(row[f]) if f == "batch_size" else row[f] for f in factors)
            key = key if len(key) > 1 else key[0]
            if key in own.index:
                one = own.loc[key]
                assert (row["mean"], row["n"]) == (pytest.approx(one["mean"]), one["size"])
                assert (row["min"], row["max"]) == (one["min"], one["max"])
            else:
                assert row["n"] == 0 and np.isnan(row["mean"])
            expected.append(numbers_of(row, table))
        if table.averages:
            for (arm,) in table.columns:
                cell = table.averages[arm,]
                assert cell.mean == pytest.approx(means[arm]) if arm in means else cell.mean is None
                expected.append(numbers_of(vars(cell), table))
        in_the_page += expected
        texts = {
            "text": table.to_text(2000),
            "markdown": table.to_markdown(),
            "latex": table.to_latex(),
        }
        texts["html"] = table.to_html()
        for form, text in texts.items():
            assert shown_cells(text, form) == expected, form
        lists_have_their_mean(texts["html"], table)
        legend_tells_replicates(table)
        sentences = table.answer.sentences()
        for form, text in texts.items():
            if form != "latex" or table.answer.decisive:
                plain = text.replace(r"$<$", "<").replace(r"$\pm$", "±").replace(r"$\times$", "x")
                shown = one_line(plain.replace("\\", ""))
                assert all(sentence in shown for sentence in sentences), form
        for row in table.to_rows():
            labels = tuple(row["factors"].values())
            place = labels[: len(table.row_factors)], labels[len(table.row_factors) :]
            row["statuses"] = {status: n for status, n in row["statuses"].items() if n}
            shared = {
                name: value for name, value in vars(table.cells[place]).items() if name in row
            }
            assert len(shared) == 11 and shared == {name: row[name] for name in shared}, (
                "a field has one name"
            )
        for pair in table.answer.pairs:
            assert pair.sentence() == pair.place(NONE) + str(pair.comparison).removesuffix("."), (
                "it knows its arms"
            )
            never_contradicts_itself(pair.sentence(), pair.comparison, mode)
        if table.answer.decisive:
            for pair in table.answer.pairs:
                holds_for(pair.comparison.to_dict(), alpha, mode)
    for pair in results.answer.pairs[:3]:
        told_alike(results, pair)
    table = results.table()
    page = render(results, "html", table).decode()
    assert shown_cells(page, "html") == in_the_page
    page = one_line(page)
    few = (
        results.answer.pairs if len(results.answer.pairs) <= 8 else ()
    )  # of more the page has rows in place of these
    assert all(pair.sentence(results.names) in page for pair in few)
    csv = pd.read_csv(io.BytesIO(render(results, "csv", table)))
    assert list(csv["mean"].dropna()) == pytest.approx(list(table.to_frame()["mean"].dropna()))


def numbers_of(row, table):
    """The digits that a cell shows, from the numbers that CSV has."""
    if row["mean"] is None or not np.isfinite(row["mean"]):
        return []
    digits = lambda value: f"{value:.{table.decimals}f}"  # noqa: E731
    span = (
        [digits(row["low"]), digits(row["high"])]
        if np.isfinite(row["low"]) and row["low"] != row["high"]
        else []
    )
    return [number for number in [digits(row["mean"]), *span] if "." in number]


def lists_have_their_mean(page, table):
    """What a cell of the page opens on: the mean of the listed trials is the cell's, and its range is theirs."""
    for cell, listed in re.findall(
        r"<summary>(.*?)</summary><ul class=\"runs\">(.*?)</ul>", page, re.DOTALL
    ):
        values = [float(v) for v in re.findall(r"seed [^:<]*: (-?\d+\.\d+)", listed)]
        if not values or not (shown := NUMBER.findall(re.sub(r"<[^>]*>", "", cell))):
            continue
        half = 0.5 * 10.0**-table.decimals
        assert abs(np.mean(values) - float(shown[0])) <= half * 1.1 + 1e-12
        if span := re.search(r"from (-?[\d.]+) to (-?[\d.]+)", listed):
            assert (float(span[1]), float(span[2])) == (min(values), max(values))


def legend_tells_replicates(table):
    """Every number of replicates that a cell has stands in the legend."""
    said = " ".join(table.legend)
    constant = any(c.interval == "constant" and c.mean not in (0, 1) for c in table.cells.values())
    assert ("have one value: do they use" in said) == constant
    if "no intervals" not in said and "other cells have another number" not in said:
        assert all(
            cell.over in said for cell in table.cells.values() if cell.interval not in ("", "none")
        )


def judged_alike(results):
    """`judge` gives the comparisons of a study the numbers of the study's own table."""
    document = results.document
    over = {"overall": "these", "cells": "each"}[document.question]
    judged = cs.judge(
        results.to_frame(),
        metric=results.metric,
        mode=document.mode,
        alpha=document.alpha,
        margin=document.smallest_difference,
        reference=document.reference or "none",
        **({"block": ",".join(results.axes), "over": over} if results.axes else {}),
    )
    numbers = [
        {
            (pair.a, pair.b, *pair.context): (
                pair.comparison.p_value,
                pair.comparison.low,
                pair.comparison.verdict,
            )
            for pair in pairs
        }
        for pairs in (judged.pairs, results.answer.pairs)
    ]
    assert numbers[0] == numbers[1]
    # A study's trials may be missing, or still to run, which lengthens its own advice.
    if over == "these" and len(results.done) == len(results.planned) and results.advice():
        prices = [(size.count, size.trials) for size in results.advice().sizes]
        assert [(size.count, size.trials) for size in judged.advice.sizes] == prices
    return judged


def told_alike(results, pair):
    """Of one comparison text, Markdown, JSON, CSV and Python have the same digits."""
    at = {factor: int(label) for factor, label in pair.context}
    versus = results.versus(pair.a, pair.b, at=at)
    comparison = versus.overall.comparison
    assert comparison.to_dict() == pair.comparison.to_dict()
    row = json.loads(json.dumps(versus.to_dict()))["overall"]
    from_csv = pd.read_csv(io.BytesIO(render_comparison(versus, "csv"))).iloc[0]
    decimals = len(comparison.span().split(" ")[0].partition(".")[2])
    for name in ("difference", "low", "high", "p_value", "raw_p"):
        assert row[name] is None or row[name] == getattr(comparison, name)
        assert (row[name] is None and np.isnan(from_csv[name])) or from_csv[name] == pytest.approx(
            row[name]
        )
    assert f"{row['difference']:+.{decimals}f}" in comparison.span() or row["low"] is None
    for form in ("text", "markdown"):
        said = one_line(render_comparison(versus, form).decode()).replace("\\", "")
        assert versus.overall.sentence(versus.names) in said, form


def turned(log):
    """The same looks, with each comparison of a with b as one of b with a."""
    other = {"better": "worse", "worse": "better"}
    looks = []
    for look in log.looks:
        of_b = [
            dataclasses.replace(
                at,
                a=at.b,
                b=at.a,
                difference=-at.difference,
                low=None if at.high is None else -at.high,
                high=None if at.low is None else -at.low,
                decision=other.get(at.decision, at.decision),
            )
            for at in look.comparisons
        ]
        looks.append(dataclasses.replace(look, comparisons=tuple(of_b)))
    return dataclasses.replace(log, looks=tuple(looks))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(9, 18))
def test_every_form_says_the_same_and_no_line_contradicts_itself(seed, tmp_path):
    for results in Generated(seed).run(tmp_path):
        check(results)
        if results._interim is None:
            judged_alike(results)
        else:
            said = results.table().to_markdown()
            results.__dict__["_interim"] = dataclasses.replace(
                results._interim, log=turned(results._interim.log)
            )
            assert results.table().to_markdown() == said, "whichever arm the log has first"


class GeneratedSweep:
    """A sweep of a random design: trials are pruned, fail in search and confirmation, and it may be stopped."""

    def __init__(self, seed):
        rng = np.random.default_rng([seed, 11])
        self.sd = float(rng.choice([0.002, 0.05]))
        self.mode = ["max", "min"][seed % 2]
        self.pruned = float(rng.choice([0.3, 0.6]))
        self.lost = float([0.15, 0.0, 0.3][seed % 3])
        self.stop = int(rng.integers(12, 24)) if seed % 4 == 3 else 10**9
        space = {"lr": cs.Float(0.003, 3.0, log=True), "batch_size": cs.Choice([16, 32])}
        more = {"budget": {"trials": 5}, "trials_per_arm": None} if seed % 2 else {}
        self.study = sweep(
            arms={arm: Arm("toy:train", config={"epochs": 2}, space=space) for arm in "abc"[: 2 + seed % 2]},
            folds=[3, 5][rng.integers(2)],
            mode=self.mode,
            confirm_on=["folds", "all"][rng.integers(2)],
            confirm_seeds=list(range(1000, 1001 + int(rng.integers(1, 4)))),
            searcher="random",
            smallest_difference=float(3 * self.sd) if seed % 2 else None,
            labels={"a": "A & B", "accuracy": "acc."} if seed % 3 == 0 else {},
            **more,
        )  # fmt: skip

    def record(self, trial, notes, status):
        return dataclasses.replace(
            self.ended(trial, notes, status), warnings=int(trial.id[0] < "4")
        )

    def ended(self, trial, notes, status):
        rng = np.random.default_rng(list(trial.id.encode()))
        draw = rng.uniform()
        value = 0.5 + 0.3 * (trial.arm == "b") * self.sd + rng.normal(0, self.sd)
        if draw < self.lost:  # after a report, far from what others come to
            return record_of(
                trial, notes, "failed", metrics={"accuracy": value + 0.3}, error="lost\n", step=1
            )
        if notes.phase == Phase.SEARCH and draw < self.lost + self.pruned:
            return record_of(trial, notes, "pruned", metrics={"accuracy": value + 0.2}, step=1)
        return record_of(trial, notes, "done", metrics={"accuracy": float(value)})


def means_of_views(results, uri):
    """By view of the study in MLflow the mean of the metric by arm, as its page groups the runs that it shows."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(results.name)
    means = {}
    for view in ("trials", "trials-all"):
        shown = json.loads(experiment.tags[f"mlflow.sharedViewState.{view}"])
        *_, group = shown["groupBy"]["groupByKeys"]
        assert {*results.document.space("a")} <= {
            column[8:-1] for column in shown["selectedColumns"]
        }  # params.`KEY`
        runs = client.search_runs(
            [experiment.experiment_id], shown.get("searchFilter", ""), max_results=1000
        )
        values = {}
        for run in runs:
            if results.metric in run.data.metrics and "trial_id" in run.data.tags:
                arm = run.data.params[group["groupByData"]]
                values.setdefault(arm, []).append(run.data.metrics[results.metric])
        means[view] = {arm: np.mean(scores) for arm, scores in values.items()}
    return means


def check_sweep(results, searched):
    """Of the search and of the confirmation: frames, JSON, the page's list, and the tables of best settings."""
    metric = results.metric
    frame = results.to_frame()
    shown = json.loads(json.dumps(summary(results), default=str))
    assert shown["statuses"] == results.statuses == frame["status"].value_counts().to_dict()
    cells = {row["factors"]["arm"]: row for row in shown["table"]}
    best = {row["arm"]: row for row in shown["best"]}
    text = render(results, "text").decode()
    html_page = render(results, "html").decode()
    page = one_line(html_page)
    for row in results.best().to_dict("records"):
        arm = row["arm"]
        cell = cells.get(row["arm"])
        tried = [r for r in searched if r.arm == arm and r.status == "done"]
        chosen = (max if results.document.mode == "max" else min)(r.metrics[metric] for r in tried)
        assert row["searched"] == best[arm]["searched"] == pytest.approx(chosen)
        assert row["configurations"] == best[arm]["configurations"] == len(tried)
        for name in ("mean", "low", "high", "n") if cell else ():
            assert best[arm][name] == cell[name] and (row[name] == cell[name] or cell[name] is None)
        done = frame[(frame["arm"] == arm) & (frame["status"] == "done")]
        assert row["n"] == len(done)
        confirmed = "–" if row["n"] == 0 else f"{done[metric].mean():.4g}"
        for form in (text[text.index("Best settings") :], page):
            named = [line for line in form.splitlines() if results.names(arm) in line]
            assert any(f"{row['searched']:.4g}" in line and confirmed in line for line in named), (
                arm,
                form[:99],
            )
    if len(cells) > 1 and min(cell["n"] for cell in cells.values()) > 1:
        judged = judged_alike(results)
        assert judged.table.notes == tuple(results.study_notes)
    chips = {status: int(n) for n, status in re.findall(r"<b>(\d+)</b> (\w+)</span>", html_page)}
    ended = Counter(str(record.status) for record in searched)
    assert chips == ended + Counter(results.statuses), "one page has one count of trials"
    stored = next(
        entry for entry in overviews(results.records.storage) if entry.study == results.name
    )
    assert stored.statuses == {status: n for status, n in chips.items() if status != "pending"}
    warned = [record.trial_id for record in results.trial_records.values() if record.warnings]
    told = f"{len(warned)} of {len(frame)} trials have warnings in their logs"
    forms = [
        *(render(results, form).decode() for form in ("csv", "latex", "markdown")),
        *shown["notes"],
        page,
        text,
    ]
    assert sum(told in form for form in forms) == 6 * bool(warned)
    logs = f"contrasweep logs {results.name} "
    assert (logs in text) == (logs in page.replace(f"{logs}TRIAL", "")) == bool(warned)
    listed = trials_section(report_data(results, results.table()))["listed"]
    columns = {column["name"]: column for column in listed["columns"]}
    words = {name: [c["words"][i] for i in c["at"]] for name, c in columns.items() if "words" in c}
    page_rows = pd.DataFrame({**words, "value": columns[results.names(metric)]["values"]})
    counts = {
        "confirmation": results.statuses,
        "search": pd.Series([str(r.status) for r in searched]).value_counts(),
    }
    for phase, rows in page_rows.groupby("phase"):
        assert rows["status"].value_counts().to_dict() == dict(counts[phase]), phase
    confirmed = page_rows[(page_rows["phase"] == "confirmation") & (page_rows["status"] == "done")]
    means = frame[frame["status"] == "done"].groupby("arm")[metric].mean().rename(results.names)
    assert dict(confirmed.groupby("arm")["value"].mean()) == pytest.approx(dict(means), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, 6))
def test_every_form_of_a_sweep_says_the_same_of_its_search_and_of_its_confirmation(
    seed, tmp_path, runs, mlflow_uri
):
    generated = GeneratedSweep(seed)
    results, _ = finished(
        generated.study, tmp_path / "runs", record=generated.record, stop_after=generated.stop
    )
    check(results)
    check_sweep(results, list(results.search_records.values()))
    trackers = checked_tracking(mlflow_uri)
    publish.publish(results, trackers, TrackedStudy.stored(results.records))
    views = means_of_views(results, mlflow_uri)
    with refused(cs.SpecError, match=r"is a study of contrasweep.*contrasweep:STORAGE:STUDY"):
        cs.judge(f"mlflow:{mlflow_uri}:{results.name}", metric=results.metric)
    done = results.done.groupby("arm")[results.metric].mean()
    assert views["trials"] == pytest.approx(dict(done))
    for arm, cell in (
        (row[0], cell) for (row, _), cell in results.table(["arm"], []).cells.items()
    ):
        assert views["trials"].get(arm) == (None if cell.mean is None else pytest.approx(cell.mean))
    tools = Tools(runs, tmp_path, None, None)
    asked = tools.table(results.name)
    printed = json.loads(dumps("report", summary(results)))
    assert asked == {name: value for name, value in printed.items() if name != "rows"}
    for pair in results.answer.pairs[:1]:
        shown = json.loads(dumps("compare", {"overall": pair.to_dict()}))["overall"]
        assert tools.compare(results.name, pair.a, pair.b)["overall"] == shown
