# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch, ovn-controller and `ip` of a simulated host, as far as the agent asks them; no packet is carried."""

import json
from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree

from vgpuctl_lab.simulated.machine import network_functions
from vgpuctl_lab.simulated.machine.distribution import DOMAINS, distribution_of
from vgpuctl_lab.simulated.machine.shape import Shape
from vgpuctl_lab.simulated.machine.state import MachineFolder, Ovn, State

PROGRAMS = ("ovs-vsctl", "ovsdb-client", "ovn-appctl", "ip", "nmcli", "ovs-ofctl")
_PIDS = (("/run/openvswitch/ovs-vswitchd.pid", 801), ("/run/ovn/ovn-controller.pid", 802))
_KEY = "/etc/vgpuctl/ovn/key.pem"
_INTERFACES = ("eno1", "eno2")


def files(shape: Shape, state: State) -> dict[str, str]:
    """Return the files that show the host's kernel modules, the two daemons and their packages."""
    distribution = distribution_of(shape)
    found = dict(distribution.files)
    found |= {f"/sys/module/{name}/initstate": "live" for name in ("openvswitch", "geneve", "vxlan")}
    for name in _INTERFACES:
        found |= {f"/sys/class/net/{name}/mtu": str(state.ovn.mtu), f"/sys/class/net/{name}/flags": "0x1003"}
    for service, (path, pid) in zip(distribution.ovn_services, _PIDS, strict=True):
        if state.services.get(service):
            found |= {path: str(pid), f"/proc/{pid}/comm": service.partition(".")[0]}
    return found


def probe(machine: MachineFolder, remotes: Sequence[str], packets: int) -> dict[str, str]:
    """Packets of the other ends arrive as if they probed too, except those that a firewall here drops."""
    with machine.change() as state:
        for remote in remotes:
            if remote not in state.ovn.dropped:
                state.ovn.received[remote] = state.ovn.received.get(remote, 0) + packets
        return {remote: word for remote, word in state.ovn.refused.items() if remote in remotes}


def address_of(hostname: str) -> str:
    """The host's address in 10.84.0.0/16, by the digits of its name."""
    number = int("".join(one for one in hostname if one.isdigit()) or "1")
    return f"10.84.{number // 256 % 256}.{number % 256}"


def run(machine: MachineFolder, program: str, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run one of PROGRAMS: (exit status, stdout, stderr)."""
    if program == "ip" and network_functions.is_about_namespaces([one for one in arguments if one != "-json"]):
        return network_functions.run_ip(machine, arguments)
    words = [word for word in arguments if word == "--" or not word.startswith("-")]
    if program == "ip":
        place = {"local": address_of(machine.shape.hostname), "prefixlen": 16}
        shown = json.dumps([{"ifname": "eno1", "addr_info": [place]}])
        return 0, shown if "show" in words else "", ""
    state = machine.state()
    if program == "nmcli":
        return _nmcli(machine, state, words)
    if program == "ovn-appctl":
        return 0, f"{_connection(machine, state)}\n", ""
    if not state.services.get(distribution_of(machine.shape).switch):
        return 1, "", "database connection failed (No such file or directory)\n"
    if program == "ovs-ofctl" and "dump-flows" in words:
        return 0, _flows(state, words[-1]), ""
    if program == "ovs-ofctl":
        counted = [state.ovn.received.get(remote, 0) for remote in state.ovn.tunnels]
        return (
            0,
            "".join(f"  port  {number}: rx pkts={count}, bytes=0\n" for number, count in enumerate(counted, 1)),
            "",
        )
    if program == "ovsdb-client" and len(operations := json.loads(words[-1])) == 2 and "query" not in words:
        assert operations[1]["table"] == "Interface", operations
        return 0, json.dumps([{"rows": _ports(machine, state)}]), ""
    if program == "ovsdb-client":
        is_southbound = "query" in words
        role = "ovn-controller" if state.ovn.has_role else ""
        listeners: list[object] = [{"rows": [{"target": "pssl:6642", "role": role}]}]
        return 0, json.dumps(listeners if is_southbound else _tables(state.ovn)), ""
    if words[:2] == ["find", "Interface"]:
        return 0, network_functions.interfaces(state), ""
    with machine.change() as state:
        for is_border, group in groupby(words, key="--".__eq__):
            if not is_border:
                _change(state.ovn, list(group))
        for links in state.namespaces.values():
            for name in [one for one in links if one not in state.ovn.ports]:
                del links[name]
    return 0, "", ""


def _nmcli(machine: MachineFolder, state: State, words: Sequence[str]) -> tuple[int, str, str]:
    """`device show NAME` prints the state of an interface; `device set` needs the file that makes it unmanaged."""
    if not state.services.get("NetworkManager.service"):
        return 8, "", "Error: NetworkManager is not running.\n"
    folder = machine.root / "etc/NetworkManager/conf.d"
    texts = [one.read_text() for one in folder.glob("*.conf")] if folder.is_dir() else []
    is_kept = any(f"interface-name:={words[-1]}\n" in text and "\nmanaged=0" in text for text in texts)
    return 0, ("10 (unmanaged)\n" if is_kept else "100 (connected)\n") if "show" in words else "", ""


def _connection(machine: MachineFolder, state: State) -> str:
    """Return ovn-controller's messages. Without a key that it can read it cannot use TLS."""
    distribution = distribution_of(machine.shape)
    key = machine.root / _KEY[1:]
    user = distribution.users[distribution.ovn_user]
    has_key = key.exists() and (user in (0, state.owners.get(_KEY, 0)) or bool(key.stat().st_mode & 0o004))
    is_able = bool(state.ovn.external_ids.get("ovn-remote")) and (has_key or not state.ovn.uses_tls)
    return state.ovn.connection if is_able else "not connected"


def _change(ovn: Ovn, words: list[str]) -> None:
    match words:
        case ["set", "Open_vSwitch", ".", setting]:
            key, _, value = setting.removeprefix("external_ids:").partition("=")
            ovn.external_ids[key] = json.loads(value)
        case ["remove", "Open_vSwitch", ".", "external_ids", key]:
            ovn.external_ids.pop(key, None)
        case ["set-ssl", *_files] | ["del-ssl", *_files]:
            ovn.uses_tls = words[0] == "set-ssl"
        case ["add-br", bridge]:
            ovn.bridges.setdefault(bridge, [])
        case ["del-br", bridge]:
            ovn.bridges.pop(bridge, None)
        case ["add-port", bridge, interface]:
            if interface not in ovn.bridges[bridge]:
                ovn.bridges[bridge].append(interface)
        case ["set", "Interface", interface, "type=internal", *settings]:
            pairs = (one.removeprefix("external_ids:").partition("=") for one in settings)
            ovn.ports[interface] = {key: value for key, _, value in pairs}
        case ["del-port", bridge, interface]:
            if interface in ovn.bridges.get(bridge, ()):
                ovn.bridges[bridge].remove(interface)
            ovn.ports.pop(interface, None)


def _flows(state: State, wanted: str) -> str:
    """The flows of a cookie, where a VM runs: two of each, with counts that follow from the cookie and rise."""
    cookie = wanted.removeprefix("cookie=0x").partition("/")[0]
    if not state.domains:
        return ""
    age_s = max(state.now() - min(one.started_at for one in state.domains.values()), 0.0)
    packets = int(cookie, 16) % 100 + int(age_s)
    fields = f"n_packets={packets}, n_bytes={packets * 98}, idle_age=1, priority=3001,ip actions=resubmit(,45)"
    head = f" cookie=0x{int(cookie, 16):x}, duration={age_s:.3f}s"
    return "".join(f"{head}, table={table}, {fields}\n" for table in (44, 45))


def _ports(machine: MachineFolder, state: State) -> list[object]:
    """The interfaces of running VMs, as libvirt and ovn-controller write them."""
    rows: list[object] = []
    for domain in state.domains.values():
        root = ElementTree.fromstring((machine.root / DOMAINS / f"{domain.name}.xml").read_text())
        for interface in root.iterfind(".//devices/interface"):
            target, parameters = interface.find("target"), interface.find("virtualport/parameters")
            if target is None or parameters is None:
                continue
            ids = {"iface-id": parameters.get("interfaceid", ""), "iface-status": "active"}
            if ids["iface-id"] not in state.ovn.not_installed:
                ids |= {"ovn-installed": "true"}
            pairs = ["map", [list(item) for item in ids.items()]]
            rows.append({"name": target.get("dev", ""), "external_ids": pairs, "ofport": len(rows) + 1})
    return rows


def _tables(ovn: Ovn) -> list[object]:
    """The answer to the agent's one question: root, bridges, ports, tunnels by geneve and by vxlan."""
    ports = [name for bridge, inside in ovn.bridges.items() for name in (bridge, *inside)]
    tunnels: list[object] = [
        {
            "type": "geneve",
            "options": ["map", [["remote_ip", remote]]],
            "ofport": number,
            "bfd_status": ["map", [["state", ovn.bfd[remote]]] if remote in ovn.bfd else []],
        }
        for number, remote in enumerate(ovn.tunnels, 1)
    ]
    root = {
        "external_ids": ["map", [list(item) for item in ovn.external_ids.items()]],
        "ssl": ["uuid", "ssl"] if ovn.uses_tls else ["set", []],
    }
    bridges: list[object] = [
        {"name": bridge, "ports": ["set", [["uuid", name] for name in (bridge, *inside)]]}
        for bridge, inside in ovn.bridges.items()
    ]
    named: list[object] = [{"_uuid": ["uuid", name], "name": name} for name in ports]
    return [{"rows": rows} for rows in ([root], bridges, named, tunnels, [])]
