"""What Ray does not promise: its words for what was lost."""

from types import SimpleNamespace

import pytest
import ray

from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.tune_engine import LOST, NEVER_BEGAN, _cause, _error_text, _reason
from contrasweep.storage.record import Cause
from contrasweep.storage.records import StudyRecords


def test_a_lost_host_is_no_failure_and_another_loss_is():
    error = ray.exceptions.ActorUnavailableError
    ray_internals.forgive_lost_hosts()
    assert not error("rpc error", None).preempted
    assert error("The actor is temporarily unavailable: rpc error", None).preempted
    assert not ray.exceptions.ActorDiedError().preempted


KILLED = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."


@pytest.mark.parametrize(
    ("error", "sentence", "cause", "reason"),
    [
        ("ray::Trainable.train()\nValueError: x", "", Cause.METHOD, "ValueError: x"),
        ("ray::Trainable.train()\nMemoryError", "", Cause.HOST_MEMORY, "its memory ran out"),
        (KILLED, "", Cause.HOST_MEMORY, "its memory ran out"),
        (DIED, LOST, Cause.SIGNAL, "its worker or host was lost"),
        (f"{DIED} its node has died", LOST, Cause.HOST_LOST, "its worker or host was lost"),
        (f"{DIED} The actor never ran", NEVER_BEGAN, Cause.HOST_LOST, "its worker or host was lost"),
    ],
)  # fmt: skip
def test_only_a_process_that_was_lost_without_a_word_gets_our_sentence(
    error, sentence, cause, reason, tmp_path
):
    file = tmp_path / "error.txt"
    file.write_text(
        f"Failure # 1 (occurred at 9)\nMemoryError\nFailure # 2 (occurred at 9)\n{error}\n"
    )
    text = _error_text(SimpleNamespace(error_file=str(file)))
    assert text == f"{error}\n" + (f"{sentence}\n" if sentence else "")
    records = StudyRecords(str(tmp_path), "s")
    assert (_cause(records, "t", text), _reason(text)) == (cause, reason)
