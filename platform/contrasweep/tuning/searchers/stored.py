"""The trials of a study in a storage of Optuna, as rows of a table. The storage is only read."""

from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.errors import SpecError

if TYPE_CHECKING:
    import pandas as pd

SQLITE = "sqlite:///"


def trials_of(address: str, study: str) -> "pd.DataFrame":
    """Return a table with a row for each complete trial of a study.

    The columns are `trial` (its number), `value`, and one for each parameter and each user attribute, with the name
    that it has in Optuna.

    Args:
        address: `sqlite:///FILE`, or the file of a journal.
        study: The name of the study.

    Raises:
        SpecError: There is no such file.
        KeyError: The file has no study of this name.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy import URL

    path = Path(address.removeprefix(SQLITE))
    if not path.is_file():
        raise SpecError(
            "there is no such file",
            place="SOURCE",
            value=address,
            hint="sqlite:///FILE or a journal",
        )
    if address.startswith(SQLITE):
        # With mode=ro SQLite refuses to write. Optuna must not create or upgrade tables then.
        # SQLAlchemy 2.1 decodes the path in an address and 2.0 does not, so that each writes its own.
        query = {"mode": "ro", "uri": "true"}
        read_only = URL.create("sqlite", database=path.resolve().as_uri(), query=query)
        storage: RDBStorage | JournalStorage = RDBStorage(
            read_only.render_as_string(), skip_table_creation=True
        )
    else:
        storage = JournalStorage(JournalFileBackend(str(path)))
    # Optuna's table has the column `params_lr` for a parameter `lr`, and `user_attrs_host` for an attribute `host`.
    fields = ("number", "value", "params", "user_attrs", "state")
    trials = optuna.load_study(study_name=study, storage=storage).trials_dataframe(attrs=fields)
    done: pd.DataFrame = trials[trials.pop("state") == "COMPLETE"].rename(
        columns={"number": "trial"}
    )
    # Two that would have one name are refused by `read_table`.
    return done.rename(
        columns=lambda name: str(name).removeprefix("params_").removeprefix("user_attrs_")
    )
