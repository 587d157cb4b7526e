# SPDX-License-Identifier: Apache-2.0
"""The health of GPUs: config space and BARs of sysfs, memory errors by NVML, Xids of the kernel's log."""

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from vgpuctl.agent.facts import nvidia, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.kernel_lines import read_driver_failures, read_xid
from vgpuctl.agent.nvml import Nvml, text
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.health import (
    Bar,
    DriverFailure,
    EccErrors,
    GpuHealth,
    HostHealth,
    RemappedRows,
    RetiredPages,
    Xid,
)
from vgpuctl.agent.wire.values import dataclass, field, replace

T = TypeVar("T")
_XIDS_AT_MOST = 64
_TEXT_AT_MOST = 200
_FAILURES_AT_MOST = 8
_CONFIG_HEADER_BYTES = 64
_FIRST_BAR_REGISTER = 0x10
_BARS = 6
_REGISTER_FLAGS = 0xF
# Linux include/linux/ioport.h
_IORESOURCE_MEM, _IORESOURCE_MEM_64, _IORESOURCE_UNSET = 0x200, 0x100000, 0x20000000
# open-gpu-kernel-modules nvrm_registry.h: 0, the default, clears framebuffer that is freed.
_SCRUB_OFF = re.compile(r"RMDisableScrubOnFree=(?:0x)?0*[1-9a-fA-F]", re.IGNORECASE)
_PARAMETERS = f"{nvidia.PROC}/params"


def read(host: Host) -> HostHealth:
    """Read the health of every GPU. A value that cannot be read is a sentence in `unread`. Raises Problem."""
    unread: List[str] = []
    read_at_s = host.monotonic()
    log = _read_log(host, unread)
    gpus = tuple(
        replace(
            _read_gpu(host, function),
            xids=log.xids.get(function.address.rpartition(".")[0], ()),
            driver_failures=log.driver_failures.get(function.address, ()),
        )
        for function in _find_gpus(host, unread)
    )
    if any(gpu.driver == nvidia.DRIVER for gpu in gpus):
        told, problem = _ask_nvml(host)
        gpus = tuple(_with_nvml(gpu, told, problem) for gpu in gpus)
    return HostHealth(
        boot_id=host.read("/proc/sys/kernel/random/boot_id").strip(),
        gpus=gpus,
        read_at_s=read_at_s,
        log_begins_s=log.begins_s,
        scrubs_memory=_read_scrubbing(host, unread),
        unread=tuple(unread),
    )


def _find_gpus(host: Host, unread: List[str]) -> List[pci.Function]:
    found = []
    for address in pci.read_addresses(host):
        try:
            function = pci.read_gpu(host, address)
        except Problem as problem:
            unread.append(problem.message)
            continue
        if function is not None:
            found.append(function)
    return found


def _read_gpu(host: Host, function: pci.Function) -> GpuHealth:
    unread: List[str] = []

    def part(read: Callable[[], T], missing: T) -> T:
        try:
            return read()
        except (Problem, ValueError) as problem:
            unread.append(f"{function.address}: {problem}")
            return missing

    address = function.address
    header = part(lambda: _read_header(host, address), b"")
    no_information: Dict[str, str] = {}
    information = part(lambda: nvidia.read_information(host, address), no_information)
    return GpuHealth(
        address=address,
        kernel_ids=f"{function.vendor_id}:{function.device_id}",
        config_ids=f"{_word(header, 0):04x}:{_word(header, 2):04x}" if header else None,
        driver=function.driver,
        bars=part(lambda: _read_bars(host, address, header), ()),
        reset_methods=part(lambda: pci.read_reset_methods(host, address), ()),
        uuid=nvidia.uuid_of(information),
        vbios=information.get("Video BIOS"),
        unread=tuple(unread),
    )


def _read_header(host: Host, address: str) -> bytes:
    """Return the standard header of the config space. Raises Problem, or ValueError when it is cut short."""
    path = f"{pci.folder(address)}/config"
    header = host.read_head(path, _CONFIG_HEADER_BYTES)
    if len(header) < _CONFIG_HEADER_BYTES:
        raise ValueError(f"{path} ends after {len(header)} bytes")
    return header


def _read_bars(host: Host, address: str, header: bytes) -> Tuple[Bar, ...]:
    """Return the memory BARs. One without an address, or whose register has lost it, is not assigned."""
    lines = host.read(f"{pci.folder(address)}/resource").splitlines()[:_BARS]
    found = []
    for number, line in enumerate(lines):
        start, end, flags = (int(word, 16) for word in line.split())
        if not flags & _IORESOURCE_MEM or end <= start:
            continue
        place = _FIRST_BAR_REGISTER + 4 * number
        width = 8 if flags & _IORESOURCE_MEM_64 else 4
        register = int.from_bytes(header[place : place + width], "little") & ~_REGISTER_FLAGS
        is_assigned = bool(start) and not flags & _IORESOURCE_UNSET and (not header or bool(register))
        found.append(Bar(number, end - start + 1, is_assigned))
    return tuple(found)


def _word(header: bytes, place: int) -> int:
    return int.from_bytes(header[place : place + 2], "little")


@dataclass(frozen=True)
class _Log:
    """The kernel's log. begins_s: the time of its oldest line. xids: by bus id without function."""

    begins_s: float = 0.0
    xids: Mapping[str, Tuple[Xid, ...]] = field(default_factory=dict)
    driver_failures: Mapping[str, Tuple[DriverFailure, ...]] = field(default_factory=dict)


def _read_log(host: Host, unread: List[str]) -> _Log:
    try:
        records = host.kernel_records()
    except Problem as problem:
        unread.append(f"the kernel's log cannot be read, so Xids are unknown: {problem.message}")
        return _Log()
    if records is None:
        unread.append("the kernel's log /dev/kmsg cannot be read, so Xids are unknown")
        return _Log()
    found: Dict[str, List[Xid]] = {}
    for at_s, line in records:
        xid = read_xid(line)
        if xid is not None:
            found.setdefault(xid.bus, []).append(Xid(xid.code, at_s, xid.text[:_TEXT_AT_MOST]))
    failures = {
        device: tuple(DriverFailure(at_s, text[:_TEXT_AT_MOST]) for at_s, text in every[-_FAILURES_AT_MOST:])
        for device, every in read_driver_failures(records).items()
    }
    xids = {bus: _last_of(one) for bus, one in found.items()}
    return _Log(records[0][0] if records else 0.0, xids, failures)


def _last_of(xids: List[Xid]) -> Tuple[Xid, ...]:
    """Return the last Xids, and the last one of each code: a guest that floods the log with its own hides no other."""
    last = {xid.code: number for number, xid in enumerate(xids)}
    kept = {*range(len(xids))[-_XIDS_AT_MOST:], *sorted(last.values())[-_XIDS_AT_MOST:]}
    return tuple(xids[number] for number in sorted(kept))


def _read_scrubbing(host: Host, unread: List[str]) -> Optional[bool]:
    try:
        parameters = host.read_optional(_PARAMETERS)
    except Problem as problem:
        unread.append(problem.message)
        return None
    return None if parameters is None else _SCRUB_OFF.search(parameters) is None


def _ask_nvml(host: Host) -> Tuple[Dict[str, GpuHealth], Optional[str]]:
    """Return what NVML says by address, in values that have nothing else, and why it says nothing at all."""
    nvml, problem = Nvml.open(host)
    if nvml is None:
        return {}, problem
    found: Dict[str, GpuHealth] = {}
    with nvml:
        library = nvml.library
        try:
            count = library.nvmlDeviceGetCount()
        except library.NVMLError as error:
            return {}, f"NVML does not count the GPUs: {error}"
        for index in range(count):
            try:
                device = library.nvmlDeviceGetHandleByIndex(index)
                address = normalise_bus_id(text(library.nvmlDeviceGetPciInfo(device).busId) or "")
            except library.NVMLError:
                # The card is then missing among those found, and _with_nvml notes it as unread.
                continue
            found[address] = _Questions(library, device, address).ask()
    return found, None


def _with_nvml(gpu: GpuHealth, told: Dict[str, GpuHealth], problem: Optional[str]) -> GpuHealth:
    if gpu.driver != nvidia.DRIVER:
        return gpu
    one = told.get(gpu.address)
    if one is None:
        said = problem or "NVML does not show it"
        return replace(gpu, unread=(*gpu.unread, f"{gpu.address}: {said}"))
    return replace(
        gpu,
        uuid=one.uuid or gpu.uuid,
        vbios=one.vbios or gpu.vbios,
        volatile=one.volatile,
        aggregate=one.aggregate,
        remapped=one.remapped,
        retired=one.retired,
        nvml_state=one.nvml_state,
        unread=(*gpu.unread, *one.unread),
    )


class _Questions:
    """Asks NVML for one GPU. A function that this GPU or library lacks is None; any other refusal is noted."""

    def __init__(self, library: Any, device: Any, address: str) -> None:
        self._library = library
        self._device = device
        self._address = address
        self._unread: List[str] = []
        self._state: Optional[str] = None

    def ask(self) -> GpuHealth:
        """Ask for everything."""
        library, device = self._library, self._device
        volatile = self._errors("volatile", library.NVML_VOLATILE_ECC)
        aggregate = self._errors("aggregate", library.NVML_AGGREGATE_ECC)
        rows = self._part("the remapped rows", lambda: library.nvmlDeviceGetRemappedRows(device))
        return GpuHealth(
            address=self._address,
            kernel_ids="",
            config_ids=None,
            driver=nvidia.DRIVER,
            uuid=text(self._part("the UUID", lambda: library.nvmlDeviceGetUUID(device))),
            vbios=text(self._part("the VBIOS version", lambda: library.nvmlDeviceGetVbiosVersion(device))),
            volatile=volatile,
            aggregate=aggregate,
            remapped=None if rows is None else RemappedRows(int(rows[0]), int(rows[1]), bool(rows[2]), bool(rows[3])),
            retired=self._part("the retired pages", self._retired),
            nvml_state=self._state,
            unread=tuple(self._unread),
        )

    def _errors(self, name: str, counter: int) -> Optional[EccErrors]:
        library, device = self._library, self._device
        kinds = (library.NVML_MEMORY_ERROR_TYPE_CORRECTED, library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        return self._part(
            f"the {name} memory errors",
            lambda: EccErrors(*(int(library.nvmlDeviceGetTotalEccErrors(device, kind, counter)) for kind in kinds)),
        )

    def _retired(self) -> RetiredPages:
        library, device = self._library, self._device
        causes = (
            library.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
            library.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
        )
        single, double = (len(library.nvmlDeviceGetRetiredPages(device, cause)) for cause in causes)
        return RetiredPages(single, double, bool(library.nvmlDeviceGetRetiredPagesPendingStatus(device)))

    def _part(self, what: str, read: Callable[[], T]) -> Optional[T]:
        library = self._library
        try:
            return read()
        except library.NVMLError as error:
            states = {library.NVML_ERROR_GPU_IS_LOST: "lost", library.NVML_ERROR_RESET_REQUIRED: "reset-required"}
            self._state = states.get(error.value, self._state)
            absent = (library.NVML_ERROR_NOT_SUPPORTED, library.NVML_ERROR_FUNCTION_NOT_FOUND)
            if error.value not in (*absent, *states):
                self._unread.append(f"{self._address}: NVML does not tell {what}: {error} (NVML {error.value})")
            return None
