"""Results that others made are judged by the design that they have, and what is not clear is refused."""

import json
import math
import os
import subprocess
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
import yaml
from benchmarks.paired import compare_paired
from command_line import contrasweep, printed
from places import ROOT
from refusals import refused
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

import contrasweep as cs
from contrasweep.cli.schemas import document_schema
from contrasweep.judging.judged import rank
from contrasweep.statistics.unpaired import unpaired_contrast, unpaired_evidence

RNG = np.random.default_rng
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]


def runs(arms, seeds=8, gain=0.02, **fixed):
    """Rows of arms that share seeds, of which each is better than the one before by `gain`."""
    rng = RNG(3)
    shared = rng.normal(0, 0.01, seeds)
    rows = [
        (arm, seed, 0.8 + gain * i + shared[seed] + rng.normal(0, 0.003))
        for i, arm in enumerate(arms)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["model", "seed", "accuracy"]).assign(**fixed)


def values(frame, arm):
    return frame.loc[frame["model"] == arm, "accuracy"].to_numpy()


def only(judged):
    (pair,) = judged.pairs
    return pair.comparison if pair.a < pair.b else pair.comparison.reversed()


def items(n=400, gain=0.1, seed=0):
    rng = RNG(seed)
    rows = [(m, i, int(rng.random() < 0.6 + gain * (m == "a"))) for m in "ab" for i in range(n)]
    return pd.DataFrame(rows, columns=["model", "doc_id", "acc"])


def test_runs_of_shared_seeds_are_judged_as_compare_paired_judges_them_and_the_first_line_says_the_design():
    frame = runs(["base", "big", "wide"], lr=0.1)
    judged = cs.judge(frame)
    assert repr(judged) == judged.to_text() and judged._repr_html_() == judged.to_html()
    assert judged.design == (
        "3 arms, 8 seeds in common: paired by seed; family of 2 comparisons against base; metric accuracy, "
        "larger is better"
    )
    assert judged.columns.endswith("(guessed: arm, metric, pair, mode, reference); not used: lr")
    assert str(judged).startswith(judged.design)
    for pair in judged.pairs:
        alone = compare_paired(values(frame, pair.a), values(frame, pair.b))
        assert pair.comparison.difference == pytest.approx(alone.difference)
        assert pair.comparison.raw_p == pytest.approx(alone.raw_p)
        assert pair.comparison.p_value == pytest.approx(2 * alone.raw_p)


def test_folds_are_corrected_for_the_training_rows_that_they_share():
    frame = runs("ab", seeds=10, gain=0.005)
    frame = frame.assign(fold=frame["seed"] // 2, seed=frame["seed"] % 2)
    comparison = only(cs.judge(frame))
    folds, seeds = (frame.loc[frame["model"] == "a", name].tolist() for name in ("fold", "seed"))
    alone = compare_paired(
        values(frame, "a"), values(frame, "b"), train_fraction=0.8, folds=folds, seeds=seeds
    )
    assert comparison.test == "corrected t-test"
    assert comparison.raw_p == pytest.approx(alone.raw_p)
    assert comparison.raw_p > 2 * stats.ttest_rel(values(frame, "a"), values(frame, "b")).pvalue


@pytest.mark.parametrize("columns", [["repeat", "fold"], ["fold", "repeat"]])
@pytest.mark.parametrize("numbered_on", [False, True])
def test_the_folds_of_repeats_are_those_of_a_partition_whatever_the_order_of_columns(
    columns, numbered_on
):
    frame = runs("ab", seeds=30, gain=0.005)
    repeat = frame["seed"] // 3
    frame = frame.assign(repeat=repeat, fold=frame["seed"] if numbered_on else frame["seed"] % 3)
    judged = cs.judge(frame[["model", *columns, "accuracy"]])
    assert "30 folds: paired by repeat and fold" in judged.design
    design = only(judged).evidence.common.design
    assert (design.folds, design.repeats) == (3, 10)
    tasks = frame.assign(task=frame["fold"] % 3).drop(columns="fold")
    assert "3 tasks" in cs.judge(tasks).design  # where repeats are averaged


@pytest.mark.parametrize("gain", [0.0, 0.1])
def test_right_and_wrong_answers_are_judged_by_mcnemars_exact_test(gain):
    frame = items(gain=gain)
    comparison = only(cs.judge(frame))
    wide = frame.pivot(index="doc_id", columns="model", values="acc")
    table = pd.crosstab(wide["a"], wide["b"])
    assert comparison.test == "McNemar's exact test"
    assert comparison.raw_p == pytest.approx(mcnemar(table, exact=True).pvalue)
    assert (comparison.low > 0 or comparison.high < 0) == (comparison.raw_p <= 0.05)
    assert comparison.scope == "on new items like these"


def test_a_wrong_answer_and_a_hard_task_are_no_collapse():
    frame = items(n=22, gain=0.39)
    assert only(cs.judge(frame)).decided
    for renamed in (frame, frame.rename(columns={"doc_id": "task"})):
        assert "collapse" not in str(cs.judge(renamed))


@pytest.mark.parametrize("name", ["status", "weight", "value", "missing", "count"])
def test_tasks_may_stand_in_a_column_of_any_name(name):
    frame = pd.concat(runs("ab").assign(**{name: task}) for task in ("t0", "t1"))
    for over, cells in (("each", 4), ("these", 2)):
        judged = cs.judge(frame, block=name, over=over)
        assert len(judged.table.cells) == cells and judged.pairs[0].comparison.n == 8


@pytest.mark.parametrize("folds", [1, 5])
def test_what_a_seed_does_at_each_setting_is_no_further_replicate(folds):
    """A seed's effect that all its settings share: means over settings tell the noise, settings as seeds do not."""
    rng = RNG(3)
    effect = {(m, s): rng.normal(scale=0.02) for m in "ab" for s in range(4)}
    rows = [
        (m, f, s, lr, wd, effect[m, s] + rng.normal(scale=0.001), lr == 1)
        for m in "ab"
        for f in range(folds)
        for s in range(4)
        for lr in (1, 2, 3)
        for wd in (0, 1)
    ]
    columns = ["model", "fold", "seed", "lr", "wd", "acc", "collapsed"]
    frame = pd.DataFrame(rows, columns=columns).drop(columns=["fold"] * (folds == 1))
    judged = cs.judge(frame, block="lr,wd", over="these")
    keys = [name for name in ("model", "fold", "seed") if name in frame]
    means = frame.groupby(keys, as_index=False)["acc"].mean()
    assert only(judged).raw_p == pytest.approx(only(cs.judge(means)).raw_p)
    assert "averaged over lr wd, for these values alone" in judged.design
    assert "not used" not in judged.columns and "collapsed" in judged.to_text()


def test_items_of_groups_are_as_many_replicates_as_there_are_groups():
    frame = items().assign(group=lambda f: f["doc_id"] % 20)
    comparison = only(cs.judge(frame))
    means = frame.groupby(["model", "group"])["acc"].mean().unstack()
    alone = compare_paired(means.loc["a"], means.loc["b"])
    assert comparison.n == 20
    assert comparison.raw_p == pytest.approx(alone.raw_p)


def test_seeds_are_crossed_with_items():
    rng = RNG(4)
    rows = [
        (m, s, i, rng.normal(0.1 * (m == "a"))) for m in "ab" for s in range(4) for i in range(30)
    ]
    judged = cs.judge(pd.DataFrame(rows, columns=["model", "seed", "item", "score"]))
    comparison = only(judged)
    assert "4 seeds x 30 items: paired by seed and item" in judged.design
    assert comparison.components.item >= 0
    assert comparison.evidence.common.design.items == 30
    wide = judged.table.comparisons()
    frame = pd.DataFrame(rows).pivot(index=1, columns=[0, 2], values=3)
    assert wide["difference"].abs().iloc[0] == pytest.approx(
        abs(float((frame["a"] - frame["b"]).to_numpy().mean()))
    )


def test_tasks_are_replicates_for_further_tasks_and_fixed_for_these():
    frame = pd.concat(runs("ab", gain=0.01, task=f"t{i}") for i in "012")
    frame["accuracy"] += RNG(5).normal(0, 0.01, len(frame))
    further, these, each = (cs.judge(frame, over=over) for over in ("further", "these", "each"))
    means = frame.groupby(["model", "task"])["accuracy"].mean().unstack()
    assert only(further).raw_p == pytest.approx(
        stats.ttest_rel(means.loc["a"], means.loc["b"]).pvalue
    )
    assert only(further).scope == "for further tasks like these"
    by_seed = frame.groupby(["model", "seed"])["accuracy"].mean().unstack()
    assert only(these).raw_p == pytest.approx(
        compare_paired(by_seed.loc["a"], by_seed.loc["b"]).raw_p
    )
    assert [dict(pair.context) for pair in each.pairs] == [{"task": f"t{i}"} for i in "012"]
    assert "family of 3 comparisons" in each.design


def both_p(a, b):
    """The larger p of the exact permutation test of the means and of Welch's test, by SciPy."""
    exact = stats.permutation_test(
        (a, b), lambda x, y: x.mean() - y.mean(), n_resamples=np.inf
    ).pvalue
    return max(exact, stats.ttest_ind(a, b, equal_var=False).pvalue)


@pytest.mark.parametrize("gain", [0.005, 0.01, 0.02, 0.1])
def test_runs_without_a_common_seed_must_stand_by_permutations_and_by_welchs_test(gain):
    frame = runs("ab", seeds=5, gain=gain).drop(columns="seed")
    judged, (a, b) = cs.judge(frame), (values(frame, arm) for arm in "ab")
    comparison = only(judged)
    assert comparison.test == "permutation test"
    assert comparison.raw_p == pytest.approx(both_p(a, b))
    assert "unpaired: the difference carries the spread of both arms" in judged.table.answer.notes
    for end in (
        comparison.low,
        comparison.high,
    ):  # the interval holds the shifts that neither test rejects
        step = 1e-6 * np.sign(comparison.difference - end)
        assert both_p(a - end + step, b) <= 0.05 < both_p(a - end - step, b)


@pytest.mark.parametrize("n", [4, 5, 6])
def test_an_interval_of_unpaired_runs_leaves_out_0_exactly_where_both_tests_reject(n):
    for seed in range(40):
        contrast = unpaired_contrast(
            RNG(seed).normal(seed % 3, 1, n), RNG(seed + 99).normal(0, 1, n)
        )
        for level in (2 * k / math.comb(2 * n, n) for k in (1, 2, 5)):  # that relabelings attain
            low, high = contrast.interval(level)
            rejects = 2 * min(contrast.p_above(0.0, level), contrast.p_below(0.0, level)) <= level
            assert (low > 0 or high < 0) == rejects


@pytest.mark.parametrize("n", [2, 3])  # too few for the permutation test
def test_few_unpaired_runs_are_judged_by_welchs_test(n):
    a, b = RNG(n).normal(size=(2, n))
    contrast = unpaired_contrast(a, b)
    for p, side in ((contrast.p_above, "greater"), (contrast.p_below, "less")):
        oracle = stats.ttest_ind(a - 0.5, b, equal_var=False, alternative=side)
        assert p(0.5) == pytest.approx(oracle.pvalue)


def test_unequal_numbers_of_runs_are_judged_by_welchs_test():
    frame = runs("ab", seeds=9)[3:].drop(columns="seed")
    oracle = stats.ttest_ind(values(frame, "a"), values(frame, "b"), equal_var=False)
    comparison = only(cs.judge(frame))
    assert comparison.raw_p == pytest.approx(oracle.pvalue)
    assert (comparison.low, comparison.high) == pytest.approx(tuple(oracle.confidence_interval()))
    assert "6 and 9 runs" in str(cs.judge(frame))


def test_a_run_without_a_value_is_a_loss_and_helps_no_arm():
    frame = runs("ab", gain=-0.02)
    assert only(cs.judge(frame)).verdict == "better"
    frame.loc[(frame["model"] == "a") & (frame["seed"] < 2), "accuracy"] = np.nan
    judged = cs.judge(frame)
    assert only(judged).verdict == "undecided"
    assert "a failed in 2 of 8" in str(judged)
    items = pd.concat([runs("ab").assign(item=item) for item in "xy"]).rename(
        columns={"seed": "fold"}
    )
    items["accuracy"] = items["accuracy"].where(
        (items["model"] == "b") | (items["fold"] > 1) | (items["item"] == "x")
    )
    assert "6/8: finished/planned" in str(cs.judge(items)), (
        "one item of two in two folds has no value"
    )


@pytest.mark.parametrize("common", [0, 1])
def test_a_table_is_planned_with_two_seeds_where_all_arms_share_fewer_and_two_arms_share_more(
    common,
):
    frame = runs("abc")
    of_c = (frame["model"] == "c") & (frame["seed"] >= common)
    frame.loc[of_c, "seed"] += 100
    judged = cs.judge(frame)
    assert f" {common} seed{'s' * (common != 1)} in common of {16 - common}" in judged.design
    assert judged.table.design.seeds == 2


def written(frame, path):
    """Write a frame of texts, whose numbers a file of lines of JSON has as texts too."""
    if path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        separator = {".tsv": "\t", ".semicolons.csv": ";"}.get("".join(path.suffixes), ",")
        frame.to_csv(path, index=False, sep=separator)
    return path


@pytest.mark.parametrize("ending", [".csv", ".semicolons.csv", ".tsv", ".jsonl"])
def test_arms_are_called_as_they_are_written_and_a_word_for_nothing_is_a_name_or_no_number(
    tmp_path, ending
):
    frame = runs(["1.1", "1.10", "2.0"]).assign(
        accuracy=lambda f: f["accuracy"].map("{:.2f}".format)
    )
    judged = cs.judge(written(frame, tmp_path / f"runs{ending}"))
    assert {name for pair in judged.pairs for name in (pair.a, pair.b)} == {"1.1", "1.10", "2.0"}
    assert "3 arms, 8 seeds in common" in judged.design and "metric accuracy" in judged.columns
    frame = runs(["01", "1"]).astype({"seed": str})
    frame.loc[frame["model"] == "01", "seed"] = "0" + frame["seed"]
    judged = cs.judge(written(frame, tmp_path / f"runs{ending}"), reference="01")
    assert "2 arms, 8 seeds in common" in judged.design
    frame = runs(["null", "NA"]).astype({"accuracy": str, "seed": str})
    frame.loc[:1, "accuracy"] = None if ending == ".jsonl" else "NA"
    frame.loc[3, "seed"] = "3.0"
    judged = cs.judge(written(frame, tmp_path / f"names{ending}"), arm="model", metric="accuracy")
    assert "2 arms, 8 seeds in common" in judged.design
    assert "6/8: finished/planned" in str(judged)


def test_labels_of_several_columns_are_equal_only_where_every_column_is():
    frame = runs(["x y", "x", "q"]).assign(size=lambda f: f["model"].map({"x y": "z", "x": "y z"}))
    frame = frame.fillna({"size": "q"})
    assert "3 arms, 8 seeds in common" in cs.judge(frame, arm="model,size").design
    rng = RNG(2)
    rows = [
        (arm, task, before + str(item), rng.normal())
        for arm in "ab"
        for task, before in (("t 1", ""), ("t", "1 "))
        for item in range(6)
    ]
    tasks = pd.DataFrame(rows, columns=["model", "task", "item", "score"])
    assert "12 items" in cs.judge(tasks, over="these").design


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.assign(fold=0),
        lambda f: f.rename(columns={"accuracy": "accuracy, top 1 "}),
        lambda f: f.rename(columns={"accuracy": "self"}),
        lambda f: f.set_axis(pd.MultiIndex.from_product([["runs"], f.columns]), axis=1),
    ],
)
def test_columns_of_one_fold_or_of_any_name_change_no_verdict(change):
    frame = change(runs(["a", "b"]))
    arm, pair, metric, *fold = (str(name).strip() for name in frame)
    options = {"arm": arm, "metric": metric, "mode": "max", "pair": "" if fold else pair}
    assert only(cs.judge(frame, **options)).raw_p == only(cs.judge(runs(["a", "b"]))).raw_p
    assert rank(frame, **options).ties == ()


def test_a_value_whose_square_overflows_is_lost():
    lost, huge = (
        runs("ab").assign(accuracy=lambda f, v=v: [v, *f["accuracy"][1:]])
        for v in (np.nan, -sys.float_info.max)
    )
    assert only(cs.judge(huge)).to_dict() == only(cs.judge(lost)).to_dict()


@pytest.mark.parametrize("index", ["seed", "model", ["model", "seed"]])
def test_an_index_with_a_name_is_a_column(tmp_path, index):
    frame = runs("ab")
    frame.set_index(index).to_parquet(tmp_path / "runs.parquet")
    for source in (frame.set_index(index), tmp_path / "runs.parquet"):
        assert cs.judge(source).design == cs.judge(frame).design


@pytest.mark.slow
def test_its_document_has_its_schema(tmp_path):
    runs(["base", "big"]).to_csv(tmp_path / "runs.csv", index=False)
    for words in (["--require", "better"], [], ["--pair", "none"]):
        done = contrasweep("judge", "runs.csv", *words, "--json", folder=tmp_path)
        document = json.loads(
            done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON")
        )
        jsonschema.validate(document, document_schema("judge"))
    assert document["schema"] == "judge/1"
    assert document["comparisons"][0]["verdict"] == "better"


def test_files_that_are_broken_or_hostile_are_one_line_and_nothing_is_fetched_or_run(tmp_path):
    for name, content in {
        "a.csv": b"\x00\xff" * 99,
        "b.csv": b"",
        "c.jsonl": b"[" * 10**5,
        "d.parquet": b"PAR1nothingPAR1",
        "more cells than the head.csv": b"model,seed,acc\n1,a,0,1\n2,b,0,2\n",
        "e.csv": b"model,model,acc\na,b,1",
        "f.txt": b"a",
        "g.csv": b'a,b\n"1,2\n',
        "h.jsonl": b'{"model": {"__reduce__": 1}, "acc": [1]}\n' * 3,
        "i.jsonl": b'{"x": [1], "y": {"a": 2}, "seed": 1, "acc": 1}\n' * 3,
        "j.jsonl": b'{"model": "a", "seed": 1, "acc": 1%s}\n' % (b"0" * 400) * 3,
    }.items():
        (tmp_path / name).write_bytes(content)
        with refused(cs.SpecError):
            cs.judge(tmp_path / name)
    with refused(cs.SpecError, "there is no such file"):
        cs.judge("https://example.org/runs.csv")


HOSTILE = "x\n\n\\input{/etc/passwd}<img src=x onerror=alert(1)>![p](http://e/p.png)=1+1\x1b[2J"


@pytest.mark.parametrize("column", ["model", "seed", "accuracy", "arm", "reference"])
def test_a_name_of_somebody_else_is_one_line_of_text_in_every_format(column):
    """Design and sentences have names, too, and stand outside of the tables."""
    frame = runs(["a", "base"])
    name = ascii(HOSTILE)[1:-1]
    arm = column in ("arm", "reference")
    frame = frame.replace("base", HOSTILE) if arm else frame.rename(columns={column: HOSTILE})
    roles = {
        "model": {"arm": name},
        "seed": {"pair": name},
        "accuracy": {"metric": name, "mode": "max"},
    }
    said = {"reference": name} if column == "reference" else roles.get(column, {})
    plain = runs(["a", "base"])
    judged = cs.judge(frame, **said)
    like = cs.judge(plain, reference="base" if column == "reference" else "none")
    board = rank(frame, **{k: v for k, v in said.items() if k != "reference"})
    for format in ("text", "markdown", "latex", "html", "csv"):
        for shown in (judged, board)[: 1 if format == "latex" else 2]:
            text = getattr(shown, f"to_{format}")()
            assert "\x1b" not in text and "\n\\input" not in text and "\n=1" not in text
            if format == "markdown":
                assert "<img" not in text.replace("\\<", "") and "](http" not in text
            if format == "html":
                assert "<img" not in text
    latex = [line for line in judged.to_latex().splitlines() if not line.startswith("%")]
    assert "\\input" not in "\n".join(latex)
    assert len(judged.to_text(10**4).splitlines()) == len(like.to_text(10**4).splitlines())


def test_a_board_of_the_command_line_is_at_the_level_that_was_asked_for(tmp_path):
    rng = RNG(3)
    rows = [(m, s, g + rng.normal(0, 0.1)) for m, g in (("a", 0.1), ("b", 0)) for s in range(12)]
    pd.DataFrame(rows, columns=["model", "seed", "score"]).to_csv(tmp_path / "r.csv", index=False)
    for alpha in (0.4, 1e-9):
        words = ["judge", "r.csv", "--board", "--json", "--alpha", str(alpha)]
        document = json.loads(printed(tmp_path, *words))
        assert document["alpha"] == alpha
        assert [row["high"] for row in document["rows"]] == ([1, 2] if alpha == 0.4 else [2, 2])
    # More runs are a further look, at a quarter of alpha.
    wide = pd.DataFrame(rows).pivot(index=1, columns=0, values=2)
    gains = wide["a"] - wide["b"]
    effect = gains.mean() / gains.std()
    needed = TTestPower().solve_power(effect, alpha=0.001 / 4, power=0.8)
    assert abs(rank(tmp_path / "r.csv", alpha=0.001).needed - needed) < 3


def test_a_board_has_the_ranks_that_independent_tests_leave():
    rng = RNG(6)
    base = rng.normal(0, 0.1, 25)
    gains = {"a": 0.1, "b": 0.095, "c": 0.05, "d": 0.0, "e": -0.001}
    rows = [(m, t, g + base[t] + rng.normal(0, 0.02)) for m, g in gains.items() for t in range(25)]
    frame = pd.DataFrame(rows, columns=["model", "task", "score"])
    board = rank(frame)
    wide = frame.pivot(index="task", columns="model", values="score")
    order = [row.arm for row in board.rows]
    assert order == list(wide.mean().sort_values(ascending=False).index)
    alone = {
        pair: stats.ttest_rel(wide[pair[0]], wide[pair[1]]).pvalue
        for pair in combinations(order, 2)
    }
    adjusted = dict(zip(alone, multipletests(list(alone.values()), method="holm")[1], strict=True))
    for row in board.rows:
        mine = {pair: p for pair, p in adjusted.items() if row.arm in pair}
        better = sum(p <= 0.05 for pair, p in mine.items() if pair[1] == row.arm)
        worse = sum(p <= 0.05 for pair, p in mine.items() if pair[0] == row.arm)
        assert (row.low, row.high) == (1 + better, 5 - worse)
    nexts = [alone[pair] for pair in pairwise(order)]
    assert [row.p_next for row in board.rows[:-1]] == pytest.approx(nexts)
    assert board.separable == sum(p <= 0.05 for p in nexts)
    assert board.ties == ("b",)
    assert "a is not shown to be better than 1 other: b" in board.lines


@pytest.mark.parametrize(("mode", "lost"), [("max", 1 - 4), ("min", 5 + 4)])
def test_a_failed_run_without_a_partner_is_by_the_range_of_all_runs_worse_than_the_worst(
    mode, lost
):
    found = unpaired_evidence(np.array([1.0, 2.0]), np.array([3.0, 5.0]), (1, 2), mode)
    assert found.a_loses.a == (1.0, 2.0, lost) and found.b_loses.b == (3.0, 5.0, lost, lost)


def unlike_runs():
    """Rows of two arms on five folds of two seeds; `b` is better by about .05."""
    rng = RNG(8)
    rows = [
        (arm, fold, seed, 0.1 * fold + seed + 0.05 * (arm == "b") + rng.normal(0, 0.01))
        for arm in "ab"
        for fold in range(5)
        for seed in range(2)
    ]
    return pd.DataFrame(rows, columns=["model", "fold", "seed", "accuracy"])


def failed(frame, count):
    """The same rows, of which the first `count` of arm b have no value."""
    lost = frame.index[frame["model"] == "b"][:count]
    return frame.assign(accuracy=frame["accuracy"].drop(lost))


def one_seed(frame, fold):
    return frame[frame["seed"] == 0].drop(columns="seed").rename(columns={"fold": fold})


def copies(frame):
    return frame.assign(accuracy=(frame["model"] == "b") * 0.1)


SAME_BY_JUDGE = {
    "folds and seeds": lambda f: f,
    "folds without some runs": lambda f: f.drop([10, 12, 14, 16]),
    "failed on folds": lambda f: failed(f, 3),
    "failed on seeds": lambda f: failed(one_seed(f, "seed"), 1),
    "failed on tasks": lambda f: failed(one_seed(f, "task"), 1),
    "failed without a partner": lambda f: failed(one_seed(f, "run")[:-1], 1),
    "groups of many sizes": lambda f: f.rename(columns={"fold": "group"}).assign(
        item=[*range(10)] * 2, seed=0, group=lambda f: f["group"].clip(upper=3)
    ),
    "copies": lambda f: copies(one_seed(f, "seed")),
    "copies without a partner": lambda f: copies(one_seed(f, "run")),
    "equal differences": lambda f: one_seed(f, "task").assign(
        accuracy=lambda f: f["task"] ** 2 + (f["model"] == "b") * 8
    ),
}


@pytest.mark.parametrize("what", SAME_BY_JUDGE)
@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_board_of_two_arms_says_what_a_table_of_them_says(what, mode):
    frame = SAME_BY_JUDGE[what](unlike_runs())
    board, comparison = rank(frame, mode=mode), only(cs.judge(frame, mode=mode))
    means = {row.arm: row.mean for row in board.rows}
    assert means["a"] - means["b"] == pytest.approx(comparison.difference)
    assert board.rows[0].p_next == pytest.approx(comparison.raw_p)
    assert (board.rows[1].low == 2) == comparison.decided == (board.separable == 1)
    assert what.startswith("copies") <= (board.rows[0].p_next == 1)


def test_arms_of_one_value_beside_a_noisy_arm_have_a_p_and_arms_that_failed_no_rank():
    noisy = runs("x", seeds=4).drop(columns="seed")
    rows = [("one", 0.9), ("two", 0.7)] * 4 + [("none", np.nan)] * 4
    board = rank(pd.concat([noisy, pd.DataFrame(rows, columns=["model", "accuracy"])]))
    assert [row.arm for row in board.rows] == ["one", "x", "two"] and board.single == ("none",)
    assert all(0 < row.p_next < 0.01 for row in board.rows[:2])


def test_a_board_of_unpaired_runs_ranks_no_single_run():
    frame = pd.concat([runs("abc"), runs(["once"], seeds=1)]).drop(columns="seed")
    board = rank(frame)
    assert board.single == ("once",)
    welch = stats.ttest_ind(values(frame, "c"), values(frame, "b"), equal_var=False).pvalue
    assert board.rows[0].p_next == pytest.approx(welch)
    assert (
        "unpaired: no two arms have two values of seed in common"
        in rank(frame.assign(seed=range(25))).design
    )


def test_a_board_of_the_models_of_a_benchmark_takes_seconds():
    rng = RNG(7)
    frame = (
        pd.DataFrame(rng.normal(size=(180, 41)) / 50 + rng.normal(size=41))
        .stack()
        .rename("score")
        .reset_index()
    )
    frame.columns = ["model", "task", "score"]
    began = time.process_time()
    board = rank(frame)
    assert time.process_time() - began < 3
    assert board.rows[0].low == 1 and board.separable_holm <= board.separable < 15


def test_no_text_of_a_pull_request_is_run_by_the_action():
    scripts = [step["run"] for step in ACTION]
    assert scripts and not any("${{" in script for script in scripts)


@pytest.mark.parametrize(
    ("require", "allow", "status"),
    [("better", "false", 6), ("better", "true", 0), ("", "false", 0)],
)
@pytest.mark.slow
def test_the_action_writes_the_table_and_ends_with_the_status(tmp_path, require, allow, status):
    runs(["base", "new"], gain=0).to_csv(tmp_path / "runs.csv", index=False)
    (tmp_path / "contrasweep").mkdir()
    (tmp_path / "contrasweep/bin").symlink_to(Path(sys.executable).parent)
    names = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    given = {
        "SOURCE": str(tmp_path / "runs.csv"),
        "OPTIONS": "--reference base --alpha 0.01",
        "REQUIRE": require,
    }
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", ACTION[1]["run"]],
        env=os.environ | names | given | {"ALLOW_OPEN": allow, "RUNNER_TEMP": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert "| base |" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert f"status={6 if require else 0}\n" in (tmp_path / "GITHUB_OUTPUT").read_text()
