"""`S3Store`: an S3-compatible bucket as a store. The only module that imports boto3.

The endpoint, credentials and region are set by AWS's variables: AWS_ENDPOINT_URL (any compatible server),
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or a profile, AWS_REGION. Every object has the SHA-256 of its bytes in its
metadata. What is read is checked against it, so that bytes damaged by a proxy or a disk are never returned.
"""

import base64
import functools
import hashlib
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions as raised
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from contrasweep.canonical import file_digest
from contrasweep.errors import StorageError
from contrasweep.storage.listed_store import ListedStore
from contrasweep.storage.names import MAX_READ, is_key, too_large
from contrasweep.storage.s3_retry import (
    CONDITION_UNSUPPORTED,
    PRECONDITION_FAILED,
    TOO_LARGE_TO_COPY,
    Allowance,
    CorruptedObject,
    Retry,
    error_code,
    positive_number,
    storage_error,
)

PART_BYTES = 8 * 2**20
THREADS = 4
LARGE_BYTES = 2 * PART_BYTES  # larger files are sent in parts, by boto3's transfer manager
TRANSFER = TransferConfig(
    multipart_threshold=LARGE_BYTES,
    multipart_chunksize=PART_BYTES,
    max_concurrency=THREADS,
    num_download_attempts=3,
)
PART_ATTEMPTS = 3  # of a part's request, before the whole transfer is tried again
_connecting = (
    threading.Lock()
)  # held while a client is looked up or made, so that threads make no second one
DIGEST = "sha256"
"""The field of an object's metadata that has its SHA-256."""
Answer = dict[str, Any]
"""A server's answer, with the fields that S3 gives it; boto3 has no types for it."""


class S3Store(ListedStore):
    """Objects below `s3://bucket/prefix`.

    Every call is made again as `s3_retry.Retry` says. Where it still fails, a `StorageError` says what to do.
    """

    def __init__(self, uri: str, *, patient: bool = False) -> None:
        """Set up the store for the address `uri`, without a request to the server.

        With `patient` the caller knows that the server is there. So an outage is waited for, from the first call on.
        `StorageError` where the address has no bucket.
        """
        self.bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if not self.bucket:
            raise StorageError(f"{uri}: an s3:// address needs a bucket, as in s3://bucket/prefix")
        self.uri = uri.rstrip("/")
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._retry = Retry(self.uri, patient=patient)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(S3Store, patient=self._retry.patient), (self.uri,)

    def read(self, key: str, limit: int = MAX_READ) -> bytes:
        """Return the object's bytes, checked against the SHA-256 in its metadata.

        `FileNotFoundError` where there is no such object, `BrokenFileError` where it has more than `limit` bytes, or
        other bytes than were written.
        """

        def fetch(allowance: Allowance) -> bytes | int:
            """Return the bytes of the object; where they are more than the limit, their number."""
            response = self._client.get_object(**self._at(key))
            size = int(response["ContentLength"])
            # The size is returned and not raised as an error, because an error would be tried again.
            if size > limit:
                response["Body"].close()
                return size
            allowance.add_time_for(size)
            data: bytes = response["Body"].read()
            _check(hashlib.sha256(data).hexdigest(), response)
            return data

        answer = self._retry("read", key, fetch)
        if isinstance(answer, int):
            raise too_large(self.uri, key, answer, limit)
        return answer

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Put one object with its SHA-256 in the metadata; return whether it was written.

        With `if_absent` nothing is written where the key has an object. If that object is from an earlier try of the
        same call, whose answer was lost, it counts as written.
        """
        place = self._at(key)
        if if_absent:
            place["IfNoneMatch"] = "*"
        digest = hashlib.sha256(data).hexdigest()
        tries = 0

        def put(allowance: Allowance) -> None:
            """Put the object, with an MD5 by which the server checks what has arrived."""
            nonlocal tries
            tries += 1
            md5 = hashlib.md5(data, usedforsecurity=False).digest()
            self._client.put_object(
                **place,
                Body=data,
                Metadata={DIGEST: digest},
                ContentMD5=base64.b64encode(md5).decode(),
            )

        try:
            self._retry("write", key, put, len(data))
        except raised.ClientError as error:
            # The key has an object, perhaps from an earlier try of this call.
            if if_absent and error_code(error) in PRECONDITION_FAILED:
                head = self._head(key) if tries > 1 else None
                return head is not None and _digest(head) == digest
            # The server knows no conditions: look first, then write, which is nearly as good.
            if if_absent and error_code(error) in CONDITION_UNSUPPORTED:
                if self.exists(key):
                    return False
                return self.write(key, data)
            raise storage_error("write", f"{self.uri}/{key}", error) from None
        return True

    def exists(self, key: str) -> bool:
        """Return whether there is such an object, by a HEAD request."""
        return self._head(key) is not None

    def entries(self, prefix: str) -> Iterator[tuple[str, str, int]]:
        """Yield key, entity tag and size in bytes of each object whose key begins with `prefix`, page by page."""
        # Keys here are relative to the storage's own prefix in the bucket.
        place = {"Bucket": self.bucket, "Prefix": self.prefix + prefix}
        while True:
            page = self._retry("list", prefix, lambda _: self._client.list_objects_v2(**place))
            for entry in page.get("Contents", ()):
                key = entry["Key"].removeprefix(self.prefix)
                if is_key(key):
                    yield key, entry["ETag"], int(entry["Size"])
            if not page.get("IsTruncated"):
                return
            place["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        """Delete one object; no error if there is none."""
        self._retry(
            "delete",
            key,
            lambda _: self._client.delete_object(**self._at(key)),
        )

    def copy(self, key: str, to: str) -> None:
        """Copy the object `key` to `to` on the server, in place of an object that is there.

        One that the server does not copy at once, as AWS above 5 GiB, is copied in parts.
        """
        source = self._at(key)

        def copy(allowance: Allowance) -> None:
            """Make one attempt to copy the object.

            A large object is copied in parts, which extends the `allowance` by the time that its size takes.
            """
            try:
                self._client.copy_object(**self._at(to), CopySource=source)
            except raised.ClientError as error:
                if error_code(error) not in TOO_LARGE_TO_COPY:
                    raise
                head = self._client.head_object(**source)
                allowance.add_time_for(int(head["ContentLength"]))
                # The copy of parts has no metadata of its own.
                extra = {"Metadata": head["Metadata"]}
                self._transfers.copy(source, self.bucket, self.prefix + to, extra, Config=TRANSFER)

        self._retry("copy", key, copy)

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file; a large one in parts, each with a CRC32."""
        size = path.stat().st_size
        if size <= LARGE_BYTES:
            self.write(key, path.read_bytes())
            return
        extra = {"Metadata": {DIGEST: file_digest(path)}, "ChecksumAlgorithm": "CRC32"}

        def upload(allowance: Allowance) -> None:
            """Send the file in parts, from its beginning at each try."""
            with path.open("rb") as file:
                self._transfers.upload_fileobj(
                    file, self.bucket, self.prefix + key, ExtraArgs=extra, Config=TRANSFER
                )

        self._retry("write", key, upload, size)

    def get_file(self, key: str, path: Path) -> None:
        """Download the object to the local file `path`, checked against its digest.

        `FileNotFoundError` where there is no such object.
        """
        self._retry("read", key, lambda allowance: self._download(key, path, allowance))

    def has_conditional_writes(self) -> bool:
        """Return whether the server obeys `If-None-Match: *`.

        An object is written twice under a random name, which such a server refuses the second time. Then the object is
        deleted.
        """
        key = f".contrasweep-write-check-{uuid.uuid4().hex}"
        place = self._at(key) | {"IfNoneMatch": "*", "Body": b""}
        try:
            for _ in range(2):
                self._retry("write", key, lambda _: self._client.put_object(**place))
        except raised.ClientError as error:
            return error_code(error) in PRECONDITION_FAILED
        finally:
            self.delete(key)
        return False

    def _at(self, key: str) -> dict[str, str]:
        """Return the bucket and the whole key of an object as keyword arguments for boto3: `Bucket` and `Key`."""
        return {"Bucket": self.bucket, "Key": self.prefix + key}

    @property
    def _client(self) -> Any:
        """The client for single requests, which `Retry` makes again."""
        return self._connected(1)

    @property
    def _transfers(self) -> Any:
        """The client for transfers in parts, which sends a lost part again and not the whole file."""
        return self._connected(PART_ATTEMPTS)

    def _connected(self, attempts: int) -> Any:
        """Return the client that makes each request `attempts` times at most; all threads of this process share it."""
        # There is a new client after a fork, which clients do not survive, and after a change of the variables that
        # configure it.
        variables = [
            (name, value)
            for name, value in os.environ.items()
            if name.startswith(("AWS_", "CONTRASWEEP_S3_"))
        ]
        with _connecting:
            return _connect(os.getpid(), tuple(sorted(variables)), attempts)

    def _head(self, key: str) -> Answer | None:
        """Return the server's answer to a HEAD request for an object; None where there is no such object.

        It has the object's size (`ContentLength`) and metadata (`Metadata`), among others.
        """
        try:
            return self._retry(
                "read", key, lambda _: dict(self._client.head_object(**self._at(key)))
            )
        except FileNotFoundError:
            return None

    def _download(self, key: str, path: Path, allowance: Allowance) -> None:
        """Download an object to `path`, once; a large one comes in parts. After an error `path` is as it was.

        `allowance` is extended by the time that the object's size takes. `CorruptedObject` where other bytes arrived
        than were written, for example because the object was replaced meanwhile.
        """
        place = self._at(key)
        head = self._client.head_object(**place)
        expected = int(head["ContentLength"])
        allowance.add_time_for(expected)
        # The object comes into a file beside `path`, which takes the place of `path` once it is whole and checked.
        scratch = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        try:
            with scratch.open("wb") as file:
                if expected <= LARGE_BYTES:
                    file.write(self._client.get_object(**place)["Body"].read())
                else:
                    self._transfers.download_fileobj(
                        self.bucket, self.prefix + key, file, Config=TRANSFER
                    )
            size = scratch.stat().st_size
            if size != expected:
                raise CorruptedObject(f"{expected} bytes came as {size}")
            _check(file_digest(scratch), head)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


@functools.lru_cache(maxsize=8)
def _connect(process: int, environment: tuple[tuple[str, str], ...], attempts: int) -> Any:
    """Return a client that makes each request `attempts` times at most.

    `process` and `environment` only choose the client: the cache has one for each value of them. All further tries are
    made by `Retry`, because those of botocore do not log and do not cover bodies that end early.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    # Checksums of boto3 are off where they can be, because not every server has them: the digest works everywhere.
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=4 * THREADS,
        connect_timeout=10,
        read_timeout=positive_number("CONTRASWEEP_S3_TIMEOUT_S", 60),
        s3={"addressing_style": "path"} if endpoint else {},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.session.Session().client("s3", region_name=region, config=config)


def _check(digest: str, response: Answer) -> None:
    """Raise `CorruptedObject` if `digest`, of the bytes that arrived, is not the one in the object's metadata.

    `response` is the server's answer with the metadata. An object of another program has no digest and passes.
    """
    stated = _digest(response)
    if stated and stated != digest:
        raise CorruptedObject(f"SHA-256 {digest[:12]} came, {stated[:12]} was written")


def _digest(response: Answer) -> str | None:
    """Return the SHA-256 that an object has in its metadata; None where it has none."""
    digest: str | None = response.get("Metadata", {}).get(DIGEST)
    return digest
