# SPDX-License-Identifier: Apache-2.0
"""Start the agent on a host over one connection and talk to it, one JSON line each way.

The agent is pushed only when the host has not got this very file: a small start-up program (agent_bootstrap.py),
given on the command line, checks the cache by digest, asks for the bytes when it needs them and then becomes the
agent.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

from vgpuctl.agent.wire.boot import BootFiles
from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.diagnostics import HostDiagnostics
from vgpuctl.agent.wire.envelope import Problem, Reply, Request, reply_from_json, request_to_json
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.flows import FlowCounts, FlowQuestion
from vgpuctl.agent.wire.guest_state import GuestState, StateAction, StateOrder
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.agent.wire.image import ImageFile
from vgpuctl.agent.wire.migration import VgpuComparison, VgpuCompatibility
from vgpuctl.agent.wire.network_function import FunctionsReading
from vgpuctl.agent.wire.ovn import CertificateFiles, TunnelProbe
from vgpuctl.agent.wire.packet_log import LogMark, LogQuestion, PacketLog
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.agent.wire.steps import Change, Step
from vgpuctl.agent.wire.strict_json import read_strict_json
from vgpuctl.agent.wire.textfile import TextfileFiles
from vgpuctl.errors import AgentBroken, AgentProblem, CommandFailed, PythonMissing, TooMuchOutput
from vgpuctl.hosts.agent_bootstrap import ANSWER, BOOTSTRAP
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.hosts.facts_check import check_facts
from vgpuctl.hosts.network_check import check_flows, check_packet_log
from vgpuctl.hosts.python_check import FIND_PROGRAM, LAST_LINE, SYSTEM_PYTHON, choose_python, too_old
from vgpuctl.hosts.readings_check import check_readings
from vgpuctl.logs import timed
from vgpuctl.model.capture import recording_from
from vgpuctl.model.host_target import AUTO_PYTHON, HostTarget
from vgpuctl.model.printable import printable
from vgpuctl.model.rehearsal import Rehearsal, RehearsalEnds

ANSWER_TIMEOUT_S = 60.0
# A change may wait for a driver, for instance while it enables VFs or winds a vGPU down.
_APPLY_FACTOR = 5
# Facts, health, diagnostics and readings in one answer.
_RECORD_FACTOR = 4
# A network file system delivers an image of 100 GiB at 100 MiB/s in 17 minutes.
DIGEST_TIMEOUT_S = 1800.0
_CHANGES = ("apply", "boot", "certificate", "textfile", "guest-state")
_Value = TypeVar("_Value")
_Answer = TypeVar("_Answer", HostFacts, HostHealth, HostReadings)
_SHOWN_LINES = 5
_MOST_FOUND = 20
_SHOWN_CHARACTERS = 200


class AgentProcess(Protocol):
    """A program that runs on the host, its streams in our hands."""

    @property
    def stderr(self) -> bytes:
        """Its stderr so far."""

    def write(self, data: bytes) -> None:
        """Send bytes to its stdin."""

    def take(self) -> bytes | None:
        """Return what came on stdout and was not read yet, without waiting; None after its end."""

    def read_line(self, timeout_s: float) -> bytes:
        """Return the next line of stdout. Raises HostError when none comes: CommandTimedOut, CommandFailed."""

    def close(self) -> None:
        """Close its streams; the agent ends when its stdin does."""


class AgentTransport(Protocol):
    """The parts of a connection that the agent needs."""

    target: HostTarget

    def open_process(self, argv: Sequence[str], *, timeout_s: float) -> AgentProcess:
        """Start a program on the host within timeout_s, by sudo where the target asks for it."""


class AgentClient:
    """One agent on one host, started by the first call and serving until `close`. Threads take turns.

    writes: how often the agent has written to the host since it started. answer_timeout_s: how long its start and its
    answer to a question may take; changes may take five times as long. check: raises when an answer is not of the host
    that was meant; it sees all facts, health and readings, and facts before the first change. rehearsal: of a dry run:
    the agent compares instead of changing, and what it would change is noted.
    """

    def __init__(
        self,
        connection: AgentTransport,
        *,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        check: Callable[[HostFacts | HostHealth | HostReadings], None] | None = None,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self._rehearsal = rehearsal
        self._check = check
        self._is_checked = check is None
        self._timeout_s = answer_timeout_s
        self.writes = 0
        self._connection = connection
        self._target = connection.target
        self._process: AgentProcess | None = None
        self._turn = threading.Lock()
        self._python: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def python(self) -> str:
        """Path of the interpreter that runs the agent; before its start, of the one that is tried first."""
        pinned = self._target.python_interpreter
        return self._python or (SYSTEM_PYTHON if pinned == AUTO_PYTHON else pinned)

    def find_python(self) -> str:
        """Path of the interpreter that runs the agent, which is started for it. Raises as `facts`."""
        with self._turn:
            if self._process is None:
                self._process = self._start()
            return self.python

    def facts(self) -> HostFacts:
        """Read the whole host.

        Raises AgentProblem when something could not be read, AgentBroken, PythonMissing and what the connection
        raises.
        """
        return self._facts_of(self._ask(Request("facts"), self._timeout_s))

    def facts_and_health(self) -> tuple[HostFacts, HostHealth]:
        """Read the whole host and the health of every GPU by one call. Raises as `facts`."""
        reply = self._ask(Request("facts-and-health"), self._timeout_s)
        return self._facts_of(reply), self._wanted(reply.health, "health")

    def apply(self, steps: Sequence[Step], *, dry_run: bool = False) -> list[Change]:
        """Take the steps in order and return one Change each; a dry run reads and compares only.

        Raises AgentProblem at the first step that fails; its `done` has the changes made until then.
        """
        return list(self._ask(Request("apply", tuple(steps), dry_run=dry_run), self._timeout_s * _APPLY_FACTOR).changes)

    def holders(self, target: str) -> list[Holder]:
        """Return the processes that have a function (PCI address) or a mediated device (UUID) open."""
        return list(self._ask(Request("holders", target=target), self._timeout_s).holders)

    def image(self, path: str, *, with_digest: bool = False) -> ImageFile:
        """Read one image file or block device of the host. with_digest: read all of it for its SHA-256.

        Raises AgentProblem: `not-found`, `unreadable`, `not-an-image`.
        """
        timeout_s = DIGEST_TIMEOUT_S if with_digest else self._timeout_s
        reply = self._ask(Request("image", target=path, with_digest=with_digest), max(timeout_s, self._timeout_s))
        return self._wanted(reply.image, "image")

    def install_boot(self, files: BootFiles, *, dry_run: bool = False) -> Change:
        """Install what restores the host's layout at boot. Raises as `apply`."""
        (change,) = self._ask(Request("boot", dry_run=dry_run, boot=files), self._timeout_s).changes
        return change

    def install_certificate(self, files: CertificateFiles, *, dry_run: bool = False) -> Change:
        """Install the host's key and certificate for OVN's databases. Raises as `apply`."""
        (change,) = self._ask(Request("certificate", dry_run=dry_run, certificate=files), self._timeout_s).changes
        return change

    def install_textfile(self, files: TextfileFiles, *, dry_run: bool = False) -> Change:
        """Install or remove the timer that writes the readings for node_exporter. Raises as `apply`."""
        (change,) = self._ask(Request("textfile", dry_run=dry_run, textfile=files), self._timeout_s).changes
        return change

    def guest_state(self, order: StateOrder) -> GuestState:
        """List, read, write or remove guests' UEFI variables and TPMs. Raises as `apply`."""
        reply = self._ask(Request("guest-state", state=order), self._timeout_s)
        return self._wanted(reply.state, "guest-state")

    def record(self) -> dict[str, Any]:
        """Let the agent read everything that commands read, and return what the machine answered. Raises as `facts`."""
        reply = self._ask(Request("record"), self._timeout_s * _RECORD_FACTOR)
        try:
            return recording_from(self._wanted(reply.recording, "record"))
        except WireError as error:
            raise self._broken(f"its recording cannot be read: {error}") from error

    def diagnostics(self) -> HostDiagnostics:
        """Read the diagnostics: logs, units, Secure Boot. Raises as `facts`."""
        return self._wanted(self._ask(Request("diagnostics"), self._timeout_s).diagnostics, "diagnostics")

    def health(self) -> HostHealth:
        """Read the health of every GPU. Raises as `facts`."""
        return self._checked(self._wanted(self._ask(Request("health"), self._timeout_s).health, "health"))

    def readings(self) -> HostReadings:
        """Read what is measured of the host, its GPUs, vGPUs and VMs. Raises as `facts`."""
        return self._checked(self._wanted(self._ask(Request("readings"), self._timeout_s).readings, "readings"))

    def compatibility(self, comparison: VgpuComparison) -> VgpuCompatibility:
        """Ask the host's NVML whether a running VM's vGPU can go to another host's GPU. Raises as `apply`."""
        reply = self._ask(Request("compatibility", comparison=comparison), self._timeout_s)
        return self._wanted(reply.compatibility, "compatibility")

    def tunnels(self) -> TunnelProbe | None:
        """Read the tunnels' counters and send each a few packets; None without ovn-controller. Raises as `facts`."""
        return self._ask(Request("tunnels"), self._timeout_s).tunnels

    def functions(self, name: str | None = None) -> FunctionsReading:
        """Read the network functions of the host; the one of this name answers its queries. Raises as `facts`."""
        return self._wanted(self._ask(Request("functions", target=name), self._timeout_s).functions, "functions")

    def flows(self, cookies: Sequence[str]) -> FlowCounts:
        """Count the packets of flows by cookie, those with flows on the host. Raises as `facts`."""
        reply = self._ask(Request("flows", counted=FlowQuestion(tuple(cookies))), self._timeout_s)
        return self._wanted(reply.flows, "flows")

    def packet_log(self, mark: LogMark | None) -> PacketLog:
        """Read the lines of logged packets behind a mark. Raises as `facts`."""
        reply = self._ask(Request("packet-log", log=LogQuestion(mark)), self._timeout_s)
        return self._wanted(reply.log, "packet-log")

    def close(self) -> None:
        """End the agent; it ends by itself when the connection goes."""
        if self._process is not None:
            process, self._process = self._process, None
            process.close()

    def _facts_of(self, reply: Reply) -> HostFacts:
        facts = replace(self._checked(self._wanted(reply.facts, "facts")), interpreter=self.python)
        self._is_checked = True
        return facts if self._rehearsal is None else self._rehearsal.facts(self._target.name, facts)

    def _checked(self, answer: _Answer) -> _Answer:
        """The answer, which is of the host that was meant."""
        if self._check is not None:
            self._check(answer)
        return answer

    def _wanted(self, value: _Value | None, question: str) -> _Value:
        """The part of a reply that was asked for. Raises AgentBroken when it is not there."""
        if value is None:
            raise self._broken(f"it answered `{question}` without any")
        return value

    def _ask(self, request: Request, timeout_s: float) -> Reply:
        if self._rehearsal is not None and request.call in _CHANGES and not request.dry_run:
            return self._rehearse(self._rehearsal, request, timeout_s)
        return self._send(request, timeout_s)

    def _rehearse(self, rehearsal: Rehearsal, request: Request, timeout_s: float) -> Reply:
        """Compare, and note what would be changed. A step that needs one before it ends the dry run."""
        host = self._target.name
        if request.state is not None:
            if not request.state.action.changes():
                return self._send(request, timeout_s)
            text = f"{request.state.action} the UEFI variables and the TPM of {request.state.vm_uuid}"
            if request.state.action is not StateAction.REMOVE:
                rehearsal.end(host, text)
            rehearsal.would(host, text)
            return Reply(agent="", state=GuestState())
        try:
            reply = self._send(replace(request, dry_run=True), timeout_s)
        except AgentProblem as problem:
            rehearsal.would_make(host, problem.done)
            if any(one.changed for one in problem.done):
                raise RehearsalEnds(f"{host}: {problem.message}") from problem
            raise
        rehearsal.would_make(host, reply.changes)
        return reply

    def _send(self, request: Request, timeout_s: float) -> Reply:
        is_change = bool(request.steps) and not request.dry_run
        if not self._is_checked and request.call in _CHANGES:
            self.facts()
        with (
            timed(
                "agent-call",
                level=logging.INFO if is_change else logging.DEBUG,
                host=self._target.name,
                call=request.call,
                steps=len(request.steps) or None,
                dry_run=request.dry_run or None,
            ),
            self._turn,
        ):
            return self._answer(request, timeout_s)

    def _answer(self, request: Request, timeout_s: float) -> Reply:
        if self._process is None:
            self._process = self._start()
        try:
            unasked = self._process.take()
            if unasked:
                raise self._broken(f"it sent {len(unasked)} bytes that nobody had asked for", _lines(unasked))
            self._process.write(json.dumps(request_to_json(request)).encode() + b"\n")
            line = self._process.read_line(timeout_s)
        except (CommandFailed, TooMuchOutput) as error:
            self.close()
            raise self._broken(f"during `{request.call}`: {error.message}", error.context) from error
        except BaseException:
            # An answer that nobody waits for any more (Ctrl-C) must not be taken for the next one's.
            self.close()
            raise
        try:
            reply = reply_from_json(read_strict_json(line.decode()))
            if reply.facts is not None:
                check_facts(reply.facts)
            if reply.readings is not None:
                check_readings(reply.readings)
            if reply.flows is not None:
                check_flows(reply.flows)
            if reply.log is not None:
                check_packet_log(reply.log)
        except (WireError, ValueError) as error:
            self.close()
            raise self._broken(f"its answer to `{request.call}` cannot be read: {error}", _lines(line)) from error
        self.writes = reply.writes
        if reply.problem is not None:
            raise self._problem(reply.problem, reply.changes)
        return reply

    def _start(self) -> AgentProcess:
        if self._python is not None:
            return self._start_with(self._python)
        pinned = self._target.python_interpreter
        if pinned != AUTO_PYTHON:
            process, self._python = self._start_with(pinned), pinned
            return process
        try:
            process, self._python = self._start_with(SYSTEM_PYTHON), SYSTEM_PYTHON
        except PythonMissing:
            # Only hosts without a good python3 of their own pay for the search.
            found = self._find_python()
            process, self._python = self._start_with(found), found
        return process

    def _find_python(self) -> str:
        """Search the host for an interpreter. Raises PythonMissing."""
        lines: list[str] = []
        process = self._connection.open_process(["/bin/sh", "-c", FIND_PROGRAM], timeout_s=self._timeout_s)
        try:
            while len(lines) < _MOST_FOUND and lines[-1:] != [LAST_LINE]:
                lines.append(process.read_line(self._timeout_s).decode(errors="replace").strip())
        finally:
            process.close()
        return choose_python(self._target, lines)

    def _start_with(self, python: str) -> AgentProcess:
        bundle = build_agent()
        process = self._connection.open_process(
            [python, "-I", "-S", "-c", BOOTSTRAP, bundle.sha256, str(len(bundle.data))], timeout_s=self._timeout_s
        )
        try:
            answer = process.read_line(self._timeout_s)
            word = answer.decode(errors="replace").strip()
            if word == f"{ANSWER} need":
                process.write(bundle.data)
            elif word.startswith(f"{ANSWER} old "):
                raise too_old(self._target, python, printable(word.split()[-1][:_SHOWN_CHARACTERS]))
            elif word != f"{ANSWER} have":
                raise self._broken("it did not start", _lines(answer) + _lines(process.stderr))
        except (CommandFailed, TooMuchOutput) as error:
            process.close()
            raise self._broken("it did not start", error.context or [error.message]) from error
        except BaseException:
            process.close()
            raise
        return process

    def _broken(self, what: str, lines: Sequence[str] = ()) -> AgentBroken:
        return AgentBroken(
            f"{self._target.name}: the agent does not speak its protocol: {what}",
            context=lines,
            hint="see what the host's shell prints at a login without terminal, and whether python3 works there",
        )

    def _problem(self, problem: Problem, changes: Sequence[Change]) -> AgentProblem:
        context = [
            f"changed before: {change.op} {change.target}: {change.before} -> {change.after}"
            for change in changes
            if change.changed
        ]
        if problem.path is not None:
            context.append(f"path: {problem.path}")
        if problem.errno is not None:
            context.append(f"errno: {problem.errno}")
        if problem.rm_code is not None:
            context.append(f"NVIDIA resource manager: {problem.rm_code}")
        context += [f"kernel: {line}" for line in problem.kernel_lines]
        return AgentProblem(
            problem.code,
            f"{self._target.name}: {problem.message}",
            context=context,
            hint=problem.hint,
            done=changes,
        )


def _lines(data: bytes) -> list[str]:
    lines = data.decode(errors="replace").splitlines()[:_SHOWN_LINES]
    return [printable(line[:_SHOWN_CHARACTERS]) for line in lines]
