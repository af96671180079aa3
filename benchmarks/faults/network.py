"""A node in a network namespace of its own, whose cable can be pulled: Linux, as root."""

import os
import subprocess
from pathlib import Path

from tests.support.raylets import RayCluster


class CutOffCluster(RayCluster):
    """A head and node b on this machine; node a reaches them by a pair of virtual network cards only."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.namespace, self.card = f"faults{number}", f"faults{number}"
        self.host, self.inside = f"10.231.{number}.1", f"10.231.{number}.2"
        peer = f"{self.card}n"
        _ip("netns", "add", self.namespace)
        try:
            _ip("link", "add", self.card, "type", "veth", "peer", "name", peer)
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
        _ip("link", "set", self.card, "up" if connected else "down")

    def close(self) -> None:
        super().close()
        self._remove()

    def _remove(self) -> None:
        if Path("/run/netns", self.namespace).exists():
            _ip("netns", "delete", self.namespace)  # the cards go with it

    def _start(self, name: str, words: list[str], prefix: tuple[str, ...] = ()) -> None:
        own = self.inside if name == "a" else self.host
        prefix = ("ip", "netns", "exec", self.namespace) if name == "a" else ()
        super()._start(name, [*words, f"--node-ip-address={own}"], prefix)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
