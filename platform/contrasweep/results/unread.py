"""Settings that no trial read: of an arm whose trainable does not say what its settings are, probably misspelt."""

from collections.abc import Iterable

from contrasweep.storage.record import Record, Status
from contrasweep.study import dotted


def unread_settings(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    """Dotted key of a setting -> the arms that have it, none of whose trials ever read it. Trials that failed or fit
    no host do not count: they may have ended before they came to it."""
    read: set[tuple[str, str]] = set()
    unread: dict[str, list[str]] = {}
    for record in records:
        if record.status not in (Status.DONE, Status.PRUNED):
            continue
        missed = set(record.unread)
        read |= {(record.arm, key) for key in dotted.flatten(record.config) if key not in missed}
        for key in record.unread:
            arms = unread.setdefault(key, [])
            if record.arm not in arms:
                arms.append(record.arm)
    never = {key: tuple(arm for arm in arms if (arm, key) not in read) for key, arms in unread.items()}
    return {key: arms for key, arms in never.items() if arms}


def unread_lines(records: Iterable[Record]) -> list[str]:
    """A sentence for each setting that no trial of some arms read."""
    return [
        f"{key}: no trial of {'arm' if len(arms) == 1 else 'arms'} {', '.join(arms)} read this setting, so it changed "
        f"nothing there; it may be misspelt."
        for key, arms in unread_settings(records).items()
    ]
