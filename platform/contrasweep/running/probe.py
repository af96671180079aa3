"""Runs on the cluster as a job of its own, before a study does: is contrasweep there, and which addresses can be used?

Sent as text and run by the head's Python, so that one without contrasweep can say so.
"""

import http.client
import importlib.metadata
import json
import socket
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
"""Scheme of a server's address -> its usual port. An address of any other scheme is a storage."""


def host_and_port(uri: str) -> "tuple[str, int]":
    """Return the host and the port of a server's address: its port, else the usual one of its scheme."""
    parts = urlsplit(uri)
    return parts.hostname or "", parts.port or PORTS[parts.scheme]


def unusable(version: str, uris: "list[str]", timeout_s: float = 10.0) -> "dict[str, str]":
    """Return what cannot be used from here, each with the reason: `contrasweep`, or any of the addresses.

    `version` is the version of contrasweep that is wanted; "" where any will do. An address of HTTP cannot be used
    where no connection can be made within `timeout_s`, or no MLflow server answers. Any other address is a storage,
    which cannot be used where nothing can be written with the keys that are here.
    """
    try:
        # Where any version will do, "" is compared with "".
        found = importlib.metadata.version("contrasweep") if version else ""
        from contrasweep.errors import ContrasweepError
        from contrasweep.storage.store import open_store
    except ImportError as error:
        return {"contrasweep": f"{sys.executable}: {error}"}
    if found != version:
        return {"contrasweep": f"{sys.executable} has {found}"}
    failed = {}
    for uri in uris:
        try:
            if urlsplit(uri).scheme in PORTS:
                check_server(uri, timeout_s)
            else:
                open_store(uri).check_writable()
        except ContrasweepError as error:
            failed[uri] = str(error)
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "strerror", None) or error).strip()
            # A server of another protocol answers with bytes, which the error then quotes.
            if not why.isprintable():
                why = "no HTTP"
            host, port = host_and_port(uri)
            failed[uri] = f"{host}:{port}: {why}"
    return failed


def check_server(uri: str, timeout_s: float) -> None:
    """Raise `OSError` or `HTTPException` where no MLflow server answers at `uri` within `timeout_s` seconds.

    A server that asks for a login counts as one.
    """
    socket.create_connection(host_and_port(uri), timeout=timeout_s).close()
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=timeout_s).close()
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):  # as when the job itself asks
            raise OSError(f"no MLflow server answers at /health (HTTP {error.code})") from None


if __name__ == "__main__":
    print("PROBE " + json.dumps(unusable(sys.argv[1], sys.argv[2:])))
