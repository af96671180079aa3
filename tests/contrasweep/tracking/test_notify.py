"""Notifications: each event of a run is told once to each address, and an address that misbehaves costs nothing."""

import http.server
import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest
from benchmarks.tracking_services import wait_until
from command_line import python
from drivers import ray_folder, start_driver
from looks import drive_looks, three_arms, value_of

from contrasweep import AblationGrid, Arm, SpecError, delivery
from contrasweep.delivery import checked_addresses, deliver
from contrasweep.live.state import LIVE, LIVE_FILE, SILENT_S, ArmState, RunState
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import to_plain
from contrasweep.tracking import notify
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.notify import Notifier
from contrasweep.tracking.process import TrackingProcess
from contrasweep.tracking.tracker import TrackedStudy

MESSAGE = {"event": "failure", "study": "s", "text": "s: failed: <!channel> & @everyone"}


@dataclass
class Heard:
    """What a server on this machine was sent: (path, JSON) of each POST. It answers with `status` and `body`."""

    url: str = ""
    posts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def events(self) -> list[str]:
        return [body["event"] for _, body in self.posts]


@pytest.fixture
def heard():
    told = Heard()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.posts.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            status, headers, body = told.answers.pop(0) if told.answers else (200, {}, b"ok")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_): ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    yield told
    server.shutdown()
    server.server_close()


@pytest.fixture
def records(tmp_path):
    return StudyRecords(str(tmp_path / "runs"), "s")


def live(records, **fields):
    """Write what a driver of now keeps in the storage."""
    state = RunState("s", "accuracy", "max", records.storage, 8, 0, 2.0, time.time(), host="node-7", pid=4711)
    state.updated = time.time()
    LIVE_FILE.write(records.store, f"{records.study}/{LIVE}", asdict(replace(state, **fields)))


def beside(records, *addresses):
    trackers = replace(checked_tracking(None), notify=addresses)
    return TrackingProcess(trackers, TrackedStudy(records.study), records)


FAILED = {"statuses": {"done": 3, "failed": 2}, "events": [(1.0, "look"), (2.0, "failed: ocl fold=2: ValueError: x")]}


def test_a_run_that_ends_tells_its_failure_and_its_end_once_to_each_address(heard, records):
    process = beside(records, heard.url, f"{heard.url}/other")
    live(records, **FAILED, arms={"ocl": ArmState(3, 4, 3, 0.8, 0.9)})
    process.close("complete", 240.0)
    assert process.process.wait() == 0
    for path in ("/", "/other"):
        failure, end = (body for way, body in heard.posts if way == path)
        assert failure["event"] == "failure" and failure["text"] == "s: failed: ocl fold=2: ValueError: x"
        assert end["event"] == "end" and end["done"] == 5 and end["total"] == 8
        assert end["text"] == "s: complete, 5 of 8 trials, 2 failed; best accuracy 0.9 (ocl)"


def test_a_driver_that_is_killed_gives_no_sign_of_life_and_no_end(heard, records):
    process = beside(records, heard.url)
    live(records)
    process._tell("")  # what is told of a driver whose pipe ends
    assert process.process.wait() == 0
    ((_, silent),) = heard.posts
    assert silent["event"] == "silent" and "no sign of life from process 4711 on node-7 any more" in silent["text"]


@pytest.mark.parametrize(("outcome", "lost"), [("interrupted", False), ("interrupted", True)])
def test_of_a_run_before_this_one_nothing_is_told_but_how_this_one_ended(heard, records, outcome, lost):
    live(records, **FAILED, began=time.time() - 3600, updated=time.time() - 3600)
    notifier = Notifier([heard.url], records, time.time())
    notifier.look()
    notifier.close(outcome, lost=lost)
    assert notifier.join(240.0) and heard.events == ["silent" if lost else "end"]


def test_a_driver_that_hangs_is_named_once_and_again_only_after_it_has_lived(heard, records, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(notify.time, "monotonic", lambda: clock[0])
    notifier = Notifier([], records, time.time())
    sent = []
    monkeypatch.setattr(notifier, "_send", lambda event, *_: (sent.append(event), notifier._told.add(event)))
    for seconds in (0.0, SILENT_S + 1, 1.0):
        if not seconds:
            live(records)
        clock[0] += seconds
        notifier.look()
    assert sent == ["silent"]
    live(records)
    notifier.look()
    clock[0] += SILENT_S + 1
    notifier.look()
    assert sent == ["silent", "silent"]


def test_a_look_that_decides_is_told_and_one_that_decides_nothing_new_is_not(heard, tmp_path):
    study = three_arms()
    records = StudyRecords(str(tmp_path), study.name)
    drive_looks(study, tmp_path, value_of, stop_after=3)
    notifier = Notifier([heard.url], records, time.time())
    drive_looks(study, tmp_path, value_of)
    notifier.look()
    notifier.look()
    notifier.close("complete", lost=False)
    assert notifier.join(240.0) and heard.events == ["look", "end"]
    assert "c better than a by" in heard.posts[0][1]["text"] and "decided" in heard.posts[0][1]["text"]


def test_what_looks_of_an_earlier_run_decided_is_not_told_again(heard, tmp_path):
    study = three_arms()
    drive_looks(study, tmp_path, value_of)
    notifier = Notifier([heard.url], StudyRecords(str(tmp_path), study.name), time.time())
    notifier.look()
    notifier.close("complete", lost=False)
    assert notifier.join(240.0) and heard.events == ["end"]


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("slack", "/hook/x", {"text": "s: failed: &lt;!channel&gt; &amp; @everyone"}),
        ("discord", "/hook/x", {"content": MESSAGE["text"], "allowed_mentions": {"parse": []}}),
        (
            "ntfy",
            "/hook/",
            {"topic": "x", "title": "contrasweep: failure", "message": MESSAGE["text"], "tags": ["warning"]},
        ),
        ("", "/hook/x", MESSAGE),
    ],
)
def test_each_service_gets_the_body_that_it_takes_at_an_address_from_the_environment(
    kind, path, body, heard, monkeypatch
):
    monkeypatch.setenv("HOOK", f"{heard.url}/hook/x")
    assert deliver(f"{kind}:env:HOOK" if kind else "env:HOOK", MESSAGE) == ""
    assert heard.posts == [(path, body)]


@pytest.fixture
def own(tmp_path, monkeypatch):
    code = "import json, pathlib, os, time\ndef tells(event): pathlib.Path('told').write_text(json.dumps(event))\n"
    code += "def raises(event): raise OSError('no\\x1b[31m line')\ndef leaves(event): os._exit(3)\n"
    code += "def hangs(event): time.sleep(1e6)\n"
    (tmp_path / "own_notes.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *(path or os.getcwd() for path in sys.path)]))
    return tmp_path


def test_a_function_and_a_command_get_the_event(own):
    assert deliver("own_notes:tells", MESSAGE) == ""
    assert json.loads((own / "told").read_text()) == MESSAGE
    assert deliver("command: sh -c 'cat > heard'", MESSAGE) == ""
    assert json.loads((own / "heard").read_text()) == MESSAGE


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("own_notes:raises", "OSError: no [31m line (own_notes.py, line 3)"),
        ("own_notes:leaves", "exit status 3"),
        ("own_notes:hangs", "it took over 1 s"),
        ("command: sh -c 'sleep 1000 & sleep 1000'", "it took over 1 s"),
        ("command: false", "exit status 1"),
        ("command: /no/such/program", "[Errno 2] No such file or directory: '/no/such/program'"),
    ],
)
def test_code_that_misbehaves_is_a_line(address, says, own, monkeypatch):
    monkeypatch.setattr(delivery, "DELIVER_S", 1.0 if "over" in says else 240.0)
    assert deliver(address, MESSAGE) == says


def test_a_server_that_is_away_for_a_moment_is_asked_again_and_one_that_refuses_is_not(heard):
    heard.answers += [(503, {}, b""), (200, {}, b"")]
    assert deliver(heard.url, MESSAGE) == "" and len(heard.posts) == 2
    heard.answers += [(404, {}, b"")]
    assert deliver(heard.url, MESSAGE) == "HTTP status 404" and len(heard.posts) == 3


def test_no_redirect_is_followed_and_no_huge_answer_is_read(heard, tmp_path):
    (tmp_path / "secret").write_text("x")
    for place in (f"file://{tmp_path}/secret", f"{heard.url}/elsewhere"):
        heard.answers += [(302, {"Location": place}, b"")]
        assert deliver(heard.url, MESSAGE) == "HTTP status 302, and redirects are not followed"
    heard.answers += [(200, {"Content-Length": str(2**40)}, b"x" * 2**24)]
    assert deliver(heard.url, MESSAGE) == ""
    assert [path for path, _ in heard.posts] == ["/"] * 3


def test_a_dead_address_holds_up_neither_the_driver_nor_another_address(heard, records, capfd):
    process = beside(records, "http://127.0.0.1:9/dead", heard.url, "command: sleep 20")
    live(records)
    assert process.close("complete", 240.0) == ""
    assert process.process.poll() is None, "the driver does not wait for the command"
    assert heard.events == ["end"]
    os.killpg(process.process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("https://example.org/\x1b[2J", "control characters"),
        ("https://example.org/a\nHost: b", "control characters"),
        ("https://user:word@example.org/", "without user"),
        ("https:///path", "https://HOST"),
        ("https://[::1", "https://HOST"),
        ("slack:ftp://example.org/", "https://HOST"),
        ("slack:env:NOT_SET_ANYWHERE", "is not set"),
        ("env:9", "names an environment variable"),
        ("ntfy:https://ntfy.sh/", "topic"),
        ("command:", "has words"),
        ("command: 'open", "No closing quotation"),
        ("no_such_module:f", "cannot be imported"),
        ("json:dump_not", "no such function"),
    ],
)
def test_an_address_that_cannot_work_is_one_line_before_anything_runs(address, says):
    with pytest.raises(SpecError, match=says) as caught:
        checked_addresses([address])
    assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "secret",
    [
        "https://hooks.slack.com/services/T0/B0/abc",
        "discord:https://discord.com/api/webhooks/1/abc",
        "https://user:word@example.org/",
        "https://example.org/?token=abc",
        "https://example.org/x?key=abcSECRET",
        "https://example.org/x?page=abc",
        "https://ghp_abc@example.org/x",
        "https://api.telegram.org/bot123:AAabcBB/sendMessage",
        "https://x.webhook.office.com/webhookb2/abc@word/IncomingWebhook/abc",
        "https://example.org/#abc",
    ],
)
def test_a_study_holds_no_secret_address(secret):
    with pytest.raises(SpecError, match="holds no secret") as caught:
        AblationGrid("s", {"a": Arm("toy:train")}, "digits", notify=[secret])
    assert "abc" not in str(caught.value) and "word" not in str(caught.value)


LINK_LOCAL = [
    *(
        "169.254.169.254",
        "169.254.0.1",
        "2852039166",
        "0xA9FEA9FE",
        "0251.0376.0251.0376",
        "169.254.43518",
        "169.16689662",
    ),
    *(
        "[fe80::1]",
        "[fe80::1%25lo]",
        "[FEBF::1]",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[::169.254.169.254]",
    ),
    *("[64:ff9b::169.254.169.254]", "[2002:a9fe:a9fe::1]", "100.100.100.200", "[fd00:ec2::254]"),
]


@pytest.mark.parametrize("host", LINK_LOCAL)
def test_nobody_is_told_at_a_link_local_address_however_it_is_written(host, monkeypatch):
    for declared in (f"http://{host}/latest", f"slack:https://user.example@{host}:8080/x", f"ntfy:http://{host}/t"):
        with pytest.raises(SpecError, match=r"link-local|holds no secret"):
            AblationGrid("s", {"a": Arm("toy:train")}, "digits", notify=declared)
    monkeypatch.setenv("HOOK", f"http://{host}/latest?x=1")
    with pytest.raises(SpecError, match="link-local"):
        checked_addresses("slack:env:HOOK")


def test_other_hosts_are_told_and_link_local_is_said_of_no_other():
    hosts = ("example.org", "169.253.1.1", "10.1.2.3", "[2001:db8::a9fe:a9fe]", "[::1]", "2130706433", "a9fe.example")
    addresses = [f"https://{host}/x" for host in hosts]
    assert AblationGrid("s", {"a": Arm("toy:train")}, "digits", notify=addresses).notify == addresses
    assert checked_addresses(addresses) == tuple(addresses)


def test_a_name_that_leads_to_a_link_local_address_is_not_connected(heard, tmp_path):
    """In the process of a delivery, whose resolver gives such an address first, and this server's after it."""
    code = (
        "import socket, sys\nfound = socket.getaddrinfo\n"
        "def resolve(host, port, *rest, **more):\n"
        "    other = '169.254.169.254' if host == 'meta.example' and not more.get('flags') else host\n"
        "    return found(other, port, *rest, **more)\n"
        "socket.getaddrinfo = resolve\n"
        "from contrasweep import delivery\n"
        "delivery.PAUSES_S = (0.0,)\ndelivery.main()\n"
    )
    for url, says in (("http://meta.example:80/x", "the name is one of a link-local address"), (heard.url, "")):
        done = python("-c", code, url, input=json.dumps(MESSAGE))
        assert done.stderr.strip() == says and done.returncode == bool(says)
    assert len(heard.posts) == 1


def test_the_value_of_a_variable_is_not_in_the_study_nor_in_a_message(heard, monkeypatch, capfd, records):
    monkeypatch.setenv("HOOK", f"{heard.url}/T0/B0/unseen")
    heard.answers += [(404, {}, b"no /T0/B0/unseen")]
    study = AblationGrid("s", {"a": Arm("toy:train")}, "digits", notify=["slack:env:HOOK"])
    assert "unseen" not in json.dumps(to_plain(study), default=str) and checked_addresses(study.notify)
    notifier = Notifier(["slack:env:HOOK"], records, time.time())
    notifier.close("complete", lost=False)
    assert notifier.join(240.0)
    said = capfd.readouterr().err
    assert "notify: slack:env:HOOK was not told of the end (HTTP status 404)" in said and "unseen" not in said


STUDY = """
name: told
data: digits-lt
folds: 2
notify: ["env:HOOK", "slack:env:HOOK"]
max_failures: 0
arms:
  bad: {trainable: "toy:train", config: {fail_at: 1}}
  good: {trainable: "toy:train", config: {epochs: 400, pause_s: 0.5}}
"""


@pytest.mark.long
def test_a_driver_that_gets_sigterm_has_told_its_failure_and_tells_its_end_once(heard, tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    with ray_folder() as ray:
        words = ["run", "study.yaml", "--storage", "runs", "--tracking", "none"]
        driver = start_driver(*words, folder=tmp_path, ray=ray, environment={"HOOK": heard.url})
        wait_until(lambda: len(heard.posts) == 2 or driver.poll() is not None, "the failure to be told", 240.0)
        assert driver.poll() is None, driver.communicate()
        driver.send_signal(signal.SIGTERM)
        _, errors = driver.communicate()
    assert driver.returncode == 130, errors
    wait_until(lambda: len(heard.posts) >= 4, "the end to be told")
    plain = [body for _, body in heard.posts if "event" in body]
    assert [body["event"] for body in plain] == ["failure", "end"] and "interrupted" in plain[1]["text"]
    assert len(heard.posts) == 4 and heard.url not in (tmp_path / "runs" / "told" / "study.json").read_text()
