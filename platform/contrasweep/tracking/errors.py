"""`TrackingError`: a tracker that does not take what it is told."""

import re

from contrasweep.secrets import redacted


class TrackingError(Exception):
    """A call to a tracker that failed. `retryable`: it may work later (no answer, 5xx, a locked file)."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        if silent := re.match(r"API request to \S+ failed with exception .*?(\w+Error)\(", message):
            message = f"the server does not answer ({silent[1]})"
        super().__init__(redacted(" ".join(message.split()))[:300])
