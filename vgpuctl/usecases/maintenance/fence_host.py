# SPDX-License-Identifier: Apache-2.0
"""Fencing: a host is proven or declared dead before anything of it is settled or started elsewhere."""

import os
import shlex
import signal
import subprocess
import tempfile

from vgpuctl.errors import HostError, HostKeyChanged, HostUnreachable, StateError, UsageError, WrongHost
from vgpuctl.model.event import Values
from vgpuctl.model.printable import printable
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.secret import ProgramLine
from vgpuctl.trusted_programs import judge_command
from vgpuctl.usecases.maintenance.restricted import set_restriction
from vgpuctl.usecases.network.gateways import hold_off
from vgpuctl.usecases.observed.fences import is_host_fenced
from vgpuctl.usecases.observed.observation_record import is_of_host
from vgpuctl.usecases.observed.observations import is_seen_by_controller, read_facts, read_record
from vgpuctl.usecases.running.services import Services

_SAID_AT_MOST = 200
_SILENCE = (HostUnreachable, HostKeyChanged, WrongHost)
"""What a dead host looks like: nothing answers at its address, or another machine does."""


def fence_host(services: Services, host: str, *, is_dead: bool, reason: str) -> None:
    """Fence a host: run its fencing command of the inventory, or believe the operator who says that it is dead.

    A host that still answers over SSH is not dead. The evidence of the event names the command, or the operator's word.
    A host that is fenced already stays so. Raises UsageError without a command and without the operator's word, and
    StateError when the command failed or the host still answers. A dry run does not run the command and takes it that
    the host is off after it; the operator's word it holds against the host.
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
        evidence = {} if services.goes_on else _run(host, fencing.command, fencing.timeout_s)
    if is_dead or not services.goes_on:
        _refuse_living(services, host)
    with services.store.transaction() as session:
        set_restriction(session, host, WHOLE_HOST, RestrictionKind.FENCE, reason, evidence=evidence)
    services.say(f"{host}: fenced")
    hold_off(services, host)


def _refuse_unseen(services: Services, host: str, error: HostError) -> None:
    """Raise StateError if the host may live: this command uses a wrong way to it, or a controller has just read it."""
    with services.store.reading() as session:
        is_seen = is_seen_by_controller(session, host)
        if not is_seen and is_of_host(read_record(session, host), error, services.way_to(host)):
            return
    reason = "a controller has just read it" if is_seen else "the way to it fails, or is not one that has worked before"
    raise StateError(
        f"whether {host} is dead is not known: {reason}",
        context=[error.said_of(host)],
        hint="see that `vgpuctl list-hosts` reaches the other hosts, and that its address, login, jump hosts and"
        " known_hosts are right; then run this again",
    )


def _run(host: str, command: ProgramLine, timeout_s: int) -> Values:
    """Run a fencing command. Its arguments may hold a password, so only its program is named.

    It reads nothing. When its time is over, its child processes end with it; after a success they may run on.
    """
    argv = shlex.split(command.reveal())
    judge_command(argv)
    program = argv[0]
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise StateError(
                f"the fencing command {program} of {host} cannot be run: {error.strerror}",
                hint="power the host off and add --fenced",
            ) from error
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise StateError(
                f"the fencing command {program} of {host} did not end within {timeout_s} s, and was killed",
                hint="power the host off and add --fenced, or give the command more time: `timeout` of vgpu_fencing",
            ) from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        said = command.clean(output.read().decode(errors="replace").strip(), known=(host,))
        said = printable(said)[-_SAID_AT_MOST:]
    if status != 0:
        raise StateError(
            f"the fencing command {program} of {host} ended with {status}: {said or 'it said nothing'}",
            hint="it must end with 0 when the host is off; power it off by hand and add --fenced",
        )
    return {"by": "the fencing command", "command": program, "exit": status, "said": said}


def _refuse_living(services: Services, host: str) -> None:
    """Raise StateError for a host whose SSH answers, even if nothing can be done on it: its VMs may run."""
    answer = "it can be read"
    try:
        read_facts(services, host)
    except _SILENCE as error:
        services.forget_host(host)
        _refuse_unseen(services, host, error)
        return
    except HostError as error:
        services.forget_host(host)
        answer = error.said_of(host)
    raise StateError(
        f"{host} answers, so it is not dead, and its VMs would run twice",
        context=[answer],
        hint=f"power it off first; to empty a host that works, run `vgpuctl drain-host {host} --reason TEXT`",
    )
