"""What validation decides after each epoch: the next learning rate, and which epoch's weights are tested."""

import torch
from torch import Tensor

from contrasweep.trainables.checkpoint import StateDict


class PlateauSchedule:
    """Lowers the learning rate after more than `patience` epochs in a row without a clearly better value (by 1e-4 of
    the best, as torch.optim's ReduceLROnPlateau in mode max)."""

    def __init__(self, lr: float, factor: float, patience: int) -> None:
        self.lr, self.factor, self.patience, self.best, self.waited = lr, factor, patience, -1.0, 0

    def step(self, value: float) -> None:
        """Take note of an epoch's `value` and set the next epoch's `lr`."""
        better = value > self.best * (1 + 1e-4) if self.best > 0 else value > self.best
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)
        if self.waited > self.patience:
            self.lr, self.waited = self.lr * self.factor, 0

    def state_dict(self) -> StateDict:
        """What a checkpoint keeps."""
        return {"lr": self.lr, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Go on from `state`."""
        self.lr, self.best, self.waited = state["lr"], state["best"], state["waited"]


class BestWeights:
    """The weights of the epoch with the highest validation MAP so far; the earlier one where two are equal."""

    def __init__(self) -> None:
        self.value, self.epoch, self.weights = -1.0, 0, dict[str, Tensor]()

    def offer(self, value: float, epoch: int, model: torch.nn.Module) -> None:
        """Keep a copy of the weights if this epoch is the best so far."""
        if value > self.value:
            weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            self.value, self.epoch, self.weights = value, epoch, weights

    def state_dict(self) -> StateDict:
        """What a checkpoint keeps."""
        return {"value": self.value, "epoch": self.epoch, "weights": self.weights}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Go on from `state`."""
        self.value, self.epoch, self.weights = state["value"], state["epoch"], state["weights"]
