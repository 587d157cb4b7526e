# SPDX-License-Identifier: Apache-2.0
"""A real slurmctld for tests, with ports and a folder of its own, and slurmd in the place of the guests.

A test starts slurmd for a node when its VM runs, and ends it with the VM. slurmd says with `-b` that it has just
booted, else slurmctld waits for a boot. Nothing listens elsewhere than on this machine's loopback, and nothing of an
installed Slurm is used but its programs.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.slurm_programs import find_daemons, find_munge, find_slurm

_LIMIT_S = 60.0
"""For one answer or start; a busy machine needs a fraction of it."""
_FIRST_PORT, _LAST_PORT, _BLOCK = 12_000, 32_000, 200
"""Below the ports that Linux gives to connections."""

_CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
{auth}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
DebugFlags=Power
SlurmdParameters=config_overrides
CommunicationParameters=NoAddrCache
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
KillWait=1
"""
_POWER = """\
SlurmctldParameters=idle_on_node_suspend,power_save_interval=1
PrivateData=cloud
ResumeProgram={folder}/resume
SuspendProgram={folder}/suspend
ResumeFailProgram={folder}/fail
ResumeTimeout={resume_timeout_s}
SuspendTimeout=2
SuspendTime={suspend_s}
ResumeRate=0
SuspendRate=0
GresTypes=gpu
TreeWidth=65533
"""
_PROGRAM = """\
#!/bin/sh
# Notes the call, and what slurmctld gave it, whole before it is seen.
export PATH=/usr/bin:/bin
call=$(mktemp {folder}/calls/.XXXXXX)
printf '%s %s\\n' {what} "$1" >"$call"
if [ -n "$SLURM_RESUME_FILE" ]; then cat "$SLURM_RESUME_FILE" >>"$call"; fi
mv "$call" "{folder}/calls/$(date +%s.%N)"
"""


@dataclass(frozen=True)
class Call:
    """A call of a power-saving program. document: the content of SLURM_RESUME_FILE, "" without one."""

    what: str
    expression: str
    document: str


class SlurmCluster:
    """A cluster whose nodes are given as lines of slurm.conf, their ports left out.

    names: of the nodes, in the order of their ports. extra: further lines, also those that replace the programs.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        lines: str,
        *,
        gres: str = "",
        power: str = _POWER,
        resume_timeout_s: int = 60,
        suspend_s: int = 3,
        munge_socket: Path | None = None,
    ) -> None:
        self.folder = folder
        self.names = list(names)
        self.host = socket.gethostname().partition(".")[0]
        self.config = folder / "slurm.conf"
        self._lines = lines
        self._power = power.format(folder=folder, resume_timeout_s=resume_timeout_s, suspend_s=suspend_s)
        self._munge_socket = munge_socket
        self._programs, self._daemons = find_slurm(), find_daemons()
        self._controller: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: list[_Ports] = []
        self.environment = {"SLURM_CONF": str(self.config), "PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "LC_ALL": "C"}
        for part in ("state", "calls"):
            (folder / part).mkdir()
        for what in ("resume", "suspend", "fail"):
            self.set_program(what, _PROGRAM.format(folder=folder, what=what))
        (folder / "gres.conf").write_text(gres)

    def set_program(self, what: str, text: str) -> None:
        """Write one of the programs that slurmctld runs: resume, suspend, fail or prolog."""
        beside = self.folder / f".{what}"
        beside.write_text(text)
        beside.chmod(0o755)
        beside.rename(self.folder / what)

    def start(self) -> None:
        """Start slurmctld and wait for its answer. After `kill` it starts on the same port with the same state."""
        for _attempt in range(1 if self.config.exists() else 20):
            if not self.config.exists() or self._controller_failed():
                self._ports.append(_Ports(len(self.names) + 1))
                self._configure(self._ports[-1].numbers)
            self._controller = self._daemon(self.folder / "slurmctld.out", self._daemons / "slurmctld", "-D")
            if self._answers():
                return
        raise AssertionError(f"slurmctld does not start:\n{self.log()}")

    def kill(self) -> None:
        """End slurmctld as a power cut does."""
        assert self._controller is not None
        self._controller.kill()
        self._controller.wait(_LIMIT_S)

    def boot(self, node: str) -> None:
        """Start slurmd in the place of a guest, as one that has just booted."""
        (self.folder / f"spool.{node}").mkdir(exist_ok=True)
        output = self.folder / f"slurmd.{node}.out"
        self._nodes[node] = self._daemon(output, self._daemons / "slurmd", "-D", "-b", "-N", node)

    def power_off(self, node: str) -> None:
        """End slurmd of a node and its jobs at once, as the end of its VM does."""
        process = self._nodes.pop(node)
        process.kill()
        process.wait(_LIMIT_S)
        for pid in self._pids(f"SLURMD_NODENAME={node}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, program: str, *arguments: str, must: bool = True) -> str:
        """Run one of Slurm's programs and return its output and complaints. must: it has to end with 0."""
        done = subprocess.run(
            [self._programs / program, *arguments], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_LIMIT_S, check=False, text=True,
        )  # fmt: skip
        if must and done.returncode != 0:
            raise AssertionError(f"{program} {' '.join(arguments)}: {done.stdout}\n{self.log()}")
        return done.stdout

    def submit(self, *options: str, script: str = "sleep 0.1") -> str:
        """Submit a batch job of one shell line and return its id."""
        output = self.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}")
        return output.strip()

    def job(self, job: str) -> dict[str, str]:
        """The fields of a job that `scontrol` shows, such as JobState and Reason."""
        text = self.run("scontrol", "--oneliner", "show", "job", job)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, node: str) -> set[str]:
        """The state of a node in words: IDLE, POWERED_DOWN, …"""
        text = self.run("sinfo", "-h", "-a", "-N", "-n", node, "-O", "StateComplete:200")
        return set(text.split("\n")[0].strip().upper().split("+"))

    def reason(self, node: str) -> str:
        """The reason that `scontrol show node` gives, without who set it and when."""
        _, _, reason = self.run("scontrol", "show", "node", node).partition("Reason=")
        return reason.split(" [")[0].strip()

    def calls(self) -> list[Call]:
        """The calls of the programs that the cluster came with, in their order."""
        found = []
        for path in sorted(path for path in (self.folder / "calls").iterdir() if not path.name.startswith(".")):
            line, _, document = path.read_text().partition("\n")
            what, _, expression = line.partition(" ")
            found.append(Call(what, expression, document.strip()))
        return found

    def log(self) -> str:
        """The end of what the daemons logged, for a failure's message."""
        parts = [self.folder / "slurmctld.log", *self.folder.glob("slurmd.*.out")]
        return "\n".join(part.read_text(errors="replace")[-4000:] for part in parts if part.exists())

    def stop(self) -> None:
        """End every process that belongs to this cluster, also those of its jobs."""
        for process in (*self._nodes.values(), self._controller):
            if process is not None and process.poll() is None:
                process.kill()
        for process in (*self._nodes.values(), self._controller):
            if process is not None:
                process.wait(_LIMIT_S)
        # Steps and programs are not our children; they know the cluster by its file.
        give_up = time.monotonic() + _LIMIT_S
        while pids := self._pids(f"SLURM_CONF={self.config}"):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < give_up, f"processes {pids} do not end"
            time.sleep(0.05)
        for ports in self._ports:
            ports.close()

    def _configure(self, ports: Sequence[int]) -> None:
        auth = "AuthType=auth/none\nCredType=cred/none\nAuthInfo=cred_expire=5"
        if self._munge_socket is not None:
            auth = f"AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={self._munge_socket},cred_expire=5"
        port, *of_nodes = ports
        text = _CONFIG.format(folder=self.folder, host=self.host, port=port, auth=auth) + self._power
        lines = []
        for line in self._lines.splitlines():
            if line.startswith("NodeName="):
                first, rest = line.split(maxsplit=1)
                names = self.run_hostnames(first.partition("=")[2])
                taken = [of_nodes[self.names.index(name)] for name in names]
                listed = ",".join(map(str, taken))
                # Without an address slurmctld looks the name up, and one that is not known costs it 10 s.
                line = f"{first} NodeAddr=127.0.0.1 Port={listed if len(taken) == 1 else f'[{listed}]'} {rest}"
            lines.append(line)
        self.config.write_text(text + "\n".join(lines) + "\n")
        self.config.chmod(0o600)

    def run_hostnames(self, expression: str) -> list[str]:
        """The names of a hostlist, as our reader gives them; Slurm's own is compared elsewhere."""
        from vgpuctl.model.hostlist import expand

        return expand(expression)

    def _controller_failed(self) -> bool:
        log = self.folder / "slurmctld.log"
        return self._controller is not None and "Address already in use" in log.read_text(errors="replace")

    def _answers(self) -> bool:
        assert self._controller is not None
        give_up = time.monotonic() + _LIMIT_S
        while time.monotonic() < give_up and self._controller.poll() is None:
            if " is UP" in self.run("scontrol", "ping", must=False):
                return True
            time.sleep(0.05)
        if self._controller.poll() is None or not self._controller_failed():
            raise AssertionError(f"slurmctld does not answer:\n{self.log()}")
        return False

    def _daemon(self, output: Path, program: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a daemon in the foreground. It ends with the thread that starts it, even when that is killed."""
        with output.open("ab") as file:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", str(program), *arguments, "-f", str(self.config)],
                env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip

    def _pids(self, variable: str) -> list[int]:
        """Processes of this cluster with this variable in their environment."""
        of_cluster = f"SLURM_CONF={self.config}".encode()
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                with contextlib.suppress(OSError):
                    values = (path / "environ").read_bytes().split(b"\0")
                    if of_cluster in values and variable.encode() in values and int(path.name) != os.getpid():
                        found.append(int(path.name))
        return found


class PrivateMunge:
    """A munged with a key of its own."""

    def __init__(self, folder: Path) -> None:
        self._programs = find_munge()
        self.folder = folder
        self.key = folder / "munge.key"
        self.socket = folder / "munge.socket"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the key and start munged."""
        subprocess.run([self._programs / "mungekey", "-c", "-k", self.key], check=True, timeout=_LIMIT_S)
        with (self.folder / "munged.out").open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", str(self._programs / "munged"), "--foreground", "--force",
                 f"--key-file={self.key}", f"--socket={self.socket}", f"--pid-file={self.folder}/munged.pid",
                 f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        wait_until(self.socket.exists, f"munged has no socket: {(self.folder / 'munged.out').read_text()}")

    def stop(self) -> None:
        """End munged."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_LIMIT_S)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder for one cluster, with a short path, since sockets are in it. Removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-slurm-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(is_so: Callable[[], object], what: str, *, limit_s: float = 120.0) -> None:
    """Wait for a condition. what: for the message when it does not come."""
    give_up = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < give_up, what
        time.sleep(0.1)


class _Ports:
    """Neighbouring ports that no other cluster of this machine's tests takes, and nobody listens on just now.

    slurmd binds its port long after slurm.conf names it, so a block of ports is taken by the name of a socket, which
    ends with us.
    """

    def __init__(self, number: int) -> None:
        assert number <= _BLOCK
        blocks = list(range(_FIRST_PORT, _LAST_PORT, _BLOCK))
        random.shuffle(blocks)
        for first in blocks:
            self._lock = socket.socket(socket.AF_UNIX)
            self.numbers = list(range(first, first + number))
            if self._is_ours(first) and all(map(_is_free, self.numbers)):
                return
            self.close()
        raise AssertionError(f"no {number} free ports")

    def close(self) -> None:
        """Let others take these ports."""
        self._lock.close()

    def _is_ours(self, first: int) -> bool:
        try:
            self._lock.bind(f"\0vgpuctl-slurm-ports-{first}")
        except OSError:
            return False
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
