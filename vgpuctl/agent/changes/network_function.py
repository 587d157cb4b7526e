# SPDX-License-Identifier: Apache-2.0
"""Have a network function on the host exactly as it is declared, or not at all: namespace, ports, files, programs.

Its files are in a folder that is named by their content, and a link leads to the one in use: programs read all of the
old files or all of the new ones. New files are checked by the program before the link changes.
"""

import json
import sys
from typing import Dict, List, Optional, Sequence, Tuple

from vgpuctl.agent.changes import function_programs as programs
from vgpuctl.agent.facts import network_function as facts
from vgpuctl.agent.facts import ovn, services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import network_function as wire
from vgpuctl.agent.wire.boot import sha256
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.function_digests import manifest_of
from vgpuctl.agent.wire.network_function import FunctionManifest, FunctionPort, NetworkFunction, SetNetworkFunction
from vgpuctl.agent.wire.ovn import INTEGRATION_BRIDGE
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change

_CHECK_TIMEOUT_S = 60.0
_WAIT_S, _PAUSE_S = 10.0, 0.1
_SHORTEST_SECRET = 8
_FILES = "files"
_AFTER = "openvswitch-switch.service openvswitch.service ovs-vswitchd.service ovn-controller.service"
# An address serves at once, and nobody in the tenant's network tells the function where to send its packets.
_SETTINGS = (
    *("net.ipv6.conf.all.accept_ra=0", "net.ipv6.conf.default.accept_ra=0", "net.ipv6.conf.default.accept_dad=0"),
    *("net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.default.accept_redirects=0"),
    *("net.ipv6.conf.all.accept_redirects=0", "net.ipv6.conf.default.accept_redirects=0"),
)


def ensure(host: Host, step: SetNetworkFunction, *, dry_run: bool) -> Change:
    """Bring a function to what the step says; a second run changes nothing.

    Raises Problem: `bad-function`, `program-missing`, `switch-not-running`, `function-config-refused`,
    `function-command-failed`, `function-not-running`, `read-back-differs`.
    """
    _check_name(step.name)
    if step.function is None:
        return _ensure_gone(host, step, dry_run=dry_run)
    function = step.function
    _check(function)
    _require(host, function)
    wanted = manifest_of(step.name, function)
    there = facts.read_manifest(host, step.name)
    after = f"{function.kind} {wanted.digest[:12]}"
    problems = _problems(host, step.name, wanted)
    if there == wanted and not problems:
        return Change(step.op, step.name, after, after, changed=False)
    before = "none" if there is None else f"{there.function.kind} {there.digest[:12]}"
    if there == wanted:
        before += f", but {'; '.join(problems)}"
    if not dry_run:
        _bring(host, step.name, function, wanted)
        left = facts.list_problems(host, step.name, wanted)
        if left:
            raise Problem(
                ProblemCode.READ_BACK_DIFFERS, f"{function.kind} {step.name} was made, and {'; '.join(left)}", path="ip"
            )
    return Change(step.op, step.name, before, after, changed=True)


def restore(host: Host, name: str) -> List[str]:
    """Have the namespace and the ports of a function after a boot; its programs are systemd's.

    Returns what is not so afterwards. Raises Problem.
    """
    manifest = facts.read_manifest(host, name)
    if manifest is None:
        return ["what it was made from is not there or damaged"]
    _build(host, name, manifest.function)
    _run_commands(host, name, manifest)
    return facts.list_problems(host, name, manifest)


def _problems(host: Host, name: str, wanted: FunctionManifest) -> List[str]:
    found = facts.list_problems(host, name, wanted)
    for one in wanted.function.programs:
        if not found and not programs.is_current(host, name, one, wanted.files):
            found.append(f"{one.name} has not read its files")
    if not found and _commands_mark(host, name) != wanted.files:
        found.append("its commands have not run")
    if services.has_systemd(host) and _stale_support(host):
        found.append("what restores it at boot is of another release, or not there")
    return found


def _bring(host: Host, name: str, function: NetworkFunction, wanted: FunctionManifest) -> None:
    folder = f"{wire.FOLDER}/{name}"
    stale = facts.stale_files(host, wanted)
    for file in function.files:
        if file.name in stale:
            mode = 0o600 if file.is_secret else 0o644
            owner = host.user_id(file.owner)
            host.put_file(f"{wanted.files}/{file.name}", file.content.encode(), mode, owner=owner)
    _check_files(host, name, function, wanted.files)
    manifest = json.dumps(to_json(wanted), sort_keys=True).encode() + b"\n"
    if host.read_bytes(f"{folder}/{wire.MANIFEST_NAME}") != manifest:
        host.put_file(f"{folder}/{wire.MANIFEST_NAME}", manifest, 0o600)
    if host.disk_link(f"{folder}/{_FILES}") != wanted.files:
        host.put_link(f"{folder}/{_FILES}", wanted.files)
    elif stale:
        programs.forget_loaded(host, name)
    _bring_support(host)
    if _build(host, name, function):
        programs.forget_loaded(host, name)
    _run_commands(host, name, wanted)
    names = {one.name for one in function.programs}
    for left in programs.programs_of(host, name):
        if left not in names:
            programs.stop(host, name, left)
    for program in function.programs:
        programs.bring(host, name, program, wanted.files)
    _remove_files(host, name, keep=wanted.files)


def _check_files(host: Host, name: str, function: NetworkFunction, files: str) -> None:
    """Have each program look at the new files. Raises Problem `function-config-refused`, and removes them."""
    for program in function.programs:
        if not program.check:
            continue
        argv = facts.expanded(host, program.check, name, files)
        done = host.run(argv, timeout_s=_CHECK_TIMEOUT_S)
        if done.status:
            if host.disk_link(f"{wire.FOLDER}/{name}/{_FILES}") != files:
                _erase(host, name, files.rpartition("/")[2])
            said = _without_secrets((done.errors + done.output).strip() or "nothing", function)
            raise Problem(
                ProblemCode.FUNCTION_CONFIG_REFUSED,
                f"{program.argv[0]} refuses the configuration of {function.kind} {name}: {said[-800:]}",
                path=argv[0],
            )


def _without_secrets(said: str, function: NetworkFunction) -> str:
    """What a program said, without lines of secret files that it may have shown."""
    for file in function.files:
        for line in file.content.split() if file.is_secret else ():
            if len(line) >= _SHORTEST_SECRET:
                said = said.replace(line, "***")
    return said


def _build(host: Host, name: str, function: NetworkFunction) -> bool:
    """Have the namespace with its ports. Returns whether the namespace is new. Raises Problem."""
    namespace = facts.namespace_of(name)
    is_new = namespace not in facts.namespaces(host)
    if is_new:
        programs.run(host, ["ip", "netns", "add", namespace])
        host.remove_file(_commands_file(name))
    forwards = int(function.forwards)
    switches = (f"net.ipv4.ip_forward={forwards}", f"net.ipv6.conf.all.forwarding={forwards}")
    programs.run(host, facts.inside(name, ["sysctl", "-e", "-q", "-w", *switches, *_SETTINGS]))
    programs.run(host, ["ip", "-n", namespace, "link", "set", "dev", "lo", "up"])
    host.put_file(f"{wire.RUN_FOLDER}/{name}/.keep", b"", 0o600)
    interfaces = {port.interface for port in function.ports}
    for interface, (owner, _logical) in facts.owned_ports(host).items():
        if owner == name and interface not in interfaces:
            _remove_port(host, interface)
    for port in function.ports:
        if facts.port_problems(host, name, port):
            _bring_port(host, name, port)
    return is_new


def _bring_port(host: Host, name: str, port: FunctionPort) -> None:
    namespace = facts.namespace_of(name)
    if facts.owned_ports(host).get(port.interface) != (name, port.logical_port):
        _add_port(host, name, port)
    if facts.link(host, name, port.interface) is None:
        if not _is_here(host, port.interface):
            # It is in a namespace without a name, or Open vSwitch has lost it.
            _remove_port(host, port.interface)
            _add_port(host, name, port)
        programs.run(host, ["ip", "link", "set", "dev", port.interface, "netns", namespace])
    ip, device = ["ip", "-n", namespace], ["dev", port.interface]
    programs.run(host, [*ip, "link", "set", *device, "address", port.mac, "mtu", str(port.mtu)])
    programs.run(host, [*ip, "link", "set", *device, "up"])
    there = facts.link(host, name, port.interface) or {}
    wanted = {facts.normal(one) for one in port.addresses}
    for address in sorted(facts.addresses_of(there) - wanted):
        programs.run(host, [*ip, "address", "delete", address, *device])
    for address in port.addresses:
        programs.run(host, [*ip, "address", "replace", address, *device, *(["nodad"] if ":" in address else [])])
    for destination, via in facts.other_routes(host, name, port):
        programs.run(host, [*ip, "route", "delete", destination, "via", via, *device])
    for route in port.routes:
        version = "-6" if ":" in route.via else "-4"
        how = [route.destination, "via", route.via, *device, "proto", "static"]
        programs.run(host, ["ip", "-n", namespace, version, "route", "replace", *how])


def _add_port(host: Host, name: str, port: FunctionPort) -> None:
    interface = port.interface
    ids = (f"external_ids:iface-id={port.logical_port}", f"external_ids:{wire.OWNER_KEY}={name}")
    words = ["--may-exist", "add-port", INTEGRATION_BRIDGE, interface, "--", "set", "Interface", interface]
    programs.run(host, ["ovs-vsctl", "--timeout=30", *words, "type=internal", *ids])


def _is_here(host: Host, interface: str) -> bool:
    """Wait until Open vSwitch has made an interface: ovs-vsctl does, but not after a boot."""
    for _ in range(int(_WAIT_S / _PAUSE_S)):
        if not host.run(["ip", "link", "show", "dev", interface], timeout_s=_CHECK_TIMEOUT_S).status:
            return True
        host.wait(_PAUSE_S)
    return False


def _remove_port(host: Host, interface: str) -> None:
    programs.run(host, ["ovs-vsctl", "--timeout=30", "--if-exists", "del-port", INTEGRATION_BRIDGE, interface])


def _run_commands(host: Host, name: str, manifest: FunctionManifest) -> None:
    """Run the commands of a function unless they have run for these files, and their work is there. Raises Problem."""
    if _commands_mark(host, name) == manifest.files and not facts.missing_links(host, name, manifest):
        return
    for command in manifest.function.commands:
        argv = facts.expanded(host, command.argv, name, manifest.files)
        try:
            programs.run(host, facts.inside(name, argv), tolerates=command.tolerates)
        except Problem:
            if not command.otherwise or host.find_program(command.otherwise[0]) is None:
                raise
            argv = facts.expanded(host, command.otherwise, name, manifest.files)
            programs.run(host, facts.inside(name, argv))
    host.put_file(_commands_file(name), manifest.files.encode(), 0o600)


def _commands_mark(host: Host, name: str) -> str:
    return (host.read_bytes(_commands_file(name)) or b"").decode("utf-8", "replace")


def _commands_file(name: str) -> str:
    return f"{wire.RUN_FOLDER}/{name}/commands"


def _ensure_gone(host: Host, step: SetNetworkFunction, *, dry_run: bool) -> Change:
    """Remove everything of a function, whatever of it is there."""
    name = step.name
    manifest = facts.read_manifest(host, name)
    parts = facts.parts_of(host, name)
    if not parts:
        return Change(step.op, name, None, None, changed=False)
    before = ", ".join(sorted(parts)) if manifest is None else f"{manifest.function.kind} {manifest.digest[:12]}"
    if not dry_run:
        for program in programs.programs_of(host, name):
            programs.stop(host, name, program)
        if "namespace" in parts:
            _end_processes(host, name)
        for interface, (owner, _logical) in facts.owned_ports(host).items():
            if owner == name:
                _remove_port(host, interface)
        if "namespace" in parts:
            programs.run(host, ["ip", "netns", "delete", facts.namespace_of(name)])
        host.remove_folder(f"{wire.RUN_FOLDER}/{name}")
        _remove_files(host, name, keep=None)
        host.remove_folder(f"{wire.FOLDER}/{name}")
        if not facts.names_in(host, wire.FOLDER):
            _remove_support(host)
        left = facts.parts_of(host, name)
        if left:
            raise Problem(ProblemCode.READ_BACK_DIFFERS, f"{name} was removed, and still has {', '.join(sorted(left))}")
    return Change(step.op, name, before, None, changed=True)


def _end_processes(host: Host, name: str) -> None:
    """End whatever else runs in the namespace: a worker that outlived its master, or what a program left."""
    for signal in ("TERM", "KILL"):
        done = host.run(["ip", "netns", "pids", facts.namespace_of(name)], timeout_s=_CHECK_TIMEOUT_S)
        pids = [one for one in done.output.split() if one.isdigit()]
        if not pids:
            return
        host.run(["kill", f"-{signal}", *pids], timeout_s=_CHECK_TIMEOUT_S, changes=True)
        for _ in range(int(_WAIT_S / _PAUSE_S)):
            done = host.run(["ip", "netns", "pids", facts.namespace_of(name)], timeout_s=_CHECK_TIMEOUT_S)
            if not done.output.split():
                return
            host.wait(_PAUSE_S)


def _remove_files(host: Host, name: str, *, keep: Optional[str]) -> None:
    """Remove folders of files other than the one to keep, secrets overwritten first."""
    for one in host.listdir_optional(f"{wire.FOLDER}/{name}") or ():
        if one.startswith(f"{_FILES}-") and f"{wire.FOLDER}/{name}/{one}" != keep:
            _erase(host, name, one)


def _erase(host: Host, name: str, folder: str) -> None:
    for file in host.listdir_optional(f"{wire.FOLDER}/{name}/{folder}") or ():
        host.overwrite(wire.FOLDER, f"{name}/{folder}/{file}")
    host.remove_folder(f"{wire.FOLDER}/{name}/{folder}")


def _support(host: Host) -> Dict[str, bytes]:
    """The files that restore functions at boot."""
    unit = f"""\
# Written by vgpuctl; the next run overwrites it.
[Unit]
Description=Restore the network functions that vgpuctl put on this host
ConditionPathExists={wire.AGENT}
After=local-fs.target {_AFTER}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={sys.executable} -I -S {wire.AGENT} functions
TimeoutStartSec=300
SyslogIdentifier=vgpuctl-functions

[Install]
WantedBy=multi-user.target
"""
    return {wire.AGENT: host.own_program(), f"{wire.UNIT_FOLDER}/{wire.RESTORE_UNIT}": unit.encode()}


def _support_link() -> Tuple[str, str]:
    path = f"{wire.UNIT_FOLDER}/{wire.RESTORE_UNIT}"
    return f"{wire.UNIT_FOLDER}/multi-user.target.wants/{wire.RESTORE_UNIT}", path


def _stale_support(host: Host) -> bool:
    link, target = _support_link()
    is_linked = host.disk_link(link) == target
    return not is_linked or any(host.digest(path) != sha256(data) for path, data in _support(host).items())


def _bring_support(host: Host) -> None:
    if not services.has_systemd(host):
        return
    for path, data in _support(host).items():
        if host.digest(path) != sha256(data):
            host.put_file(path, data, 0o600 if path == wire.AGENT else 0o644)
    link, target = _support_link()
    if host.disk_link(link) != target:
        host.put_link(link, target)


def _remove_support(host: Host) -> None:
    link, target = _support_link()
    removed = [host.remove_file(path) for path in (link, target, wire.AGENT)]
    host.remove_folder(wire.FOLDER)
    host.remove_folder(wire.RUN_FOLDER)
    if any(removed) and services.has_systemd(host):
        programs.systemctl(host, "daemon-reload")


def _require(host: Host, function: NetworkFunction) -> None:
    needed = dict.fromkeys((*function.needs, "ip", *(["ovs-vsctl"] if function.ports else [])))
    missing = [one for one in needed if host.find_program(one) is None]
    if missing:
        raise Problem(
            ProblemCode.PROGRAM_MISSING,
            f"this host cannot have a {function.kind}: it has no {', '.join(missing)}",
            path=missing[0],
            hint=f"install {', '.join(missing)} on the host; its own service need not run",
        )
    if function.ports and not ovn.is_running(host, "switch"):
        message = f"this host cannot have a {function.kind}: Open vSwitch does not run"
        raise Problem(ProblemCode.SWITCH_NOT_RUNNING, message, path=ovn.DATABASE)


def _check_name(name: str) -> None:
    if not wire.NAME.fullmatch(name):
        raise Problem(ProblemCode.BAD_FUNCTION, f"{name!r} cannot be the name of a network function")


def _check(function: NetworkFunction) -> None:
    """Refuse names that could lead out of the function's folder or namespace."""
    wrong: List[str] = [one.interface for one in function.ports if not wire.INTERFACE.fullmatch(one.interface)]
    wrong += [one for one in function.links if not wire.INTERFACE.fullmatch(one)]
    wrong += [one.name for one in function.files if not wire.FILE_NAME.fullmatch(one.name)]
    wrong += [one.name for one in function.programs if not wire.NAME.fullmatch(one.name)]
    wrong += [words[0] if words else "" for words in _words_of(function) if not words or not words[0]]
    for names in ([one.interface for one in function.ports], [one.name for one in function.files]):
        wrong += [one for one in names if names.count(one) > 1]
    if wrong:
        raise Problem(ProblemCode.BAD_FUNCTION, f"a {function.kind} cannot have a part named {wrong[0]!r}")


def _words_of(function: NetworkFunction) -> List[Sequence[str]]:
    return [*(one.argv for one in function.commands), *(one.argv for one in function.programs)]
