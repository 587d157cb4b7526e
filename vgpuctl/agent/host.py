# SPDX-License-Identifier: Apache-2.0
"""The machine: with the files it builds on, the only code that reads, writes or runs anything on it.

The kernel's files are in kernel_files.py and those of the disk in disk_files.py; here are programs, NVML, the clock,
the lock, the network and the kernel's log. `facts` interprets the texts; `changes` decides what may be written.
"""

import os
import sys
import threading
import time
from typing import Any, ContextManager, Dict, Optional, Sequence, Tuple

from vgpuctl.agent import time_limits
from vgpuctl.agent.disk_files import DiskFiles
from vgpuctl.agent.file_problems import errno_name
from vgpuctl.agent.kernel_files import KernelFiles
from vgpuctl.agent.kernel_log import KernelLog
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

LOCK_TIMEOUT_S = 30.0
# FRR has its programs in a folder of its own: of Debian, and of RHEL.
PROGRAM_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec", "/usr/lib/frr", "/usr/libexec/frr")


@dataclass(frozen=True)
class Completed:
    """A program that ended: its exit status and what it printed."""

    status: int
    output: str
    errors: str


class Host(KernelFiles, DiskFiles):
    """One machine under `root`, which may be a test's folder.

    versions: of programs, by path, as asked once. stopping: set from outside to end every wait early.
    hanging: threads of calls of a driver that have not returned, by what they ask. keeps_notes: False for a process
    that may write nothing to the machine, not even what spares the next one work.
    """

    keeps_notes = True

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self.versions: Dict[str, str] = {}
        self.stopping = threading.Event()
        self.hanging: Dict[str, threading.Thread] = {}
        self._log: Optional[KernelLog] = None

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        """Run a program to its end; `changes` counts it as a write. At time-out its whole process group is ended.

        Raises Problem: `program-missing`, `program-timed-out`.
        """
        program = self.find_program(argv[0])
        if program is None:
            raise Problem(ProblemCode.PROGRAM_MISSING, f"the program {argv[0]} is not on this host", path=argv[0])
        if changes:
            self.writes += 1
        environment = _environment()
        if self.root != "/":
            environment["VGPUCTL_ROOT"] = self.root
        try:
            status, output, errors = time_limits.run_group(
                [program, *argv[1:]], timeout_s=timeout_s, environment=environment
            )
        except time_limits.StillRunning as error:
            left = "it and its children were ended" if error.is_ended else "part of it still runs and cannot be ended"
            message = f"{' '.join(argv)} did not end within {timeout_s:g} s; {left}"
            raise Problem(ProblemCode.PROGRAM_TIMED_OUT, message, path=argv[0]) from error
        except OSError as error:
            raise Problem(
                ProblemCode.PROGRAM_MISSING,
                f"{argv[0]} cannot be run: {error.strerror}",
                path=argv[0],
                errno=errno_name(error),
            ) from error
        return Completed(status, output.decode(errors="replace"), errors.decode(errors="replace"))

    def start(self, argv: Sequence[str], log: str) -> str:
        """Start a program that goes on when the agent has ended. Returns what names its process.

        log: the file of the disk that gets its output. Raises Problem `program-missing`.
        """
        from vgpuctl.agent import detached

        program = self.find_program(argv[0])
        if program is None:
            raise Problem(ProblemCode.PROGRAM_MISSING, f"the program {argv[0]} is not on this host", path=argv[0])
        self.writes += 1
        try:
            return detached.start([program, *argv[1:]], self.path(log), _environment())
        except OSError as error:
            message = f"{argv[0]} cannot be started: {error.strerror}"
            raise Problem(ProblemCode.PROGRAM_MISSING, message, path=argv[0], errno=errno_name(error)) from error

    def is_same_process(self, process: str) -> bool:
        """Tell whether a process that `start` named is there. A simulated machine answers here."""
        from vgpuctl.agent import detached

        return detached.is_same(process)

    def send_signal(self, process: str, name: str) -> None:
        """Send a signal by its name, such as `SIGTERM`, to a process that `start` named."""
        from vgpuctl.agent import detached

        self.writes += 1
        detached.send(process, name)

    def find_program(self, name: str) -> Optional[str]:
        """Return the path to run for a program's name or absolute path, None when it is not there."""
        if name.startswith("/"):
            path = self.path(name)
            return path if os.access(path, os.X_OK) else None
        folders = [self.path(folder) for folder in PROGRAM_FOLDERS]
        if self.root == "/":
            folders = [*os.environ.get("PATH", "").split(os.pathsep), *folders]
        paths = (f"{folder}/{name}" for folder in folders if folder)
        return next((path for path in paths if os.access(path, os.X_OK) and not os.path.isdir(path)), None)

    def nvml(self) -> Any:
        """Return the machine's NVML, not yet initialised: pynvml's functions, structs and errors by their names.

        Raises Problem `nvml-missing`. A simulated machine answers here.
        """
        if self.root != "/":
            raise Problem(ProblemCode.NVML_MISSING, "NVML is not used under another root")
        # pynvml looks in the same place; it is large, so it waits for the library.
        import ctypes

        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise Problem(ProblemCode.NVML_MISSING, "NVML cannot be used: NVML Shared Library Not Found") from None
        import pynvml

        return pynvml

    def nvfm(self) -> Any:
        """Return the machine's SDK of Fabric Manager, as ctypes has it. Raises Problem `fabric-library-missing`.

        A simulated machine answers here.
        """
        import ctypes

        try:
            if self.root != "/":
                raise OSError("it is not used under another root")
            return ctypes.CDLL("libnvfm.so.1")
        except OSError as error:
            raise Problem(
                ProblemCode.FABRIC_LIBRARY_MISSING,
                f"Fabric Manager cannot be asked: libnvfm.so.1 cannot be loaded: {error}",
                hint="install the development package of Fabric Manager, in the driver's version",
            ) from error

    def is_emulated(self) -> bool:
        """Tell whether the lab's module plays this machine's GPUs. A simulated machine answers here."""
        return self.exists("/proc/vgpulab")

    def python(self) -> str:
        """Return the version of the Python that runs the agent."""
        return ".".join(str(part) for part in sys.version_info[:3])

    def is_root(self) -> bool:
        """Tell whether the agent may change the machine."""
        return os.geteuid() == 0

    def now(self) -> float:
        """Return the seconds since the epoch by the machine's clock."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds of a clock that nobody sets, from a start of its own."""
        return time.monotonic()

    def uptime(self) -> float:
        """Return the seconds since the boot, by the clock of the kernel's log."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process and of the programs that it ran to their end."""
        import resource

        used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in used)

    def clock_ticks(self) -> int:
        """Return how many ticks of /proc/stat are a second."""
        return os.sysconf("SC_CLK_TCK")

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises Problem `interrupted` as soon as the other side is gone."""
        if self.stopping.wait(seconds):
            raise Problem(ProblemCode.INTERRUPTED, "the connection closed while the agent was waiting")

    def lock(self, timeout_s: float = LOCK_TIMEOUT_S) -> "ContextManager[None]":
        """Hold the host's lock for changes. Raises Problem `host-locked` with the holder's pid, `lock-refused`."""
        from vgpuctl.agent import host_lock

        folder = self.path(host_lock.FOLDER)
        return host_lock.hold(folder, timeout_s, wait=self.wait, is_root=self.is_root())

    def echo(self, remotes: Sequence[str], sizes: Sequence[int], *, timeout_s: float) -> Dict[str, int]:
        """Return the largest unfragmented packet of `sizes` that each address answers, 0 for none.

        A simulated machine answers here.
        """
        from vgpuctl.agent.echo import ask

        return ask(remotes, sizes, timeout_s=timeout_s)

    def probe_tunnels(self, remotes: Sequence[str], kind: str, port: int) -> Dict[str, str]:
        """Send each address a few packets as a tunnel has them. Returns why, for those that were refused.

        A simulated machine answers here.
        """
        from vgpuctl.agent.tunnel_probe import send

        return send(remotes, kind, port)

    def kernel_log(self) -> KernelLog:
        """Mark the kernel's log now, to read later what it said since."""
        return KernelLog(self.path("/dev/kmsg"))

    def finish_log(self) -> None:
        """Let the kernel's log have everything until now; a simulated machine answers here."""

    def numbered_log(self, *, after: int) -> KernelLog:
        """Return the kernel's log with every message after a number that it still has; it may begin earlier.

        This process keeps it open, so a later call goes on where the one before ended.
        """
        self.finish_log()
        if self._log is None or not self._log.is_open or self._log.last > after:
            if self._log is not None:
                self._log.close()
            self._log = KernelLog(self.path("/dev/kmsg"), whole=True)
        return self._log

    def whole_kernel_log(self) -> Tuple[str, ...]:
        """Return what the kernel said since the boot, as far back as its buffer goes; nothing where it is hidden."""
        with KernelLog(self.path("/dev/kmsg"), whole=True) as log:
            return log.lines()

    def kernel_records(self) -> Optional[Tuple[Tuple[float, str], ...]]:
        """Return the same with each message's time in seconds since the boot; None where it is hidden."""
        self.finish_log()
        with KernelLog(self.path("/dev/kmsg"), whole=True) as log:
            return log.records() if log.is_open else None


def _environment() -> Dict[str, str]:
    """Return the environment of programs, in which they find one another too, such as behind `ip netns exec`."""
    path = os.pathsep.join(filter(None, (os.environ.get("PATH", ""), *PROGRAM_FOLDERS)))
    return {**os.environ, "LC_ALL": "C.UTF-8", "PATH": path}
