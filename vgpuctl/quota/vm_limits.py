# SPDX-License-Identifier: Apache-2.0
"""The limits of the parts of one VM: CPU time of its vCPUs, rates of its disks and interfaces.

Ceilings and defaults hold them against a tenant's, resize-vm changes them, and quotas of rates add them up.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.interfaces import FIRST, interfaces_of, placed_nics
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.resources import EACH, Limited, format_amount

_Disk = TypeVar("_Disk", DiskRequest, DataDisk)
Part = tuple[Limited, str, int | None]
"""What is limited, which part of the VM, and its limit; None for no limit."""

_FIRST_DISK, _VCPUS = "the first disk", "its vCPUs"
_OF_DISKS = (Limited.DISK_IOPS, Limited.DISK_MBPS)
OPTIONS: Mapping[Limited, str] = {
    Limited.CPU_LIMIT: "--cpu-limit",
    Limited.CPU_WEIGHT: "--cpu-weight",
    Limited.DISK_IOPS: "--disk-iops",
    Limited.DISK_MBPS: "--disk-mbps",
    Limited.NIC_MBPS: "--bandwidth",
}
"""The options of resize-vm."""
NO_LIMIT = "none"


@dataclass(frozen=True)
class WantedLimit:
    """Another limit of a VM that is there. of: the name of a disk, or the network of an interface; None for the first.

    value: None for no limit.
    """

    name: Limited
    of: str | None
    value: int | None


def limits_of(request: VmRequest) -> Iterator[Part]:
    """Everything of a VM that has or may have a limit, each with its part's name."""
    if request.disk is not None:
        yield Limited.DISK_IOPS, _FIRST_DISK, request.disk.iops
        yield Limited.DISK_MBPS, _FIRST_DISK, request.disk.mbps
    for disk in request.data_disks:
        yield Limited.DISK_IOPS, _disk(disk.name), disk.iops
        yield Limited.DISK_MBPS, _disk(disk.name), disk.mbps
    for nic in interfaces_of(request):
        yield Limited.NIC_MBPS, _nic(nic.position), nic.bandwidth_mbps
    if request.domain is None:
        yield Limited.CPU_LIMIT, _VCPUS, request.cpu_limit
        yield Limited.CPU_WEIGHT, _VCPUS, request.cpu_weight


def is_first(part: str) -> bool:
    """True for the first disk, the first interface and the vCPUs, whose limits are fields of a VM of their own."""
    return part in (_FIRST_DISK, _nic(FIRST), _VCPUS)


def with_limit(request: VmRequest, name: Limited, part: str, value: int | None) -> VmRequest:
    """The request with another limit of one part, which `limits_of` names."""
    if name is Limited.CPU_LIMIT:
        return replace(request, cpu_limit=value)
    if name is Limited.CPU_WEIGHT:
        return replace(request, cpu_weight=value)
    if name is Limited.NIC_MBPS:
        if part == _nic(FIRST):
            return replace(request, bandwidth_mbps=value)
        placed = zip(request.nics, placed_nics(request.nics), strict=True)
        nics = (replace(one, bandwidth_mbps=value) if _nic(at.position) == part else one for one, at in placed)
        return replace(request, nics=tuple(nics))
    if part == _FIRST_DISK and request.disk is not None:
        return replace(request, disk=_limited(request.disk, name, value))
    disks = (_limited(one, name, value) if part == _disk(one.name) else one for one in request.data_disks)
    return replace(request, data_disks=tuple(disks))


def with_wanted(request: VmRequest, wanted: Iterable[WantedLimit]) -> VmRequest:
    """The request of a VM with other limits. Raises UsageError for a disk or an interface that it does not have."""
    for one in wanted:
        parts = _meant(request, one)
        if not parts:
            raise _no_such_part(request, one)
        for part in parts:
            request = with_limit(request, one.name, part, one.value)
    return request


def with_limits_of(request: VmRequest, there: VmRequest) -> VmRequest:
    """The request with the limits that the VM has, of the parts that both have."""
    has = {(name, part): value for name, part, value in limits_of(there)}
    for name, part, _value in list(limits_of(request)):
        if (name, part) in has:
            request = with_limit(request, name, part, has[name, part])
    return request


def changed_limits(there: VmRequest, wanted: VmRequest) -> list[Part]:
    """The limits that differ, of the parts that both have, as they are to be."""
    has = {(name, part): value for name, part, value in limits_of(there)}
    return [
        (name, part, value)
        for name, part, value in limits_of(wanted)
        if (name, part) in has and has[name, part] != value
    ]


def show_limits(request: VmRequest) -> list[str]:
    """The limits that a VM has, a line for each: `disk-iops of the first disk: 500`."""
    return [
        f"{name} of {part}: {format_amount(EACH + name, value)}"
        for name, part, value in limits_of(request)
        if value is not None
    ]


def describe_unlimited(request: VmRequest, name: Limited) -> str | None:
    """Say which disks or interfaces of a VM have no limit, and the command that gives them one; None where all have."""
    parts = [part for one, part, value in limits_of(request) if one is name and value is None]
    if not parts:
        return None
    command = f"vgpuctl resize-vm {request.tenant}/{request.name} {OPTIONS[name]}"
    return f"{request.tenant}/{request.name} has no {name} for {', '.join(parts)}: `{command}` gives it one"


def resize_words(there: VmRequest, wanted: VmRequest) -> list[str]:
    """The options of resize-vm that change the limits of one request into those of another one."""
    networks = {_nic(one.position): one.network for one in interfaces_of(wanted)}
    disks = {_disk(one.name): one.name for one in wanted.data_disks}
    words: dict[tuple[str, str], None] = {}
    for name, part, value in changed_limits(there, wanted):
        of = networks[part] if part in networks and part != _nic(FIRST) else disks.get(part)
        amount = NO_LIMIT if value is None else format_amount(EACH + name, value)
        words[OPTIONS[name], amount if of is None else f"{of}={amount}"] = None
    return [word for pair in words for word in pair]


def _meant(request: VmRequest, wanted: WantedLimit) -> list[str]:
    """The parts of a VM that a wish is about: of the interfaces in one network all."""
    there = [part for name, part, _value in limits_of(request) if name is wanted.name]
    if wanted.name is Limited.NIC_MBPS:
        meant = [_nic(FIRST)] if wanted.of is None else []
        meant += [_nic(one.position) for one in interfaces_of(request) if one.network == wanted.of]
    elif wanted.name in _OF_DISKS:
        meant = [_FIRST_DISK if wanted.of is None else _disk(wanted.of)]
    else:
        meant = [_VCPUS]
    return [part for part in there if part in meant]


def _no_such_part(request: VmRequest, wanted: WantedLimit) -> UsageError:
    option, vm = OPTIONS[wanted.name], f"VM {request.name} of tenant {request.tenant}"
    if wanted.name is Limited.NIC_MBPS:
        networks = dict.fromkeys(one.network for one in interfaces_of(request))
        what = "no first interface" if wanted.of is None else f"no interface in network {wanted.of[:64]!a}"
        known = (
            f"its networks are {', '.join(networks)}: {option} NETWORK=MBIT/S" if networks else "it has no interface"
        )
        return UsageError(f"{option}: {vm} has {what}", hint=known)
    names = [one.name for one in request.data_disks]
    what = "no first disk" if wanted.of is None else f"no disk {wanted.of[:64]!a}"
    known = f"its further disks are {', '.join(names)}: {option} DISK=NUMBER" if names else "it has no further disk"
    return UsageError(f"{option}: {vm} has {what}", hint=known)


def _limited(disk: _Disk, name: Limited, value: int | None) -> _Disk:
    return replace(disk, iops=value) if name is Limited.DISK_IOPS else replace(disk, mbps=value)


def _disk(name: str) -> str:
    return f"disk {name}"


def _nic(position: int | None) -> str:
    return f"interface {position}"
