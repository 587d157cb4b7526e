# SPDX-License-Identifier: Apache-2.0
"""The units that quotas are set in: their names, how amounts are written and read.

An amount is a whole number: a count, MiB for sizes (`memory`, `framebuffer`, `disk`, `snapshots`), seconds of a whole
GPU for `gpu-hours`, thousandths of a GPU for `compute`, operations a second for `iops`, Mbit/s for `bandwidth`.
"""

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.cpu_time import LEAST_WEIGHT, MOST_WEIGHT, parse_cpu_limit, show_cpu_limit
from vgpuctl.model.licence import Edition
from vgpuctl.model.over_promise import OverPromise
from vgpuctl.model.units import exact_mib, format_mib, parse_mib

SHARES = "shares:"
LICENCES = "licences:"
EACH, USUAL = "each:", "default:"
"""Of one VM: the most that a part of it may have, and what a part gets for which nothing is asked."""
OVER_PROMISE = "over-promise"
"""The policy of OverPromise, as its position there; it is stored among the quotas, and nothing adds up."""
LARGEST_AMOUNT = 2**53

_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,62}(?::[A-Za-z0-9][A-Za-z0-9 ._+-]{0,62})?")
_NUMBER = re.compile(r"[0-9]{1,15}")
_GPUS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,3})?")
_HOURS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")


class Resource(StrEnum):
    """The counted resources. Shares of one profile are named `shares:PROFILE`, seats of licences `licences:EDITION`.

    A type of several models counts as `shares:DC-16Q` over all, and as `shares:DC-16Q:MODEL` on each.
    """

    VMS = "vms"
    VCPUS = "vcpus"
    MEMORY = "memory"
    CARDS = "cards"
    FRAMEBUFFER = "framebuffer"
    MIG_COMPUTE = "mig-compute"
    COMPUTE = "compute"
    NICS = "nics"
    BANDWIDTH = "bandwidth"
    DISK = "disk"
    IOPS = "iops"
    SNAPSHOTS = "snapshots"
    NETWORKS = "networks"
    PUBLIC_ADDRESSES = "public-addresses"
    LOAD_BALANCERS = "load-balancers"
    VPN_CONNECTIONS = "vpn-connections"
    GPU_HOURS = "gpu-hours"


class Limited(StrEnum):
    """The limits of `each:` and `default:`, as a VM's own fields have them (specs/vm_devices.py, specs/vm_guest.py).

    disk-iops, disk-mbps: of each disk. nic-mbps: of each interface, in each direction. cpu-limit: percent of one CPU
    that each vCPU may use. cpu-weight: of the VM against others where CPUs are short.
    """

    DISK_IOPS = "disk-iops"
    DISK_MBPS = "disk-mbps"
    NIC_MBPS = "nic-mbps"
    CPU_LIMIT = "cpu-limit"
    CPU_WEIGHT = "cpu-weight"


_LIMITED: Mapping[str, tuple[int, int, str]] = {
    Limited.DISK_IOPS: (1, 10_000_000, "operations a second"),
    Limited.DISK_MBPS: (1, 1_000_000, "megabytes a second"),
    Limited.NIC_MBPS: (1, 400_000, "Mbit/s"),
    Limited.CPU_WEIGHT: (LEAST_WEIGHT, MOST_WEIGHT, "a weight against other VMs"),
}
"""The least and the most, and the unit."""
RATES: Mapping[Resource, Limited] = {Resource.IOPS: Limited.DISK_IOPS, Resource.BANDWIDTH: Limited.NIC_MBPS}
"""Resources that add up the limits of a tenant's disks or interfaces, and the limit of one of them."""
WITHOUT_LIMIT: Mapping[Limited, int] = {name: _LIMITED[name][1] for name in RATES.values()}
"""What one without a limit counts: the highest limit that one can have."""
_FORMS = ", ".join(
    [
        *Resource,
        f"{SHARES}PROFILE",
        *(f"{LICENCES}{edition}" for edition in Edition),
        *(EACH + one for one in Limited),
        f"{USUAL}WHAT",
        OVER_PROMISE,
    ]
)
_OF_ONE = tuple(f"{kind}{name}" for kind in (EACH, USUAL) for name in Limited)
_PLAIN = (*map(str, Resource), *(f"{LICENCES}{edition}" for edition in Edition), *_OF_ONE, OVER_PROMISE)
_SIZES = (Resource.MEMORY, Resource.FRAMEBUFFER, Resource.DISK, Resource.SNAPSHOTS)


def parse_resource(name: str) -> str:
    """Read a resource's name in its normal form: in any case, and a profile's as `catalog.profile_name` reads it.

    Raises UsageError that lists them.
    """
    kind, colon, of_kind = name.partition(":")
    lower = (kind + colon).lower() + of_kind
    if lower.lower() in _PLAIN:
        return lower.lower()
    if lower.startswith(SHARES) and _PROFILE.fullmatch(of_kind):
        from vgpuctl.catalog.profile_names import profile_name  # lists of tenants need no catalogue

        return f"{SHARES}{profile_name(of_kind)}"
    near = difflib.get_close_matches(lower, [*_PLAIN, SHARES], n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {_FORMS}"
    raise UsageError(f"{name!a} is nothing that a quota can be set on", hint=hint)


def normal_resource(name: str) -> str:
    """The normal form of a resource's name that is stored; a name that nobody can read stays as it is."""
    try:
        return parse_resource(name)
    except UsageError:
        return name


def parse_assignment(text: str, *, what: str) -> tuple[str, int | None]:
    """Read `framebuffer=96GiB`, `vms=10`, `gpu-hours=200` or `vms=none`, where None stands for no quota.

    what: the option, for the error. Raises UsageError.
    """
    name, equals, written = text.partition("=")
    if not equals:
        raise UsageError(f"{what} {text!r} has no '='", hint="write RESOURCE=AMOUNT, for example framebuffer=96GiB")
    resource = parse_resource(name.strip())
    return resource, parse_amount(resource, written.strip())


def parse_amount(resource: str, written: str) -> int | None:
    """Read an amount of a resource; None for `none`. Raises UsageError."""
    if written == "none":
        return None
    if resource in _SIZES and written != "0":
        amount = parse_mib(written, what=resource)
    elif resource == Resource.GPU_HOURS:
        if not _HOURS.fullmatch(written):
            raise UsageError(f"{resource}={written!a} is no number of hours", hint="write for example 200 or 0.5")
        amount = round(float(written) * 3600)
        if not amount and float(written):
            raise UsageError(f"{resource}={written!a} is less than a second", hint="write 0 to allow no hour")
    elif resource == Resource.COMPUTE:
        if not _GPUS.fullmatch(written):
            raise UsageError(f"{resource}={written!a} is no number of GPUs", hint="write for example 4 or 2.5")
        amount = round(float(written) * 1000)
    elif resource == OVER_PROMISE:
        amount = _parse_policy(written)
    elif not adds_up(resource):
        amount = parse_limit(Limited(resource.partition(":")[2]), written, what=resource)
    elif _NUMBER.fullmatch(written):
        amount = int(written)
    else:
        raise UsageError(f"{resource}={written!a} is no amount", hint="write a whole number, or `none` for no quota")
    if amount > LARGEST_AMOUNT:
        raise UsageError(f"{resource}={written!a} is too much", hint="write `none` for no quota")
    return amount


def adds_up(resource: str) -> bool:
    """True if a tenant uses some of it; else it is a policy, or holds for each part of each VM by itself."""
    return resource != OVER_PROMISE and not resource.startswith((EACH, USUAL))


def _parse_policy(written: str) -> int:
    words = list(OverPromise)
    if written not in words:
        raise UsageError(
            f"{OVER_PROMISE}={written[:40]!a} is no policy", hint=f"write one of {', '.join(words)}, or `none`"
        )
    return words.index(OverPromise(written))


def parse_limit(name: Limited, written: str, *, what: str) -> int:
    """Read the limit of one VM's part: `50%` of a CPU, or a whole number. what: for the error. Raises UsageError."""
    if name == Limited.CPU_LIMIT:
        return parse_cpu_limit(written, what=what)
    least, most, unit = _LIMITED[name]
    if not _NUMBER.fullmatch(written) or not least <= int(written) <= most:
        raise UsageError(
            f"{what}={written[:40]!a} is no limit",
            hint=f"write a whole number from {least} to {most} ({unit}), or `none`",
        )
    return int(written)


def plain_name(resource: str) -> str:
    """The name of a resource with the unit of its plain amounts: `memory_mib`."""
    return f"{resource}_mib" if resource in _SIZES else resource


def plain_amount(resource: str, amount: int) -> str:
    """Write an amount as a number alone: MiB of a size, hours of `gpu-hours`, GPUs of `compute`."""
    if not adds_up(resource):
        return _format_limited(resource, amount)
    if resource == Resource.COMPUTE:
        return _gpus(amount)
    return f"{amount / 3600:.4f}" if resource == Resource.GPU_HOURS else str(amount)


def format_amount(resource: str, amount: int) -> str:
    """Write an amount the way people read it: `96 GiB`, `4`, `12.5 h`."""
    if resource in _SIZES:
        return "0" if amount == 0 else format_mib(amount)
    if resource == Resource.COMPUTE:
        return _gpus(amount)
    if not adds_up(resource):
        return _format_limited(resource, amount)
    if resource == Resource.GPU_HOURS:
        return f"{amount / 3600:.4g} h" if amount < 3600 * 1000 else f"{amount / 3600:.1f} h"
    return str(amount)


def exact_amount(resource: str, amount: int) -> str:
    """Write an amount so that `parse_amount` reads the same again: `1500MiB`, `4`, `2.5`; not of `gpu-hours`."""
    return exact_mib(amount) if resource in _SIZES and amount else format_amount(resource, amount)


def _format_limited(resource: str, amount: int) -> str:
    if resource == OVER_PROMISE:
        return list(OverPromise)[amount]
    return show_cpu_limit(amount) if resource.endswith(Limited.CPU_LIMIT) else str(amount)


def _gpus(thousandths: int) -> str:
    """`4`, `2.5`, `0.166`."""
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")
