"""A lease on a study, renewed by its holder, so that one driver at a time writes the study.

It works on any store that can create an object only where there is none.

    <study>/lease/00000007.json    the 7th lease: its holder, how often it was renewed, whether it was given back

The newest lease counts. It is taken by creating the next one, which only one of many can, and renewed by its holder
alone. Nobody's clock is believed: whoever waits sees the holder live by its renewals, and takes over once there was
none for EXPIRY_S on the waiting process's own clock. A holder that was stopped for so long finds a newer lease, and
ends.
"""

import hashlib
import os
import signal
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace

from contrasweep.errors import BrokenFileError, ContrasweepError, StorageError
from contrasweep.processes import machine, process_identity
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.record import Count, Pid
from contrasweep.storage.records import StudyRecords

HEARTBEAT_S = 5.0
"""Seconds from one renewal of a lease to the next."""
EXPIRY_S = 30.0
"""Seconds without a renewal after which a lease may be taken over."""
POLL_S = 1.0
_held_here: set[str] = set()  # tokens of the leases that this process holds
MOST_ASKED = 1000  # how often a holder can be asked to stop
# an interrupted run does not wait longer for a storage that does not answer
RELEASE_TIMEOUT_S = 5.0


class StudyHeld(ContrasweepError):
    """Another process holds the study's lease and is alive."""


@stored
class Holder:
    """The process that holds a lease.

    `process` identifies the machine and the process on it, also from a later process with the same `pid`; "" where that
    is not known. `token` is drawn at random for each lease. `renewals` counts the signs of life, `released` says that
    the lease was given back. Without any field it is a holder of whom nothing is known.
    """

    host: Label = ""
    pid: Pid = 0
    process: Label = ""
    token: Label = ""
    renewals: Count = 0
    released: bool = False

    @classmethod
    def here(cls) -> "Holder":
        """Return this process as the holder of a new lease, with a token of its own."""
        return cls(
            socket.gethostname(), os.getpid(), process_identity(os.getpid()), uuid.uuid4().hex
        )

    @property
    def lives_here(self) -> bool | None:
        """Return whether the holder is a living process of this machine.

        False: it was one of this machine and has ended. None: it is of another machine, or not known.
        """
        this_machine = machine()
        if not this_machine or not self.process.startswith(this_machine):
            return None
        # This very process, which has given that lease up.
        if self.pid == os.getpid() and self.token not in _held_here:
            return False
        return process_identity(self.pid) == self.process

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.host else "another process"


HOLDER_FILE = JsonFile(Holder, 2, "the next run of the study takes it over")
"""lease/<number>.json, written and read."""


class Lease:
    """The lease of a study, held from `acquire` to `release`.

    While it is held, a thread renews it. `lost` says why another process has taken it over, "" as long as none has.
    """

    def __init__(self, records: StudyRecords, on_message: Callable[[str], object]) -> None:
        """Prepare the lease of the study of `records`; `on_message` is called with lines for the user."""
        self.records = records
        self.on_message = on_message
        self.store = records.store
        self.folder = f"{records.study}/lease/"
        self.holder = Holder.here()
        self.generation = 0
        self.lost = ""  # why this process holds it no more
        self._sign: socket.socket | None = None  # see `_sign_of`
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def acquire(self) -> None:
        """Take the lease, also from a holder that has died; `StudyHeld` if a living process has it.

        It may wait up to `EXPIRY_S`, to see whether the holder lives.
        """
        one_creates = self.store.has_conditional_writes()
        if not one_creates:
            self.on_message(
                f"{self.store.uri} has no conditional writes: of two runs of {self.records.study} that start within "
                f"the same second, both may go on; do not start a second one"
            )
        while True:
            generation, holder = self.newest()
            if holder is not None and not holder.released:
                self._wait_for_end(generation, holder)
            # Of several processes that have seen the same newest lease, one creates the next.
            key = self._key(generation + 1)
            created = self.store.write(key, self._content(), if_absent=True)
            # Without conditional writes several may have written it: the last writer has it.
            if created and not one_creates:
                created = self._read(key).token == self.holder.token
            if created:
                break
            # Another process was first: wait for that one. But where nothing newer is listed, what lies there is no
            # lease, and nobody will give it back.
            if self.newest()[0] <= generation:
                raise StorageError(
                    f"storage {self.store.uri}: {key} is no plain file; remove it, and run again"
                )
        self.generation = generation + 1
        # Older leases count no more.
        if generation:
            for key in self._keys():
                if key < self._key(self.generation):
                    self.store.delete(key)
        _held_here.add(self.holder.token)
        self._sign = _show_sign(self.records, self.holder)
        self._thread.start()

    def release(self) -> None:
        """Give the lease back, so that the next process need not wait.

        The thread writes that. Where the storage does not answer within seconds, the lease ends by itself.
        """
        self._end.set()
        self._thread.join(RELEASE_TIMEOUT_S)
        if self._sign is not None:
            self._sign.close()
        _held_here.discard(self.holder.token)

    def newest(self) -> tuple[int, Holder | None]:
        """Return the number and the holder of the newest lease; 0 and None before the first one."""
        keys = self._keys()
        if not keys:
            return 0, None
        return int(keys[-1].removeprefix(self.folder).removesuffix(".json")), self._read(keys[-1])

    def _keys(self) -> list[str]:
        """Return the keys of all leases in the folder, the oldest first; files of any other name are left out."""
        # The name is eight digits and `.json`.
        numbered = (
            key
            for key in self.store.list(self.folder)
            if key.removeprefix(self.folder)[:8].isdecimal()
        )
        # `int` takes other digits than ours: only the very name that we write counts.
        return [key for key in numbered if key == self._key(int(key.removeprefix(self.folder)[:8]))]

    def _key(self, generation: int) -> str:
        """Return the key of the lease with this number, the first being 1."""
        return f"{self.folder}{generation:08d}.json"

    def _read(self, key: str) -> Holder:
        """Return the holder in the lease `key`; where it cannot be read, one of whom nothing is known."""
        try:
            return HOLDER_FILE.read(self.store, key)
        except (FileNotFoundError, BrokenFileError):
            return Holder()

    def _content(self) -> bytes:
        """Return the lease's file, as it stands now."""
        return HOLDER_FILE.encode(asdict(self.holder))

    def _wait_for_end(self, generation: int, holder: Holder) -> None:
        """Wait until the lease with this number, which `holder` had, may be taken; `StudyHeld` if its holder is alive.

        Of a holder of this machine it is known at once. Any other is watched for `EXPIRY_S`: it lives if it renews.
        """
        study = self.records.study
        if holder.lives_here:
            raise self._held(holder)
        if holder.lives_here is False:
            self.on_message(f"{holder}, which was running {study}, has ended; this run takes over")
            return
        self.on_message(
            f"{holder} was running {study}; waiting {EXPIRY_S:.0f} s at most to see whether it still is"
        )
        since = time.monotonic()
        while time.monotonic() - since < EXPIRY_S:
            started_at = time.monotonic()
            time.sleep(POLL_S)
            now = self.newest()
            # Given back, or another process has taken it: the caller looks again at what is newest.
            if now[0] != generation or now[1] is None or now[1].released:
                return
            if now[1].renewals > holder.renewals:
                raise self._held(now[1])
            # The storage took long to answer, perhaps to the holder too, who could not renew: count from now on.
            if time.monotonic() - started_at > POLL_S + HEARTBEAT_S:
                since = time.monotonic()
        self.on_message(
            f"{holder} has given no sign for {EXPIRY_S:.0f} s; this run takes {study} over"
        )

    def _held(self, holder: Holder) -> StudyHeld:
        """Return the error that this holder has the lease and lives."""
        return StudyHeld(
            f"study {self.records.study} is being run by another process on {self.records.storage} ({holder})"
        )

    def _renew(self) -> None:
        """The thread: renew until released or lost. A storage that does not answer is asked again."""
        while not self._end.wait(HEARTBEAT_S):
            try:
                generation, holder = self.newest()
                # A file that cannot be read has a holder without a token; that says nothing of a later one.
                if (
                    generation != self.generation
                    or holder is None
                    or holder.token not in ("", self.holder.token)
                ):
                    self.lost = (
                        f"study {self.records.study} was taken over by {holder or 'another process'}, because this one "
                        f"gave no sign for {EXPIRY_S:.0f} s; nothing is lost"
                    )
                    return
                self.holder = replace(self.holder, renewals=self.holder.renewals + 1)
                self.store.write(self._key(self.generation), self._content())
            except (StorageError, OSError):
                continue
        try:
            self.holder = replace(self.holder, released=True)
            self.store.write(self._key(self.generation), self._content())
        except (StorageError, OSError):
            return  # it ends by itself


def stop_driver(records: StudyRecords) -> Holder:
    """Ask the process of this machine that runs the study to stop (SIGTERM), and return who it is; not wait for it.

    `StudyHeld` where no process runs it, where one of another machine does, and where the process is not shown to be a
    driver of the study by what it does itself: a storage may name any process.
    """
    _, holder = Lease(records, print).newest()
    if holder is None or holder.released or holder.lives_here is False:
        raise StudyHeld(f"no process runs study {records.study} in {records.storage}")
    if holder.lives_here is None:
        raise StudyHeld(
            f"study {records.study} is run by {holder}, which only that machine can stop: kill {holder.pid}"
        )
    if _who_shows(_sign_of(records, holder)) != (holder.pid, os.getuid()):
        raise StudyHeld(
            f"the storage says that {holder} runs study {records.study} in {records.store.uri}, but that process does "
            f"not show it: nothing is stopped; ps {holder.pid} tells what it is"
        )
    os.kill(holder.pid, signal.SIGTERM)
    return holder


def _sign_of(records: StudyRecords, holder: Holder) -> str:
    """Return the name of the abstract socket at which a holder shows on its machine that it holds a study.

    The kernel says which process listens there, so that no file and no other user can make that of another one.
    """
    # A folder may have several paths, by links: its real one is hashed.
    place = records.store.uri
    place = place if "://" in place else os.path.realpath(place)
    return (
        "\0contrasweep-"
        + hashlib.sha256(f"{records.study}\n{place}\n{holder.process}".encode()).hexdigest()
    )


def _show_sign(records: StudyRecords, holder: Holder) -> socket.socket | None:
    """Listen at the sign of a holder, for as long as the socket that is returned is open.

    None where the system has no such sockets, or another process listens there: nobody can ask this one to stop then.
    """
    sign = socket.socket(socket.AF_UNIX)
    try:
        sign.bind(_sign_of(records, holder))
        sign.listen(MOST_ASKED)
    except OSError:
        sign.close()
        return None
    return sign


def _who_shows(sign: str) -> tuple[int, int] | None:
    """Return the ids of the process and the user that listen at a sign; None where nobody does."""
    with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
        asking.setblocking(False)
        asking.connect(sign)
        # The kernel answers with struct ucred: process, user and group id, three integers.
        pid, user, _ = struct.unpack(
            "3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        return pid, user
    return None


@contextmanager
def exclusive_driver(records: StudyRecords) -> Iterator[Lease]:
    """Hold the study's lease, since two drivers would train the same trials twice.

    Messages on the way go to standard error. `StudyHeld` if another process holds the lease and lives.
    """
    lease = Lease(records, lambda text: print(text, file=sys.stderr, flush=True))
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()
