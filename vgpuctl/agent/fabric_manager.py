# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager through its SDK, libnvfm.so.1: partitions of the NVSwitch fabric, and devices with failed NVLinks.

The structures are those of the Fabric Manager user guide; each begins with its size and, in the highest byte, its
version. Codes become Problems. Which partitions a board has is asked, never known.
"""

import ctypes
import re
from types import TracebackType
from typing import Any, Dict, Optional, Sequence, Tuple, Type

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.fabric import FabricGpu, FabricPartition, FailedDevice
from vgpuctl.agent.wire.problem_codes import ProblemCode

CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
SERVICE = "nvidia-fabricmanager"
TIMEOUT_MS = 5000
_PROGRAM = "nv-fabricmanager"
_DRIVER_VERSION = "/sys/module/nvidia/version"
_SETTING = re.compile(r"^[ \t]*([A-Z_]+)[ \t]*=[ \t]*(\S*)", re.MULTILINE)
_VERSION = re.compile(r"version is\s*:\s*([0-9.]+)")
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_MOST_GPUS, _MOST_SWITCHES, _MOST_PARTITIONS, _MOST_PORTS = 16, 12, 64, 64
_INET, _UNIX = 1, 2
_OK, _BAD_PARAMETER, _UNINITIALIZED, _NOT_VALID = 0, -1, -4, -9
# The guide knows FM_ST_IN_USE alone, for both; the header has a code of its own for each.
_IN_USE = (-7, -12, -16, -17, -23, -24)
_INACTIVE = (_UNINITIALIZED, -18)


class ConnectParameters(ctypes.Structure):
    """fmConnectParams_v2."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("addressInfo", ctypes.c_char * 256),
        ("timeoutMs", ctypes.c_uint),
        ("addressIsUnixSocket", ctypes.c_uint),
        ("addressType", ctypes.c_uint),
    ]


class PciDevice(ctypes.Structure):
    """fmPciDevice_t."""

    _fields_ = [(name, ctypes.c_uint) for name in ("domain", "bus", "device", "function")]


class GpuInfo(ctypes.Structure):
    """fmFabricPartitionGpuInfo_t."""

    _fields_ = [
        ("physicalId", ctypes.c_uint),
        ("uuid", ctypes.c_char * 80),
        ("pciBusId", ctypes.c_char * 32),
        ("numNvLinksAvailable", ctypes.c_uint),
        ("maxNumNvLinks", ctypes.c_uint),
        ("nvlinkLineRateMBps", ctypes.c_uint),
    ]


class PartitionInfo(ctypes.Structure):
    """fmFabricPartitionInfo_t."""

    _fields_ = [
        ("partitionId", ctypes.c_uint),
        ("isActive", ctypes.c_uint),
        ("numGpus", ctypes.c_uint),
        ("gpuInfo", GpuInfo * _MOST_GPUS),
    ]


class PartitionList(ctypes.Structure):
    """fmFabricPartitionList_v2, whose version is 1."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("numPartitions", ctypes.c_uint),
        ("maxNumPartitions", ctypes.c_uint),
        ("partitionInfo", PartitionInfo * _MOST_PARTITIONS),
    ]


class ActivatedList(ctypes.Structure):
    """fmActivatedFabricPartitionList_v1."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("numPartitions", ctypes.c_uint),
        ("partitionIds", ctypes.c_uint * _MOST_PARTITIONS),
    ]


class FailedDeviceInfo(ctypes.Structure):
    """fmNvlinkFailedDeviceInfo_t."""

    _fields_ = [
        ("uuid", ctypes.c_char * 80),
        ("pciBusId", ctypes.c_char * 32),
        ("numPorts", ctypes.c_uint),
        ("portNum", ctypes.c_uint * _MOST_PORTS),
    ]


class FailedDevices(ctypes.Structure):
    """fmNvlinkFailedDevices_v1."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("numGpus", ctypes.c_uint),
        ("numSwitches", ctypes.c_uint),
        ("gpuInfo", FailedDeviceInfo * _MOST_GPUS),
        ("switchInfo", FailedDeviceInfo * _MOST_SWITCHES),
    ]


def read_settings(host: Host) -> Dict[str, str]:
    """Return Fabric Manager's configuration, empty where it has none. Of two values the last counts. Raises Problem."""
    return dict(_SETTING.findall(host.read_optional(CONFIG) or ""))


def read_version(host: Host) -> Optional[str]:
    """Return the version of Fabric Manager's program, None where it is not there or does not tell."""
    try:
        told = host.run([_PROGRAM, "--version"], timeout_s=10)
    except Problem:
        return None
    found = _VERSION.search(told.output + told.errors)
    return found[1] if found else None


class FabricManager:
    """A connection to the host's Fabric Manager; use it as a context manager."""

    def __init__(self, host: Host) -> None:
        """Connect. Raises Problem `fabric-…`."""
        self._host = host
        self._sdk = host.nvfm()
        self._handle = ctypes.c_void_p()
        parameters, self._where = _parameters(read_settings(host))
        self._require("opening libnvfm.so.1", self._sdk.fmLibInit())
        try:
            code = self._sdk.fmConnect(ctypes.byref(parameters), ctypes.byref(self._handle))
            self._require("connecting to Fabric Manager", code)
        except BaseException:
            self._sdk.fmLibShutdown()
            raise

    def __enter__(self) -> "FabricManager":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; what goes wrong then has no effect."""
        self._sdk.fmDisconnect(self._handle)
        self._sdk.fmLibShutdown()

    def partitions(self) -> Tuple[FabricPartition, ...]:
        """Return every partition that the board can have now. Raises Problem."""
        found = _versioned(PartitionList)
        code = self._sdk.fmGetSupportedFabricPartitions(self._handle, ctypes.byref(found))
        self._require("listing the partitions", code)
        return tuple(
            FabricPartition(
                one.partitionId, bool(one.isActive), tuple(_gpu(each) for each in one.gpuInfo[: one.numGpus])
            )
            for one in found.partitionInfo[: found.numPartitions]
        )

    def activate(self, number: int) -> None:
        """Activate a partition in FABRIC_MODE 1. Raises Problem."""
        code = self._sdk.fmActivateFabricPartition(self._handle, number)
        self._require_change(f"activating partition {number}", code, number)

    def activate_with_vfs(self, number: int, addresses: Sequence[str]) -> None:
        """Activate a partition in FABRIC_MODE 2. addresses: one VF of each GPU, in the GPUs' order. Raises Problem."""
        devices = (PciDevice * len(addresses))(*(_pci_device(one) for one in addresses))
        code = self._sdk.fmActivateFabricPartitionWithVFs(self._handle, number, devices, len(addresses))
        self._require_change(f"activating partition {number} with {', '.join(addresses)}", code, number)

    def deactivate(self, number: int) -> None:
        """Deactivate a partition. Raises Problem."""
        what, code = f"deactivating partition {number}", self._sdk.fmDeactivateFabricPartition(self._handle, number)
        if code in _INACTIVE and any(one.number == number and not one.is_active for one in self.partitions()):
            raise Problem(
                ProblemCode.FABRIC_PARTITION_INACTIVE,
                f"{what} was refused: it is not active (code {code})",
                hint="there is nothing to deactivate; Fabric Manager may have been restarted without its partitions",
            )
        self._require(what, code)

    def set_active(self, numbers: Sequence[int]) -> None:
        """Tell a Fabric Manager that was restarted which partitions were active before. Raises Problem."""
        what = f"telling it the active partitions {', '.join(str(one) for one in numbers) or '(none)'}"
        self._require(what, _BAD_PARAMETER if len(numbers) > _MOST_PARTITIONS else _OK)
        told = _versioned(ActivatedList)
        told.numPartitions = len(numbers)
        told.partitionIds[: len(numbers)] = numbers
        self._require(what, self._sdk.fmSetActivatedFabricPartitions(self._handle, ctypes.byref(told)))

    def failed_devices(self) -> Tuple[FailedDevice, ...]:
        """Return the devices whose NVLinks failed when Fabric Manager started; none is told from H100 on.

        Raises Problem.
        """
        found = _versioned(FailedDevices)
        code = self._sdk.fmGetNvlinkFailedDevices(self._handle, ctypes.byref(found))
        self._require("listing failed NVLinks", code)
        kinds = ((False, found.gpuInfo[: found.numGpus]), (True, found.switchInfo[: found.numSwitches]))
        return tuple(
            FailedDevice(
                is_switch,
                normalise_bus_id(_text(one.pciBusId)),
                _text(one.uuid),
                tuple(one.portNum[: one.numPorts]),
            )
            for is_switch, devices in kinds
            for one in devices
        )

    def _require_change(self, what: str, code: int, number: int) -> None:
        """Tell a partition that is active from one whose GPUs are taken: which code means which is not sure."""
        if code not in _IN_USE:
            self._require(what, code)
            return
        partitions = self.partitions()
        modules = {gpu.module for one in partitions if one.number == number for gpu in one.gpus}
        active = [one for one in partitions if one.is_active and any(gpu.module in modules for gpu in one.gpus)]
        if any(one.number == number for one in active):
            raise Problem(
                ProblemCode.FABRIC_PARTITION_ACTIVE,
                f"{what} was refused: it is active (code {code})",
                hint="deactivate it first where its VM has ended or has other VFs now",
            )
        others = ", ".join(str(one.number) for one in active)
        raise Problem(
            ProblemCode.FABRIC_GPU_TAKEN,
            f"{what} was refused: a GPU of it is in the active partition {others or '?'} (code {code})",
            hint="stop the VM of the other partition and deactivate it, or take a partition of other GPUs",
        )

    def _require(self, what: str, code: int) -> None:
        """Raise the Problem of a code."""
        if code == _OK:
            return
        problem, meaning, hint = _MEANINGS.get(
            code, (ProblemCode.FABRIC_REFUSED, "another error", f"read `journalctl -u {SERVICE}` and the kernel's log")
        )
        if code == _NOT_VALID:
            versions = self._different_versions()
            if versions is not None:
                problem, meaning = ProblemCode.FABRIC_VERSION_DIFFERS, versions
                hint = _SAME_VERSION
        raise Problem(problem, f"{what} at {self._where} failed: {meaning} (code {code})", hint=hint)

    def _different_versions(self) -> Optional[str]:
        """Say how its version differs from the driver's, in which case it does not start; None if it does not."""
        driver, own = (self._host.read_optional(_DRIVER_VERSION) or "").strip(), read_version(self._host)
        if not driver or own is None or own == driver:
            return None
        return f"Fabric Manager is of version {own}, the driver of version {driver}"


_SAME_VERSION = "install Fabric Manager, its development package and the driver in one version, and restart it"
_LINK_HINT = "look for Xid and SXid in the kernel's log; reset the GPUs, or replace what has failed"
_BAD = ProblemCode.FABRIC_BAD_PARTITION
_BAD_HINT = "take a partition of Fabric Manager's list, and one VF of each of its GPUs in their order"
_STARTING_HINT = "try again in a moment; after a restart it waits 60 s to be told the active partitions"
_Meaning = Tuple[ProblemCode, str, str]
_MEANINGS: Dict[int, _Meaning] = {
    _BAD_PARAMETER: (_BAD, "it does not accept the partition or the VFs", _BAD_HINT),
    -3: (
        ProblemCode.FABRIC_NOT_SUPPORTED,
        "it does not do this in its FABRIC_MODE, or not now",
        f"set FABRIC_MODE in {CONFIG} to 1 for VMs with whole GPUs or to 2 for VMs with vGPUs, and restart it",
    ),
    _UNINITIALIZED: (
        ProblemCode.FABRIC_WRONG_SOCKET,
        "what listens there does not answer its SDK",
        f"FM_CMD_UNIX_SOCKET_PATH in {CONFIG} is the SDK's, not UNIX_SOCKET_PATH",
    ),
    -6: (ProblemCode.FABRIC_VERSION_DIFFERS, "libnvfm.so.1 is of another version", _SAME_VERSION),
    -8: (ProblemCode.FABRIC_STARTING, "it is still starting", _STARTING_HINT),
    _NOT_VALID: (
        ProblemCode.FABRIC_UNREACHABLE,
        "nobody answers there",
        f"`systemctl status {SERVICE}` says whether it runs; {CONFIG} says where it listens",
    ),
    -10: (ProblemCode.FABRIC_LINK_FAILED, "an NVLink failed", _LINK_HINT),
    -11: (_BAD, "a GPU of the partition is missing", _BAD_HINT),
    -15: (ProblemCode.FABRIC_STARTING, "a GPU or NVSwitch is not ready", _STARTING_HINT),
    -18: (_BAD, "it does not know the partition", _BAD_HINT),
    -22: (ProblemCode.FABRIC_STARTING, "it is not ready", _STARTING_HINT),
    -25: (ProblemCode.FABRIC_LINK_FAILED, "trunk NVLinks are not wired right", _LINK_HINT),
    -26: (ProblemCode.FABRIC_LINK_FAILED, "too few trunk NVLinks", _LINK_HINT),
    -27: (ProblemCode.FABRIC_LINK_FAILED, "NVSwitches are missing", _LINK_HINT),
}


def address_of(settings: Dict[str, str]) -> str:
    """Return where Fabric Manager listens: at the Unix socket if the configuration has one, else by TCP."""
    interface = settings.get("FM_CMD_BIND_INTERFACE") or "127.0.0.1"
    return settings.get("FM_CMD_UNIX_SOCKET_PATH") or f"{interface}:{settings.get('FM_CMD_PORT_NUMBER') or 6666}"


def _parameters(settings: Dict[str, str]) -> Tuple[ConnectParameters, str]:
    """Return what fmConnect takes, and the address in words."""
    path, where = settings.get("FM_CMD_UNIX_SOCKET_PATH"), address_of(settings)
    asked = _versioned(ConnectParameters, 2)
    asked.addressInfo, asked.timeoutMs = where.encode(), TIMEOUT_MS
    asked.addressIsUnixSocket, asked.addressType = (1, _UNIX) if path else (0, _INET)
    return asked, where


def _versioned(kind: Any, version: int = 1) -> Any:
    made = kind()
    made.version = ctypes.sizeof(kind) | version << 24
    return made


def _gpu(told: Any) -> FabricGpu:
    return FabricGpu(
        told.physicalId,
        told.numNvLinksAvailable,
        told.maxNumNvLinks,
        told.nvlinkLineRateMBps,
        _text(told.uuid) or None,
        normalise_bus_id(_text(told.pciBusId)) or None,
    )


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _pci_device(address: str) -> PciDevice:
    """Return a function's address as Fabric Manager takes it. Raises Problem."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise Problem(ProblemCode.BAD_ADDRESS, f"{address!r} is not a PCI address like 0000:41:00.4")
    return PciDevice(*(int(part, 16) for part in match.groups()))
