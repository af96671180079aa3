"""Two real commands ask for a decision of one campaign at once."""

import json
from collections import Counter
from contextlib import ExitStack

import pytest
from drivers import output_of, ray_folder, start_driver

from contrasweep.results.ledger import Granted, Ledger

CAMPAIGN = """
type: campaign
name: speed
incumbent: {{trainable: 'candidates:train', config: {{log: {log}}}}}
data: digits-lt
seeds: {{first: 2, step: 2, most: 12}}
"""


@pytest.mark.long
def test_two_who_ask_at_once_are_both_answered(tmp_path, runs):
    log = tmp_path / "trained"
    (tmp_path / "speed.yaml").write_text(CAMPAIGN.format(log=log))
    answers = []
    with ExitStack() as opened:
        drivers = []
        for who, gain in (("one", 0.1), ("two", 0.3)):
            sets = ["--set", f"config.gain={gain}", "--set", f"config.who={who}", "--name", who]
            words = [
                "decide",
                "speed.yaml",
                "incumbent",
                *sets,
                "--storage",
                "runs",
                "--tracking",
                "none",
                "--json",
            ]
            driver = start_driver(*words, folder=tmp_path, ray=opened.enter_context(ray_folder()))
            opened.callback(driver.kill)
            drivers.append(driver)
        for driver in drivers:
            answers.append(json.loads(output_of(driver)[0]))
    assert answers[1]["kept"]  # whichever was first, the other was compared with it
    ledger = Ledger(runs, "speed").read()
    assert ledger.incumbent == answers[1]["number"] or answers[1]["incumbent"] == "the incumbent"
    against = {
        (entry.asked, entry.incumbent) for entry in ledger.entries if isinstance(entry, Granted)
    }
    assert len(against) == sum(
        isinstance(entry, Granted) for entry in ledger.entries
    )  # no level twice
    trained = Counter(log.read_text().splitlines())
    assert all(
        trained[f"incumbent {seed}"] <= 1 for seed in ledger.screening_seeds(0)
    )  # once for both
