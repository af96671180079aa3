"""No password and no key is in anything that a run leaves or shows: a real MLflow and a real S3 server."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from benchmarks.tracking_services import mlflow_server
from hypothesis import example, given
from hypothesis import strategies as st
from places import SUPPORT, module_path
from refusals import refused

from contrasweep.errors import SpecError
from contrasweep.secrets import HARMLESS, check_arguments, redacted
from contrasweep.storage.store import open_store

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "marked-aws-secret-key",
    "AWS_SESSION_TOKEN": "marked-aws-session-token",
    "MLFLOW_TRACKING_PASSWORD": "marked-mlflow-password",
    "MLFLOW_TRACKING_TOKEN": "marked-mlflow-token",
    "RAY_AUTH_TOKEN": "marked-ray-token",
}
MARK = "marked-"
STUDY = """
name: secret
data: digits-lt
folds: 2
arms:
  a: {trainable: 'toy:train', config: {epochs: 2, pause_s: 0.2}}
"""


class Watch:
    """Looks at the arguments of every process until it ends."""

    def __init__(self):
        self.leaks: set[str] = set()
        self.processes: set[int] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _look(self):
        while not self._end.wait(0.1):
            for process in psutil.process_iter(["pid", "cmdline"]):
                self.processes.add(process.info["pid"])
                self.leaks |= {word for word in process.info["cmdline"] or () if MARK in word}


@pytest.mark.long
def test_secrets_are_nowhere(s3, s3_client, tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    temporary = (
        Path("/tmp") / f"cs-secret-{os.getpid()}"
    )  # short: a Unix socket's path has at most 107 characters
    environment = os.environ | SECRETS
    environment |= {
        "PYTHONPATH": module_path(SUPPORT),
        "RAY_TMPDIR": str(temporary),
    }
    shown = {}
    database = f"sqlite:///{tmp_path}/mlflow.db"
    with (
        mlflow_server(database, str(tmp_path / "artifacts"), tmp_path) as server,
        Watch() as watch,
    ):

        def contrasweep(*words):
            command = [sys.executable, "-m", "contrasweep", *words]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            shown[words[0]] = done.stdout + done.stderr
            return done.returncode

        places = ["--storage", s3.uri, "--tracking", server.uri]
        assert contrasweep("run", "study.yaml", *places) == 0, shown["run"]
        assert contrasweep("sync", "study.yaml", *places, "--json") == 0, shown["sync"]
        assert (
            contrasweep(
                "report", "secret", *places[:2], "--format", "html", "--output", "report.html"
            )
            == 0
        )
        assert contrasweep("doctor", *places) == 0, shown["doctor"]
    store = open_store(s3.uri)
    stored = {key: store.read(key) for key in store.list()}
    logs = {path: path.read_bytes() for path in temporary.rglob("*") if path.is_file()}
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(stored) > 10 and len(logs) > 5 and len(watch.processes) > 10
    assert {tmp_path / "report.html", tmp_path / "mlflow.db"} <= files.keys()
    leaks = [
        key for key, content in {**stored, **logs, **files}.items() if MARK.encode() in content
    ]
    assert leaks == [] and watch.leaks == set()
    assert [name for name, text in shown.items() if MARK in text] == []


LEAKS = [
    "https://S3CR3T@host/x",
    *(
        f"https://h/x?{name}=S3CR3T"
        for name in ("api_key", "apikey", "access_key", "key", "sig", "auth", "code", "pwd")
    ),
    *(
        f"https://h/x?{name}=S3CR3T&page=2"
        for name in ("X-Amz-Signature", "access_token", "anything", "T%6Fken")
    ),
    "https://h/x#token=S3CR3T",
    "https://h/#/x?token=S3CR3T",
    "https://h/?S3CR3T",
    "https://h/?a=S3CR3T;S3CR3T",
    "postgresql://u:S3CR3T@h/d",
    "mysql+pymysql://u:S3CR3T@h:3306/d?charset=utf8",
    "redis://S3CR3T@h",
    "https://hooks.slack.com/S3CR3T",
    "https://discord.com/api/webhooks/S3CR3T",
    "https://x.webhook.office.com/webhookb2/S3CR3T",
    "https://outlook.office.com/webhook/S3CR3T",
    "https://chat.example.org/hooks/S3CR3T",
    "https://hc-ping.com/S3CR3T",
    "https://maker.ifttt.com/trigger/e/with/key/S3CR3T",
]
PLAIN = [
    "http://mlflow:5000/#/experiments/1/runs/ab",
    "sqlite:////a/b:c@d/m.db",
    "http://[::1]:5000/a@b",
    "http://HOST:PORT",
    "https://medium.com/@user/x",
    "abfs://container@account.dfs.core.windows.net/x",
    "postgresql://u@h/d?sslmode=require",
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@h/d and more", "postgresql://u:***@h/d and more"),
        ("--tracking=mysql+pymysql://u:p%40@h", "--tracking=mysql+pymysql://u:***@h"),
        ("postgresql://h/d?user=u&password=pw&x=1", "postgresql://h/d?user=u&password=***&x=***"),
        ("http://h/?access_token=pw", "http://h/?access_token=***"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("s3://bucket/prefix http://h:5000/a:b@c", "s3://bucket/prefix http://h:5000/a:b@c"),
        ("loss=token", "loss=token"),
        *((url, url.replace("S3CR3T", "***")) for url in LEAKS),
        ("https://api.telegram.org/bot123:S3CR3T/sendMessage", "https://api.telegram.org/bot***"),
        ("https://u:p@host/x", "https://***@host/x"),
        ("s3://KEY:S3CR3T@bucket/p", "s3://***@bucket/p"),
        ("postgresql://u:p@ss/wo#rd@h/d", "postgresql://***"),
        ("postgresql://h/d?password=p@ss", "postgresql://h/d?***"),
        ("postgresql://u:cut-off-by-a-mess...", "postgresql://u:***@..."),
        ("got 'https://h/?key=S3CR3T', not http://h/", "got 'https://h/?key=***', not http://h/"),
        ("https://a@h,postgresql://u:S3CR3T@h", "https://***@h,postgresql://u:***@h"),
        ("http://h/?next=https://S3CR3T@h/", "http://h/?***"),
        *((url, url) for url in PLAIN),
        ("https://h/x;token=S3cr3t-9", "https://h/x;token=***"),
        ('"https:\\/\\/u:S3cr3t-9@h\\/x"', '"https:\\/\\/***@h\\/x"'),
        ("postgresql://h/d?options=password%3DS3cr3t-9", "postgresql://h/d?options=***"),
    ],
)
def test_a_text_is_shown_without_its_passwords(text, shown):
    assert redacted(text) == shown


SIGNS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="\x7f\x85\xa0"),
    max_size=12,
)
SECRET = st.builds("{}S3CR3T{}".format, SIGNS, SIGNS)


@given(
    SECRET,
    st.sampled_from(["postgresql", "mysql+pymysql", "mongodb"]),
    st.sampled_from(["", "/d", "/d?sslmode=require"]),
)
def test_no_password_of_a_database_is_shown_whatever_its_signs(password, scheme, rest):
    assert "S3CR3T" not in redacted(f"of '{scheme}://user:{password}@host:5432{rest}', and more")


@given(SECRET, SECRET, SIGNS, st.sampled_from(["https", "http", "s3", "postgresql", "wss"]))
@example(";S3CR3T=0", "S3CR3T", "", "https")
@example("0#S3CR3T=0", "S3CR3T", "x", "https")
@example("S3CR3T://", "S3CR3T", "x", "https")
@example("0,S3CR3T://0", "S3CR3T", "x", "https")
def test_no_value_of_a_query_and_no_escaped_user_is_shown(value, user, name, scheme):
    value = value.replace(
        "&", "%26"
    )  # as every address has it: a plain one ends the value, and a name is shown
    shown = redacted(f"{scheme}://host/path?page=1&{quote(name, safe='') or 'x'}={value}")
    assert "S3CR3T" not in shown or name.casefold() in HARMLESS
    assert "S3CR3T" not in redacted(f"{scheme}://u:{quote(user, safe='')}@host/path#token={value}")
    assert "S3CR3T" not in redacted(f"https://{quote(user, safe='')}@host/path")


@given(
    st.lists(
        st.sampled_from([*LEAKS, *PLAIN, " ", "'", ",", "; ", "=", "@", "?", "#"]) | SIGNS,
        max_size=6,
    ).map("".join)
)
def test_what_is_shown_is_shown_the_same_again(text):
    assert redacted(redacted(text)) == redacted(text)
    assert "://" in text or redacted(text) == text


def test_a_password_among_the_arguments_is_refused_without_repeating_it():
    with refused(SpecError, "read by every user", "MLFLOW_TRACKING_PASSWORD") as caught:
        check_arguments(["run", "study.yaml", "--tracking", "postgresql://u:hunter2@h/d"])
    assert "hunter2" not in str(caught.value)
    check_arguments(
        ["run", "a:B", "--set", "arms.a.config.token=x", "--tracking", "postgresql://u@h/d"]
    )
