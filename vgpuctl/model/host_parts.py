# SPDX-License-Identifier: Apache-2.0
"""Parts of a host without which a VM cannot run there: UEFI builds, a TPM emulator, a working OVN chassis.

Placement and the checks before a build ask the same functions, and check-hosts prints what they find.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import AUTHORITY, CERTIFICATE, KEY, OvnFacts
from vgpuctl.model.distribution import Package, family_of, install, start_open_vswitch
from vgpuctl.model.guest_firmware import has_secure_build, unwanted_feature
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, VmRequest

TPM_PROGRAMS = ("swtpm", "swtpm_setup")
_SET_UP = "declare `network` in the host's layout (docs/networks.md), then `vgpuctl apply-hosts` sets it"
_TUNNELS = ("geneve", "vxlan")


class HostPart(StrEnum):
    """Something of a host without which some VMs cannot run there, in the order in which it is looked for."""

    UEFI = "uefi"
    SECURE_UEFI = "secure uefi"
    TPM = "tpm"
    CHASSIS = "chassis"


NO_PARTS: frozenset[HostPart] = frozenset()


@dataclass(frozen=True)
class MissingPart:
    """A part that a host does not have. read: what was found instead. fix: the remedy."""

    part: HostPart
    read: str
    fix: str


def parts_needed(request: VmRequest) -> frozenset[HostPart]:
    """The parts that a host must have for this VM; none for a VM with a BIOS, no TPM and no port in OVN."""
    needed = {HostPart.TPM} if request.tpm is Switch.ON else set()
    if request.firmware is Firmware.UEFI:
        needed.add(HostPart.SECURE_UEFI if request.secure_boot is Switch.ON else HostPart.UEFI)
    if request.needs_chassis:
        needed.add(HostPart.CHASSIS)
    return frozenset(needed)


def missing_parts(facts: HostFacts, needed: Collection[HostPart]) -> list[MissingPart]:
    """Of the needed parts those that a host does not have, each with its first reason, in the order of HostPart."""
    return [found[0] for part in HostPart if part in needed and (found := _LOOKS[part](facts))]


def missing_tpm(facts: HostFacts) -> list[MissingPart]:
    """Say which programs of the TPM emulator the host does not have; nothing when it has all, or it is unknown."""
    missing = [] if facts.tpm_programs is None else [one for one in TPM_PROGRAMS if one not in facts.tpm_programs]
    if not missing:
        return []
    read = f"the host has no {' and no '.join(missing)}, so libvirt emulates no TPM"
    return [MissingPart(HostPart.TPM, read, install([Package.SWTPM], family_of(facts.distribution)))]


def missing_uefi(facts: HostFacts) -> list[MissingPart]:
    """Say that the host has no UEFI build for guests without Secure Boot; nothing when its builds are unknown."""
    if unwanted_feature(facts) is not None:
        return []
    read = "every UEFI build has Secure Boot with enrolled keys" if facts.guest_firmwares else "there is no UEFI build"
    fix = f"{install([Package.FIRMWARE], family_of(facts.distribution))}; VMs with --firmware bios need none"
    return [MissingPart(HostPart.UEFI, read, fix)]


def _missing_secure_uefi(facts: HostFacts) -> list[MissingPart]:
    if has_secure_build(facts):
        return []
    read = f"the host has no UEFI build with Secure Boot and enrolled keys ({_builds(facts)})"
    fix = f"{install([Package.FIRMWARE], family_of(facts.distribution))}; or create the VM with --secure-boot off"
    return [MissingPart(HostPart.SECURE_UEFI, read, fix)]


def _builds(facts: HostFacts) -> str:
    names = [f"{one.descriptor}: {', '.join(one.features) or 'no feature'}" for one in facts.guest_firmwares or ()]
    return "; ".join(names) or "it has no UEFI build at all"


def missing_chassis(facts: HostFacts) -> list[MissingPart]:
    """Say everything that keeps OVN from carrying a VM's packets on this host; nothing for a working chassis.

    Nothing either where OVN could not be read, as for a firmware that nobody looked at. ovn-controller registers a
    chassis that has a name, a database, and the kind and the address of its tunnels (ovn-controller(8), external_ids).
    The facts do not tell if the database answers: check-hosts asks it.
    """
    found = facts.ovn
    if found is None and facts.why_unread("ovn") is not None:
        return []
    if found is None or found.missing:
        names = "Open vSwitch and ovn-controller" if found is None else ", ".join(found.missing)
        return [MissingPart(HostPart.CHASSIS, f"the host has no {names}", install_ovn(facts))]
    return [MissingPart(HostPart.CHASSIS, read, fix) for read, fix in _chassis_faults(facts, found)]


def _chassis_faults(facts: HostFacts, found: OvnFacts) -> list[tuple[str, str]]:
    """Faults of the chassis of a host that has all programs of OVN, each with its remedy."""
    faults = []
    chassis = found.chassis
    if not found.switch_active or chassis is None:
        start = start_open_vswitch(family_of(facts.distribution))
        faults.append(("Open vSwitch does not run", f"`vgpuctl apply-hosts` starts it, as does {start} on the host"))
    else:
        settings = {
            "system-id": chassis.system_id,
            "ovn-remote": chassis.remote,
            "ovn-encap-type": chassis.encapsulation,
            "ovn-encap-ip": chassis.address,
        }
        unset = [name for name, value in settings.items() if not value]
        if unset:
            faults.append((f"Open vSwitch has no {', '.join(unset)}, so the host is none of OVN's chassis", _SET_UP))
        faults += _certificate_faults(found, chassis.remote, uses_tls=chassis.uses_tls)
    for name in missing_modules(found, "" if chassis is None else chassis.encapsulation):
        faults.append((f"{facts.kernel} has no module {name}", INSTALL_MODULES))
    if not found.controller_active:
        fix = "`vgpuctl apply-hosts` starts it, as does `systemctl start ovn-controller` on the host"
        faults.append(("ovn-controller does not run", fix))
    return faults


def _certificate_faults(found: OvnFacts, remote: str, *, uses_tls: bool) -> list[tuple[str, str]]:
    if not any(one.strip().startswith("ssl:") for one in remote.split(",")):
        return []
    fix = "`vgpuctl apply-hosts` puts it there and names it"
    if not found.has_certificate:
        files = ", ".join((KEY, CERTIFICATE, AUTHORITY))
        return [(f"the host has no certificate for {remote}: not all of {files} are there and readable", fix)]
    return [] if uses_tls else [(f"Open vSwitch names no certificate for {remote}", fix)]


INSTALL_MODULES = "install the kernel's package of modules, or boot another kernel"


def missing_modules(found: OvnFacts, encapsulation: str) -> list[str]:
    """The modules that the running kernel has not for Open vSwitch and tunnels. encapsulation: several with commas."""
    kinds = [one.strip() for one in encapsulation.split(",")]
    absent = [one for one in kinds if one in _TUNNELS and one not in found.modules]
    switch = [] if "openvswitch" in found.modules else ["openvswitch"]
    return switch + (absent if len(absent) == len(kinds) else [])


def install_ovn(facts: HostFacts) -> str:
    """The command of the host's distribution that installs Open vSwitch and ovn-controller."""
    return install([Package.OVN_HOST], family_of(facts.distribution))


_LOOKS: Mapping[HostPart, Callable[[HostFacts], list[MissingPart]]] = {
    HostPart.UEFI: missing_uefi,
    HostPart.SECURE_UEFI: _missing_secure_uefi,
    HostPart.TPM: missing_tpm,
    HostPart.CHASSIS: missing_chassis,
}
