"""A Ray dashboard that answers as a session tells it, at every address of HTTP but 127.0.0.1."""

import http.server
import importlib.metadata
import json
import os
import shlex
import threading
import urllib.request
from contextlib import contextmanager
from unittest.mock import patch
from urllib.parse import urlsplit

from contrasweep.cluster import jobs, submission

NOTHING = ["404 nothing here"]
RAY = importlib.metadata.version("ray")
DEEP = "[" * 100_000


class Clock:
    """A clock that goes on by what is slept, `least` seconds or more a time, and by nothing else."""

    def __init__(self, least=0.0):
        self.now = 0.0
        self.least = least

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        self.now += max(seconds, self.least)


class Told:
    """`$ dashboard PATH ANSWER...` tells what is answered there, one a time, and the last one from then on.

    An answer is `STATUS BODY`, or `raw` and the bytes. A path that is not only read begins with its method: `POST /a`.
    Without words, what was sent since the last time is printed.
    """

    def __init__(self):
        self.answers = {}
        self.sent = []

    def __call__(self, folder, path="", *answers):
        if not path:
            text = "\n".join(self.sent)
            self.sent.clear()
            return text
        self.answers[path] = [
            text.replace("FOLDER", str(folder)).replace("RAY_VERSION", RAY).replace("DEEP", DEEP)
            for text in answers
        ]
        return ""


@contextmanager
def dashboard():
    """Answer HTTP of this process by what is yielded, a `Told`. Who waits asks every 20 s, of a clock of its own."""
    told = Told()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command != "GET":
                path = f"{self.command} {path}"
                told.sent.append(f"{path} {_shown(body)}")
            answers = told.answers.get(path, ["200 taken"] if path.startswith("PUT") else NOTHING)
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            status, _, text = answer.partition(" ")
            if status == "raw":
                self.wfile.write(text.encode().decode("unicode_escape").encode("latin-1"))
                return
            self.send_response(int(status))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_PUT = do_GET

        def log_message(self, *args):
            pass

    clock = Clock(least=20.0)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        patch.dict(
            os.environ,
            http_proxy=f"http://127.0.0.1:{server.server_port}",
            no_proxy="127.0.0.1,localhost",
        ),
        patch.object(urllib.request, "_opener", None),
        patch.object(jobs, "time", clock),
        patch.object(submission, "time", clock),
    ):
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield told
        server.shutdown()


def _shown(body):
    """The members of a job; "" for a package."""
    if not body.startswith(b"{"):
        return ""
    job = json.loads(body)
    words = shlex.split(job["entrypoint"])
    if words[1] == "-c":  # a program, and the version of contrasweep that is wanted
        words[2:4] = ["PROGRAM", "VERSION" if words[3] else ""]
    return json.dumps(job | {"entrypoint": words})
