"""What an S3 server, the wire and boto3 raise, and what it means: gone, denied, worth another try, or said as it is."""

import os

import botocore.exceptions as raised

from contrasweep.errors import StorageDenied, StorageError
from contrasweep.secrets import redacted

NOT_FOUND = {"404", "NoSuchKey", "NotFound"}
ACCESS_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "ExpiredToken", "InvalidToken"}
PRECONDITION_FAILED = {"PreconditionFailed", "412"}
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
    "408",
    "429",
}
NO_CREDENTIALS = (raised.NoCredentialsError, raised.PartialCredentialsError, raised.ProfileNotFound)
WRONG_REQUEST = (*NO_CREDENTIALS, raised.ParamValidationError, raised.UnknownEndpointError, ValueError, TypeError)
"""Raised before anything is sent: the same call never succeeds."""


class CorruptedObject(Exception):
    """The bytes that arrived are not those that were written."""


class AttemptTimeout(Exception):
    """One attempt of a call took longer than it may."""


def error_code(error: Exception) -> str:
    """The server's code of an error; "" where the server did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, raised.ClientError) else ""


def is_denied(error: Exception) -> bool:
    """Whether there are no credentials, or the server refuses them."""
    return is_refusal(error) or isinstance(error, NO_CREDENTIALS)


def is_refusal(error: Exception) -> bool:
    """Whether the server refuses these credentials."""
    return error_code(error) in ACCESS_DENIED


def is_local(error: Exception) -> bool:
    """Whether a file of this machine could not be read or written, as on a full disk."""
    remote = ConnectionError | TimeoutError | raised.BotoCoreError
    return isinstance(error, OSError) and error.filename is not None and not isinstance(error, remote)


def is_retryable(error: Exception) -> bool:
    """Whether the same call may succeed later. Of what the server says, where it is busy or lost a part; whatever else
    is raised on the way (by boto3, by urllib3 while it reads an error's body, by the socket) is the wire's."""
    if isinstance(error, raised.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return (status >= 500 and status != 501) or error_code(error) in RETRYABLE
    return not isinstance(error, WRONG_REQUEST) and not is_local(error)


def storage_error(verb: str, place: str, error: Exception, attempts: int = 1) -> StorageError:
    """The one line for a call that failed `attempts` times, with what to do."""
    endpoint = redacted(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS")
    kind = StorageError
    if error_code(error) == "NoSuchBucket":
        advice = f"the bucket does not exist on {endpoint}: create it, or correct the address"
    elif is_denied(error):
        kind = StorageDenied
        advice = f"{endpoint} denies access: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
    elif isinstance(error, CorruptedObject):
        advice = "the stored object is damaged, or something on the way damages it: stage or compute it again"
    elif is_local(error):
        advice = "a file of this machine is in the way: make room, or mend its folder"
    elif isinstance(error, WRONG_REQUEST):
        advice = "check the address and AWS_ENDPOINT_URL"
    else:
        advice = f"check that the server at {endpoint} is up, then run the same command again: finished work is kept"
    times = f" {attempts} times" if attempts > 1 else ""
    return kind(f"could not {verb} {place}{times} ({message(error)}); {advice}")


def message(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, raised.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
        code = error_code(error)
        return f"{status} {code}".strip() if code != str(status) else str(status)
    return redacted(" ".join(str(error).split()))[:200] or type(error).__name__
