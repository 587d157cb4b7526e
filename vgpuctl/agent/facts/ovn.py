# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch and OVN on the host: what its database says, what runs, what the tunnels carry (ovn-controller(8))."""

import json
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from vgpuctl.agent.facts import network_manager, ovn_services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.ovn import BridgeFacts, InterfaceFacts, OvnDiagnostics, OvnFacts, TunnelDiagnostics
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Chassis
from vgpuctl.agent.wire.values import dataclass

DATABASE = "/run/openvswitch/db.sock"
PID_FILES = {"switch": "/run/openvswitch/ovs-vswitchd.pid", "controller": "/run/ovn/ovn-controller.pid"}
# How ovn-controller calls what Chassis has.
KEYS = {
    "system_id": "system-id",
    "remote": "ovn-remote",
    "encapsulation": "ovn-encap-type",
    "address": "ovn-encap-ip",
    "mappings": "ovn-bridge-mappings",
}
_MODULES = ("openvswitch", "geneve", "vxlan")
_TIMEOUT_S = 20.0
_ECHO_TIMEOUT_S = 2.0
_SMALL, _USUAL = 576, 1500
_CONNECTED, _ROLE = "connected", "ovn-controller"


def read(host: Host) -> Optional[OvnFacts]:
    """Read all of it; None on a host that has nothing of it. Raises Problem `unreadable`."""
    missing = tuple(name for name in wire.PROGRAMS if host.find_program(name) is None)
    if len(missing) == len(wire.PROGRAMS):
        return None
    is_active = "ovsdb-client" not in missing and is_running(host, "switch")
    chassis, bridges = read_database(host) if is_active else (None, ())
    return OvnFacts(
        missing=missing,
        modules=_read_modules(host),
        switch_active=is_active,
        controller_active=is_running(host, "controller"),
        chassis=chassis,
        bridges=bridges,
        interfaces=_read_interfaces(host),
        has_certificate=_has_certificate(host),
        not_enabled=ovn_services.not_enabled(host),
        managed=_read_managed(host, bridges),
    )


def _read_managed(host: Host, bridges: Sequence[BridgeFacts]) -> Tuple[str, ...]:
    """Uplinks, which are those in other bridges than OVN's own, that NetworkManager is not kept from."""
    uplinks = {name for one in bridges if one.name != wire.INTEGRATION_BRIDGE for name in one.interfaces}
    # Patch ports have no device of the kernel's.
    found = sorted(name for name in uplinks if host.exists(f"/sys/class/net/{name}"))
    return tuple(name for name in found if not network_manager.is_kept_from(host, name))


def _has_certificate(host: Host) -> bool:
    if not all(host.exists(path) for path in (wire.KEY, wire.CERTIFICATE, wire.AUTHORITY)):
        return False
    # Root reads every file, whoever owns it.
    return ovn_services.controller_user(host) in (0, host.owner_of(wire.KEY))


def is_running(host: Host, part: str) -> bool:
    """True if the process of a part is there, by the number it left."""
    pid = (host.read_optional(PID_FILES[part]) or "").strip()
    return pid.isdigit() and host.exists(f"/proc/{pid}")


def read_database(host: Host) -> Tuple[Chassis, Tuple[BridgeFacts, ...]]:
    """The chassis and its bridges in Open vSwitch's database. Raises Problem `unreadable`."""
    root, bridges, ports, _tunnels = _select(host)
    settings = _map(root["external_ids"])
    names = {_uuid(port): str(port["name"]) for port in ports}
    return (
        Chassis(
            **{field: settings.get(key, "") for field, key in KEYS.items()},
            uses_tls=bool(_set(root["ssl"])),
        ),
        tuple(
            BridgeFacts(
                str(bridge["name"]),
                tuple(sorted(names[one] for one in _set(bridge["ports"]) if names.get(one) != bridge["name"])),
            )
            for bridge in sorted(bridges, key=lambda one: str(one["name"]))
        ),
    )


def read_diagnostics(host: Host) -> Optional[OvnDiagnostics]:
    """Ask ovn-controller and the other ends of the tunnels; None where it does not run. Raises Problem."""
    if host.find_program("ovn-appctl") is None or not is_running(host, "controller"):
        return None
    done = host.run(["ovn-appctl", "-t", "ovn-controller", "connection-status"], timeout_s=_TIMEOUT_S)
    root, _bridges, _ports, tunnels = _select(host)
    settings = _map(root["external_ids"])
    remotes = {_map(tunnel["options"]).get("remote_ip", "") for tunnel in tunnels} - {"", "flow"}
    own = settings.get(KEYS["address"], "")
    mtu = next((one.mtu for one in _read_interfaces(host) if own in _bare(one.addresses)), _USUAL)
    sizes = sorted({size for size in (mtu, _USUAL, _SMALL) if size <= mtu}, reverse=True)
    carried = host.echo(sorted(remotes), sizes, timeout_s=_ECHO_TIMEOUT_S)
    status = done.output.strip() or done.errors.strip()
    has_role = _ask_role(host, settings.get(KEYS["remote"], "")) if status == _CONNECTED else None
    return OvnDiagnostics(
        status, tuple(TunnelDiagnostics(one, carried.get(one, 0)) for one in sorted(remotes)), has_role
    )


@dataclass(frozen=True)
class Tunnel:
    """One tunnel's interface. number: of its port in the bridge. port: UDP, 0 for the usual one. bfd: its state."""

    remote: str
    kind: str
    number: int
    port: int
    bfd: Optional[str]


def read_tunnels(host: Host) -> Tuple[str, List[Tunnel]]:
    """Return the address that the host's tunnels end at, and the tunnels. Raises Problem `unreadable`."""
    root, _bridges, _ports, rows = _select(host)
    found = []
    for row in rows:
        options, status, number = _map(row["options"]), _map(row["bfd_status"]), row["ofport"]
        port = options.get("dst_port", "")
        if options.get("remote_ip", "flow") != "flow":
            found.append(
                Tunnel(
                    options["remote_ip"],
                    str(row["type"]),
                    number if isinstance(number, int) else 0,
                    int(port) if port.isdigit() else 0,
                    status.get("state"),
                )
            )
    return _map(root["external_ids"]).get(KEYS["address"], ""), found


def _ask_role(host: Host, remote: str) -> Optional[bool]:
    """True if the southbound database's listener has the role `ovn-controller` (ovn-sb(5), Connection).

    None for a remote without TLS, where certificates say nothing, and without an answer. A listener of the server's
    command line has no row, and no role.
    """
    ports = {one.rpartition(":")[2] for one in remote.split(",") if one.startswith("ssl:")}
    if not ports:
        return None
    operation = {"op": "select", "table": "Connection", "where": [], "columns": ["target", "role"]}
    identity = [f"--private-key={wire.KEY}", f"--certificate={wire.CERTIFICATE}", f"--ca-cert={wire.AUTHORITY}"]
    text = json.dumps(["OVN_Southbound", operation])
    done = host.run(["ovsdb-client", "--timeout=10", *identity, "query", remote, text], timeout_s=_TIMEOUT_S)
    try:
        rows = [(str(row["target"]).split(":"), row["role"]) for row in json.loads(done.output)[0]["rows"]]
    except (ValueError, LookupError, TypeError):
        return None
    # Behind a forwarded port the host knows another number than the listener.
    roles = [role for target, role in rows if target[1:2] and target[1] in ports] or [role for _target, role in rows]
    return bool(roles) and all(role == _ROLE for role in roles)


def _select(host: Host) -> Tuple[Mapping[str, Any], List[Any], List[Any], List[Any]]:
    """Read the root row, bridges, ports and the tunnels' interfaces in one transaction (RFC 7047, 5.2.2)."""
    columns = ["type", "options", "ofport", "bfd_status"]
    wanted: Tuple[Tuple[str, List[Any], List[str]], ...] = (
        ("Open_vSwitch", [], ["external_ids", "ssl"]),
        ("Bridge", [], ["name", "ports"]),
        ("Port", [], ["_uuid", "name"]),
        ("Interface", [["type", "==", "geneve"]], columns),
        ("Interface", [["type", "==", "vxlan"]], columns),
    )
    operations = [{"op": "select", "table": table, "where": where, "columns": names} for table, where, names in wanted]
    text = json.dumps(["Open_vSwitch", *operations])
    done = host.run(["ovsdb-client", "--timeout=10", "transact", f"unix:{DATABASE}", text], timeout_s=_TIMEOUT_S)
    try:
        tables = [answer["rows"] for answer in json.loads(done.output)]
        root, bridges, ports = tables[0][0], tables[1], tables[2]
        return root, bridges, ports, [row for table in tables[3:] for row in table]
    except (ValueError, LookupError, TypeError) as error:
        said = done.errors.strip() or done.output.strip()[:200] or "nothing"
        raise Problem(
            ProblemCode.UNREADABLE, f"Open vSwitch's database cannot be read: {said}", path=DATABASE
        ) from error


def _read_modules(host: Host) -> Tuple[str, ...]:
    release = host.read("/proc/sys/kernel/osrelease").strip()
    lists = [host.read_optional(f"/lib/modules/{release}/modules.{name}") or "" for name in ("dep", "builtin")]
    return tuple(
        name
        for name in _MODULES
        if host.exists(f"/sys/module/{name}") or any(re.search(rf"/{name}\.ko(?:\.\w+)?:?", text) for text in lists)
    )


def _read_interfaces(host: Host) -> Tuple[InterfaceFacts, ...]:
    """Every interface with its IPv4 addresses. Raises Problem `unreadable`."""
    done = host.run(["ip", "-json", "-4", "address", "show"], timeout_s=_TIMEOUT_S)
    addresses: Dict[str, Tuple[str, ...]] = {}
    try:
        for one in json.loads(done.output or "[]"):
            found = one.get("addr_info", ())
            if "ifname" in one:
                addresses[one["ifname"]] = tuple(f"{each['local']}/{each['prefixlen']}" for each in found)
    except (ValueError, LookupError, TypeError) as error:
        raise Problem(
            ProblemCode.UNREADABLE, f"ip does not list the addresses: {done.errors.strip()}", path="ip"
        ) from error
    return tuple(
        InterfaceFacts(name, int(mtu), addresses.get(name, ()))
        for name in host.listdir_optional("/sys/class/net") or ()
        for mtu in (host.read_optional(f"/sys/class/net/{name}/mtu"),)
        if mtu is not None
    )


def _bare(addresses: Sequence[str]) -> List[str]:
    return [one.partition("/")[0] for one in addresses]


def _uuid(row: Mapping[str, Any]) -> str:
    return str(row["_uuid"][1])


def _map(value: Any) -> Dict[str, str]:
    """A map of OVSDB's: `["map", [[key, value], …]]`."""
    return {str(key): str(item) for key, item in value[1]}


def _set(value: Any) -> List[str]:
    """A set of references: `["set", [["uuid", …], …]]`, or the one alone."""
    return [str(one[1]) for one in (value[1] if value[0] == "set" else [value])]
