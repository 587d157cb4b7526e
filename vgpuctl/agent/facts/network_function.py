# SPDX-License-Identifier: Apache-2.0
"""The network functions that a host has: what they were made from, and what of it is not so now."""

import json
import socket
from ipaddress import ip_interface, ip_network
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from vgpuctl.agent.facts import ovn, services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import network_function as wire
from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.network_function import (
    FunctionAnswer,
    FunctionFacts,
    FunctionFile,
    FunctionManifest,
    FunctionPort,
    FunctionQuery,
    FunctionsReading,
)
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import replace

_TIMEOUT_S = 20.0
_ANSWER_S = 5.0
_MOST_BYTES = 1 << 20
_MOST_NAMES = 1000
_RUNNING = "active"


def read(host: Host, asked: Optional[str] = None) -> FunctionsReading:
    """Read every function; one that is asked by its name also answers its queries. Raises Problem `unreadable`."""
    programs = tuple(name for name in wire.PROGRAMS if host.find_program(name) is not None)
    parts = _parts(host)
    found = []
    for name in sorted(parts)[:_MOST_NAMES]:
        manifest = read_manifest(host, name)
        if manifest is None:
            found.append(FunctionFacts(name, left=tuple(sorted(parts[name]))))
            continue
        facts = FunctionFacts(name, manifest.function.kind, manifest.digest, tuple(list_problems(host, name, manifest)))
        if name == asked:
            facts = replace(facts, answers=tuple(_ask(host, name, query) for query in manifest.function.queries))
        found.append(facts)
    return FunctionsReading(tuple(found), programs)


def read_manifest(host: Host, name: str) -> Optional[FunctionManifest]:
    """Return what a function was made from, None where that is not there or damaged."""
    data = host.read_bytes(f"{wire.FOLDER}/{name}/{wire.MANIFEST_NAME}")
    try:
        return None if data is None else from_json(FunctionManifest, json.loads(data))
    except (WireError, ValueError):
        return None


def list_problems(host: Host, name: str, manifest: FunctionManifest) -> List[str]:
    """Name everything of a function that is not as it was made."""
    problems = [f"{one} is damaged" for one in stale_files(host, manifest)]
    if host.disk_link(f"{wire.FOLDER}/{name}/files") != manifest.files:
        problems.append("its files are not those that its programs use")
    if namespace_of(name) not in namespaces(host):
        return [*problems, "its namespace is not there"]
    for port in manifest.function.ports:
        problems += port_problems(host, name, port)
    problems += [f"{one} is not there" for one in missing_links(host, name, manifest)]
    problems += [
        f"{one.name} does not run" for one in manifest.function.programs if not is_running(host, name, one.name)
    ]
    return problems


def missing_links(host: Host, name: str, manifest: FunctionManifest) -> List[str]:
    """Return the interfaces that commands made and that are gone."""
    return [one for one in manifest.function.links if link(host, name, one) is None]


def stale_files(host: Host, manifest: FunctionManifest) -> List[str]:
    """Return the files that are missing or have another content, by their names."""
    pairs = zip(manifest.function.files, manifest.digests)
    return [one.name for one, digest in pairs if _digest_of(host, manifest, one) != digest]


def _digest_of(host: Host, manifest: FunctionManifest, file: FunctionFile) -> Optional[str]:
    """Return the digest of a file as it is. The user to whom it was given may write it, and no other."""
    path = f"{manifest.files}/{file.name}"
    found = host.digest(path)
    is_given = found is not None and file.owner != "root" and host.owner_of(path) == host.user_id(file.owner)
    return found.partition(",")[0] if found is not None and is_given else found


def namespace_of(name: str) -> str:
    """Return the name of a function's namespace."""
    return f"{wire.NAMESPACE_PREFIX}{name}"


def namespaces(host: Host) -> Set[str]:
    """Return the namespaces that ip(8) knows. Raises Problem `unreadable`."""
    done = host.run(["ip", "netns", "list"], timeout_s=_TIMEOUT_S)
    if done.status:
        raise Problem(ProblemCode.UNREADABLE, f"ip does not list the namespaces: {done.errors.strip()}", path="ip")
    return {line.split()[0] for line in done.output.splitlines() if line.split()}


def owned_ports(host: Host) -> Dict[str, Tuple[str, str]]:
    """Return our functions' interfaces in Open vSwitch: name → (function, logical port). Raises Problem."""
    if not ovn.is_running(host, "switch"):
        return {}
    argv = ["ovs-vsctl", "--timeout=10", "--format=json", "--columns=name,external_ids", "find", "Interface"]
    done = host.run([*argv, "type=internal"], timeout_s=_TIMEOUT_S)
    try:
        rows = [(str(name), dict(pairs)) for name, (_map, pairs) in json.loads(done.output or '{"data": []}')["data"]]
    except (ValueError, LookupError, TypeError) as error:
        said = done.errors.strip() or done.output[:200]
        raise Problem(ProblemCode.UNREADABLE, f"Open vSwitch does not list its interfaces: {said}") from error
    return {
        name: (str(keys[wire.OWNER_KEY]), str(keys.get("iface-id", "")))
        for name, keys in rows
        if wire.OWNER_KEY in keys
    }


def port_problems(host: Host, name: str, port: FunctionPort) -> List[str]:
    """Return what of a port is not so."""
    if owned_ports(host).get(port.interface) != (name, port.logical_port):
        return [f"port {port.interface} is not in Open vSwitch"]
    there = link(host, name, port.interface)
    if there is None:
        return [f"port {port.interface} is not in its namespace"]
    found = []
    if there.get("address") != port.mac:
        found.append(f"port {port.interface} has another MAC address")
    if there.get("mtu") != port.mtu:
        found.append(f"port {port.interface} has MTU {there.get('mtu')}")
    if "UP" not in there.get("flags", ()):
        found.append(f"port {port.interface} is not up")
    wanted, addresses = set(map(normal, port.addresses)), addresses_of(there)
    if wanted - addresses:
        found.append(f"port {port.interface} lacks {', '.join(sorted(wanted - addresses))}")
    if addresses - wanted:
        found.append(f"port {port.interface} has {', '.join(sorted(addresses - wanted))} too")
    routes = _routes(host, name, port)
    lacking = [one.destination for one in port.routes if (route_text(one.destination), one.via) not in routes]
    if lacking:
        found.append(f"port {port.interface} lacks the route to {', '.join(lacking)}")
    return found


def link(host: Host, name: str, interface: str) -> Optional[Mapping[str, Any]]:
    """Return what ip(8) says of an interface in a function's namespace, None where it is not there."""
    for one in _ip(host, ["-n", namespace_of(name), "-json", "address", "show"]):
        if one.get("ifname") == interface:
            return one
    return None


def addresses_of(link: Mapping[str, Any]) -> Set[str]:
    """Return the addresses of an interface with their prefix; those of its link alone are left out."""
    found = (one for one in link.get("addr_info", ()) if one.get("scope") != "link")
    return {f"{one.get('local')}/{one.get('prefixlen')}" for one in found}


def other_routes(host: Host, name: str, port: FunctionPort) -> List[Tuple[str, str]]:
    """Return routes by a port that it is not to have: (destination, next hop). Programs' own routes are left out."""
    wanted = {(route_text(one.destination), one.via) for one in port.routes}
    return sorted(
        one for one, protocol in _routes(host, name, port).items() if protocol == "static" and one not in wanted
    )


def _routes(host: Host, name: str, port: FunctionPort) -> Dict[Tuple[str, str], str]:
    """Every route by a port with a next hop: (destination, next hop) → who made it."""
    found = {}
    for version in ("-4", "-6"):
        for one in _ip(host, ["-n", namespace_of(name), version, "-json", "route", "show"]):
            if one.get("dev") == port.interface and "gateway" in one:
                found[str(one.get("dst")), str(one["gateway"])] = str(one.get("protocol", ""))
    return found


def route_text(destination: str) -> str:
    """Return a destination as ip(8) prints it: a host has no prefix."""
    if destination == "default":
        return destination
    network = ip_network(destination)
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def is_running(host: Host, name: str, program: str) -> bool:
    """True if a program of a function runs: systemd says so, or the process that was started is there."""
    if services.has_systemd(host):
        return services.read_states(host, unit_of(name, program))["ActiveState"] == _RUNNING
    return host.is_same_process(read_process(host, name, program))


def unit_of(name: str, program: str) -> str:
    """Return the name of the unit of a program. Neither part has a dash."""
    return f"{wire.UNIT_PREFIX}{name}-{program}.service"


def read_process(host: Host, name: str, program: str) -> str:
    """Return the process that was started for a program, "" for none."""
    return (host.read_bytes(process_file(name, program)) or b"").decode("ascii", "replace").strip()


def process_file(name: str, program: str) -> str:
    """Return the file that has the process of a program."""
    return f"{wire.RUN_FOLDER}/{name}/{program}.pid"


def expanded(host: Host, words: Sequence[str], name: str, files: str) -> List[str]:
    """Return the words of a command with the folders that they name."""
    places = {"{files}": host.path(files), "{run}": host.path(f"{wire.RUN_FOLDER}/{name}"), "{name}": name}
    found = []
    for word in words:
        for mark, place in places.items():
            word = word.replace(mark, place)
        found.append(word)
    return found


def inside(name: str, argv: Sequence[str]) -> List[str]:
    """Return a command that runs in a function's namespace."""
    return ["ip", "netns", "exec", namespace_of(name), *argv]


def units_in(host: Host, name: Optional[str] = None) -> List[str]:
    """Return the units of functions that the administrator's folder has; of one function, or of all."""
    prefix = wire.UNIT_PREFIX if name is None else f"{wire.UNIT_PREFIX}{name}-"
    return [one for one in host.listdir_optional(wire.UNIT_FOLDER) or () if one.startswith(prefix)]


def parts_of(host: Host, name: str) -> Set[str]:
    """Return the parts of one function that the host has, in words; none where nothing is left. Raises Problem."""
    return _parts(host).get(name, set())


def names_in(host: Host, folder: str) -> List[str]:
    """Return the names of functions that a folder has."""
    return [one for one in host.listdir_optional(folder) or () if wire.NAME.fullmatch(one)]


def _parts(host: Host) -> Dict[str, Set[str]]:
    """Every name of a function that something of the host carries, with these parts in words."""
    found: Dict[str, Set[str]] = {}

    def add(name: str, part: str) -> None:
        if wire.NAME.fullmatch(name):
            found.setdefault(name, set()).add(part)

    for folder, word in ((wire.FOLDER, "files"), (wire.RUN_FOLDER, "run folder")):
        for name in names_in(host, folder):
            add(name, word)
    for unit in units_in(host):
        add(unit[len(wire.UNIT_PREFIX) :].partition("-")[0], f"unit {unit}")
    if host.find_program("ip") is not None:
        for one in namespaces(host):
            if one.startswith(wire.NAMESPACE_PREFIX):
                add(one[len(wire.NAMESPACE_PREFIX) :], "namespace")
    if host.find_program("ovs-vsctl") is not None:
        for interface, (name, _logical) in owned_ports(host).items():
            add(name, f"port {interface}")
    return found


def _ask(host: Host, name: str, query: FunctionQuery) -> FunctionAnswer:
    try:
        if query.socket:
            (path,) = expanded(host, [query.socket], name, "")
            return FunctionAnswer(query.name, _from_socket(path, query.text))
        argv = inside(name, expanded(host, query.argv, name, f"{wire.FOLDER}/{name}/files"))
        done = host.run(argv, timeout_s=_ANSWER_S)
        said = done.errors.strip()[-500:]
        return FunctionAnswer(
            query.name, done.output[:_MOST_BYTES], f"ended with {done.status}: {said}" if done.status else ""
        )
    except Problem as problem:
        return FunctionAnswer(query.name, problem=problem.message)
    except OSError as error:
        return FunctionAnswer(query.name, problem=f"{query.socket} does not answer: {error.strerror or error}")


def _from_socket(path: str, text: str) -> str:
    """Send a text to a socket and return all that comes back. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(_ANSWER_S)
        asked.connect(path)
        asked.sendall(text.encode() + b"\n")
        answer = b""
        while len(answer) < _MOST_BYTES:
            part = asked.recv(1 << 16)
            if not part:
                break
            answer += part
    return answer.decode("utf-8", "replace")


def _ip(host: Host, arguments: Sequence[str]) -> List[Mapping[str, Any]]:
    done = host.run(["ip", *arguments], timeout_s=_TIMEOUT_S)
    try:
        found = json.loads(done.output or "[]")
        if done.status or not isinstance(found, list):
            raise ValueError(done.errors)
    except ValueError as error:
        said = done.errors.strip() or done.output[:200]
        raise Problem(ProblemCode.UNREADABLE, f"ip {' '.join(arguments)} cannot be read: {said}", path="ip") from error
    return [one for one in found if isinstance(one, dict)]


def normal(address: str) -> str:
    """Return an address with its prefix as ip(8) prints it."""
    return str(ip_interface(address))
