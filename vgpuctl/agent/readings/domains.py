# SPDX-License-Identifier: Apache-2.0
"""Running domains from libvirt's own files: one for each in /run/libvirt/qemu, which costs no program and no call."""

import re
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.values import dataclass

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

FOLDER = "/run/libvirt/qemu"
# The namespace of our metadata (vgpuctl/guests/domain/metadata.py).
_NAMESPACE = "urn:vgpuctl:domain:1"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TENANT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DOMAINS_AT_MOST, _BYTES_AT_MOST, _NAME_AT_MOST = 1024, 1 << 20, 256
_DEVICE_AT_MOST = 15


@dataclass(frozen=True)
class RunningDomain:
    """One domain of which libvirt keeps a file. pid: of its QEMU. tenant: None for a foreign domain.

    functions: the host's PCI functions that it takes, in the order of their addresses in the guest. page_kib: the size
    of its huge pages; 0 for the host's usual size, None where its memory is not in huge pages of one size. ports:
    device and OVN's port of each interface that Open vSwitch carries.
    """

    uuid: str
    name: str
    pid: Optional[int] = None
    tenant: Optional[str] = None
    functions: Tuple[str, ...] = ()
    page_kib: Optional[int] = None
    ports: Tuple[Tuple[str, str], ...] = ()


_Stamp = Tuple[int, int, int]
# The content of the files, by root and path: an agent that serves for months parses a file only after a change.
_known: Dict[Tuple[str, str], Tuple[_Stamp, Optional[RunningDomain]]] = {}


def read(host: Host, unread: List[str]) -> Dict[str, RunningDomain]:
    """Return the running domains by name; one whose file cannot be understood is a sentence in `unread`."""
    try:
        names = host.listdir_optional(FOLDER) or []
    except Problem as problem:
        unread.append(problem.message)
        return {}
    files = [name for name in names if name.endswith(".xml")]
    if len(files) > _DOMAINS_AT_MOST:
        unread.append(f"{FOLDER} has {len(files)} files; the first {_DOMAINS_AT_MOST} are read")
    found: Dict[str, RunningDomain] = {}
    if len(_known) > _DOMAINS_AT_MOST:
        _known.clear()
    for name in files[:_DOMAINS_AT_MOST]:
        try:
            domain = _read_if_changed(host, f"{FOLDER}/{name}")
        except Problem as problem:
            unread.append(problem.message)
            continue
        if domain is not None:
            found[domain.name] = domain
    return found


def _read_if_changed(host: Host, path: str) -> Optional[RunningDomain]:
    """Read one file unless it is as before. Raises Problem."""
    stamp = host.stamp(path)
    if stamp is None:
        return None
    known = _known.get((host.root, path))
    if known is None or known[0] != stamp:
        known = _known[host.root, path] = (stamp, _read_one(host, path))
    return known[1]


def _read_one(host: Host, path: str) -> Optional[RunningDomain]:
    """Read one file, None if the domain has ended meanwhile, or the file is of something else. Raises Problem."""
    from xml.etree import ElementTree

    from vgpuctl.agent.wire.problem_codes import ProblemCode

    data = host.read_bytes(path)
    if data is None:
        return None
    # libvirt writes no document type; one could make a small file large.
    if len(data) > _BYTES_AT_MOST or b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise Problem(ProblemCode.UNREADABLE, f"{path} is no file of libvirt: {len(data)} bytes", path=path)
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        # The last two come of an encoding that the parser does not know.
        raise Problem(ProblemCode.UNREADABLE, f"{path} cannot be understood: {error}", path=path) from error
    domain = root.find("domain")
    if root.tag != "domstatus" or domain is None:
        return None
    uuid, name = (domain.findtext("uuid") or "").lower(), domain.findtext("name") or ""
    if not _UUID.fullmatch(uuid) or not 0 < len(name) <= _NAME_AT_MOST:
        return None
    pid = root.get("pid", "")
    ours = domain.find(f"metadata/{{{_NAMESPACE}}}vm")
    tenant = None if ours is None else ours.get("tenant", "")
    return RunningDomain(
        uuid,
        name,
        int(pid) if pid.isdecimal() and len(pid) < 10 else None,
        tenant if tenant and _TENANT.fullmatch(tenant) else None,
        _functions(domain),
        _page_kib(domain),
        _ports(domain),
    )


def _page_kib(domain: "Element") -> Optional[int]:
    backing = domain.find("memoryBacking/hugepages")
    if backing is None:
        return None
    # libvirt writes KiB, whatever unit the definition had.
    sizes = {(page.get("size", ""), page.get("unit", "KiB")) for page in backing.iterfind("page")} or {("0", "KiB")}
    size, unit = min(sizes)
    return int(size) if len(sizes) == 1 and unit == "KiB" and size.isdecimal() and len(size) < 10 else None


def _ports(domain: "Element") -> Tuple[Tuple[str, str], ...]:
    found = []
    for interface in domain.iterfind("devices/interface"):
        target, parameters = interface.find("target"), interface.find("virtualport[@type='openvswitch']/parameters")
        device = "" if target is None else target.get("dev", "")
        port = "" if parameters is None else parameters.get("interfaceid", "").lower()
        if 0 < len(device) <= _DEVICE_AT_MOST and _UUID.fullmatch(port):
            found.append((device, port))
    return tuple(found)


def _functions(domain: "Element") -> Tuple[str, ...]:
    found = []
    for device in domain.iterfind("devices/hostdev[@type='pci']"):
        source, guest = _address(device.find("source/address")), _address(device.find("address"))
        if source is not None:
            found.append((guest or "", source))
    return tuple(source for _, source in sorted(found))


def _address(element: "Optional[Element]") -> Optional[str]:
    if element is None:
        return None
    try:
        parts = [int(element.get(part, "0"), 0) for part in ("domain", "bus", "slot", "function")]
    except ValueError:
        return None
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)
