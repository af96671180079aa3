"""Results that others made are judged by the design that they have, and what is not clear is refused."""

import math
import os
import subprocess
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from places import ROOT
from refusals import refused
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

import contrasweep as cs
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


def welch_p(a, b):
    return stats.ttest_ind(a, b, equal_var=False).pvalue


def both_p(a, b):
    """The larger p of the exact permutation test of the means and of Welch's test, by SciPy."""
    exact = stats.permutation_test(
        (a, b), lambda x, y: x.mean() - y.mean(), n_resamples=np.inf
    ).pvalue
    return max(exact, welch_p(a, b))


def sign_flip_p(a, b):
    flipped = stats.permutation_test(
        (a - b,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    return flipped.pvalue


def corrected_p(a, b):
    """By Nadeau and Bengio, of ten folds."""
    d = a - b
    return 2 * stats.t.sf(abs(d.mean()) / np.sqrt((1 / 10 + 1 / 9) * d.var(ddof=1)), 9)


def mcnemar_p(a, b):
    return mcnemar(pd.crosstab(a, b), exact=True).pvalue


PUBLISHED = {
    "sign-flip test": (8, "seed", sign_flip_p),
    "t-test": (5, "seed", lambda a, b: stats.ttest_rel(a, b).pvalue),
    "corrected t-test": (10, "fold", corrected_p),
    "McNemar's exact test": (40, "item", mcnemar_p),
    "permutation test": (6, "", both_p),
    "Welch's t-test": (3, "", welch_p),
}
"""What judges -> how many replicates, what they are, and its p by SciPy and statsmodels."""


@pytest.mark.parametrize("gain", [0.0005, 0.002, 0.01])
@pytest.mark.parametrize("test", PUBLISHED)
def test_a_judged_p_is_that_of_the_published_test_adjusted_by_holm(test, gain):
    count, replicate, p = PUBLISHED[test]
    frame = runs(["base", "big", "wide"], count, gain, lr=0.1).rename(columns={"seed": replicate})
    if replicate == "item":
        frame["accuracy"] = (frame["accuracy"] > 0.8).astype(int)
    judged = cs.judge(frame if replicate else frame.drop(columns=""))
    assert repr(judged) == judged.to_text() and judged._repr_html_() == judged.to_html()
    raw = [p(values(frame, pair.a), values(frame, pair.b)) for pair in judged.pairs]
    found = [pair.comparison for pair in judged.pairs]
    assert {comparison.test for comparison in found} == {test}
    assert [comparison.raw_p for comparison in found] == pytest.approx(raw)
    adjusted = multipletests(raw, method="holm")[1]
    assert [comparison.p_value for comparison in found] == pytest.approx(list(adjusted))
    for comparison in found:
        assert (comparison.low > 0 or comparison.high < 0) == (comparison.p_value <= 0.05)


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


@pytest.mark.parametrize("index", ["seed", "model", ["model", "seed"]])
def test_an_index_with_a_name_is_a_column(tmp_path, index):
    frame = runs("ab")
    frame.set_index(index).to_parquet(tmp_path / "runs.parquet")
    for source in (frame.set_index(index), tmp_path / "runs.parquet"):
        assert cs.judge(source).design == cs.judge(frame).design
    above = frame.set_axis(pd.MultiIndex.from_product([["runs"], frame.columns]), axis=1)
    arm, pair, metric = map(str, above)
    judged = cs.judge(above, arm=arm, pair=pair, metric=metric, mode="max")
    assert only(judged).to_dict() == only(cs.judge(frame)).to_dict()


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
