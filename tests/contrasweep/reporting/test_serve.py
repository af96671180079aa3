"""The served report: what runs now, a newer report when trials have ended, and for this machine alone."""

import asyncio
import gzip
import http.client
import json
import socket
import threading
import time
from dataclasses import asdict

import pytest
from benchmarks.browser import browser, chromium
from raylets import wait_for
from toy import train

import contrasweep as cs
from contrasweep.live.state import LIVE, LIVE_FILE, RunningTrial, RunState
from contrasweep.reporting import html_report, report_data, serve
from contrasweep.reporting.serve import LivePage, server_of
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords


class Served:
    """A study of the toy, two of whose trials run as far as its storage says, behind a server of its own."""

    def __init__(self, folder):
        grid = cs.AblationGrid("seen", {"a": cs.Arm(train), "b": cs.Arm(train)}, "digits-lt", seeds=[0, 1])
        self.plan = cs.plan(grid, storage=str(folder))
        self.records = StudyRecords(str(folder), "seen")
        self.records.claim(study_document(self.plan))
        write_planned(self.records, self.plan.to_frame())
        self.end(self.plan.trials[0])
        self.run(step=1, value=0.125)
        self.live = LivePage(self.records, self.report)
        self.server = server_of(self.live, "127.0.0.1", 0)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def report(self):
        results = cs.load("seen", storage=self.records.storage)
        return html_report(report_data(results, results.table()), served=True)

    def end(self, trial):
        self.records.write(Record.of(trial, status=Status.DONE, metrics={"accuracy": 0.75}, ended=time.time()))

    def run(self, step, value, **fields):
        trial = self.plan.trials[1]
        running = RunningTrial(trial.id, trial.arm, {}, None, trial.seed, time.time(), step, 40, value)
        now = time.time()
        state = {"began": now, "host": "there", "updated": now, "running": {trial.id: running}} | fields
        state = RunState("seen", "accuracy", "max", self.records.storage, 4, 0, 2, **state)
        LIVE_FILE.write(self.records.store, f"seen/{LIVE}", asdict(state))
        rows = [{"step": s, "time": now, "accuracy": value * s} for s in range(1, step + 1)]
        self.records.write_metrics(trial.id, rows)

    def get(self, path, host=None):
        port = self.server.server_address[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers

    def now(self):
        """What a browser is told two seconds later."""
        self.live._now = (0.0, "")
        self.live._due = 0.0
        return json.loads(self.get("/now.json")[1])


@pytest.fixture
def served(tmp_path):
    served = Served(tmp_path)
    yield served
    served.server.shutdown()
    served.server.server_close()


def test_a_new_value_of_a_running_trial_is_on_the_page(served):
    first = served.now()
    assert "1 of 40" in first["html"] and "0.125" in first["html"]
    served.run(step=7, value=0.0625)
    later = served.now()
    assert "7 of 40" in later["html"] and "0.0625" in later["html"]
    assert later["version"] == first["version"]


def test_the_report_is_written_anew_when_a_trial_has_ended(served):
    version = served.now()["version"]
    _, before, _ = served.get("/")
    served.end(served.plan.trials[2])
    wait_for(lambda: served.now()["version"] != version)
    status, after, _ = served.get("/")
    assert status == 200
    assert "<b>1</b> done" in before and "<b>2</b> done" in after
    assert f'<body data-version="{version + 1}">' in after and "&lt;body" not in after


def test_a_page_is_packed_for_who_can_unpack_it(served):
    plain = served.get("/")[1].encode()
    port = served.server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", "/", headers={"Accept-Encoding": "gzip, br"})
    answer = connection.getresponse()
    packed = answer.read()
    assert answer.headers["Content-Encoding"] == "gzip" and len(packed) < len(plain) / 2
    assert gzip.decompress(packed) == plain


def test_records_are_listed_again_only_when_the_run_tells_of_one_or_after_a_while(served, monkeypatch):
    listed, etags = [], StudyRecords.etags
    monkeypatch.setattr(StudyRecords, "etags", lambda records: listed.append(1) or etags(records))

    def look():
        served.live._now = (0.0, "")
        html = served.live.now()["html"]
        wait_for(lambda: not served.live._writing)
        return html

    look()
    assert listed == [1], "the first"
    look()
    assert listed == [1], "nothing has ended since"
    served.live._rested = 0.0
    served.run(step=2, value=0.25, statuses={"done": 1})
    assert "1 of them since the report below was written" in look()
    assert listed == [1, 1]


def test_how_a_run_ended_is_said_and_nothing_runs_any_more(served):
    served.run(step=3, value=0.5, ended="complete")
    html = served.now()["html"]
    assert "complete" in html and "3 of 40" not in html


def test_a_driver_that_is_silent_is_said(served):
    served.run(step=3, value=0.5, eta_s=900.0)
    assert "about 15 min to go" in served.now()["html"]
    served.run(step=3, value=0.5, eta_s=900.0, updated=time.time() - 600)
    html = served.now()["html"]
    assert "no sign of life" in html and "to go" not in html


def test_names_are_escaped_and_the_page_asks_nobody_else(served):
    served.run(step=1, value=0.5, host="<b>there", events=[(0.0, "<script>alert(1)</script>")])
    html, (_, page, headers) = served.now()["html"], served.get("/")
    assert "<b>there" not in html and "<script>" not in html
    assert "&lt;b&gt;there" in html and "&lt;script&gt;" in html
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_only_this_machine_is_answered(served):
    assert served.get("/", host="evil.example")[0] == 403
    assert served.get("/now.json", host="evil.example:80")[0] == 403
    assert served.get("/", host="localhost:1")[0] == 200
    assert served.get("/etc/passwd")[0] == 404


def test_a_storage_that_breaks_leaves_the_last_report_and_says_so(served):
    served.end(served.plan.trials[2])
    served.live._write = lambda: (_ for _ in ()).throw(cs.StorageError("the bucket is away"))
    wait_for(lambda: "the bucket is away" in served.now()["html"])
    assert "not up to date" in served.now()["html"]
    assert served.get("/")[0] == 200


def test_a_port_that_is_taken_is_one_line(served):
    with pytest.raises(cs.SpecError, match="--port: the page cannot be served there"):
        server_of(served.live, "127.0.0.1", served.server.server_address[1])


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
def test_a_browser_shows_new_values_and_leaves_the_page_to_a_reader_who_has_touched_it(served):
    async def until(page, code):
        while not (found := await page.js(code)):
            await asyncio.sleep(0.05)
        return found

    async def look():
        async with browser() as page:
            await page.call(
                "Page.addScriptToEvaluateOnNewDocument",
                source="window.wrong = []; onerror = (...all) => wrong.push(String(all))",
            )
            await page.open(f"http://127.0.0.1:{served.server.server_address[1]}/")
            live = "document.getElementById('live').innerText"
            assert await until(page, f"{live}.includes('1 of 40')")
            served.run(step=7, value=0.0625)
            assert await until(page, f"{live}.includes('7 of 40') && {live}.includes('0.0625')")
            header, offer = (
                "(document.querySelector('header.top')?.innerText ?? '')",
                "document.querySelector('#live > p')",
            )
            served.end(served.plan.trials[2])
            served.live._rested = served.live._due = 0.0
            assert await until(page, f"{header}.includes('2 done')"), (
                "nobody reads: the newer report is there by itself"
            )
            await page.js("dispatchEvent(new Event('pointerdown')); document.getElementById('theme').click()")
            served.end(served.plan.trials[3])
            served.live._rested = served.live._due = 0.0
            assert await until(page, f"!{offer}.hidden")
            kept = await page.js(f"[{header}.includes('2 done'), document.documentElement.dataset.theme, wrong]")
            await page.js(f"{offer}.querySelector('button').click()")
            assert await until(page, f"{header}.includes('3 done')")
            return kept

    assert asyncio.run(look()) == [True, "dark", []]


def test_half_a_request_is_not_waited_for(served, monkeypatch):
    monkeypatch.setattr(serve, "REQUEST_TIMEOUT_S", 0.2)
    with serve.server_of(served.live, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(server.server_address[:2], timeout=30) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            assert connection.recv(1) == b"", "the server closes it"
        server.shutdown()
