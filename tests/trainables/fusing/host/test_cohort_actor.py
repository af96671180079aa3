"""How a member finds a host, without Ray: full ones are passed by, dying ones are tried again."""

from pathlib import Path

import pytest
import ray

from contrasweep.errors import ProcessLostError
from contrasweep.trainables.fusing.host import actor as cohort_actor
from contrasweep.trainables.fusing.host.actor import HostConnection


class Attach:
    """A host's method as Ray calls it; it answers what is given, or raises it."""

    def __init__(self, *answers):
        self.answers = list(answers)

    @property
    def attach(self):
        return self

    def remote(self, *arguments):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def get(answer):
    if isinstance(answer, Exception):
        raise answer
    return answer, "products"


@pytest.fixture
def connect(monkeypatch):
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(cohort_actor, "PAUSE_S", 0.0)

    def connect(*hosts):
        monkeypatch.setattr(HostConnection, "_host", lambda self, number: hosts[number])
        return HostConnection(None, {}, None, Path("files"))

    return connect


def test_a_member_joins_the_first_host_with_a_free_slot_among_hundreds(connect):
    """A node of 128 cores holds more than a hundred cohorts of one key."""
    hosts = [*[Attach(None)] * 130, Attach(7)]
    connection = connect(*hosts)
    assert (connection.actor, connection.token, connection.engine) == (hosts[-1], 7, "products")


def test_a_host_that_ends_just_now_is_started_again(connect):
    assert connect(Attach(ray.exceptions.RayActorError(), ray.exceptions.RayActorError(), 3)).token == 3


def test_a_host_that_cannot_be_started_is_given_up(connect):
    with pytest.raises(ProcessLostError, match="no host of its cohort took the trial"):
        connect(Attach(ray.exceptions.RayActorError()))
