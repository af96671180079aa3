"""A real Slurm on this machine: its controller and two nodes on the loopback address, with two fake GPUs each."""

import getpass
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from places import environment_without

PATHS = f"/usr/sbin:/sbin:{os.environ['PATH']}"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "srun")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=PATHS) is None]
WHY_NOT = f"Slurm is not installed here: no {', '.join(MISSING)}" if MISSING else ""
CONFIGURATION = """ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
FirstJobId={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=30
OverTimeLimit=0
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=8000 Gres=gpu:2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=8000 Gres=gpu:2 State=UNKNOWN
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
"""cred_expire: a job that is queued again waits for so long, by default two minutes. FirstJobId: `slurm.sh` takes Ray's
port and folder from a job's number, which another cluster of this machine must not share."""


@dataclass
class Slurm:
    """A cluster that runs; its commands find it by `environment`."""

    environment: dict[str, str]

    def command(self, *words: object, folder: Path | None = None, timeout_s: float = 60.0) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            list(map(str, words)),
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """Return the states of a job or of the tasks of an array, joined by commas."""
        shown = self.command("scontrol", "show", "job", job)
        return ",".join(sorted(set(re.findall(r"JobState=(\w+)", shown))))

    def wait(self, job: str, *states: str, timeout_s: float = 240.0) -> str:
        """Wait until all tasks of a job are in one of `states`."""
        deadline = time.monotonic() + timeout_s
        while not set((state := self.state(job)).split(",")) <= set(states):
            assert time.monotonic() < deadline, self.command("scontrol", "show", "job", job)
            time.sleep(0.5)
        return state


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start Slurm with all of its files in `folder`, whose path is short; end it with the block."""
    user = getpass.getuser()
    host = socket.gethostname()
    (folder / "munge").mkdir(mode=0o711, parents=True)
    (folder / "state").mkdir()
    key = folder / "munge/key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=host, user=user, folder=folder, ports=[_free_port() for _ in range(3)]
        )
    )
    for name in ("gpu0", "gpu1"):
        (folder / name).touch()
    (folder / "gres.conf").write_text(
        f"AutoDetect=off\nNodeName=n[1-2] Name=gpu File={folder}/gpu[0-1]\n"
    )
    environment = environment_without("RAY_", "SLURM_", "SBATCH_")
    environment |= {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATHS}
    munge = [
        f"--{name}={folder}/munge/{name}"
        for name in ("socket", "pid-file", "log-file", "seed-file")
    ]
    daemons = {
        "munged": [
            "munged",
            "--foreground",
            "--force",
            "--num-threads=2",
            f"--key-file={key}",
            *munge,
        ],
        "slurmctld": ["slurmctld", "-D", "-c"],
        "n1": ["slurmd", "-D", "-N", "n1"],
        "n2": ["slurmd", "-D", "-N", "n2"],
    }
    with ExitStack() as opened:
        for name, words in daemons.items():
            log = opened.enter_context((folder / f"{name}.log").open("w"))
            daemon = subprocess.Popen(
                words, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            opened.callback(_end, daemon)
            time.sleep(1.0 if name == "munged" else 0.0)
        here = Slurm(environment)
        deadline = time.monotonic() + 60
        while True:
            done = subprocess.run(
                ["sinfo", "-h", "-o", "%T %D"], env=environment, capture_output=True, text=True
            )
            if done.stdout.strip() == "idle 2":
                break
            assert time.monotonic() < deadline, (
                done.stdout + done.stderr + (folder / "slurmctld.log").read_text()[-2000:]
            )
            time.sleep(0.5)
        yield here
        subprocess.run(["scancel", "--full", f"--user={user}"], env=environment, check=False)
        while subprocess.run(
            ["squeue", "-h"], env=environment, capture_output=True, text=True
        ).stdout.strip():
            assert time.monotonic() < deadline + 600
            time.sleep(0.5)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
