"""Which recorded trials run again; without Ray. What a command says of it is in `transcripts/again.txt`."""

from dataclasses import replace
from itertools import product

import pytest
from refusals import refused

from contrasweep import AblationGrid, Arm, SpecError, plan
from contrasweep.code import CurrentCode
from contrasweep.running.prepare import CodeChanged, decide, selected_trials
from contrasweep.storage.record import Cause, CodeRef, Phase, Record, Status, TrialNotes

DONE = {"status": Status.DONE, "metrics": {"accuracy": 0.5}}


@pytest.fixture
def planned(storage):
    return plan(AblationGrid("s", {"a": Arm("toy:train")}, "digits-lt"), storage=storage)


@pytest.fixture
def decided(planned, records):
    return lambda **options: decide(planned, records, CurrentCode({}), **options)


def test_a_record_without_code_is_of_other_code(planned, records, decided):
    records.write(Record.of(planned.trials[0], **DONE))
    with refused(CodeChanged, "made by other code: recorded before code was kept"):
        decided()
    decided(changed="accept").carry_out(records)
    decided()


def test_another_version_of_a_package_is_a_note(planned, records, decided):
    code = CodeRef(CurrentCode({}).of("toy:train", {}).version.digest)
    records.write(Record.of(planned.trials[0], **DONE, versions={"numpy": "1.0"}, code=code))
    (note,) = decided().notes
    assert note.startswith("1 of 1 trials ran with numpy 1.0, here is ")


def test_a_word_that_is_the_beginning_of_several_ids_names_none(planned, decided):
    record = Record.of(planned.trials[0], **DONE)
    begun = {f"012345678{n}": replace(record, trial_id=f"012345678{n}") for n in range(2)}
    with refused(
        SpecError, "--rerun: this is the beginning of several trials' ids, got '01234567'"
    ):
        selected_trials(planned, begun, ["01234567"])
    with refused(SpecError, "no such way"):
        decided(changed="keep")


def test_a_failed_trial_runs_again_where_asked_or_where_nobody_is_to_blame_and_no_search_went_on_from_it(
    planned, records, decided
):
    trial = planned.trials[0]
    for cause, phase in product((None, *Cause), (None, *Phase)):
        notes = TrialNotes(phase=phase)
        records.write(Record.of(trial, status=Status.FAILED, cause=cause, notes=notes))
        outside = cause not in (None, Cause.METHOD, Cause.TIME_LIMIT)
        again = {trial.id} if outside and phase != Phase.SEARCH else set()
        assert decided(changed="accept").failed == again, (cause, phase)
        assert decided(changed="accept", retry_failed=True).failed == {trial.id}
