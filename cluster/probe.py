"""Runs on the cluster as a job of its own, before a study does: which addresses can be reached from there?

Sent as text and run by the head's Python, so it imports the standard library alone.
"""

import json
import os
import socket
import sys
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}


def host_and_port(uri: str) -> "tuple[str, int]":
    """Return the host and the port of a connection to `uri`.

    For s3:// they are those of the endpoint that this node's environment names, else of AWS's. The port is that of the
    address, else the usual one of its scheme, else 443.
    """
    if uri.startswith("s3://"):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        default = "https://s3.%samazonaws.com" % (f"{region}." if region else "")
        uri = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or default
    parts = urlsplit(uri)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme.split("+")[0], 443)


def unreachable(uris: "list[str]", timeout_s: float = 10.0) -> "dict[str, str]":
    """Return the addresses to which no connection can be made within `timeout_s`, each with the reason."""
    failed = {}
    for uri in uris:
        host, port = host_and_port(uri)
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
        except OSError as error:
            failed[uri] = f"{host}:{port}: {error.strerror or error}"
    return failed


if __name__ == "__main__":
    print("PROBE " + json.dumps(unreachable(sys.argv[1:])))
