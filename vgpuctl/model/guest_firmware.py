# SPDX-License-Identifier: Apache-2.0
"""Choice of a guest's UEFI build on a host, and what a host needs for Secure Boot and a TPM of its guests."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.facts import GuestFirmware, HostFacts
from vgpuctl.errors import StateError
from vgpuctl.model.distribution import Package, family_of, install
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, VmRequest

TPM_PROGRAMS = ("swtpm", "swtpm_setup")


class BuildFeature(StrEnum):
    """A feature of a UEFI build, in the words of QEMU and libvirt."""

    SECURE_BOOT = "secure-boot"
    ENROLLED_KEYS = "enrolled-keys"


class HostPart(StrEnum):
    """Something of a host without which a guest's firmware or TPM cannot be had there."""

    UEFI = "uefi"
    SECURE_UEFI = "secure uefi"
    TPM = "tpm"


NO_PARTS: frozenset[HostPart] = frozenset()


@dataclass(frozen=True)
class MissingPart:
    """A part that a host does not have. read: what was found instead. fix: the remedy."""

    part: HostPart
    read: str
    fix: str


@dataclass(frozen=True)
class Variables:
    """The file of a guest's UEFI variables: format, and the size that its firmware sees.

    A build with variables of another size or format cannot use it: edk2's builds of 2 MiB have 131,072 bytes, those of
    4 MiB 540,672.
    """

    format: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes, {self.format}"


def build_for(facts: HostFacts, request: VmRequest, variables: Variables | None) -> GuestFirmware | None:
    """The build that a guest must be given by its path, since libvirt alone would give it one with other variables.

    None where libvirt's own choice fits: the first build by name that has the features. variables: the guest's own,
    None before its first start. Raises StateError where the host has no build for them.
    """
    wanted = _builds_for(facts, request)
    if variables is None or not wanted or _fits(wanted[0], variables):
        return None
    fitting = [one for one in wanted if _fits(one, variables)]
    if not fitting:
        has = "; ".join(f"{one.descriptor}: {_variables_of(one)}" for one in wanted)
        raise StateError(
            f"no UEFI build of the host fits the UEFI variables of {request.name} ({variables}); it has {has}",
            hint="install the build that the VM was made with beside the new one; its variables are not replaced",
        )
    return fitting[0]


def _builds_for(facts: HostFacts, request: VmRequest) -> list[GuestFirmware]:
    """The builds with the features of a request, in the order in which libvirt looks at them."""
    builds = [] if facts.guest_firmwares is None else list(facts.guest_firmwares)
    if request.firmware is not Firmware.UEFI:
        return []
    if request.secure_boot is Switch.ON:
        return [one for one in builds if all(str(feature) in one.features for feature in BuildFeature)]
    plain = [one for one in builds if BuildFeature.SECURE_BOOT not in one.features]
    return plain + [one for one in builds if one not in plain and BuildFeature.ENROLLED_KEYS not in one.features]


def _fits(build: GuestFirmware, variables: Variables) -> bool:
    return build.variables_bytes == 0 or _variables_of(build) == variables


def _variables_of(build: GuestFirmware) -> Variables:
    return Variables(build.variables_format, build.variables_bytes)


def unwanted_feature(facts: HostFacts) -> BuildFeature | None:
    """Choose the build of a guest without Secure Boot: the feature that it must not have.

    None without a build, or if every build has Secure Boot with enrolled keys. A build with Secure Boot but without
    keys is in setup mode and also starts every system. RHEL 8, 9.0 and 9.1 have only such builds. A host with an
    unknown list of builds counts as having the plain build.
    """
    if facts.guest_firmwares is None:
        return BuildFeature.SECURE_BOOT
    for feature in BuildFeature:
        if any(str(feature) not in build.features for build in facts.guest_firmwares):
            return feature
    return None


def has_secure_build(facts: HostFacts) -> bool:
    """True if the host has a UEFI build with Secure Boot and enrolled keys, or the list of its builds is unknown."""
    if facts.guest_firmwares is None:
        return True
    return any(all(str(one) in build.features for one in BuildFeature) for build in facts.guest_firmwares)


def parts_needed(request: VmRequest) -> frozenset[HostPart]:
    """The parts that a host must have for this VM; none for a VM with a BIOS and no TPM."""
    needed = {HostPart.TPM} if request.tpm is Switch.ON else set()
    if request.firmware is Firmware.UEFI:
        needed.add(HostPart.SECURE_UEFI if request.secure_boot is Switch.ON else HostPart.UEFI)
    return frozenset(needed)


def missing_parts(facts: HostFacts) -> dict[HostPart, MissingPart]:
    """The parts that a host does not have, with the reason and the remedy of each."""
    return {one.part: one for one in (_missing_uefi(facts), _missing_secure_uefi(facts), missing_tpm(facts)) if one}


def _missing_uefi(facts: HostFacts) -> MissingPart | None:
    if unwanted_feature(facts) is not None:
        return None
    read = facts.why_unread("guest_firmwares")
    if read is None:
        has_builds = bool(facts.guest_firmwares)
        read = "every UEFI build has Secure Boot with enrolled keys" if has_builds else "there is no UEFI build"
    fix = f"{install([Package.FIRMWARE], family_of(facts.distribution))}; VMs with --firmware bios need none"
    return MissingPart(HostPart.UEFI, read, fix)


def _missing_secure_uefi(facts: HostFacts) -> MissingPart | None:
    if has_secure_build(facts):
        return None
    read = f"the host has no UEFI build with Secure Boot and enrolled keys ({_builds(facts)})"
    fix = f"{install([Package.FIRMWARE], family_of(facts.distribution))}; or create the VM with --secure-boot off"
    return MissingPart(HostPart.SECURE_UEFI, read, fix)


def missing_tpm(facts: HostFacts) -> MissingPart | None:
    """Say which programs of the TPM emulator the host does not have; None when it has all, or it is unknown."""
    missing = [] if facts.tpm_programs is None else [one for one in TPM_PROGRAMS if one not in facts.tpm_programs]
    if not missing:
        return None
    read = f"the host has no {' and no '.join(missing)}, so libvirt emulates no TPM"
    return MissingPart(HostPart.TPM, read, install([Package.SWTPM], family_of(facts.distribution)))


def _builds(facts: HostFacts) -> str:
    names = [f"{one.descriptor}: {', '.join(one.features) or 'no feature'}" for one in facts.guest_firmwares or ()]
    return "; ".join(names) or "it has no UEFI build at all"
