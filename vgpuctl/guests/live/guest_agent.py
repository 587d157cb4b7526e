# SPDX-License-Identifier: Apache-2.0
"""The QEMU guest agent of a running VM: one program of ours is run by it, and nothing else.

Commands and answers are those of qga/qapi-schema.json of QEMU. The agent belongs to the tenant: it may lie, flood, or
never answer. libvirt reads at most 10 MiB of an answer and passes on at most 4 MiB; here less is read.
"""

import base64
import binascii
import json
import time
from typing import TYPE_CHECKING, Any

from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import MOST_BYTES, PROBE_PATH, GuestReport, read_report
from vgpuctl.guests.libvirt_errors import translated

if TYPE_CHECKING:
    from vgpuctl.guests.libvirtd.hypervisor import Hypervisor

ANSWER_S = 10
"""How long one command may take in the guest."""
_POLL_S = 0.3
_HINT = "the guest needs qemu-guest-agent, running, with guest-exec allowed (`allow-rpcs` of its qemu-ga.conf)"


def ask_probe(hypervisor: "Hypervisor", name: str, *, uuid: str, timeout_s: float = 60.0) -> GuestReport:
    """Run the probe in the guest and read its answer.

    Raises GuestError when there is no agent, it does not answer, or its answer cannot be read.
    """
    deadline = time.monotonic() + timeout_s
    begun = _ask(hypervisor, name, uuid, "guest-exec", path=PROBE_PATH, **{"capture-output": True})
    pid = begun.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool):
        raise GuestError(f"the guest agent of {name} answered guest-exec with {_shown(begun)}", hint=_HINT)
    while True:
        status = _ask(hypervisor, name, uuid, "guest-exec-status", pid=pid)
        if status.get("exited") is True:
            return read_report(_output(name, status))
        if time.monotonic() > deadline:
            raise GuestError(f"the probe in {name} did not end within {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def _output(name: str, status: dict[str, Any]) -> bytes:
    said, code = status.get("out-data", ""), status.get("exitcode")
    if not isinstance(said, str) or len(said) > 2 * MOST_BYTES:
        raise GuestError(f"the guest agent of {name} answered with more than a probe writes")
    try:
        output = base64.b64decode(said, validate=True)
    except (binascii.Error, ValueError) as broken:
        raise GuestError(f"the guest agent of {name} answered what is no base64: {broken}") from broken
    if code != 0:
        raise GuestError(
            f"the probe in {name} ended with {_shown(code)}",
            context=[_shown(output[:200].decode(errors="replace"))] if output else (),
            hint=f"run {PROBE_PATH} in the guest",
        )
    return output


def _ask(hypervisor: "Hypervisor", name: str, uuid: str, command: str, **arguments: Any) -> dict[str, Any]:
    import libvirt_qemu

    text = json.dumps({"execute": command, "arguments": arguments})
    with translated(f"ask the guest agent of {name} on {hypervisor.host} ({command})"):
        domain = hypervisor.connection.lookupByUUIDString(uuid)
        answer = libvirt_qemu.qemuAgentCommand(domain, text, ANSWER_S, 0)
    if len(answer) > 4 * MOST_BYTES:
        raise GuestError(f"the guest agent of {name} answered {command} with {len(answer)} characters")
    try:
        given = read_strict_json(answer)
    except JsonRefused as broken:
        raise GuestError(f"the guest agent of {name} answered {command} with what is no JSON: {broken}") from broken
    held = given.get("return") if isinstance(given, dict) else None
    if not isinstance(held, dict):
        raise GuestError(f"the guest agent of {name} answered {command} with {_shown(given)}", hint=_HINT)
    return held


def _shown(value: object) -> str:
    return ascii(value)[:120]
