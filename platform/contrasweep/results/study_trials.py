"""What tables and advice are drawn from, as far as they share it."""

from collections.abc import Mapping
from typing import Protocol

import pandas as pd

from contrasweep.storage.record import Record
from contrasweep.storage.study_document import StudyDocument


class StudyTrials(Protocol):
    """A study and its trials: `Results` has it."""

    @property
    def document(self) -> StudyDocument:
        """The study as it was declared."""

    @property
    def planned(self) -> pd.DataFrame:
        """One row a trial of the table."""

    @property
    def trial_records(self) -> Mapping[str, Record]:
        """The records of those that ended."""
