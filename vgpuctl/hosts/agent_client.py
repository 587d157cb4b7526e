# SPDX-License-Identifier: Apache-2.0
"""Start the agent on a host over one connection and talk to it, one JSON line each way.

The agent is pushed only when the host has not got this very file: a small start-up program, given on the command
line, checks the cache by digest, asks for the bytes when it needs them and then becomes the agent.
"""

import json
from collections.abc import Sequence
from typing import Protocol, Self

from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.envelope import Problem, Reply, Request, reply_from_json, request_to_json
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.steps import Change, Step
from vgpuctl.errors import AgentBroken, AgentProblem, PythonMissing
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.model.host_target import HostTarget

START_TIMEOUT_S = 60.0
FACTS_TIMEOUT_S = 60.0
APPLY_TIMEOUT_S = 300.0
_ANSWER = "vgpuctl-agent"

# Runs under Python 3.6 and later far enough to say that it is too old. No single quotes: it travels through a shell.
BOOTSTRAP = """\
import hashlib, os, pwd, stat, sys
def say(text):
    os.write(1, ("vgpuctl-agent " + text + "\\n").encode())
def folders():
    user = os.geteuid()
    home = pwd.getpwuid(user).pw_dir
    for folder in (home + "/.cache/vgpuctl", "/run/vgpuctl-agent-%d" % user, "/var/tmp/vgpuctl-agent-%d" % user):
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            info = os.lstat(folder)
            if stat.S_ISDIR(info.st_mode) and info.st_uid == user:
                if info.st_mode & 0o77:
                    os.chmod(folder, 0o700)
                yield folder
        except OSError:
            continue
def has(path, digest):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False
def receive(size):
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 16))
        if not part:
            sys.exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
def keep(data, path):
    temporary = "%s.%d" % (path, os.getpid())
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.rename(temporary, path)
        return True
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        return False
def in_memory(data):
    descriptor = os.memfd_create("vgpuctl-agent")
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]
    return "/proc/self/fd/%d" % descriptor
def start(digest, size):
    if sys.version_info < (3, 9):
        say("old %d.%d" % sys.version_info[:2])
        sys.exit(0)
    paths = [folder + "/agent-" + digest + ".pyz" for folder in folders()]
    path = next((path for path in paths if has(path, digest)), None)
    if path:
        say("have")
    else:
        say("need")
        data = receive(size)
        if hashlib.sha256(data).hexdigest() != digest:
            say("damaged")
            sys.exit(0)
        path = next((path for path in paths if keep(data, path)), None) or in_memory(data)
    sys.argv = [path]
    sys.path.insert(0, path)
start(sys.argv[1], int(sys.argv[2]))
from vgpuctl.agent.__main__ import main
main()
"""


class RemoteProcess(Protocol):
    """A program that runs on the host, its stdin and stdout in our hands."""

    def write(self, data: bytes) -> None:
        """Send bytes to its stdin."""

    def read_line(self, timeout_s: float) -> bytes:
        """Return one line with its newline, b"" at the end. Raises CommandTimedOut."""

    def close(self) -> None:
        """Close its stdin and wait for its end."""


class Connection(Protocol):
    """What the agent needs of a connection to a host."""

    @property
    def target(self) -> HostTarget:
        """The host at the other end."""

    def open_process(self, argv: Sequence[str], *, become: bool) -> RemoteProcess:
        """Start a program on the host, by sudo when `become`."""


class AgentClient:
    """One agent on one host, started by the first call and serving until `close`."""

    def __init__(self, connection: Connection) -> None:
        self.writes = 0
        self._connection = connection
        self._target = connection.target
        self._process: RemoteProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def facts(self) -> HostFacts:
        """Read the whole host. Raises AgentProblem when something could not be read, AgentBroken, HostError."""
        reply = self._ask(Request("facts"), FACTS_TIMEOUT_S)
        if reply.facts is None:
            raise self._broken("it answered `facts` without facts")
        return reply.facts

    def apply(self, steps: Sequence[Step], *, dry_run: bool = False) -> list[Change]:
        """Take the steps in order and return one Change each; a dry run reads and compares only.

        Raises AgentProblem at the first step that fails; its `done` has the changes made until then.
        """
        reply = self._ask(Request("apply", tuple(steps), dry_run=dry_run), APPLY_TIMEOUT_S)
        return list(reply.changes)

    def holders(self, target: str) -> list[Holder]:
        """Return the processes that have a function (PCI address) or a mediated device (UUID) open."""
        return list(self._ask(Request("holders", target=target), FACTS_TIMEOUT_S).holders)

    def close(self) -> None:
        """End the agent; it ends by itself when the connection goes."""
        if self._process is not None:
            process, self._process = self._process, None
            process.close()

    def _ask(self, request: Request, timeout_s: float) -> Reply:
        if self._process is None:
            self._process = self._start()
        try:
            self._process.write(json.dumps(request_to_json(request)).encode() + b"\n")
            line = self._process.read_line(timeout_s)
            reply = reply_from_json(json.loads(line))
        except (ValueError, WireError) as error:
            raise self._broken(f"call {request.call!r}: {error}", first=line) from error
        except Exception:
            self.close()
            raise
        self.writes = reply.writes
        if reply.problem is not None:
            raise self._problem(reply.problem, reply.changes)
        return reply

    def _start(self) -> RemoteProcess:
        bundle = build_agent()
        python = self._target.python_interpreter
        argv = [python, "-I", "-S", "-c", BOOTSTRAP, bundle.sha256, str(len(bundle.data))]
        process = self._connection.open_process(argv, become=self._target.become)
        try:
            answer = process.read_line(START_TIMEOUT_S)
            word = answer.decode(errors="replace").strip()
            if word == f"{_ANSWER} need":
                process.write(bundle.data)
            elif word != f"{_ANSWER} have":
                raise self._start_failure(process, answer)
        except BaseException:
            process.close()
            raise
        return process

    def _start_failure(self, process: RemoteProcess, answer: bytes) -> Exception:
        raise AgentBroken("")

    def _broken(self, what: str, *, first: bytes = b"") -> AgentBroken:
        raise AgentBroken(what)

    def _problem(self, problem: Problem, changes: Sequence[Change]) -> AgentProblem:
        raise AgentProblem(problem.code, problem.message)


__all__ = ["AgentClient", "PythonMissing"]
