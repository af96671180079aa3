"""A node in a network namespace of its own, whose cable can be pulled or lose packets: Linux, as root.

The cable is this module as a program: it copies frames between two network cards that it makes (TAP), and drops the
share that a file names. So nothing of the kernel is needed that drops packets.
"""

import contextlib
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x1002
LONGEST_FRAME = 65_536

if __name__ != "__main__":  # the program imports nothing of ours
    from tests.support.raylets import RayCluster

    class CutOffCluster(RayCluster):
        """A head and node b on this machine; node a reaches them by a cable only."""

        def __init__(self) -> None:
            number = os.getpid() % 250
            self.namespace = f"faults{number}"
            self.card = f"faults{number}"
            peer = f"faults{number}n"
            self.host = f"10.231.{number}.1"
            self.inside = f"10.231.{number}.2"
            self.share = Path(tempfile.mkdtemp(prefix="cs-cable-")) / "share"
            self.lose(0.0)
            _ip("netns", "add", self.namespace)
            self.cable = subprocess.Popen(
                [sys.executable, __file__, self.card, peer, str(self.share)]
            )
            try:
                while not Path("/sys/class/net", peer).exists():
                    time.sleep(0.05)
                _ip("link", "set", peer, "netns", self.namespace)
                _ip("addr", "add", f"{self.host}/24", "dev", self.card)
                _ip("link", "set", self.card, "up")
                _ip("-n", self.namespace, "addr", "add", f"{self.inside}/24", "dev", peer)
                for device in (peer, "lo"):
                    _ip("-n", self.namespace, "link", "set", device, "up")
                super().__init__()
            except BaseException:
                self._remove()
                raise

        def connect(self, connected: bool) -> None:
            """Pull the cable, or put it back."""
            self.lose(0.0 if connected else 1.0)

        def lose(self, share: float) -> None:
            """Lose this share of the packets in either direction."""
            new = self.share.with_suffix(".new")
            new.write_text(str(share))
            new.replace(self.share)

        def close(self) -> None:
            super().close()
            self._remove()

        def _remove(self) -> None:
            self.cable.kill()  # its cards go with it
            self.cable.wait()
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", self.namespace)

        def _start(self, name: str, words: list[str], prefix: tuple[str, ...] = ()) -> None:
            namespace = self.inside if name == "a" else self.host
            prefix = ("ip", "netns", "exec", self.namespace) if name == "a" else ()
            super()._start(name, [*words, f"--node-ip-address={namespace}"], prefix)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def cable(one: str, other: str, share: Path) -> None:
    """Copy frames between two cards until killed."""
    cards = {}
    for name in (one, other):
        cards[name] = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(cards[name], TUNSETIFF, struct.pack("16sH", name.encode(), TAP_WITHOUT_HEADER))
    across = {cards[one]: cards[other], cards[other]: cards[one]}
    rng = random.Random(one)
    lost = 0.0
    looked = 0.0
    while True:
        ready, _, _ = select.select(list(across), [], [], 1.0)
        if time.monotonic() > looked + 0.05:
            lost = float(share.read_text())
            looked = time.monotonic()
        for card in ready:
            frame = os.read(card, LONGEST_FRAME)
            if rng.random() >= lost:
                with contextlib.suppress(OSError):  # the other card is down
                    os.write(across[card], frame)


if __name__ == "__main__":
    cable(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
