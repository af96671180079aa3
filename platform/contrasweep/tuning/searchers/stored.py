"""The trials of a study that Optuna has stored, as rows. The storage is opened to be read alone."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from contrasweep.errors import SpecError

if TYPE_CHECKING:
    import pandas as pd

SQLITE = "sqlite:///"


def trials_of(address: str, study: str) -> "pd.DataFrame":
    """Return a row for each complete trial, the others are left out.

    Its columns are `trial` (its number), `value`, and one of each parameter and of each of its user's attributes, by
    their names in Optuna.

    Args:
        address: `sqlite:///FILE`, or the file of a journal.
        study: The name of the study.

    Raises:
        SpecError: Without such a file.
        KeyError: The file has no study of this name.
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
        # SQLite itself refuses to write, and Optuna does not bring the tables up to its own version.
        only_read = f"{SQLITE}file:{quote(str(path.resolve()))}?mode=ro&uri=true"
        storage: RDBStorage | JournalStorage = RDBStorage(only_read, skip_table_creation=True)
    else:
        storage = JournalStorage(JournalFileBackend(str(path)))
    # Optuna's table has `params_lr` for a parameter `lr`, and `user_attrs_host` for a note `host`.
    kept = ("number", "value", "params", "user_attrs", "state")
    trials = optuna.load_study(study_name=study, storage=storage).trials_dataframe(attrs=kept)
    done: pd.DataFrame = trials[trials.pop("state") == "COMPLETE"].rename(
        columns={"number": "trial"}
    )
    return done.rename(
        columns=lambda name: name.removeprefix("params_").removeprefix("user_attrs_")
    )
