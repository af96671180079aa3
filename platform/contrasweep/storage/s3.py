"""`S3Store`: an S3-compatible bucket as a store. The only module that imports boto3.

The endpoint, credentials and region are the AWS ones: AWS_ENDPOINT_URL (any compatible server), AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY or a profile, AWS_REGION. Every object carries the SHA-256 of its bytes in its metadata and
is checked against it when read, so what a proxy cut or a disk flipped is fetched again and never returned.
"""

import base64
import functools
import hashlib
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import boto3
import botocore.exceptions as raised
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.parsers import ResponseParserError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

from contrasweep.errors import StorageError

log = logging.getLogger(__name__)
T = TypeVar("T")
PART_BYTES = 8 * 2**20
THREADS = 4
LARGE_BYTES = 2 * PART_BYTES  # what is larger travels in parts, by boto3's transfer manager
TRANSFER = TransferConfig(
    multipart_threshold=LARGE_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=THREADS, num_download_attempts=3
)
PART_ATTEMPTS = 3  # of a part's request, before the whole transfer is tried again
FIRST_WAIT_S, MAX_WAIT_S = 0.2, 10.0
_connecting = threading.Lock()
DIGEST = "sha256"
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


class CorruptedObject(Exception):
    """The bytes that arrived are not those that were written."""


class S3Store:
    """Objects below `s3://bucket/prefix`. Calls are retried with growing waits, each retry logged, at most
    CONTRASWEEP_S3_ATTEMPTS (6) times; then `StorageError` names the object and what to do."""

    def __init__(self, uri: str) -> None:
        self.bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if not self.bucket:
            raise StorageError(f"{uri}: an s3:// address needs a bucket, as in s3://bucket/prefix")
        self.uri = uri.rstrip("/")
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.attempts = _number("CONTRASWEEP_S3_ATTEMPTS", 6)

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Store, (self.uri,)

    def read(self, key: str) -> bytes:
        """The object's bytes, checked against the SHA-256 in its metadata."""

        def fetch() -> bytes:
            response = self._client.get_object(Bucket=self.bucket, Key=self.prefix + key)
            data: bytes = response["Body"].read()
            _check(hashlib.sha256(data).hexdigest(), response)
            return data

        return self._try("read", key, fetch)

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Put one object with its SHA-256 in the metadata. With `if_absent`, an object that is there
        from an earlier try, whose answer was lost, counts as written."""
        place = {"Bucket": self.bucket, "Key": self.prefix + key, **({"IfNoneMatch": "*"} if if_absent else {})}
        digest = hashlib.sha256(data).hexdigest()
        tries = 0

        def put() -> None:
            nonlocal tries
            tries += 1
            self._client.put_object(**place, Body=data, Metadata={DIGEST: digest}, ContentMD5=_md5(data))

        try:
            self._try("write", key, put)
        except raised.ClientError as error:
            if if_absent and _code(error) in PRECONDITION_FAILED:  # perhaps by our own first try, whose answer was lost
                return tries > 1 and self._has(key, digest)
            if if_absent and _code(error) in CONDITION_UNSUPPORTED:  # a server without conditions: nearly as good
                return not self.exists(key) and self.write(key, data)
            raise self._error("write", key, error) from None
        return True

    def exists(self, key: str) -> bool:
        """Whether the server knows the object, by a HEAD request."""
        return self._head(key) is not None

    def list(self, prefix: str = "") -> Iterator[str]:
        """Keys that begin with `prefix`, sorted, page by page."""
        yield from (key for key, _ in self._tagged(prefix))

    def etags(self, folder: str, name: str) -> dict[str, str]:
        """The server's entity tags, by key."""
        ends = f"/{name}"
        return {
            key: tag
            for key, tag in self._tagged(folder)
            if key.endswith(ends) and key.count("/") == folder.count("/") + 1
        }

    def _tagged(self, prefix: str) -> Iterator[tuple[str, str]]:
        token: dict[str, str] = {}
        while True:
            page = self._try(
                "list",
                prefix,
                functools.partial(
                    self._client.list_objects_v2, Bucket=self.bucket, Prefix=self.prefix + prefix, **token
                ),
            )
            yield from ((entry["Key"].removeprefix(self.prefix), entry["ETag"]) for entry in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        """Delete one object; the server does not mind if there is none."""
        self._try("delete", key, lambda: self._client.delete_object(Bucket=self.bucket, Key=self.prefix + key))

    def copy(self, key: str, to: str) -> None:
        """Copy within the bucket, on the server."""
        source = {"Bucket": self.bucket, "Key": self.prefix + key}
        place = {"Bucket": self.bucket, "Key": self.prefix + to}
        self._try("write", to, lambda: self._client.copy_object(**place, CopySource=source))

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file; a large one in parts, each with a CRC32."""
        size = path.stat().st_size
        if size <= LARGE_BYTES:
            self.write(key, path.read_bytes())
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        extra = {"Metadata": {DIGEST: digest}, "ChecksumAlgorithm": "CRC32"}

        def upload() -> None:
            with path.open("rb") as file:
                self._transfers.upload_fileobj(file, self.bucket, self.prefix + key, ExtraArgs=extra, Config=TRANSFER)

        self._try("write", key, upload)

    def get_file(self, key: str, path: Path) -> None:
        """Download an object to `path`."""
        self._try("read", key, lambda: self._download(key, path))

    def check_writable(self) -> None:
        """Write an empty object under a random name and delete it."""
        key = f".contrasweep-write-check-{uuid.uuid4().hex}"
        self.write(key, b"")
        self.delete(key)

    @property
    def _client(self) -> Any:
        """The client whose requests `_try` tries again."""
        return self._connected(1)

    @property
    def _transfers(self) -> Any:
        """The client of transfers in parts: one lost part is sent again, not the whole file."""
        return self._connected(PART_ATTEMPTS)

    def _connected(self, attempts: int) -> Any:
        """One client for all threads of this process: clients are thread-safe, but do not survive a fork."""
        aws = tuple(
            sorted((name, value) for name, value in os.environ.items() if name.startswith(("AWS_", "CONTRASWEEP_S3_")))
        )
        with _connecting:
            return _connect(os.getpid(), aws, attempts)

    def _try(self, verb: str, key: str, call: Callable[[], T]) -> T:
        """`call()`, again after retryable errors. A missing object is `FileNotFoundError`, a condition that failed the
        server's own error, all else `StorageError`."""
        for attempt in range(1, self.attempts + 1):
            try:
                return call()
            except raised.ClientError as error:
                if _code(error) in NOT_FOUND and verb != "write":
                    raise FileNotFoundError(f"{self.uri}/{key}") from None
                if _code(error) in PRECONDITION_FAILED | CONDITION_UNSUPPORTED:
                    raise
                if not is_retryable(error) or attempt == self.attempts:
                    raise self._error(verb, key, error, attempt) from None
                fault: Exception = error
            except (
                raised.NoCredentialsError,
                raised.PartialCredentialsError,
                raised.ProfileNotFound,
                ValueError,
            ) as error:
                raise self._error(verb, key, error) from None
            except (raised.BotoCoreError, ResponseParserError, CorruptedObject, ConnectionError, TimeoutError) as error:
                if attempt == self.attempts:
                    raise self._error(verb, key, error, attempt) from None
                fault = error
            wait = min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1)
            log.warning(
                "could not %s %s/%s (%s); attempt %d of %d in %.1f s",
                verb,
                self.uri,
                key,
                _message(fault),
                attempt + 1,
                self.attempts,
                wait,
            )
            time.sleep(wait)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _error(self, verb: str, key: str, error: Exception, attempts: int = 1) -> StorageError:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS"
        code = _code(error) if isinstance(error, raised.ClientError) else ""
        if code == "NoSuchBucket":
            advice = f"the bucket does not exist on {endpoint}: create it, or correct the address"
        elif code in ACCESS_DENIED or isinstance(
            error, raised.NoCredentialsError | raised.PartialCredentialsError | raised.ProfileNotFound
        ):
            advice = f"{endpoint} denies access: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
        elif isinstance(error, CorruptedObject):
            advice = "the stored object is damaged, or something on the way damages it: stage or compute it again"
        elif isinstance(error, ValueError):
            advice = "check the address and AWS_ENDPOINT_URL"
        else:
            advice = (
                f"check that the server at {endpoint} is up, then run the same command again: finished work is kept"
            )
        times = f" {attempts} times" if attempts > 1 else ""
        return StorageError(f"could not {verb} {self.uri}/{key}{times} ({_message(error)}); {advice}")

    def _head(self, key: str) -> dict[str, Any] | None:
        def fetch() -> dict[str, Any]:
            return dict(self._client.head_object(Bucket=self.bucket, Key=self.prefix + key))

        try:
            return self._try("read", key, fetch)
        except FileNotFoundError:
            return None

    def _has(self, key: str, digest: str) -> bool:
        head = self._head(key)
        return head is not None and _digest(head) == digest

    def _download(self, key: str, path: Path) -> None:
        """One version of the object, large ones in parts, into a file beside `path` that then takes its place."""
        place = {"Bucket": self.bucket, "Key": self.prefix + key}
        head = self._client.head_object(**place)
        scratch = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        try:
            with scratch.open("wb") as file:
                if int(head["ContentLength"]) <= LARGE_BYTES:
                    file.write(self._client.get_object(**place)["Body"].read())
                else:
                    self._transfers.download_fileobj(self.bucket, self.prefix + key, file, Config=TRANSFER)
            if (size := scratch.stat().st_size) != int(head["ContentLength"]):
                raise CorruptedObject(f"{head['ContentLength']} bytes came as {size}")
            with scratch.open("rb") as file:
                _check(hashlib.file_digest(file, "sha256").hexdigest(), head)
            scratch.replace(path)
        except (S3DownloadFailedError, RetriesExceededError) as error:
            raise CorruptedObject(str(error)) from None
        finally:
            scratch.unlink(missing_ok=True)


@functools.lru_cache(maxsize=8)
def _connect(process: int, environment: tuple[tuple[str, str], ...], attempts: int) -> Any:
    """A client that makes each request `attempts` times; further retries are ours (botocore's neither log nor cover
    bodies that end early)."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=4 * THREADS,
        connect_timeout=10,
        read_timeout=_number("CONTRASWEEP_S3_TIMEOUT_S", 60),
        s3={"addressing_style": "path"} if endpoint else {},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )  # our own digest works on every server
    return boto3.session.Session().client("s3", region_name=region, config=config)


def _check(digest: str, response: dict[str, Any]) -> None:
    """`CorruptedObject` if the bytes have another digest than the one stored with them; others' objects have none."""
    stated = _digest(response)
    if stated and stated != digest:
        raise CorruptedObject(f"SHA-256 {digest[:12]} came, {stated[:12]} was written")


def _digest(response: dict[str, Any]) -> str | None:
    digest: str | None = response.get("Metadata", {}).get(DIGEST)
    return digest


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _code(error: raised.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def is_retryable(error: raised.ClientError) -> bool:
    """Whether the same request may succeed later: the server is busy, or lost or broke a part of it."""
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return (status >= 500 and status != 501) or _code(error) in RETRYABLE


def _message(error: Exception) -> str:
    if isinstance(error, raised.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
        return f"{status} {_code(error)}".strip() if _code(error) != str(status) else str(status)
    return " ".join(str(error).split())[:200] or type(error).__name__


def _number(variable: str, default: int) -> int:
    try:
        return max(1, int(os.environ.get(variable, default)))
    except ValueError:
        raise StorageError(f"{variable} must be a whole number, got {os.environ[variable]!r}") from None
