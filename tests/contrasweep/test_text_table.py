"""The one printer of tables in a terminal."""

from collections import Counter

import pytest

from contrasweep.text_table import text_table

ROWS = [["arm", "value"], ["supcon", "0.912 [0.897, 0.930]"], ["[bold]o[/bold]", "2"]]


def test_columns_are_aligned_and_text_is_no_markup():
    assert text_table(ROWS) == [
        "arm             value",
        "supcon          0.912 [0.897, 0.930]",
        "[bold]o[/bold]  2",
    ]


@pytest.mark.parametrize("width", [1, 12, 20, 30])
@pytest.mark.parametrize("rule", [True, False])
def test_a_narrow_terminal_breaks_entries_and_loses_nothing(width, rule):
    lines = text_table(ROWS, rule=rule, width=width)
    assert max(map(len, lines)) <= max(width, 12)
    letters = [*"".join(lines).replace("─", "").replace(" ", "")]
    assert sorted(letters) == sorted(
        "".join(entry for row in ROWS for entry in row).replace(" ", "")
    )


def test_characters_of_two_columns_are_counted_as_two():
    first, second = text_table([["統計", "a"], ["abcd", "b"]])
    assert first == "統計  a" and second == "abcd  b"


@pytest.mark.parametrize("width", range(60, 111, 10))
def test_a_wide_table_cuts_no_word_in_a_terminal(width):
    head = ["", "now: 2 seeds", "4 seeds", "8 seeds", "2 repeats", "10 folds", "80% with"]
    chances = [
        "SupCon - Cross-entropy",
        "undecided",
        "1% [0, 5]",
        "5% [0, 28]",
        "",
        "",
        "~ 7 repeats (240 trials)",
    ]
    price = [
        "price",
        "",
        "40 trials, 9 min",
        "120 trials, 26 min",
        "40 trials, 9 min",
        "80 trials, 17 min",
        "",
    ]
    many = [["detectable", *head], ["difference", *chances], ["difference", *price]]
    for rows in ([head, chances, price], many):
        lines = text_table(rows, rule=True, width=width)
        words = Counter(" ".join(lines).replace("─", " ").split())
        assert max(map(len, lines)) <= width
        assert all(words[word] >= 1 for row in rows for entry in row for word in entry.split())
