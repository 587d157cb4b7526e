# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of a simulated host, and the programs of network functions that it has; no packet is carried."""

import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vgpuctl_lab.simulated.machine.state import MachineFolder, State

PROGRAMS = ("haproxy", "sysctl")
UNIT_PREFIX = "vgpuctl-function-"
RUN_FOLDER = "run/vgpuctl-functions"
_NOT_THERE = 1


def run_program(program: str, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run one of PROGRAMS to its end: `haproxy -c` reads its file."""
    if program == "haproxy":
        folder, config = arguments[arguments.index("-C") + 1], arguments[arguments.index("-f") + 1]
        text = Path(folder, config).read_text() if Path(folder, config).is_file() else ""
        return (0, "Configuration file is valid\n", "") if "frontend " in text else (1, "", f"cannot read {config}\n")
    return 0, "", ""


def run_ip(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run ip(8) for namespaces: what it is asked of interfaces, addresses and routes within one."""
    words = [one for one in arguments if one not in ("-json", "-4", "-6")]
    is_six = "-6" in arguments
    if words[:2] == ["netns", "exec"]:
        return run_program(words[3].rpartition("/")[2], words[4:])
    with machine.change() as state:
        if words[0] == "netns":
            return _netns(state, words[1], words[2:])
        if words[0] == "-n":
            links = state.namespaces.get(words[1])
            if links is None:
                return _NOT_THERE, "", f'Cannot open network namespace "{words[1]}": No such file or directory\n'
            return _inside(links, words[2:], is_six=is_six)
        return _outside(state, words)


def is_about_namespaces(arguments: Sequence[str]) -> bool:
    """True if ip(8) is asked about a namespace, or about one interface of the host."""
    return bool(arguments) and (
        arguments[0] in ("netns", "-n") or list(arguments[:2]) in (["link", "set"], ["link", "show"])
    )


def _netns(state: State, verb: str, rest: Sequence[str]) -> tuple[int, str, str]:
    if verb == "list":
        return 0, "".join(f"{name}\n" for name in state.namespaces), ""
    if verb == "add":
        state.namespaces.setdefault(rest[0], {})
    if verb == "delete":
        state.namespaces.pop(rest[0], None)
    return 0, "", ""


def _outside(state: State, words: Sequence[str]) -> tuple[int, str, str]:
    """`link show dev NAME`, `link set dev NAME netns NAMESPACE`: of a port of Open vSwitch; else nothing happens."""
    if "netns" in words:
        name = words[words.index("dev") + 1]
        state.namespaces[words[-1]][name] = {"mac": "", "mtu": 1500, "up": False, "addresses": [], "routes": []}
    if list(words[:2]) == ["link", "show"]:
        name = words[-1]
        is_there = name in state.ovn.ports and not any(name in links for links in state.namespaces.values())
        return (0, "", "") if is_there else (_NOT_THERE, "", f'Device "{name}" does not exist.\n')
    return 0, "", ""


def _inside(links: dict[str, dict[str, Any]], words: Sequence[str], *, is_six: bool) -> tuple[int, str, str]:
    if list(words[:2]) == ["address", "show"]:
        return 0, json.dumps([_shown(name, one) for name, one in links.items()]), ""
    if list(words[:2]) == ["route", "show"]:
        found = [
            {"dst": destination, "gateway": via, "dev": name, "protocol": protocol}
            for name, one in links.items()
            for destination, via, protocol in one["routes"]
            if (":" in via) == is_six
        ]
        return 0, json.dumps(found), ""
    name = words[words.index("dev") + 1]
    if name == "lo":
        return 0, "", ""
    one = links.get(name)
    if one is None:
        return _NOT_THERE, "", f'Cannot find device "{name}"\n'
    match list(words):
        case ["link", "set", "dev", _, "address", mac, "mtu", mtu]:
            one |= {"mac": mac, "mtu": int(mtu)}
        case ["link", "set", "dev", _, "up"]:
            one["up"] = True
        case ["address", "replace", address, *_]:
            one["addresses"] = [*(each for each in one["addresses"] if each != address), address]
        case ["address", "delete", address, *_]:
            one["addresses"] = [each for each in one["addresses"] if each != address]
        case ["route", "replace", destination, "via", via, *_]:
            others = [each for each in one["routes"] if each[0] != destination or (":" in each[1]) != is_six]
            one["routes"] = [*others, [destination, via, "static"]]
        case ["route", "delete", destination, "via", via, *_]:
            one["routes"] = [each for each in one["routes"] if each[:2] != [destination, via]]
    return 0, "", ""


def _shown(name: str, one: dict[str, Any]) -> dict[str, Any]:
    places = [ipaddress.ip_interface(each) for each in one["addresses"]]
    return {
        "ifname": name,
        "address": one["mac"],
        "mtu": one["mtu"],
        "flags": ["BROADCAST", *(["UP"] if one["up"] else [])],
        "addr_info": [
            {"local": str(each.ip), "prefixlen": each.network.prefixlen, "scope": "global"} for each in places
        ],
    }


def interfaces(state: State) -> str:
    """Open vSwitch's internal interfaces, as `ovs-vsctl --format=json` prints them."""
    rows = [[name, ["map", [list(item) for item in ids.items()]]] for name, ids in state.ovn.ports.items()]
    return json.dumps({"headings": ["name", "external_ids"], "data": rows})
