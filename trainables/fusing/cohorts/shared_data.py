"""Images that members of this process's cohorts share: those of one dataset and fold are opened once."""

import torch

from contrasweep.trainables.contrastive.method import Data, open_data
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.fusing.cohorts.recent import Recent
from contrasweep.trial import Trial

_opened: Recent[Data] = Recent(lambda data: sum(part.resident_bytes for part in {data.train, data.test}))


def shared_data(trial: Trial, settings: Settings, device: torch.device) -> Data:
    """As `open_data` opens the images of `trial`."""
    key = (trial.data.digest, trial.fold, str(device), settings.resident_gib)
    return _opened.get(key, lambda: open_data(trial, settings, device))
