"""Runs on the cluster as a job of its own, before a study does: which addresses can be reached from there?

Sent as text and run by the head's Python, so it imports the standard library alone.
"""

import http.client
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}


def endpoint(uri: str) -> str:
    """Return the address of the server of `uri`; of s3:// that which this node's environment names, else AWS's."""
    if not uri.startswith("s3://"):
        return uri
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    default = "https://s3.%samazonaws.com" % (f"{region}." if region else "")
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or default


def host_and_port(uri: str) -> "tuple[str, int]":
    """Return the host and the port of a connection to `uri`: its port, else the usual one of its scheme, else 443."""
    parts = urlsplit(endpoint(uri))
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme.split("+")[0], 443)


def unreachable(uris: "list[str]", timeout_s: float = 10.0) -> "dict[str, str]":
    """Return the addresses that cannot be used from here, each with the reason.

    No connection can be made within `timeout_s`, there is no such bucket, or what answers there is no MLflow server.
    """
    failed = {}
    for uri in uris:
        host, port = host_and_port(uri)
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
            check_answer(uri, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            why = str(getattr(error, "strerror", None) or error).strip()
            failed[uri] = f"{host}:{port}: {why if why.isprintable() else 'no HTTP'}"
    return failed


def check_answer(uri: str, timeout_s: float) -> None:
    """Raise `OSError` or `HTTPException` where a server answers that it has no such bucket, or is no MLflow server.

    Asked without a key, some servers deny access to any bucket, which then passes.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("s3", "http", "https"):
        return
    is_bucket = parts.scheme == "s3"
    path = parts.netloc if is_bucket else "health"
    try:
        urllib.request.urlopen(f"{endpoint(uri).rstrip('/')}/{path}", timeout=timeout_s).close()
    except urllib.error.HTTPError as error:
        if is_bucket and b"NoSuchBucket" in error.read():
            raise OSError("there is no such bucket") from None
        if not is_bucket and error.code in (403, 404):  # as when the job itself asks
            raise OSError(f"no MLflow server answers at /health (HTTP {error.code})") from None
    except (OSError, http.client.HTTPException):
        if not is_bucket:  # boto3 may know a certificate that Python does not
            raise


if __name__ == "__main__":
    print("PROBE " + json.dumps(unreachable(sys.argv[1:])))
