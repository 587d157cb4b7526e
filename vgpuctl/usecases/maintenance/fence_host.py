# SPDX-License-Identifier: Apache-2.0
"""Fencing: a host is proven or declared dead before anything of it is settled or started elsewhere."""

import shlex
import subprocess

from vgpuctl.errors import HostError, StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.printable import printable
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.usecases.maintenance.restricted import set_restriction
from vgpuctl.usecases.support.fences import is_host_fenced
from vgpuctl.usecases.support.observations import read_facts
from vgpuctl.usecases.support.services import Services

_SAID_AT_MOST = 200


def fence_host(services: Services, host: str, *, is_dead: bool, reason: str) -> None:
    """Fence a host: run its fencing command of the inventory, or believe the operator who says that it is dead.

    A host that still answers over SSH is not dead. The evidence of the event names the command, or the operator's word.
    A host that is fenced already stays so. Raises UsageError without a command and without the operator's word, and
    StateError when the command failed or the host still answers.
    """
    services.inventory.require(host)
    if is_host_fenced(services, host):
        return
    fencing = services.inventory.fencing(host)
    evidence: Values = {"by": "the operator's word"}
    if not is_dead and fencing.command is None:
        raise UsageError(
            f"nobody says that {host} is off, and its VMs must not run twice",
            hint="power it off and add --fenced, or give its `vgpu_fencing` a command in the inventory",
        )
    if not is_dead and fencing.command is not None:
        services.say(f"{host}: running its fencing command")
        evidence = _run(host, fencing.command, fencing.timeout_s)
    _refuse_living(services, host)
    with services.store.transaction() as session:
        set_restriction(session, host, WHOLE_HOST, RestrictionKind.FENCE, reason, evidence=evidence)
    services.say(f"{host}: fenced")


def _run(host: str, command: str, timeout_s: int) -> Values:
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(
            f"the fencing command of {host} did not end well: {error}", hint="power the host off and add --fenced"
        ) from error
    said = printable((done.stdout + done.stderr).decode(errors="replace").strip())[-_SAID_AT_MOST:]
    if done.returncode != 0:
        raise StateError(
            f"the fencing command of {host} ended with {done.returncode}: {said}",
            hint="it must end with 0 when the host is off; power it off by hand and add --fenced",
        )
    return {"by": "the fencing command", "command": command.split(maxsplit=1)[0], "exit": done.returncode, "said": said}


def _refuse_living(services: Services, host: str) -> None:
    try:
        read_facts(services, host)
    except HostError:
        services.forget_host(host)
        return
    raise StateError(
        f"{host} answers, so it is not dead, and its VMs would run twice",
        hint=f"power it off first; to empty a host that works, run `vgpuctl drain-host {host}`",
    )
