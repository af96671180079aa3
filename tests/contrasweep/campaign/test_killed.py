"""Real commands on a campaign: one is killed in the middle of a decision, and two ask at once."""

import json
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from drivers import Driver, ray_folder, start_driver
from raylets import wait_for

from contrasweep.results.ledger import Decided, Granted, Ledger

pytestmark = pytest.mark.long
CAMPAIGN = """
type: campaign
name: speed
incumbent: {{trainable: 'candidates:train', config: {{log: {log}}}}}
data: digits-lt
seeds: {{first: 2, step: 2, most: 12}}
"""


class Askers:
    """Commands that decide on candidates of one campaign."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder, self.log, self.opened = folder, folder / "trained", opened
        (folder / "speed.yaml").write_text(CAMPAIGN.format(log=self.log))

    def ask(self, who: str, gain: float) -> Driver:
        sets = [word for text in (f"config.gain={gain}", f"config.who={who}") for word in ("--set", text)]
        words = ["decide", "speed.yaml", "incumbent", *sets, "--name", who, "--storage", "runs", "--tracking", "none"]
        ray = self.opened.enter_context(ray_folder())
        driver = start_driver(*words, "--json", folder=self.folder, ray=ray)
        self.opened.callback(driver.kill)
        return driver

    @property
    def ledger(self) -> Ledger:
        return Ledger(str(self.folder / "runs"), "speed").read()

    @property
    def trained(self) -> Counter[str]:
        return Counter(self.log.read_text().splitlines() if self.log.exists() else [])


@pytest.fixture
def askers(tmp_path):
    with ExitStack() as opened:
        yield Askers(tmp_path, opened)


def test_a_kill_in_the_middle_of_a_confirmation_spends_and_trains_nothing_twice(askers):
    first = askers.ask("better", 0.1)
    records = askers.folder / "runs" / "speed.1.confirm" / "records"
    wait_for(lambda: (records.exists() and any(records.iterdir())) or first.poll() is not None)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    finished = {path.parent.name: path.read_bytes() for path in records.glob("*/record.json")}
    assert finished and not any(isinstance(entry, Decided) for entry in askers.ledger.entries)
    second = askers.ask("better", 0.1)
    out, err = second.communicate()
    assert second.returncode == 0, err
    decision = json.loads(out)
    assert decision["kept"] and decision["level"] == 0.025
    entries = askers.ledger.entries
    assert sum(isinstance(entry, Granted) for entry in entries) == 1
    assert sum(isinstance(entry, Decided) for entry in entries) == 1
    assert all((records / name / "record.json").read_bytes() == data for name, data in finished.items())


def test_two_who_ask_at_once_are_both_answered(askers):
    drivers = [askers.ask(who, gain) for who, gain in (("one", 0.1), ("two", 0.3))]
    answers = []
    for driver in drivers:
        out, err = driver.communicate()
        assert driver.returncode == 0, err
        answers.append(json.loads(out))
    assert answers[1]["kept"]  # whichever was first, the other was compared with it
    ledger = askers.ledger
    assert ledger.incumbent == answers[1]["number"] or answers[1]["incumbent"] == "the incumbent"
    against = {(entry.asked, entry.incumbent) for entry in ledger.entries if isinstance(entry, Granted)}
    assert len(against) == sum(isinstance(entry, Granted) for entry in ledger.entries)  # no level twice
    screened = {f"incumbent {seed}" for seed in ledger.screening_seeds(0)}
    assert all(askers.trained[key] <= 1 for key in screened)  # the incumbent was trained once for both
