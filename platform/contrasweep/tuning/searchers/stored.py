"""The trials of a study that Optuna has stored, as rows. The storage is opened to be read alone."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from contrasweep.errors import SpecError

if TYPE_CHECKING:
    import pandas as pd

SQLITE = "sqlite:///"


def trials_of(address: str, study: str) -> "pd.DataFrame":
    """Return a row for each complete trial: `trial`, `value`, its parameters and what its user has noted.

    Args:
        address: `sqlite:///FILE`, or the file of a journal.
        study: The name of the study.

    Raises:
        SpecError: Without such a file.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    path = Path(address.removeprefix(SQLITE))
    if not path.is_file():
        raise SpecError(
            "there is no such file",
            place="SOURCE",
            value=address,
            hint="sqlite:///FILE or a journal",
        )
    if address.startswith(SQLITE):
        only_read = f"{SQLITE}file:{quote(str(path.resolve()))}?mode=ro&uri=true"
        storage: RDBStorage | JournalStorage = RDBStorage(only_read, skip_table_creation=True)
    else:
        storage = JournalStorage(JournalFileBackend(str(path)))
    kept = ("number", "value", "params", "user_attrs", "state")
    trials = optuna.load_study(study_name=study, storage=storage).trials_dataframe(attrs=kept)
    done: pd.DataFrame = trials[trials.pop("state") == "COMPLETE"].rename(
        columns={"number": "trial"}
    )
    return done.rename(
        columns=lambda name: name.removeprefix("params_").removeprefix("user_attrs_")
    )
