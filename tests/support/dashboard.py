"""A Ray dashboard that answers as a session tells it, at every address of HTTP but those of this machine."""

import importlib.metadata
import json
import os
import shlex
import urllib.request
from contextlib import contextmanager
from unittest.mock import patch
from urllib.parse import urlsplit

from answering import Server, answering

from contrasweep.cluster import jobs, submission

WORDS = {"RAY_VERSION": importlib.metadata.version("ray"), "DEEP": "[" * 100_000}


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


class Dashboard(Server):
    """`$ dashboard PATH ANSWER...` tells what is answered there, one a time, and the last one from then on.

    An answer is `STATUS BODY`, or 0 and the bytes. A path that is not only read begins with its method: `POST /a`.
    Without words, what was sent since the last time is printed.
    """

    def __call__(self, folder, path="", *answers):
        if not path:
            text = "\n".join(f"{place} {sent}" for place, sent in self.asked)
            self.asked.clear()
            return text
        for word, meant in {"FOLDER": str(folder), **WORDS}.items():
            answers = [answer.replace(word, meant) for answer in answers]
        self.answers[path] = answers
        return ""

    def reply(self, method, path, body, authorization):
        path = urlsplit(path).path
        answers = ["404 nothing here"]
        if method != "GET":
            path = f"{method} {path}"
            self.asked.append((path, _shown(body)))
            answers = ["200 taken"]
        answers = self.answers.get(path, answers)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        status, _, text = answer.partition(" ")
        if status == "0":
            text = text.encode().decode("unicode_escape")
        return int(status), text


@contextmanager
def dashboard():
    """Answer HTTP of this process by a `Dashboard`, which is yielded. Who waits asks every 20 s of its own clock."""
    clock = Clock(least=20.0)
    with (
        answering(kind=Dashboard) as server,
        patch.dict(os.environ, http_proxy=server.address, no_proxy="127.0.0.1,localhost"),
        patch.object(urllib.request, "_opener", None),
        patch.object(jobs, "time", clock),
        patch.object(submission, "time", clock),
    ):
        yield server


def _shown(body):
    """The members of a job; "" for a package."""
    if not body.startswith(b"{"):
        return ""
    job = json.loads(body)
    words = shlex.split(job["entrypoint"])
    if words[1] == "-c":  # a program, and the version of contrasweep that is wanted
        words[2:4] = ["PROGRAM", "VERSION" if words[3] else ""]
    return json.dumps(job | {"entrypoint": words})
