"""Images that members of a cohort share: those of one dataset and fold are opened once."""

from collections import OrderedDict

import torch

from contrasweep.trial import Trial
from trainables.contrastive_method import Data, open_data
from trainables.contrastive_settings import Settings


class SharedData:
    """Opens as `open_data` does, and keeps what the last `count` different datasets and folds gave."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._opened: OrderedDict[tuple[object, ...], Data] = OrderedDict()

    def __call__(self, trial: Trial, settings: Settings, device: torch.device) -> Data:
        """The images of `trial`."""
        key = (trial.data.digest, trial.fold, str(device), settings.resident_gib)
        if key not in self._opened:
            self._opened[key] = open_data(trial, settings, device)
            if len(self._opened) > self.count:
                self._opened.popitem(last=False)
        self._opened.move_to_end(key)
        return self._opened[key]
