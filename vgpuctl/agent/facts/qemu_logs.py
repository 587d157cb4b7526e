# SPDX-License-Identifier: Apache-2.0
"""QEMU's own messages in the logs of VMs, never a guest's output.

Logs of guests' consoles are in the same folder as QEMU's `NAME.log`. Their names end alike, and the guest chooses
their text.
"""

import re
from typing import Iterator, List, Set, Tuple
from xml.etree import ElementTree

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem

FOLDER = "/var/log/libvirt/qemu"
# Definitions, and the state of what runs: libvirt writes both, in folders of root's.
DEFINITIONS = ("/etc/libvirt/qemu", "/run/libvirt/qemu")
# QEMU leads its messages with a time (`-msg timestamp=on`) and its own name; its command line is in the log too.
# What it says during a command of libvirt, as when it loads a state, has neither: VFIO begins it with the device.
_SPOKEN = re.compile(
    r"^(?:(?:\S+ )?(?:\S*/)?(?:qemu-system-\w+|qemu-kvm|kvm)(?:\[\d+\])?"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
)
_TIMED = re.compile(r"^\d{4}-\d\d-\d\d")
_START = re.compile(r"^(\d{4}-\d\d-\d\d \S+): starting up libvirt version: ")


def read(host: Host, unread: List[str]) -> Iterator[Tuple[str, List[str], bool]]:
    """Yield (VM, QEMU's own lines since its last start, whether that is in the log); what cannot be read is a sentence
    in `unread`.

    Only of domains that libvirt has, because a file that no domain explains may be a console's.
    """
    try:
        names = host.listdir_optional(FOLDER) or []
        domains, of_guests = _read_definitions(host, unread)
    except Problem as problem:
        unread.append(problem.message)
        return
    for name in names:
        path, domain = f"{FOLDER}/{name}", name[: -len(".log")]
        if name.endswith(".log") and domain in domains and path not in of_guests:
            lines = host.read_tail(path).splitlines()
            yield domain, _since_start(lines), any(_START.match(line) for line in lines)


def _since_start(lines: List[str]) -> List[str]:
    """QEMU's own lines. One without a time gets its place in the log, by which it differs from one of equal words."""
    start, place, said = "", 0, []  # type: str, int, List[str]
    for line in lines:
        place += 1
        begun = _START.match(line)
        if begun is not None:
            start, place, said = f" of {begun.group(1)}", 0, []
        elif _SPOKEN.match(line):
            said.append(line if _TIMED.match(line) else f"{line} (line {place} since the start{start})")
    return said


def _read_definitions(host: Host, unread: List[str]) -> Tuple[Set[str], Set[str]]:
    """Return the domains' names and every path in their definitions: of consoles, disks, sockets. Raises Problem."""
    domains: Set[str] = set()
    paths: Set[str] = set()
    for folder in DEFINITIONS:
        for name in host.listdir_optional(folder) or []:
            if not name.endswith(".xml"):
                continue
            text = host.read_optional(f"{folder}/{name}")
            if text is None:
                continue
            try:
                values = [value for one in ElementTree.fromstring(text).iter() for value in one.attrib.values()]
            except ElementTree.ParseError as error:
                unread.append(f"{folder}/{name} cannot be read: {error}; the VM's log is left out")
                continue
            domains.add(name[: -len(".xml")])
            paths.update(value for value in values if value.startswith("/"))
    return domains, paths
