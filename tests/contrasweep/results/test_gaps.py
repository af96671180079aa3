"""What is not in a table is counted once, however the table is laid out."""

import re
import tempfile
from collections import Counter

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from made_up import ENDS, made

import contrasweep as cs
from contrasweep.results.table import legend_of


def told(line):
    """The counts in a line of a legend, by status."""
    return {
        status: int(n)
        for n, status in re.findall(r"(\d+) ([a-z ]+)", line.partition("not in the table: ")[2])
    }


def lacking(results, metric):
    rows = results.frame
    there = rows["status"] == "done"
    values = Counter(rows["status"][~there])
    return dict(values + Counter({"without a value": int(rows[metric][there].isna().sum())}))


@pytest.mark.slow
@settings(max_examples=8, phases=[Phase.generate])
@given(
    st.lists(st.sampled_from(ENDS), min_size=1, max_size=5),
    st.sampled_from(["overall", "cells"]),
    st.sampled_from([(8,), (8, 16), (8, 16, 32)]),
)
def test_each_trial_that_is_not_in_a_table_is_counted_once(ends, question, axes):
    with tempfile.TemporaryDirectory() as folder:
        made(folder, "one", ends=[None, *ends], seeds=range(3), axes=axes, question=question)
        results = cs.load("one", storage=folder)
        tables = [results.table(metric=metric) for metric in ("accuracy", "even")]
        layouts = [results.table(["arm"], []), results.table(results.axes or None, ["arm"])]
        assert bool(tables[0].averages) == (question == "overall" and len(axes) > 1)
        for table in (*tables, *layouts):
            lost = lacking(results, table.metric)
            assert [told(line) for line in table.legend if "not in the table" in line] == [
                lost
            ] * bool(lost)
        lines = [line for line in legend_of(tables) if "not in the table" in line]
        by_metric = {line.partition(":")[0]: told(line) for line in lines}
        lost = {
            metric: found for metric in ("accuracy", "even") if (found := lacking(results, metric))
        }
        assert by_metric == lost or (
            len(lines) == 1 and lost["accuracy"] == lost["even"] == told(lines[0])
        )
