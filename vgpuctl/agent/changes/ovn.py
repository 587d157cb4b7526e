# SPDX-License-Identifier: Apache-2.0
"""Make the host one of OVN's chassis: its daemons, Open vSwitch's settings, the bridges of its uplinks."""

import re
from typing import Dict, List, Optional, Sequence, Tuple

from vgpuctl.agent.changes import network_manager
from vgpuctl.agent.changes.services import ensure as ensure_service
from vgpuctl.agent.facts import network_manager as facts_of_manager
from vgpuctl.agent.facts import ovn, ovn_services, services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import (
    Change,
    Chassis,
    SetOvnChassis,
    SetOvnDaemon,
    SetServiceActive,
    SetUplinkBridge,
    TakeOutUplink,
)

# ovs-ctl writes the name in here over the database's when Open vSwitch starts (ovs-ctl(8), --system-id=random).
SYSTEM_ID = "/etc/openvswitch/system-id.conf"
_OVS_CTL, _OVN_CTL = "/usr/share/openvswitch/scripts/ovs-ctl", "/usr/share/ovn/scripts/ovn-ctl"
# The scripts leave a monitor that starts a daemon again when it crashes, as systemd does; ovn-controller 23.03 was seen
# to crash when its database came back.
_SCRIPTS: Dict[Tuple[str, bool], List[str]] = {
    ("switch", True): [_OVS_CTL, "start", "--system-id=random"],
    ("switch", False): [_OVS_CTL, "stop"],
    ("controller", True): [_OVN_CTL, "start_controller", "--ovn-manage-ovsdb=no"],
    ("controller", False): [_OVN_CTL, "stop_controller"],
}
_START_TIMEOUT_S = 120.0
_TIMEOUT_S = 60.0
_WAIT_S, _PAUSE_S = 20.0, 0.2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_UP = 1  # IFF_UP, Linux if.h


def ensure_daemon(host: Host, step: SetOvnDaemon, *, dry_run: bool) -> Change:
    """Start one part and enable it at boot, or stop it; wait for the result.

    A part that is stopped stays enabled, because its owner may have enabled it.
    Raises Problem: `bad-daemon`, those of a service, `daemon-did-not-start`, `daemon-did-not-stop`,
    `service-not-enabled`.
    """
    if step.part not in ovn_services.PARTS:
        raise Problem(ProblemCode.BAD_DAEMON, f"OVN has no part {step.part!r} on a host")
    is_active = ovn.is_running(host, step.part)
    is_enabled = not step.active or step.part not in ovn_services.not_enabled(host)
    before = _words(is_active, is_enabled=is_enabled)
    if is_active == step.active and is_enabled:
        return Change(step.op, step.part, before, before, changed=False)
    if not dry_run:
        if not is_enabled:
            _enable(host, ovn_services.boot_unit_of(host, step.part))
        if is_active != step.active:
            _switch(host, step)
    return Change(step.op, step.part, before, _words(step.active, is_enabled=True), changed=True)


def _words(is_active: bool, *, is_enabled: bool) -> str:
    return ("active" if is_active else "inactive") + ("" if is_enabled else ", not started at boot")


def _enable(host: Host, unit: str) -> None:
    done = host.run([services.SYSTEMCTL, "enable", "--", unit], timeout_s=_TIMEOUT_S, changes=True)
    if done.status or services.read_states(host, unit)["UnitFileState"] == "disabled":
        said = (done.errors + done.output).strip() or "it said nothing"
        raise Problem(
            ProblemCode.SERVICE_NOT_ENABLED,
            f"{unit} would not start at boot: systemctl enable ended with {done.status}: {said}",
            path=services.SYSTEMCTL,
            hint=f"run `systemctl enable {unit}` on the host and see what keeps it",
        )


def _switch(host: Host, step: SetOvnDaemon) -> None:
    if services.has_systemd(host):
        ensure_service(host, SetServiceActive(ovn_services.unit_of(host, step.part), step.active), dry_run=False)
    else:
        _run(host, _SCRIPTS[step.part, step.active], _START_TIMEOUT_S)
    for _ in range(int(_WAIT_S / _PAUSE_S)):
        if ovn.is_running(host, step.part) == step.active:
            return
        host.wait(_PAUSE_S)
    verb = "start" if step.active else "stop"
    raise Problem(
        ProblemCode.DAEMON_DID_NOT_START if step.active else ProblemCode.DAEMON_DID_NOT_STOP,
        f"OVN's {step.part} did not {verb} within {_WAIT_S:g} s",
        path=ovn.PID_FILES[step.part],
        hint="see /var/log/openvswitch and /var/log/ovn on the host",
    )


def ensure_chassis(host: Host, step: SetOvnChassis, *, dry_run: bool) -> Change:
    """Write what differs into Open vSwitch's database and read it back.

    Raises Problem: `switch-not-running`, `no-certificate`, `vsctl-refused`, `settings-differ`.
    """
    _require_switch(host, "OVN's settings")
    wanted = step.chassis
    before, bridges = ovn.read_database(host)
    has_bridge = any(bridge.name == wire.INTEGRATION_BRIDGE for bridge in bridges)
    name = (host.read_optional(SYSTEM_ID) or "").strip()
    if before == wanted and has_bridge == bool(wanted.system_id) and name == wanted.system_id:
        return Change(step.op, "chassis", str(before), str(before), changed=False)
    if wanted.uses_tls and not host.exists(wire.KEY):
        raise Problem(
            ProblemCode.NO_CERTIFICATE, f"the host has no key for OVN's databases at {wire.KEY}", path=wire.KEY
        )
    if not dry_run:
        # Before the database: a start of Open vSwitch in between must not bring the old name back.
        host.put_file(SYSTEM_ID, f"{wanted.system_id}\n".encode(), 0o644)
        _run(host, ["ovs-vsctl", "--timeout=30", *_commands(before, wanted, has_bridge=has_bridge)], _TIMEOUT_S)
        after = ovn.read_database(host)[0]
        if after != wanted:
            raise Problem(
                ProblemCode.SETTINGS_DIFFER, f"Open vSwitch has {after} where {wanted} was written", path=ovn.DATABASE
            )
    return Change(step.op, "chassis", str(before), str(wanted), changed=True)


def ensure_uplink(host: Host, step: SetUplinkBridge, *, dry_run: bool) -> Change:
    """Have a bridge with one interface of the host in it, or not have it.

    NetworkManager leaves the interface alone as long as it is in the bridge.
    Raises Problem: `bad-name`, `switch-not-running`, `not-found`, `uplink-in-use`, `vsctl-refused`, `uplink-managed`.
    """
    _check_names(step.bridge, step.interface)
    _require_switch(host, f"the bridge {step.bridge}")
    bridges = {bridge.name: bridge.interfaces for bridge in ovn.read_database(host)[1]}
    inside = bridges.get(step.bridge)
    before = None if inside is None else ",".join(inside) or "empty"
    if step.interface is None:
        if inside is not None and not dry_run:
            _run(host, ["ovs-vsctl", "--timeout=30", "--if-exists", "del-br", step.bridge], _TIMEOUT_S)
            for interface in inside:
                network_manager.release(host, interface)
        return Change(step.op, step.bridge, before, None, changed=inside is not None)
    flags = host.read_optional(f"/sys/class/net/{step.interface}/flags")
    if flags is None:
        raise Problem(ProblemCode.NOT_FOUND, f"the host has no interface {step.interface}")
    is_inside = inside is not None and step.interface in inside
    is_kept = facts_of_manager.is_kept_from(host, step.interface)
    if is_inside and is_kept and int(flags, 16) & _UP:
        return Change(step.op, step.bridge, before, before, changed=False)
    other = [name for name, interfaces in bridges.items() if step.interface in interfaces and name != step.bridge]
    if other:
        raise Problem(ProblemCode.UPLINK_IN_USE, f"{step.interface} is in the bridge {other[0]} already")
    if not dry_run:
        # Before the bridge, so that no address comes in between.
        network_manager.ensure_unmanaged(host, step.interface)
        words = ["--may-exist", "add-br", step.bridge, "--", "--may-exist", "add-port", step.bridge, step.interface]
        _run(host, ["ovs-vsctl", "--timeout=30", *words], _TIMEOUT_S)
        _run(host, ["ip", "link", "set", "dev", step.interface, "up"], _TIMEOUT_S)
    return Change(step.op, step.bridge, before, step.interface, changed=True)


def ensure_no_uplink(host: Host, step: TakeOutUplink, *, dry_run: bool) -> Change:
    """Remove an interface of the host from a bridge. Raises Problem: `bad-name`, `switch-not-running`,
    `vsctl-refused`.
    """
    _check_names(step.bridge, step.interface)
    _require_switch(host, f"the bridge {step.bridge}")
    before = {bridge.name: bridge.interfaces for bridge in ovn.read_database(host)[1]}.get(step.bridge, ())
    is_inside = step.interface in before
    after = tuple(one for one in before if one != step.interface)
    if is_inside and not dry_run:
        _run(host, ["ovs-vsctl", "--timeout=30", "--if-exists", "del-port", step.bridge, step.interface], _TIMEOUT_S)
        network_manager.release(host, step.interface)
    return Change(step.op, step.bridge, ",".join(before) or "empty", ",".join(after) or "empty", changed=is_inside)


def _check_names(*names: Optional[str]) -> None:
    for one in names:
        if one is not None and not _NAME.fullmatch(one):
            raise Problem(ProblemCode.BAD_NAME, f"{one!r} cannot be the name of a bridge or an interface")


def _commands(before: Chassis, wanted: Chassis, *, has_bridge: bool) -> Sequence[str]:
    """The difference as one transaction of ovs-vsctl."""
    groups: List[List[str]] = []
    for field, key in ovn.KEYS.items():
        value = getattr(wanted, field)
        if getattr(before, field) == value:
            continue
        if value:
            quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
            groups.append(["set", "Open_vSwitch", ".", f"external_ids:{key}={quoted}"])
        else:
            groups.append(["remove", "Open_vSwitch", ".", "external_ids", key])
    if before.uses_tls != wanted.uses_tls:
        tls = ["set-ssl", wire.KEY, wire.CERTIFICATE, wire.AUTHORITY] if wanted.uses_tls else ["del-ssl"]
        groups.append(tls)
    if wanted.system_id and not has_bridge:
        bridge = wire.INTEGRATION_BRIDGE
        # As ovn-controller makes it: no packet passes before it has written flows (ovn-controller(8)).
        settings = ["fail-mode=secure", "other-config:disable-in-band=true"]
        groups += [["--may-exist", "add-br", bridge], ["set", "Bridge", bridge, *settings]]
    if has_bridge and not wanted.system_id:
        groups.append(["--if-exists", "del-br", wire.INTEGRATION_BRIDGE])
    return [word for number, group in enumerate(groups) for word in (["--", *group] if number else group)]


def _require_switch(host: Host, what: str) -> None:
    if not ovn.is_running(host, "switch"):
        raise Problem(
            ProblemCode.SWITCH_NOT_RUNNING, f"{what} cannot be set: Open vSwitch does not run", path=ovn.DATABASE
        )


def _run(host: Host, argv: List[str], timeout_s: float) -> None:
    done = host.run(argv, timeout_s=timeout_s, changes=True)
    if done.status:
        said = (done.errors + done.output).strip() or "nothing"
        raise Problem(
            ProblemCode.VSCTL_REFUSED, f"{' '.join(argv[:4])} … ended with {done.status}: {said[-500:]}", path=argv[0]
        )
