"""Changes of a page give the newer one from the older one, and are few where little has changed."""

from hypothesis import given
from hypothesis import strategies as st

from contrasweep.reporting.serve import changes

TEXT = st.lists(st.sampled_from(["<p>", "</p>", "a\n", "[1,2],", "ü", "\N{ROCKET}", "b", "<b>", "\u2028"])).map("".join)


def applied(old: str, told) -> str:
    """As JavaScript slices: by UTF-16 code units."""
    units = old.encode("utf-16-le")
    return "".join(t if isinstance(t, str) else units[2 * t[0] : 2 * t[1]].decode("utf-16-le") for t in told)


@given(old=TEXT, new=TEXT)
def test_changes_applied_to_the_older_text_give_the_newer(old, new):
    assert applied(old, changes(old, new)) == new


def test_one_row_of_ten_thousand_is_told_alone():
    rows = [f"[{i},{i % 7}]," for i in range(10_000)]
    newer = [*rows[:500], "[500,99],", *rows[501:]]
    told = changes("".join(rows), "".join(newer))
    assert told == [(0, len("".join(rows[:500]))), "[500,99],", (len("".join(rows[:501])), len("".join(rows)))]
    assert changes("".join(rows), "".join(rows)) == [(0, len("".join(rows)))]


def test_a_wholly_new_text_is_one_part():
    assert changes("", "<p>a</p>" * 50_000) == ["<p>a</p>" * 50_000]
    assert changes("<p>a</p>", "") == []
