"""What the cohorts of a process share is open once, and as long as somebody uses it."""

import gc

import pytest

from contrasweep.data import resolve
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.contrastive import train
from contrasweep.trainables.fusing.cohorts import contrastive
from contrasweep.trainables.fusing.cohorts.method import Recent
from contrasweep.trainables.fusing.protocol import cohorts_of
from contrasweep.trial import Trial

QUICK = {"encoder": {"name": "mlp", "width": 16}, "epochs": 1, "batch_size": 64}


class Opened:
    """A value of so many bytes."""

    def __init__(self, size: int) -> None:
        self.size = size


def recent(kept_bytes: int) -> Recent[Opened]:
    return Recent(lambda value: value.size, kept_bytes)


def refused() -> Opened:
    raise AssertionError("it is open already")


def test_small_values_stay_and_the_oldest_goes_first() -> None:
    shared = recent(10)
    for name, size in (("a", 4), ("b", 4)):
        shared.get((name,), lambda size=size: Opened(size))
    shared.get(("a",), refused)
    shared.get(("c",), lambda: Opened(4))  # a was asked for after b
    shared.get(("a",), refused)
    shared.get(("c",), refused)
    with pytest.raises(AssertionError):
        shared.get(("b",), refused)


def test_a_large_value_is_shared_while_it_is_used_and_drives_no_small_one_out() -> None:
    shared = recent(10)
    shared.get(("small",), lambda: Opened(10))
    large = shared.get(("large",), lambda: Opened(11))
    assert shared.get(("large",), refused) is large
    shared.get(("small",), refused)
    del large
    with pytest.raises(AssertionError):
        shared.get(("large",), refused)


def test_images_are_gone_with_their_last_member(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    digits = resolve("digits-lt", folds=5, storage=str(tmp_path_factory.mktemp("data")), write=True)
    monkeypatch.setattr(contrastive, "_opened", Recent(lambda _: 1, kept_bytes=0))
    cohort = cohorts_of(train).open(_trial(digits, 0), 2)
    for number in (0, 1):
        cohort.join(_trial(digits, number), None)
    in_use = contrastive._opened._used
    assert len(in_use) == 2
    cohort.leave(_trial(digits, 0).id)
    gc.collect()
    assert len(in_use) == 1
    cohort.close()
    gc.collect()
    assert not in_use


def _trial(digits: Manifest, number: int) -> Trial:
    return Trial("s", f"arm{number}", "contrasweep.trainables.contrastive:train", QUICK, digits, number % 5, number)
