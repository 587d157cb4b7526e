# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode: written into its configuration, and read by the Fabric Manager that runs."""

import re
from typing import Dict, Optional

from vgpuctl.agent.changes import partition
from vgpuctl.agent.fabric_manager import CONFIG, FabricManager, read_settings
from vgpuctl.agent.facts import fabric, gpus, services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import UNIT
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, RestartFabricManager, SetFabricMode

_MODE, _RESTART = "FABRIC_MODE", "FABRIC_MODE_RESTART"
_NVIDIA = "10de"
_MOST_BYTES = 1 << 20
_RESTART_TIMEOUT_S = 100.0
# For how long it may set the fabric up, and the pause between two questions.
_READY_S = 120.0
_PAUSE_S = 2.0
_READY_WITHOUT_PARTITIONS = (
    ProblemCode.FABRIC_NOT_SUPPORTED,
    ProblemCode.FABRIC_LIBRARY_MISSING,
    ProblemCode.FABRIC_UNREACHABLE,
)


def ensure(host: Host, step: SetFabricMode, *, dry_run: bool) -> Change:
    """Give both settings their values wherever they stand, add those that are missing, and keep every other byte.

    Raises Problem: `fabric-manager-missing`, and those of reading and writing the file, which must not be a link.
    """
    if not host.exists(CONFIG):
        raise Problem(
            ProblemCode.FABRIC_MANAGER_MISSING,
            f"Fabric Manager's mode cannot be set: there is no {CONFIG}",
            path=CONFIG,
            hint="install Fabric Manager in the driver's version; `vgpuctl check-hosts --prepare` names the packages",
        )
    wanted = {_MODE: str(step.mode), _RESTART: str(int(step.keeps_partitions))}
    found = read_settings(host)
    before, after = _words(found), _words({**found, **wanted})
    if before != after and not dry_run:
        folder, _, name = CONFIG.rpartition("/")
        data, mode, _owner = host.read_below(folder, name, most=_MOST_BYTES)
        for key, value in wanted.items():
            data = _with(data, key.encode(), value.encode())
        host.put_file(CONFIG, data, mode, owner=host.owner_of(CONFIG) or 0)
        read_back = _words(read_settings(host))
        if read_back != after:
            raise Problem(ProblemCode.UNEXPECTED_VALUE, f"{CONFIG} has {read_back}, wanted {after}", path=CONFIG)
    return Change(step.op, CONFIG, before, after, changed=before != after)


def ensure_read(host: Host, step: RestartFabricManager, *, dry_run: bool) -> Change:
    """Restart Fabric Manager unless it runs with its configuration, and wait until it answers.

    Raises Problem: `no-systemd`, `no-such-service`, `fabric-in-use`, `service-did-not-start`, and those of Fabric
    Manager's SDK.
    """
    is_active, needs_restart = fabric.read_run(host)
    if is_active is None:
        code = ProblemCode.NO_SUCH_SERVICE if services.has_systemd(host) else ProblemCode.NO_SYSTEMD
        raise Problem(code, f"Fabric Manager cannot be restarted: systemd has no {UNIT} here", path=services.SYSTEMCTL)
    changes = not is_active or bool(needs_restart)
    user = _find_user(host)
    if user is not None and needs_restart:
        raise Problem(
            ProblemCode.FABRIC_IN_USE,
            f"Fabric Manager is not restarted: {user}",
            hint="move or stop the VM; `vgpuctl repair` deactivates a partition that no VM runs with",
        )
    now = f"active, with {_words(read_settings(host))}"
    before = (
        now if not changes else "active, started before its configuration was written" if is_active else "not active"
    )
    if not dry_run:
        if changes:
            _restart(host)
        _wait_until_ready(host)
    return Change(step.op, UNIT, before, now, changed=changes)


def _with(data: bytes, key: bytes, value: bytes) -> bytes:
    """The configuration with a setting: in each line that has it, else in a new last one."""
    there = re.compile(rb"^([ \t]*" + key + rb"[ \t]*=[ \t]*)[^\s]*", re.MULTILINE)
    changed, count = there.subn(rb"\g<1>" + value, data)
    if count:
        return changed
    end = b"\r\n" if b"\r\n" in data else b"\n"
    return data + (end if data and not data.endswith(b"\n") else b"") + key + b"=" + value + end


def _words(settings: Dict[str, str]) -> str:
    return ", ".join(f"{key}={settings.get(key, '(not set)')}" for key in (_MODE, _RESTART))


def _find_user(host: Host) -> Optional[str]:
    """Say which VM has a GPU, or which partition is active; None for neither. Raises Problem where nobody can tell."""
    shared = gpus.read_shared(host, None)
    if shared.nodes.problem is not None or shared.nodes.unreadable:
        raise Problem(
            ProblemCode.HOLDERS_UNKNOWN,
            "cannot tell whether a VM has a GPU: processes are hidden from this user",
            hint="let the agent run as root: ansible_become=true",
        )
    for gpu in gpus.read_gpus(host, shared)[0]:
        if gpu.vendor_id != _NVIDIA:
            continue
        places = [(gpu.address, gpu.holders), *((one.address, one.holders) for one in gpu.vfs)]
        places += [(one.uuid, one.holders) for one in gpu.mdevs]
        for place, holders in places:
            if holders:
                vm = f", VM {holders[0].vm_uuid}" if holders[0].vm_uuid else ""
                return f"{place} is held by {holders[0].command} (pid {holders[0].pid}{vm})"
    try:
        with FabricManager(host) as manager:
            active = [one for one in manager.partitions() if one.is_active]
    except Problem:
        return None  # It does not run, starts, or has no partitions in its mode.
    if not active:
        return None
    return "; ".join(
        f"partition {one.number} is active (modules {', '.join(str(gpu.module) for gpu in one.gpus)})" for one in active
    )


def _restart(host: Host) -> None:
    done = host.run([services.SYSTEMCTL, "restart", "--", UNIT], timeout_s=_RESTART_TIMEOUT_S, changes=True)
    is_active, needs_restart = fabric.read_run(host)
    if done.status or not is_active or needs_restart:
        said = (done.output + done.errors).strip() or "it said nothing"
        state = "active, but not anew" if is_active else "not active"
        raise Problem(
            ProblemCode.SERVICE_DID_NOT_START,
            f"{UNIT} is {state} after systemctl restart: {said}",
            path=services.SYSTEMCTL,
            hint=f"journalctl -u {UNIT} on the host tells why; its version must be the driver's",
        )


def _wait_until_ready(host: Host) -> None:
    """Wait until Fabric Manager answers; it is told the partitions of VMs that run.

    In mode 0 it has no partitions to list, its SDK need not be installed, and nobody has seen whether it listens there.
    Raises Problem.
    """
    ready = () if fabric.read_mode(host) else _READY_WITHOUT_PARTITIONS
    deadline = host.monotonic() + _READY_S
    while True:
        try:
            with FabricManager(host) as manager:
                partition.list_all(host, manager)
            return
        except Problem as problem:
            is_active = fabric.read_run(host)[0]
            if is_active and problem.code in ready:
                return
            passes = problem.code in (ProblemCode.FABRIC_STARTING, ProblemCode.FABRIC_UNREACHABLE)
            if not passes or host.monotonic() >= deadline or not is_active:
                raise
        host.wait(_PAUSE_S)
