"""Images that members of a cohort share: those of one dataset and fold are opened once."""

import torch

from contrasweep.trial import Trial
from trainables.cohorts.recent import Recent
from trainables.contrastive_method import Data, open_data
from trainables.contrastive_settings import Settings


class SharedData:
    """Opens as `open_data` does, and keeps what the last `count` different datasets and folds gave."""

    def __init__(self, count: int) -> None:
        self._opened: Recent[Data] = Recent(count)

    def __call__(self, trial: Trial, settings: Settings, device: torch.device) -> Data:
        """The images of `trial`."""
        key = (trial.data.digest, trial.fold, str(device), settings.resident_gib)
        return self._opened.get(key, lambda: open_data(trial, settings, device))
