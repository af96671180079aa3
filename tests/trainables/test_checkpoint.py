"""Checkpoints and seeds."""

import pickle
from pathlib import Path

import pytest
import torch
from refusals import refused
from torch import nn

from contrasweep.errors import SpecError, StorageError
from contrasweep.trainables import checkpoint, seeding


def test_parts_facts_and_random_state_come_back(tmp_path):
    model = nn.Linear(3, 2)
    other = nn.Linear(3, 2)
    torch.manual_seed(5)
    checkpoint.save(tmp_path / "new", {"model": model}, epoch=3, nonfinite=0)
    expected = torch.rand(4)
    assert checkpoint.restore(tmp_path / "new", {"model": other}) == {"epoch": 3, "nonfinite": 0}
    assert torch.equal(torch.rand(4), expected) and torch.equal(model.weight, other.weight)


def test_an_interrupted_save_leaves_the_old_state(tmp_path, monkeypatch):
    model = nn.Linear(2, 2)
    checkpoint.save(tmp_path, {"model": model}, epoch=1)

    def fail(state, path):
        path.write_bytes(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(tmp_path, {"model": model}, epoch=2)
    assert checkpoint.restore(tmp_path, {"model": model}) == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.FILE]


def test_a_folder_without_a_checkpoint_says_so(tmp_path):
    with refused(StorageError, "holds no checkpoint (state.pt is missing)"):
        checkpoint.restore(tmp_path, {})


def test_a_checkpoint_of_another_trial_says_what_it_holds(tmp_path):
    head = {"head": nn.Linear(1, 1)}
    checkpoint.save(tmp_path, {"model": nn.Linear(1, 1), **head})
    with refused(StorageError, "holds ['head', 'model'], this trial needs ['head']"):
        checkpoint.restore(tmp_path, head)


class Trap:
    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


def test_loading_runs_no_code_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"parts": {}, "rng": Trap(), "facts": {}}, tmp_path / checkpoint.FILE)
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.restore(tmp_path, {})
    assert not (tmp_path / "sprung").exists()


def test_seeds_are_the_same_on_every_machine():
    assert seeding.derive(0, None, 1, "order") == 4734353820861084841
    assert (
        len({seeding.derive(*key) for key in [(0, 1), (1, 0), (0, 11), (0, 1, ""), ("01",)]}) == 5
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_asking_for_a_gpu_where_there_is_none_says_so():
    assert seeding.pick_device("auto").type == "cpu"
    with refused(SpecError, "device: this process sees no GPU, got 'cuda'"):
        seeding.pick_device("cuda")
