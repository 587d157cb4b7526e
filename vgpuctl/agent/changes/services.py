# SPDX-License-Identifier: Apache-2.0
"""Start and stop systemd services (reference 9, rows 6 and 20)."""

import re

from vgpuctl.agent.facts import services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, SetServiceActive

_NAME = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]*\.(?:service|socket|target|timer)")
_TIMEOUT_S = 120.0
_ACTIVE, _NOT_FOUND = "active", "not-found"


def ensure(host: Host, step: SetServiceActive, *, dry_run: bool) -> Change:
    """Start or stop a unit and wait until it is so; it is neither enabled nor disabled.

    Raises Problem: `bad-service`, `no-systemd`, `no-such-service`, `service-did-not-start`, `service-did-not-stop`.
    """
    name = step.name
    if not _NAME.fullmatch(name):
        raise Problem(
            ProblemCode.BAD_SERVICE, f"{name!r} is not the full name of a unit, as `nvidia-persistenced.service`"
        )
    if not services.has_systemd(host):
        raise Problem(ProblemCode.NO_SYSTEMD, f"{name} cannot be switched: systemd does not run this host")
    before = services.read_states(host, name)
    state = before["ActiveState"]
    is_missing = before["LoadState"] == _NOT_FOUND
    if is_missing and step.active:
        raise Problem(ProblemCode.NO_SUCH_SERVICE, f"this host has no unit {name}", path=services.SYSTEMCTL)
    if is_missing or (state == _ACTIVE) == step.active:
        return Change(step.op, name, state, state, changed=False)
    wanted = _ACTIVE if step.active else "inactive"
    if not dry_run:
        verb = "start" if step.active else "stop"
        done = host.run([services.SYSTEMCTL, verb, "--", name], timeout_s=_TIMEOUT_S, changes=True)
        after = services.read_states(host, name)["ActiveState"]
        if done.status or (after == _ACTIVE) != step.active:
            raise Problem(
                ProblemCode.SERVICE_DID_NOT_START if step.active else ProblemCode.SERVICE_DID_NOT_STOP,
                f"{name} is {after} after systemctl {verb}: {(done.output + done.errors).strip() or 'it said nothing'}",
                path=services.SYSTEMCTL,
                hint=f"journalctl -u {name} on the host tells why",
            )
    return Change(step.op, name, state, wanted, changed=True)
