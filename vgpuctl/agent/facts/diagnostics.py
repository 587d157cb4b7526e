# SPDX-License-Identifier: Apache-2.0
"""Diagnostics beside the facts: log lines, Secure Boot, units, ECC (reference 9)."""

import json
import re
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, TypeVar

from vgpuctl.agent import fabric_manager, kernel_lines
from vgpuctl.agent.facts import (
    fabric,
    guests_at_shutdown,
    iommu,
    nvidia,
    ovn,
    pci,
    pools,
    qemu_logs,
    selinux,
    sriov_health,
)
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import guarded
from vgpuctl.agent.nvml import Nvml
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.diagnostics import (
    AUDIT,
    KERNEL,
    LIBVIRT_DAEMONS,
    LOG_PATTERNS,
    MANAGER,
    QEMU,
    GpuDiagnostics,
    HostDiagnostics,
    LogLine,
    LogPattern,
    UnitDiagnostics,
)
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

T = TypeVar("T")
_UNITS = (
    "nvidia-vgpu-mgr.service",
    "nvidia-vgpud.service",
    "nvidia-fabricmanager.service",
    *(f"{daemon}.{kind}" for daemon in LIBVIRT_DAEMONS for kind in ("service", "socket")),
)
_TIMEOUT_S = 20.0
_LINES_PER_CHECK = 5
_FIRMWARE = "/sys/firmware/efi"
_PROXMOX = ("/etc/pve", "/usr/bin/pveversion")
_AUDIT_LOG = "/var/log/audit/audit.log"
_AUDIT_TIME = re.compile(r"msg=audit\((\d{1,18})")
_BOOTED = re.compile(r"^btime (\d{1,18})$", re.MULTILINE)
# Five bytes: the variable's attributes and its value. UEFI 2.10, section 3.3; global variables.
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_ADDRESS_SIZES = re.compile(r"^address sizes\s*:\s*(\d{1,18}) bits physical", re.MULTILINE)


@dataclass(frozen=True)
class _Sign:
    """A pattern that is ready to search with."""

    pattern: LogPattern
    finds: "re.Pattern[str]"
    ended_by: "Optional[re.Pattern[str]]"


_SIGNS = tuple(
    _Sign(
        one,
        re.compile(one.pattern, re.IGNORECASE),
        None if one.ended_by is None else re.compile(one.ended_by, re.IGNORECASE),
    )
    for one in LOG_PATTERNS
)


def read(host: Host) -> HostDiagnostics:
    """Read all diagnostics; for a part that cannot be read there is a sentence in `unread`.

    Raises Problem where the list of PCI functions cannot be read.
    """
    unread: List[str] = []

    def part(what: str, read_one: Callable[[], T], missing: T) -> T:
        return guarded(unread, what, read_one, missing)

    addresses = pci.read_addresses(host)
    functions = [part(address, partial(pci.read, host, address), None) for address in addresses]
    gpus = [one.address for one in functions if one is not None and one.is_gpu()]
    untold: Dict[str, Dict[str, Any]] = {}
    nothing: Tuple[str, ...] = ()
    told = part("ECC by NVML", lambda: _ask_nvml(host), untold)
    lines = find_lines(KERNEL, part("the kernel's log", host.whole_kernel_log, nothing))
    lines += find_lines(AUDIT, part("the audit daemon's log", lambda: tuple(_audit_lines(host)), nothing))
    logs = list(qemu_logs.read(host, unread))
    lines += _manager_lines(host, unread)
    lines += [found for vm, said, _begins in logs for found in find_lines(QEMU, said, source=vm)]
    unknown: Optional[int] = None
    return HostDiagnostics(
        gpus=tuple(
            part(address, partial(_read_gpu, host, address, told.get(address, {})), GpuDiagnostics(address))
            for address in gpus
        ),
        lines=tuple(lines),
        units=_read_units(host, unread),
        nvidia_module=part("the kernel's modules", lambda: _has_module(host), None),
        secure_boot=part("Secure Boot", lambda: _read_secure_boot(host), None),
        fabric_mode=part("Fabric Manager's mode", lambda: fabric.read_mode(host), unknown),
        fabric_version=part("Fabric Manager's version", lambda: fabric_manager.read_version(host), None),
        address_bits=part("the CPU's addresses", lambda: _read_address_bits(host), unknown),
        ovn=part("OVN", lambda: ovn.read_diagnostics(host), None),
        pool_labels=part("the labels of storage pools", lambda: selinux.read_pools(host, unread), ()),
        pool_spaces=part("the room of storage pools", lambda: pools.read_rooms(host, unread).spaces, ()),
        guests_at_shutdown=part("libvirt-guests", lambda: guests_at_shutdown.read(host), None),
        is_proxmox=part("Proxmox", lambda: any(host.exists(path) for path in _PROXMOX), False),
        sriov_boards=part("the list of sriov-manage", lambda: _read_boards(host), None),
        unread=tuple(unread),
        qemu_logs=tuple(sorted(vm for vm, _said, begins in logs if begins)),
    )


def _read_address_bits(host: Host) -> Optional[int]:
    bits = _ADDRESS_SIZES.search(host.read_optional("/proc/cpuinfo") or "")
    return int(bits[1]) if bits else None


def _read_boards(host: Host) -> Optional[Tuple[str, ...]]:
    known = sriov_health.known_boards(host)
    return None if known is None else tuple(known)


def find_lines(log: str, lines: Iterable[str], *, source: Optional[str] = None) -> List[LogLine]:
    """Return the signs for each check that the log can have, in the log's order: of each device the last few texts.

    A sign that a later line of the same device ended is none.
    """
    found: List[LogLine] = []
    for sign in _SIGNS:
        if log not in sign.pattern.logs:
            continue
        # By device, then by the part of it that the line speaks of.
        open_signs: Dict[Tuple[Optional[str], Optional[str]], Dict[str, None]] = {}
        for line in lines:
            ended = sign.ended_by.search(line) if sign.ended_by is not None else None
            if ended is not None:
                device, part = kernel_lines.device_of(line), ended.groupdict().get("what")
                for key in ((device, part), (None, part)):
                    open_signs.pop(key, None)
                continue
            match = sign.finds.search(line)
            if match is not None:
                key = kernel_lines.device_of(line), match.groupdict().get("what")
                open_signs.setdefault(key, {})[line.strip()] = None
        for (device, _part), texts in open_signs.items():
            of = device if sign.pattern.of_any_device else None
            found += [LogLine(sign.pattern.check, source or log, one, of) for one in list(texts)[-_LINES_PER_CHECK:]]
    return found


def _read_gpu(host: Host, address: str, told: Dict[str, Any]) -> GpuDiagnostics:
    group = iommu.read_group(host, address)
    card = (address, *(other.address for other in pci.read_companions(host, address)))
    # A VF has a group of its own, or shares that of its card where ACS is missing.
    vfs = tuple(name for name in iommu.read_members(host, group) if host.exists(f"{pci.folder(name)}/physfn"))
    has_driver = pci.read_driver(host, address) == nvidia.DRIVER
    return GpuDiagnostics(
        address,
        strangers=tuple(iommu.find_strangers(host, iommu.read_members(host, group), (*card, *vfs))),
        unbind_lock=host.exists(f"{nvidia.PROC}/gpus/{address}/unbindLock") if has_driver else None,
        ecc_current=told.get("ecc_current"),
        ecc_pending=told.get("ecc_pending"),
    )


def _ask_nvml(host: Host) -> Dict[str, Dict[str, Any]]:
    """NVML's values by address, without those that this library or GPU lacks."""
    found: Dict[str, Dict[str, Any]] = {}
    nvml, _problem = Nvml.open(host)
    if nvml is None:
        return found
    with nvml:
        found.update(_ask_gpus(nvml.library))
    return found


def _ask_gpus(library: Any) -> Dict[str, Dict[str, Any]]:
    found: Dict[str, Dict[str, Any]] = {}
    try:
        count = library.nvmlDeviceGetCount()
    except (library.NVMLError, AttributeError):
        return found
    for index in range(count):
        try:
            device = library.nvmlDeviceGetHandleByIndex(index)
            bus_id = library.nvmlDeviceGetPciInfo(device).busId
        except library.NVMLError:
            # The facts name a GPU that does not answer; it must not hide the diagnostics of the others.
            continue
        name = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
        found[normalise_bus_id(name)] = _ask_ecc(library, device)
    return found


def _ask_ecc(library: Any, device: Any) -> Dict[str, Any]:
    try:
        current, pending = library.nvmlDeviceGetEccMode(device)
    except (library.NVMLError, AttributeError):
        return {}
    return {"ecc_current": bool(current), "ecc_pending": bool(pending)}


def _read_units(host: Host, unread: List[str]) -> Tuple[UnitDiagnostics, ...]:
    properties = ["--property=Id,LoadState,ActiveState,Result"]
    try:
        done = host.run(["systemctl", "show", *properties, "--", *_UNITS], timeout_s=_TIMEOUT_S)
    except Problem as problem:
        if problem.code != ProblemCode.PROGRAM_MISSING:
            unread.append(problem.message)
        return ()
    found = {}
    # One paragraph for each unit, in the order of the arguments; Id is another name where a unit has an alias.
    paragraphs = done.output.strip("\n").split("\n\n")
    for name, paragraph in zip(_UNITS, paragraphs) if len(paragraphs) == len(_UNITS) else ():
        says = dict(line.split("=", 1) for line in paragraph.splitlines() if "=" in line)
        if "LoadState" in says and "ActiveState" in says:
            found[name] = UnitDiagnostics(name, says["LoadState"], says["ActiveState"], says.get("Result", ""))
    if done.status == 0 and len(found) < len(_UNITS):
        unread.append("systemctl does not show every unit that was asked for")
    return tuple(found.values()) if done.status == 0 else ()


def _audit_lines(host: Host) -> List[str]:
    """The audit daemon's records of this boot; where it runs, the kernel's log has no denials of SELinux."""
    booted = _BOOTED.search(host.read_optional("/proc/stat") or "")
    since = int(booted[1]) if booted else 0
    found = []
    for line in host.read_tail(_AUDIT_LOG).splitlines():
        time = _AUDIT_TIME.search(line)
        if time and int(time[1]) >= since:
            found.append(line)
    return found


def _manager_lines(host: Host, unread: List[str]) -> List[LogLine]:
    argv = ["journalctl", "--unit=nvidia-vgpu-mgr", "--boot", "--lines=500", "--output=json", "--no-pager", "--quiet"]
    try:
        done = host.run(argv, timeout_s=_TIMEOUT_S)
    except Problem as problem:
        if problem.code != ProblemCode.PROGRAM_MISSING:
            unread.append(problem.message)
        return []
    return find_lines(MANAGER, _messages(done.output))


def _messages(journal: str) -> List[str]:
    """The first line of each message: a later one can be text that a guest's driver told the manager."""
    found = []
    for line in journal.splitlines():
        try:
            message = json.loads(line)["MESSAGE"]
        except (ValueError, KeyError, TypeError):
            continue
        # Not UTF-8: journalctl tells the bytes as numbers.
        text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
        found.append(text.partition("\n")[0])
    return found


def _has_module(host: Host) -> Optional[bool]:
    """True if depmod's list of the running kernel has NVIDIA's module; None without such a list."""
    kernel = host.read("/proc/sys/kernel/osrelease").strip()
    listed = host.read_optional(f"/lib/modules/{kernel}/modules.dep")
    if listed is None:
        return None
    return re.search(r"/nvidia\.ko(?:\.\w+)?:", listed) is not None


def _read_secure_boot(host: Host) -> Optional[bool]:
    """True if it is on; never on a machine that a BIOS has started, None where the firmware's variable says nothing."""
    if not host.exists(_FIRMWARE):
        return False
    try:
        value = host.read_optional(_SECURE_BOOT)
    except Problem:
        return None
    return None if not value else value[-1] == "\x01"
