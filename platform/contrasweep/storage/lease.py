"""A lease on a study, renewed by its holder, so that one driver at a time writes the study.

It works on any store that can create an object only where there is none.

    <study>/lease/00000007.json    the 7th lease: its holder, how often it was renewed, whether it was given back

The newest lease counts. A process takes the lease by creating the next file, which only one of several processes can.
Its holder alone renews it. No clock of another machine is believed: a process that waits sees by renewals that the
holder lives, and takes over after EXPIRY_S without a renewal on its own clock. A holder that was stopped for so long
finds a newer lease, and ends.
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
from dataclasses import replace

from contrasweep.errors import BrokenFileError, ContrasweepError, StorageError
from contrasweep.processes import machine, process_identity
from contrasweep.shell import command_line
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, local_path
from contrasweep.storage.record import Count, Pid, Time
from contrasweep.storage.records import StudyRecords

HEARTBEAT_S = 5.0
"""Seconds from one renewal of a lease to the next."""
EXPIRY_S = 30.0
"""Seconds without a renewal after which a lease may be taken over."""
POLL_S = 1.0
"""Seconds between two looks at a lease whose end is waited for."""
_held_here: set[str] = set()  # tokens of the leases that this process holds
BACKLOG = 1000  # connections that wait at a holder's socket, none of which is ever accepted
RELEASE_TIMEOUT_S = 5.0
"""An interrupted run does not wait longer for a storage that does not answer."""


class StudyHeld(ContrasweepError):
    """Another process holds the study's lease and is alive."""


@stored
class Holder:
    """The process that holds a lease, or held it last. `Holder()` stands for a process of which nothing is known."""

    host: Label = ""
    pid: Pid = 0
    # Identifies the machine and the process on it; differs for a later process with the same `pid`. "": not known.
    process: Label = ""
    token: Label = ""  # drawn at random for each lease
    renewals: Count = 0
    renewed: Time = 0.0  # by the clock of its machine
    released: bool = False  # the lease was given back

    @classmethod
    def here(cls) -> "Holder":
        """Return this process as the holder of a new lease, with a new token."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, process_identity(pid), token=uuid.uuid4().hex)

    @property
    def lives_here(self) -> bool | None:
        """Return True for a living process of this machine, False for one of this machine that has ended.

        None for a process of another machine, and where the machine is not known.
        """
        this_machine = machine()
        if not this_machine or not self.process.startswith(this_machine):
            return None
        # This process, which has given the lease back, does not hold it any more.
        if self.pid == os.getpid() and self.token not in _held_here:
            return False
        return process_identity(self.pid) == self.process

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.host else "another process"


HOLDER_FILE = JsonFile(Holder, 2, "the next run of the study takes it over")
"""lease/<number>.json, written and read."""


class Lease:
    """The lease of a study, held from `acquire` to `release`.

    While it is held, a thread renews it. `lost` is "" until another process has taken the lease over; then it says so.
    """

    def __init__(self, records: StudyRecords, on_message: Callable[[str], object]) -> None:
        """Prepare the lease of the study of `records`; `on_message` is called with lines for the user."""
        self.records = records
        self.on_message = on_message
        self.store = records.store
        self.folder = f"{records.study}/lease/"
        self.holder = Holder.here()
        self.generation = 0  # the lease's number, once it is held
        self.lost = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def acquire(self) -> None:
        """Take the lease, also from a holder that has died; `StudyHeld` if a living process has it.

        It may wait up to `EXPIRY_S`, to see whether the holder lives.
        """
        # Whether only one of several processes can create a file.
        is_exclusive = self.store.has_conditional_writes()
        if not is_exclusive:
            self.on_message(
                f"{self.store.uri} has no conditional writes: of two runs of {self.records.study} that start within "
                f"the same second, both may go on; do not start a second one"
            )
        while True:
            generation, holder = self.newest()
            if not holder.released:
                self._wait_for_end(generation, holder)
            # Only one of the processes that have seen the same newest lease creates the next one.
            key = self._key(generation + 1)
            self.holder = replace(self.holder, renewed=time.time())
            created = self.store.write(key, self._content(), if_absent=True)
            # Without conditional writes several may have written the file: the last writer has the lease.
            if created and not is_exclusive:
                created = self._read(key).token == self.holder.token
            if created:
                break
            # Another process was first, so the loop goes on and waits for it. But if no newer lease is listed, the key
            # has something that is no lease, and waiting would never end.
            newest_generation, _ = self.newest()
            if newest_generation <= generation:
                raise StorageError(
                    f"storage {self.store.uri}: {key} is no plain file; remove it, and run again"
                )
        self.generation = generation + 1
        # Older leases do not count any more.
        if generation:
            for key in self._keys():
                if key < self._key(self.generation):
                    self.store.delete(key)
        _held_here.add(self.holder.token)
        self._thread.start()

    def release(self) -> None:
        """Give the lease back, so that the next process need not wait.

        The thread that renews the lease writes to the storage that it is given back; this waits for it for
        `RELEASE_TIMEOUT_S`. Where the storage does not answer in that time, the lease expires by itself.
        """
        self._end.set()
        self._thread.join(RELEASE_TIMEOUT_S)
        _held_here.discard(self.holder.token)

    def is_sure(self) -> bool:
        """Whether this process surely still holds the lease, because it has renewed it within `EXPIRY_S`.

        Another process may have taken it over if this one was stopped for longer, for example by a laptop that slept.
        Once the thread has renewed the lease, this is true again.
        """
        return not self.lost and time.time() - self.holder.renewed < EXPIRY_S

    def newest(self) -> tuple[int, Holder]:
        """Return the number and the holder of the newest lease; 0 and a holder with `released` where there is none."""
        keys = self._keys()
        if not keys:
            return 0, Holder(released=True)
        generation = int(keys[-1].removeprefix(self.folder).removesuffix(".json"))
        return generation, self._read(keys[-1])

    def _keys(self) -> list[str]:
        """Return the keys of all leases in the folder, the oldest first; files with other names are left out."""
        keys = []
        for key in self.store.list(self.folder):
            # A lease's name is eight digits and `.json`. `int` reads the digits of other scripts too, so the key must
            # be the one that its number has.
            digits = key.removeprefix(self.folder)[:8]
            if digits.isdecimal() and key == self._key(int(digits)):
                keys.append(key)
        return keys

    def _key(self, generation: int) -> str:
        """Return the key of the lease with this number, the first being 1."""
        return f"{self.folder}{generation:08d}.json"

    def _read(self, key: str) -> Holder:
        """Return the holder that the file `key` of a lease names.

        Where the file is missing or broken, return `Holder()`, which stands for a process of which nothing is known.
        """
        try:
            return HOLDER_FILE.read(self.store, key)
        except (FileNotFoundError, BrokenFileError):
            return Holder()

    def _content(self) -> bytes:
        """Return the bytes of the lease's file, with this process as the holder."""
        return HOLDER_FILE.encode(self.holder)

    def _wait_for_end(self, generation: int, holder: Holder) -> None:
        """Wait until the lease with this number, which `holder` has, may be taken; `StudyHeld` if the holder is alive.

        Whether a process of this machine is alive is known at once. Any other holder is watched for `EXPIRY_S`, and is
        alive if it renews the lease.
        """
        study = self.records.study
        if holder.lives_here:
            raise self._held(holder)
        if holder.lives_here is False:
            self.on_message(f"{holder}, which was running {study}, has ended; this run takes over")
            return
        # Whether it lives is not known (None): a process of another machine.
        self.on_message(
            f"{holder} was running {study}; waiting {EXPIRY_S:.0f} s at most to see whether it still is"
        )
        since = time.monotonic()
        while time.monotonic() - since < EXPIRY_S:
            started_at = time.monotonic()
            time.sleep(POLL_S)
            newest_generation, newest_holder = self.newest()
            # If the lease was given back, or taken by another process, the caller looks at the newest one again.
            if newest_generation != generation or newest_holder.released:
                return
            if newest_holder.renewals > holder.renewals:
                raise self._held(newest_holder)
            # Where the storage took long to answer, perhaps the holder could not renew either: the wait begins again.
            if time.monotonic() - started_at > POLL_S + HEARTBEAT_S:
                since = time.monotonic()
        self.on_message(
            f"{holder} has given no sign for {EXPIRY_S:.0f} s; this run takes {study} over"
        )

    def _held(self, holder: Holder) -> StudyHeld:
        """Return the error for a lease whose holder is alive."""
        return StudyHeld(
            f"study {self.records.study} is being run by another process on {self.records.storage} ({holder})"
        )

    def _renew(self) -> None:
        """Renew the lease every `HEARTBEAT_S` seconds until `release` is called, and then give it back.

        It runs in a thread of its own. It ends earlier where another process has taken the lease over, which `lost`
        then says. Where the storage does not answer, it is asked again after the next `HEARTBEAT_S`.
        """
        while not self._end.wait(HEARTBEAT_S):
            now = time.time()  # this clock goes on while the machine sleeps
            try:
                generation, holder = self.newest()
                # The lease is not lost where its file cannot be read (a holder without a token). Nor is it where only
                # an older lease is listed, or none: a store may list what is new late.
                is_others = holder.token not in ("", self.holder.token)
                if generation > self.generation or (is_others and generation == self.generation):
                    self.lost = (
                        f"study {self.records.study} was taken over by {holder}, because this one "
                        f"gave no sign for {EXPIRY_S:.0f} s; nothing is lost"
                    )
                    return
                renewed = replace(self.holder, renewals=self.holder.renewals + 1, renewed=now)
                self.store.write(self._key(self.generation), HOLDER_FILE.encode(renewed))
                self.holder = renewed
            except (StorageError, OSError):
                continue
        # Given back, so that the next process need not wait.
        try:
            self.holder = replace(self.holder, released=True)
            self.store.write(self._key(self.generation), self._content())
        except (StorageError, OSError):
            return  # the lease expires


def living_holder(records: StudyRecords) -> Holder | None:
    """Return the process that holds the study's lease, if it lives; None where no living process holds it.

    A process on another machine is taken to live if it has renewed the lease within `EXPIRY_S`, by the clocks of both
    machines. A run holds the lease before it begins to train, so that it is returned then too.
    """
    _, holder = Lease(records, print).newest()
    lives = holder.lives_here
    if lives is None:
        lives = time.time() - holder.renewed < EXPIRY_S
    return holder if lives and not holder.released else None


def stop_listening(records: StudyRecords) -> Holder | None:
    """Send SIGTERM to the process of this machine and user that runs the study or campaign, and return that process.

    This does not wait for its end. None where no such process is `listening` by the study's name. The kernel says which
    process listens, so that no file and no other user can name a wrong one.
    """
    with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
        asking.setblocking(False)
        asking.connect(_socket_name(records.storage, records.study))
        # The kernel answers with struct ucred: process, user and group id, three integers.
        pid, user, _ = struct.unpack(
            "3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        if user == os.getuid():
            os.kill(pid, signal.SIGTERM)
            return Holder(socket.gethostname(), pid)
    return None


def stop_driver(records: StudyRecords) -> Holder:
    """Ask the process of this machine that runs the study to stop, as `stop_listening` does.

    `StudyHeld` where no process runs the study, or a process of another machine does. It is also raised where a process
    that the storage names does not listen, because a storage may name any process.
    """
    stopped = stop_listening(records)
    if stopped:
        return stopped
    # This lease is never acquired: it only reads who holds the newest one.
    _, holder = Lease(records, print).newest()
    if holder.released or holder.lives_here is False:
        raise StudyHeld(f"no process runs study {records.study} in {records.storage}")
    if holder.lives_here is None:
        stop_job = command_line(
            "stop", records.study, storage=records.storage, address="http://HEAD:8265"
        )
        raise StudyHeld(
            f"study {records.study} is run by {holder}, which only that machine can stop: kill {holder.pid}; its job "
            f"on a cluster: {stop_job}"
        )
    raise StudyHeld(
        f"the storage says that {holder} runs study {records.study} in {records.store.uri}, but that process does "
        f"not show it: nothing is stopped; ps {holder.pid} tells what it is"
    )


def _socket_name(storage: str, study: str) -> str:
    """Return the name of the Unix socket (an abstract one) at which the process that runs a study or campaign listens.

    It is a digest of the name `study` and of the storage's address or real path.
    """
    place = storage.removeprefix("file://")
    # With links a folder may have several paths, so its real one is taken.
    place = place.rstrip("/") if "://" in place else str(local_path(place).resolve())
    return "\0contrasweep-" + hashlib.sha256(f"{study}\n{place}".encode()).hexdigest()


@contextmanager
def listening(storage: str, study: str) -> Iterator[None]:
    """Make this process findable for `stop_listening` in a `with` block, by its storage and its study or campaign.

    It need not hold a lease. Where another process listens by the same name already, that one is found instead.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        with suppress(OSError):  # another process listens, or the system has no such sockets
            listener.bind(_socket_name(storage, study))
            listener.listen(BACKLOG)
        yield


@contextmanager
def exclusive_driver(records: StudyRecords) -> Iterator[Lease]:
    """Hold the study's lease in a `with` block, and yield it: two drivers would train the same trials twice.

    While this waits for an earlier holder, or takes the lease over from it, messages about that go to standard error.
    In the block, `contrasweep stop` can find this process. `StudyHeld` if another living process holds the lease.
    """
    lease = Lease(records, lambda text: print(text, file=sys.stderr, flush=True))
    lease.acquire()
    try:
        # `contrasweep stop` finds this process by the name at which it listens.
        with listening(records.storage, records.study):
            yield lease
    finally:
        lease.release()
