# SPDX-License-Identifier: Apache-2.0
"""Choice of a guest's UEFI build on a host."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.facts import GuestFirmware, HostFacts
from vgpuctl.errors import StateError
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, VmRequest


class BuildFeature(StrEnum):
    """A feature of a UEFI build, in the words of QEMU and libvirt."""

    SECURE_BOOT = "secure-boot"
    ENROLLED_KEYS = "enrolled-keys"


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
