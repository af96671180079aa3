"""Compiled steps are the eager ones, and are kept on disk."""

from pathlib import Path

import pytest
import torch
from folded_members import SHAPE, folded_step, furthest, members, network, train

from contrasweep.trainables import torch_internals
from contrasweep.trainables.fusing.folding import fold


@pytest.mark.long  # inductor compiles for half a minute
@pytest.mark.parametrize(("encoder", "engine"), [("mlp", "products-compiled"), ("cnn", "products-compiled")])
def test_a_compiled_step_is_the_trial_alone(
    encoder: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    trials = members(network(encoder, width=4), 2, loss="sincere", numbers=lambda k: {"temperature": 0.2 + 0.3 * k})
    step, again = folded_step(trials, engine), folded_step(trials, engine)
    alone = [trial.train(range(50), 8, SHAPE) for trial in trials]
    fused = train(step, trials, range(50), 8, SHAPE)
    torch.testing.assert_close(torch.tensor(fused), torch.tensor(alone), rtol=1e-10, atol=0)
    assert furthest(step, trials) < 1e-10
    monkeypatch.setattr(
        torch_internals, "compile_step", lambda *_: pytest.fail("a program that is on disk was compiled again")
    )
    assert train(again, trials, range(50), 8, SHAPE) == fused


def test_another_number_is_the_same_program_and_another_form_is_not() -> None:
    one = members(network("mlp", width=4), 2, numbers=lambda k: {"temperature": 0.2})
    two = members(network("mlp", width=4), 2, numbers=lambda k: {"temperature": 0.7}, lr=0.3)
    other = members(network("mlp", width=4), 2, loss="sincere")
    first, second, third = (folded_step(trials, "products-compiled").identity for trials in (one, two, other))
    assert first == second != third


def test_a_program_of_another_precision_is_another_program() -> None:
    """What is traced within autocast has its casts in it."""
    step = folded_step(members(network("mlp", width=4), 2), "products-compiled")
    with torch.autocast("cpu", torch.bfloat16):
        half = step.identity
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        assert step.identity != half


class Shifted(torch.nn.Module):
    """A network whose code makes a constant."""

    def __init__(self, by: list[float]) -> None:
        super().__init__()
        self.by = by

    def forward(self, x):
        """Shifted rows."""
        return x + torch.tensor(self.by)


def test_another_constant_is_another_program() -> None:
    one, same, other = (fold(Shifted(by), 2).description for by in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]))
    assert one == same != other
