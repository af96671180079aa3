"""Runs commands of contrasweep over storages, and says what they did that nobody asked for.

    python audited.py FOLDER            cases as JSON lines on standard input, the answers as lines on standard output

FOLDER has what a user has: `mine/` is the current folder, with their files and the storage `runs/`; `tmp/` and
`cache/` take what is written on the way. A case is {"made", "commands": a list of words each}. The commands run in a
fork under an audit hook, over a copy of `runs/` and `cache/` of the folder `made`; where it is null, in this process.
An answer is {"words", "status", "findings", "said", "seconds" of processor}. A finding is a line on what no command may
do, whatever the storage holds. Trials are trained in the command's own process: see `InProcess`.
"""

import contextlib
import fnmatch
import functools
import gc
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import contrasweep

LIMIT_S = 120.0
"""A command that takes longer hangs."""
SECRET = "s3cr3t-of-alice"
"""Stands in the user's environment, and in files of theirs to which links of a storage lead."""
PROGRAMS = {
    "git": "which commit there is",
    "uname": "Python's `platform` asks for the machine's name",
}
"""Programs that may be started, and why."""
IMPORTING = (
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
    "<frozen zipimport>",
)
COMPILING = {
    "dataclasses.py": "methods of dataclasses",
    "collections/__init__.py": "named tuples",
    "ast.py": "sources are parsed, and not run",
    "typing.py": "forward references in annotations",
}
"""Files of the standard library that compile texts of their own, and which."""
TEMPLATES = Path(contrasweep.__file__).parent
"""Where the templates of pages lie, which Jinja2 compiles."""
MAY = {
    "report": ["page.html"],
    "bundle": ["looked.zip"],
    "sync": ["board", "mlartifacts", "mlflow.db", "mlflow.db-journal", ".tmp-*"],
}
"""What commands write into the current folder, because the user asks for it or by default."""
CHANGING = {"run", "evaluate", "decide", "sync", "clean", "remove", "restore", "verify"}
"""Commands that change a storage, so that each has a copy of its own."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Auditor:
    """Collects what an audit hook hears while a command runs."""

    def __init__(self, folder, known):
        self.folder = folder
        self.known = known
        self.on = False
        self.findings = list[str]()
        self.places = list[Path]()
        self.files = list[str]()
        self.outside = folder / "outside"
        self.heard = {
            "import": self._imports,
            "exec": self._runs,
            "compile": self._compiles,
            "marshal.loads": lambda *_: (
                "" if _caller() in IMPORTING else f"loads code, in {_caller()}"
            ),
            # a queue between threads of one process: what it unpickles it has pickled itself
            "pickle.find_class": lambda module, name: (
                ""
                if _named(_caller(), ["multiprocessing/queues.py"])
                else f"unpickles {module}.{name}, in {_caller()}"
            ),
            "subprocess.Popen": self._starts,
            "os.system": lambda command: f"starts {command!r}",
            **dict.fromkeys(
                ("os.posix_spawn", "os.exec", "os.spawn"), lambda path, *_: f"starts {path}"
            ),
            **dict.fromkeys(("os.fork", "os.forkpty"), lambda: "starts a process"),
            "os.kill": lambda pid, number: (
                f"sends signal {number} to process {pid}" if number else ""
            ),
            "os.killpg": lambda pid, number: f"sends signal {number} to the group {pid}",
            "socket.connect": lambda _, address: (
                "" if _of_ours(address) else f"connects to {address}"
            ),
            "socket.sendto": lambda _, address: f"sends to {address}",
            "socket.bind": lambda _, address: "" if _of_ours(address) else f"listens at {address}",
            "socket.getaddrinfo": lambda host, *_: f"looks up {host}",
            "urllib.Request": lambda url, *_: f"asks {url}",
            "webbrowser.open": lambda url: f"opens {url}",
            "sqlite3.connect": lambda database: self._writes(database),
            "open": self._opens,
            **dict.fromkeys(("os.remove", "os.rmdir", "os.truncate"), self._changes),
            "os.mkdir": lambda path, mode, at: (
                "" if os.path.isdir(path) else self._writes(path, at)
            ),
            **dict.fromkeys(
                ("os.chmod", "os.chown", "os.utime", "os.setxattr"),
                lambda path, *_: self._writes(path),
            ),
            "os.rename": self._moves,
            "os.link": lambda source, to, source_at, at: self._writes(to, at),
            "os.symlink": lambda source, to, at: self._writes(to, at),
        }

    @contextlib.contextmanager
    def listening(self, words):
        """Yield the findings of a command, which may write the storage and what it is asked for."""
        self.places = [
            *(self.folder / name for name in ("mine/runs", "tmp", "cache")),
            Path("/dev"),
            Path("/proc"),
        ]
        self.files = MAY.get(words[0], [])
        self.findings = []
        self.on = True
        try:
            yield self.findings
        finally:
            self.on = False

    def __call__(self, event, arguments):
        if not self.on or (judge := self.heard.get(event)) is None:
            return
        try:
            finding = judge(*arguments)
        except Exception as error:  # an error here would look as one of the command
            finding = f"{event}{arguments}: the hook failed with {error!r}"
        if finding and finding not in self.findings:
            self.findings.append(finding)

    def _imports(self, module, *_):
        return (
            ""
            if module in self.known or module.split(".")[0] == "contrasweep"
            else f"imports {module}"
        )

    def _runs(self, code):
        usual = (
            _caller() in IMPORTING or _named(_caller(), COMPILING) or _is_template(code.co_filename)
        )
        return "" if usual else f"runs code, in {_caller()}"

    def _compiles(self, source, file):
        usual = _caller() in IMPORTING or _named(_caller(), COMPILING) or _is_template(file)
        if source is None or usual:  # None: of a syntax tree
            return ""
        return f"compiles {source[:60]!r}, in {_caller()}"

    def _starts(self, program, words, *_):
        return "" if os.path.basename(os.fsdecode(program)) in PROGRAMS else f"starts {words}"

    def _opens(self, path, mode, flags):
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        if isinstance(flags, int) and flags & WRITING:
            return self._writes(path)
        follows = not (isinstance(flags, int) and flags & os.O_NOFOLLOW)
        behind = follows and Path(os.path.realpath(path)).is_relative_to(self.outside)
        return f"reads {path}, which a link leads to" if behind else ""

    def _changes(self, path, *rest):
        return self._writes(path, rest[-1] if rest and isinstance(rest[-1], int) else -1)

    def _moves(self, source, to, source_at=-1, at=-1):
        return self._writes(source, source_at) or self._writes(to, at)

    def _writes(self, path, at=-1):
        if isinstance(path, int) or str(path) == ":memory:":
            return ""
        text = os.fsdecode(path)
        if at is not None and at >= 0:
            text = os.path.join(os.readlink(f"/proc/self/fd/{at}"), text)
        text = text.removeprefix("file:").partition("?")[0]  # as SQLite has it
        place = Path(os.path.realpath(os.path.dirname(text) or "."), os.path.basename(text))
        mine = [self.folder / "mine" / name for name in self.files]
        asked = any(
            fnmatch.fnmatch(str(part), str(name))
            for part in (place, *place.parents)
            for name in mine
        )
        return (
            ""
            if asked or any(place.is_relative_to(allowed) for allowed in self.places)
            else f"writes {place}"
        )


def _caller():
    """The file of the code that an event is about."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename


def _is_template(file):
    return _named(_caller(), ["jinja2/environment.py"]) and Path(os.fsdecode(file)).is_relative_to(
        TEMPLATES
    )


def _named(file, files):
    return any(file.endswith(f"/{name}") for name in files) or file in [
        f"<frozen {name}>" for name in files
    ]


def _of_ours(address):
    """Whether it is the sign of a lease, which shows its process to others of this machine."""
    return isinstance(address, str | bytes) and b"contrasweep" in os.fsencode(address)


class InProcess:
    """In place of Ray: trains the trials of a loop in this process, one after another, as a worker does."""

    def __init__(self, context, loop, **_):
        self.context = context
        self.loop = loop

    def run(self):
        from contrasweep.running.worker.execution import Execution
        from contrasweep.running.worker.output import Output
        from contrasweep.storage.records import StudyRecords
        from contrasweep.tuning.source import Finished

        loop = self.loop
        context = self.context
        records = StudyRecords(context.storage, context.study)
        while (active := loop.next()) is not None and not isinstance(active, Finished):
            trial = active.trial
            function = context.function(active.trial.trainable)
            if getattr(function, "reads_storage", False):
                function = functools.partial(function, storage=context.storage)
            loop.started(trial.id)
            code = loop.code.of(trial)
            notes = loop.notes(active)
            output = Output(records, trial.id).open()
            with contextlib.closing(
                Execution(
                    trial, function, records, metric=context.metric, notes=notes, code=code, output=output,
                    retention=context.retention,
                )
            ) as execution:  # fmt: skip
                while (stepped := execution.advance()).record is None:
                    loop.reported(trial.id, stepped.reports, execution.seconds)
                    loop.progress.reported(trial.id, stepped.reports)
                    if not loop.goes_on(trial.id, stepped.reports):
                        break
                else:
                    loop.worker_recorded(trial.id, stepped.record.to_json())
            loop.ended(trial.id)


@contextlib.contextmanager
def connected():
    """In place of a connection to Ray: a host of one core."""
    from contrasweep.cluster.inventory import Inventory, Node

    yield Inventory((Node(1.0, 8.0),))


def run(folder, words, auditor=None):
    """Run one command in this process, and return its answer."""
    from contrasweep import cli

    os.chdir(folder / "mine")
    said = folder / "tmp/said"
    file = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
    sys.argv = ["contrasweep", *words]
    status = 0
    findings = list[str]()
    began = time.process_time()
    with auditor.listening(words) if auditor else contextlib.nullcontext(findings) as findings:
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            at = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            findings.append(f"ends with {type(error).__name__}: {error} ({at})")
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    text = said.read_text(errors="replace")
    if SECRET in text or "Traceback (most recent" in text:
        findings.append(f"says {text[-2000:]}")
    seconds = round(time.process_time() - began, 3)
    return {
        "words": words,
        "status": status,
        "findings": findings,
        "said": text[-1500:],
        "seconds": seconds,
    }


def take(made, folder):
    """Put a copy of a storage, and of a cache, where commands find them."""
    for name, place in (("runs", folder / "mine/runs"), ("cache", folder / "cache")):
        if place.is_dir():
            shutil.rmtree(place)
        shutil.copytree(made / name, place, symlinks=True, copy_function=copied)


def copied(source, to):
    """Copy a file for `shutil.copytree`, a pipe as a pipe."""
    shutil.copy2(source, to) if os.path.isfile(source) else os.mkfifo(to)


def audit(folder, made, commands, known):
    """The answers of commands over what was made: in one fork, and where that is lost, the rest in another."""
    answers = []
    while len(answers) < len(commands):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try:
                os.setpgid(0, 0)
                auditor = Auditor(folder, known)
                out = os.fdopen(writing, "w")
                taken = False
                sys.addaudithook(auditor)
                for words in commands[len(answers) :]:
                    if not taken or words[0] in CHANGING:
                        take(made, folder)
                        taken = True
                    print(json.dumps(run(folder, words, auditor)), file=out, flush=True)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as file:
            while select.select([file], [], [], LIMIT_S)[0] and (line := file.readline()):
                answers.append(json.loads(line))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if len(answers) < len(commands):
            said = (folder / "tmp/said").read_text(errors="replace")[-1500:]
            lost = {
                "status": -1,
                "findings": [f"hangs, or ends the process ({status})"],
                "said": said,
            }
            answers.append({"words": commands[len(answers)], **lost})
    return answers


def main():
    folder = Path(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.chdir(folder / "mine")
    from contrasweep.running.engine import training
    from contrasweep.storage import lease

    training.connected = connected  # type: ignore[attr-defined]
    training.run_trials = lambda *run, **_: InProcess(*run).run()  # type: ignore[attr-defined]
    lease.EXPIRY_S = 0.5  # a storage may say that somebody runs the study
    asked = set[str]()  # a module that is not there is asked for again and again
    sys.addaudithook(
        lambda event, arguments: asked.add(arguments[0]) if event == "import" else None
    )
    gc.disable()
    for line in sys.stdin:
        case = json.loads(line)
        if case["made"]:
            answers = audit(folder, Path(case["made"]), case["commands"], {*sys.modules, *asked})
        else:  # what they import, compile and remember is here for the forks of the next ones
            answers = [run(folder, words) for words in case["commands"]]
            gc.freeze()
        print(json.dumps(answers), file=out, flush=True)


if __name__ == "__main__":
    main()
