# SPDX-License-Identifier: Apache-2.0
"""The QEMU guest agent of a running VM: it runs one program with arguments that never change, and nothing else.

In a Linux guest the program is ours (in_guest/probe.py), in a Windows guest it is the driver's nvidia-smi: nothing of
ours has to be put into that guest, and its policies for scripts do not matter.

Commands and answers are those of qga/qapi-schema.json of QEMU. The agent belongs to the tenant: it may lie, flood, or
never answer. libvirt reads at most 10 MiB of an answer and passes on at most 4 MiB; here less is read.
"""

import base64
import binascii
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import MOST_BYTES, PROBE_PATH, GuestReport, read_report
from vgpuctl.guests.facts.smi_log import MOST_LOG_BYTES, SMI_ARGUMENTS, SMI_PATHS, read_smi_log
from vgpuctl.guests.libvirt_errors import translated

if TYPE_CHECKING:
    from vgpuctl.guests.libvirtd.hypervisor import Hypervisor

ANSWER_S = 10
"""How long one command may take in the guest."""
_POLL_S = 0.3
_HINT = "the guest needs qemu-guest-agent, running, with guest-exec allowed (`allow-rpcs` of its qemu-ga.conf)"


_LARGEST_PID = 2**32


@dataclass(frozen=True)
class _GuestProgram:
    """A program of the guest. paths: its places, the next for a guest that has none at the first. read: its output."""

    paths: tuple[str, ...]
    arguments: tuple[str, ...]
    most_bytes: int
    read: Callable[[bytes], GuestReport]


_LINUX = _GuestProgram((PROBE_PATH,), (), MOST_BYTES, read_report)
_WINDOWS = _GuestProgram(SMI_PATHS, SMI_ARGUMENTS, MOST_LOG_BYTES, read_smi_log)


def agent_answers(hypervisor: "Hypervisor", name: str, *, uuid: str) -> bool:
    """True if the guest has an agent that answers now."""
    try:
        _GuestAgent(hypervisor, name, uuid).ask("guest-ping")
    except GuestError:
        return False
    return True


def ask_probe(
    hypervisor: "Hypervisor", name: str, *, uuid: str, is_windows: bool | None = False, timeout_s: float = 60.0
) -> GuestReport:
    """Run the probe in the guest and read its answer. is_windows: None to ask the agent for its system.

    Raises GuestError when the agent is missing or does not answer, or its answer cannot be read.
    """
    deadline = time.monotonic() + timeout_s
    agent = _GuestAgent(hypervisor, name, uuid)
    program = _WINDOWS if (agent.is_windows() if is_windows is None else is_windows) else _LINUX
    pid = agent.begin(program)
    while True:
        status = agent.ask("guest-exec-status", pid=pid, most_bytes=2 * program.most_bytes)
        if status.get("exited") is True:
            return program.read(_output(name, status, program))
        if time.monotonic() > deadline:
            raise GuestError(f"the probe in {name} did not end within {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def _output(name: str, status: dict[str, Any], program: _GuestProgram) -> bytes:
    said, code = status.get("out-data", ""), status.get("exitcode")
    if not isinstance(said, str) or len(said) > 2 * program.most_bytes:
        raise GuestError(f"the guest agent of {name} answered with more than a probe writes")
    try:
        output = base64.b64decode(said, validate=True)
    except (binascii.Error, ValueError) as broken:
        raise GuestError(f"the guest agent of {name} answered what is no base64: {broken}") from broken
    if code != 0 or not isinstance(code, int) or isinstance(code, bool):
        raise GuestError(
            f"the probe in {name} ended with {_shown(code)}",
            context=[_shown(output[:200].decode(errors="replace"))] if output else (),
            hint=f"run {' '.join((program.paths[0], *program.arguments))} in the guest",
        )
    return output


@dataclass(frozen=True)
class _GuestAgent:
    """The guest agent of one domain."""

    hypervisor: "Hypervisor"
    name: str
    uuid: str

    def is_windows(self) -> bool:
        """True if the agent names Windows; False if it names another system, or none."""
        try:
            return self.ask("guest-get-osinfo").get("id") == "mswindows"
        except GuestError:
            return False

    def begin(self, program: _GuestProgram) -> int:
        """Start the program. Returns its process id."""
        for path in program.paths:
            try:
                begun = self.ask("guest-exec", path=path, arg=program.arguments, **{"capture-output": True})
                break
            except GuestError:
                if path == program.paths[-1]:
                    raise
        pid = begun.get("pid")
        if not isinstance(pid, int) or isinstance(pid, bool) or not 0 <= pid <= _LARGEST_PID:
            raise GuestError(f"the guest agent of {self.name} answered guest-exec with {_shown(begun)}", hint=_HINT)
        return pid

    def ask(self, command: str, *, most_bytes: int = 2 * MOST_BYTES, **arguments: Any) -> dict[str, Any]:
        """Send one command. Returns its answer, an object. Raises GuestError for everything else."""
        import libvirt_qemu

        who = f"the guest agent of {self.name}"
        text = json.dumps({"execute": command, "arguments": arguments})
        with translated(f"ask {who} on {self.hypervisor.host} ({command})"):
            domain = self.hypervisor.connection.lookupByUUIDString(self.uuid)
            answer = libvirt_qemu.qemuAgentCommand(domain, text, ANSWER_S, 0)
        if len(answer) > 2 * most_bytes:
            raise GuestError(f"{who} answered {command} with {len(answer)} characters")
        try:
            given = read_strict_json(answer)
        except JsonRefused as broken:
            raise GuestError(f"{who} answered {command} with what is no JSON: {broken}") from broken
        held = given.get("return") if isinstance(given, dict) else None
        if not isinstance(held, dict):
            raise GuestError(f"{who} answered {command} with {_shown(given)}", hint=_HINT)
        return held


def _shown(value: object) -> str:
    return ascii(value)[:120]
