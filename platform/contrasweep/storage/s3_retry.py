"""How calls to an object store are tried again: with growing waits, and a deadline for all attempts together.

A server that has answered before is waited for until the deadline (CONTRASWEEP_S3_DEADLINE_S, 180 s), so that an outage
of a minute or two costs no trial. One that never answered is asked CONTRASWEEP_S3_ATTEMPTS (6) times, because its
address is probably wrong. If that variable is set, its number limits every call. An attempt that takes longer than
CONTRASWEEP_S3_TIMEOUT_S (60 s, and a second for each MB) is abandoned and made again, because no timeout of a socket
ends a body that arrives at a byte a second.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import botocore.exceptions as raised

from contrasweep.errors import BrokenFileError, StorageDenied, StorageError
from contrasweep.secrets import redacted

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_WAIT_S = 0.2
"""Seconds before the second attempt; each further wait is twice as long as the one before, up to `MAX_WAIT_S`."""
MAX_WAIT_S = 10.0
DENIED_ATTEMPTS = 4
"""A server needs a second to know new credentials; after that its refusal is final."""
MIN_BYTES_PER_S = 1e6
"""The pace of the slowest line that is waited for."""

# Codes of a server's answers (`error_code`), by what they mean for the call.
NOT_FOUND = {"404", "NoSuchKey", "NotFound"}
ACCESS_DENIED = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "403",
    "ExpiredToken",
    "InvalidToken",
}
PRECONDITION_FAILED = {"PreconditionFailed", "412"}
TOO_LARGE_TO_COPY = {"InvalidRequest", "EntityTooLarge"}
CONDITION_UNSUPPORTED = {"NotImplemented", "501"}
RETRYABLE = {
    "SlowDown",
    "RequestTimeout",
    "ConditionalRequestConflict",
    "OperationAborted",
    "BadDigest",
    "IncompleteBody",
    "RequestTimeTooSkewed",
    "NoSuchUpload",
    "InvalidPart",
    "409",
}
NO_CREDENTIALS = (raised.NoCredentialsError, raised.PartialCredentialsError, raised.ProfileNotFound)
WRONG_REQUEST = (
    *NO_CREDENTIALS,
    raised.ParamValidationError,
    raised.UnknownEndpointError,
    ValueError,
    TypeError,
)
"""Errors that are raised before anything is sent: the same call never succeeds."""


class Allowance:
    """The time that one attempt of a call may take: `seconds` from now.

    A call extends it once it knows how many bytes it has to read.
    """

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.extra_s = 0.0  # seconds of the last extension

    def add_time_for(self, size: int) -> None:
        """Add the seconds that `size` bytes take on a slow line."""
        self.extra_s = size / MIN_BYTES_PER_S
        self.until += self.extra_s


class Retry:
    """Makes calls to the server of one address, and makes those that fail again.

    `patient` is true once the server has answered: from then on, an outage is waited for.
    """

    def __init__(self, uri: str, *, patient: bool) -> None:
        """Read the limits that the module's docstring names from the environment.

        `StorageError` where one is no whole number.
        """
        self.uri = uri
        self.patient = patient
        self.attempts = positive_number("CONTRASWEEP_S3_ATTEMPTS", 6)
        # Where the variable is set, attempts are counted even for a patient caller.
        self.always_counted = "CONTRASWEEP_S3_ATTEMPTS" in os.environ
        self.attempt_s = positive_number("CONTRASWEEP_S3_TIMEOUT_S", 60)
        self.deadline_s = positive_number("CONTRASWEEP_S3_DEADLINE_S", 180)

    def __call__(self, verb: str, key: str, call: Callable[[Allowance], T], size: int = 0) -> T:
        """Call `call(allowance)` and return its result; call it again where it fails with an error that may pass.

        Args:
            verb: What the call does to the object, for messages: `read`, `write`, `list`, `delete`, `copy`.
            key: The object's key.
            call: Makes one attempt, and is given the time that it may take.
            size: Bytes that are sent, which lengthen all deadlines.

        Raises:
            FileNotFoundError: There is no such object; not with the verb `write`.
            botocore.exceptions.ClientError: A condition of a write failed, or the server knows no conditions.
            BrokenFileError: In each attempt other bytes arrived than were written.
            StorageError: Anything else, once no attempt is left.
        """
        place = f"{self.uri}/{key}"
        # The time to send the bytes three times on a slow line is added.
        deadline = time.monotonic() + self.deadline_s + 3 * size / MIN_BYTES_PER_S
        attempt = 0
        while True:
            attempt += 1
            allowance = Allowance(min(self.attempt_s, max(1.0, deadline - time.monotonic())))
            allowance.add_time_for(size)
            try:
                result = bounded(call, allowance)
            except Exception as error:
                # How much is read is known only once the server has answered. Then the deadline moves by the time of
                # three such reads.
                if not size:
                    deadline += 3 * allowance.extra_s
                self._raise_or_wait(error, verb, place, attempt, deadline)
            else:
                self.patient = True
                return result

    def _raise_or_wait(
        self, error: Exception, verb: str, place: str, attempt: int, deadline: float
    ) -> None:
        """Raise what `__call__` raises after the error of its attempt `attempt`; or wait, with a warning in the log.

        `place` is the object's address. `deadline` is the latest time, on the monotonic clock, at which an attempt may
        begin.
        """
        code = error_code(error)
        # These codes are answers of a server that works: from now on its outages are waited out (`patient`). But a
        # write needs no object, so there `not found` is a failure.
        if code in NOT_FOUND and verb != "write":
            self.patient = True
            raise FileNotFoundError(place) from None
        if verb == "write" and code in PRECONDITION_FAILED | CONDITION_UNSUPPORTED:
            self.patient = True
            raise error
        # A wait is twice as long as the one before, and shorter by chance, so that many processes do not ask at the
        # same moment.
        wait = min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1)
        if not self._again(error, attempt, deadline - wait):
            raise storage_error(verb, place, error, attempt) from None
        # No warning where access is denied: the final error says so.
        if not is_denied(error):
            of_attempts = f" of {self.attempts}" if self._is_counted(error) else ""
            log.warning(
                "could not %s %s (%s); attempt %d%s in %.1f s",
                verb,
                place,
                message(error),
                attempt + 1,
                of_attempts,
                wait,
            )
        time.sleep(wait)

    def _again(self, error: Exception, attempt: int, deadline: float) -> bool:
        """Return whether a call that has failed `attempt` times, at last with `error`, is to be made once more.

        `deadline` is a time on the monotonic clock, after which no further attempt is made. Where the server refuses
        the credentials, `DENIED_ATTEMPTS` limits the attempts instead.
        """
        if is_refusal(error):
            return attempt < DENIED_ATTEMPTS
        if not is_retryable(error):
            return False
        if self._is_counted(error):
            return attempt < self.attempts and time.monotonic() < deadline
        return time.monotonic() < deadline

    def _is_counted(self, error: Exception) -> bool:
        """Return whether `attempts` limits how often a call that failed with `error` is made.

        It does where the user has set that number, where the server has never answered, and for a damaged object, which
        waiting does not mend. In all other cases the deadline alone limits the calls.
        """
        return self.always_counted or not self.patient or isinstance(error, CorruptedObject)


def bounded(call: Callable[[Allowance], T], allowance: Allowance) -> T:
    """Return what `call(allowance)` returns, or raise what it raises; raise `AttemptTimeout` when its time is over.

    The call runs in a thread of its own, which is then abandoned: nothing can end a read of a socket that gets a byte
    now and then.
    """
    outcome: list[Any] = []  # (result, None), or (None, error)
    ended = threading.Event()

    def work() -> None:
        try:
            outcome.append((call(allowance), None))
        except BaseException as error:
            outcome.append((None, error))
        ended.set()

    began = time.monotonic()
    threading.Thread(target=work, name="s3-call", daemon=True).start()
    # The call may extend its allowance meanwhile.
    while not ended.wait(max(0.0, allowance.until - time.monotonic())):
        if time.monotonic() >= allowance.until:
            raise AttemptTimeout(f"no whole answer within {allowance.until - began:.0f} s")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def positive_number(variable: str, default: int) -> int:
    """Return the whole number in the environment's `variable`, or `default` where it is not set; at least 1.

    A smaller number counts as 1. Raises `StorageError` for anything but a whole number.
    """
    try:
        return max(1, int(os.environ.get(variable, default)))
    except ValueError:
        raise StorageError(
            f"{variable} must be a whole number, got {os.environ[variable]!r}"
        ) from None


class CorruptedObject(Exception):
    """The bytes that arrived differ from those that were written. `Retry` makes the call again, a few times."""


class AttemptTimeout(Exception):
    """One attempt of a call took longer than it may. It is abandoned, and `Retry` makes the call again."""


def error_code(error: Exception) -> str:
    """Return the server's code of an error, such as `NoSuchKey` or `503`; "" where the server did not answer."""
    if isinstance(error, raised.ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return ""


def is_denied(error: Exception) -> bool:
    """Return whether there are no credentials, or the server refuses them."""
    return is_refusal(error) or isinstance(error, NO_CREDENTIALS)


def is_refusal(error: Exception) -> bool:
    """Return whether the server refuses the credentials."""
    return error_code(error) in ACCESS_DENIED


def is_local(error: Exception) -> bool:
    """Return whether a file of this machine could not be read or written, as on a full disk."""
    # An error of a file names the file. Errors of the connection are OSErrors too.
    remote = ConnectionError | TimeoutError | raised.BotoCoreError
    return (
        isinstance(error, OSError) and error.filename is not None and not isinstance(error, remote)
    )


def is_retryable(error: Exception) -> bool:
    """Return whether the same call may succeed later.

    An answer of the server is retryable by its status (the server is busy) or by its code (`RETRYABLE`). An error of
    boto3, urllib3 or the socket is, unless the call is wrong (`WRONG_REQUEST`) or a file of this machine fails.
    """
    if isinstance(error, raised.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        # 408 and 429: the server asks to come again later; 501: it does not know such requests, and never will.
        busy = status in (408, 429) or (status >= 500 and status != 501)
        return busy or error_code(error) in RETRYABLE
    return not isinstance(error, WRONG_REQUEST) and not is_local(error)


def storage_error(verb: str, place: str, error: Exception, attempts: int = 1) -> StorageError:
    """Return the error for a call that failed `attempts` times; its line says what failed, why, and what to do.

    `verb` says what was done to the object `place`. The error is a `StorageDenied` where credentials are missing or
    refused, and a `BrokenFileError` where the object itself is damaged.
    """
    times = f" {attempts} times" if attempts > 1 else ""
    if isinstance(error, CorruptedObject):
        remedy = "it is damaged, or something on the way damages it: stage or compute it again"
        return BrokenFileError(place, f"{message(error)}{times}", remedy)
    # What to do depends on the cause.
    endpoint = redacted(
        os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"
    )
    kind = StorageError
    if error_code(error) == "NoSuchBucket":
        advice = f"the bucket does not exist on {endpoint}: create it, or correct the address"
    elif is_denied(error):
        kind = StorageDenied
        advice = f"{endpoint} denies access: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
    elif is_local(error):
        advice = "a file of this machine is in the way: make room, or mend its folder"
    elif isinstance(error, WRONG_REQUEST):
        advice = "check the address and AWS_ENDPOINT_URL"
    else:
        advice = f"check that the server at {endpoint} is up, then run the same command again: finished work is kept"
    return kind(f"could not {verb} {place}{times} ({message(error)}); {advice}")


def message(error: Exception) -> str:
    """Return an error in a few words: `503 SlowDown` for an answer of the server, else its text without secrets."""
    if isinstance(error, raised.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
        code = error_code(error)
        return f"{status} {code}".strip() if code != str(status) else str(status)
    return redacted(" ".join(str(error).split()))[:200] or type(error).__name__
