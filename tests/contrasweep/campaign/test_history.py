"""The verdicts of all studies of a storage as one stream: `contrasweep ledger` without a campaign."""

from folders import make_files
from made_up import made

from contrasweep import load
from contrasweep.campaign.history import comparisons_of
from contrasweep.results.ledger import Began, Ledger
from contrasweep.statistics.referee import Confirmation, Rule


def test_all_verdicts_of_a_storage_are_one_stream_in_the_order_of_their_ends(tmp_path, storage):
    """Those of a campaign's own studies, `speed.1`, stand in its ledger; others are not of campaign `speed`."""
    # The first trial of `speed.more` ends later than that of `speedup`, its last one earlier.
    for name in ("speedup", "speed.more", "speed.1"):
        made(tmp_path, name)
    assert Ledger(storage, "speed").read().append(Began({"metric": "accuracy"}, screening=12))
    make_files(tmp_path, {"third/study.json": "{}"})
    found = comparisons_of(storage)
    ended = {
        name: max(record.ended for record in load(name, storage=storage).trial_records.values())
        for name in ("speedup", "speed.more")
    }
    first, second = found.comparisons
    assert [first.study, second.study] == sorted(ended, key=ended.__getitem__)
    assert [line.split()[0] for line in found.skipped] == ["third"]
    rule = Rule(error="fdr")
    assert first.level == rule.granted([])
    past = [Confirmation(first.level, first.p <= first.level, first.p)]
    assert second.level == rule.granted(past) != first.level
    for line in found.comparisons:
        assert line.remains == (line.verdict != "undecided" and line.p <= line.level)
    assert "2 comparisons" in "\n".join(found.lines(100))
