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


NARROW = """
arm   value
supc  0.912
on    [0.897
      ,
      0.930]
[bol  2
d]o[
/bol
d]
"""
RULED = """
arm       value
────────────────────
supcon    0.912
          [0.897,
          0.930]
[bold]o[  2
/bold]
"""


def test_a_narrow_terminal_breaks_entries_and_loses_nothing():
    for text, rule, width in ((NARROW, False, 1), (NARROW, False, 12), (RULED, True, 20)):
        assert text_table(ROWS, rule=rule, width=width) == text.strip("\n").split("\n")
    assert text_table(ROWS, width=36) == text_table(ROWS) != text_table(ROWS, width=35)


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
