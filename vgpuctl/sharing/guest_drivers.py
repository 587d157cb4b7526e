# SPDX-License-Identifier: Apache-2.0
"""Compatibility of a vGPU guest driver with a host driver, by the ranges that both negotiate."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from vgpuctl.catalog.vgpu_versions import BRANCHES, parse_driver, ranges_of
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.offer import Refusal


class GuestVerdict(StrEnum):
    """The fate of a guest driver. `unknown` promises nothing: test it on the first host."""

    WORKS = "works"
    BREAKS = "breaks"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class GuestCheck:
    """The answer for one guest driver, with the reason."""

    verdict: GuestVerdict
    reason: str


@dataclass(frozen=True)
class BranchVerdict:
    """The answer for every guest driver of a branch, for example R550."""

    branch: str
    verdict: GuestVerdict
    reason: str


def check_guest(guest: str | None, host: str) -> GuestCheck:
    """Compare a guest driver with a host driver. guest: None where nothing reports it.

    A guest of the host's branch works, an older one if its highest version is not below the host's lowest; a newer
    one is refused (NVIDIA's support rule for vGPU; the source of the ranges is in vgpuctl.catalog.vgpu_versions).
    On Windows the drivers of a branch go on in numbers up to the next branch: 573.48 is the Windows driver of
    570.172.08, 576.57 that of 575.57.08 (docs.nvidia.com/datacenter/tesla). So such a number decides nothing.
    """
    if guest is None:
        return GuestCheck(GuestVerdict.UNKNOWN, "nothing reports the driver in the guest")
    found, there = parse_driver(guest), parse_driver(host)
    if found is None or there is None:
        return GuestCheck(GuestVerdict.UNKNOWN, f"{guest if found is None else host} is no version of a driver")
    if found[0] == there[0]:
        return GuestCheck(GuestVerdict.WORKS, "guest and host are of one branch")
    if found[0] > there[0] and not any(there[0] < branch <= found[0] for branch in BRANCHES):
        return GuestCheck(
            GuestVerdict.UNKNOWN,
            f"R{found[0]} is no branch that is known here; Windows drivers of R{there[0]} have such numbers",
        )
    if found[0] > there[0]:
        return GuestCheck(GuestVerdict.BREAKS, f"the guest's R{found[0]} is newer than the host's R{there[0]}")
    highest = [version for one in ranges_of(*found) for version in one.highest]
    lowest = [one.lowest for one in ranges_of(*there)]
    if not highest or not lowest or None in lowest:
        missing = f"R{found[0]}" if not highest else f"R{there[0]}"
        return GuestCheck(GuestVerdict.UNKNOWN, f"the range of vGPU versions of {missing} is not known")
    meets = {top >= bottom for top, bottom in product(highest, lowest) if bottom is not None}
    said = f"guest up to {_shown(highest)}, host from {_shown([one for one in lowest if one is not None])}"
    if len(meets) > 1:
        return GuestCheck(GuestVerdict.UNKNOWN, f"{said}: the sources do not decide it")
    return GuestCheck(GuestVerdict.WORKS if True in meets else GuestVerdict.BREAKS, said)


def refuse_guest_driver(guest: str | None, host: str | None) -> Refusal | None:
    """Say that a guest driver cannot load beside the host's, None where it can or nobody knows."""
    if guest is None or host is None:
        return None
    check = check_guest(guest, host)
    if check.verdict is not GuestVerdict.BREAKS:
        return None
    return Refusal(
        Code.GUEST_DRIVER,
        f"the guest driver {guest} cannot load beside the host's driver {host}: {check.reason}",
        "use a driver of the host's branch in the guest, or another host (docs/upgrades.md)",
    )


def guest_branches(host: str) -> tuple[BranchVerdict, ...]:
    """The answer for every branch that is known, for a host driver."""
    checks = [(f"R{branch}", check_guest(str(branch), host)) for branch in BRANCHES]
    return tuple(BranchVerdict(name, check.verdict, check.reason) for name, check in checks)


def _shown(versions: list[tuple[int, int]]) -> str:
    return " or ".join(f"{major:#04x}.{minor}" for major, minor in sorted(set(versions)))
