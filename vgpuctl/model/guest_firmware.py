# SPDX-License-Identifier: Apache-2.0
"""Choice of a guest's UEFI build on a host: one that starts any system, so without Secure Boot's keys."""

from enum import StrEnum

from vgpuctl.agent.wire.facts import HostFacts


class UnwantedFeature(StrEnum):
    """The feature that a guest's build must not have, in the words of QEMU and libvirt."""

    SECURE_BOOT = "secure-boot"
    ENROLLED_KEYS = "enrolled-keys"


def unwanted_feature(facts: HostFacts) -> UnwantedFeature | None:
    """Choose by the host's builds; None without a build, or if every build has Secure Boot with enrolled keys.

    A build with Secure Boot but without keys is in setup mode and also starts every system. RHEL 8, 9.0 and 9.1 have
    only such builds. A host with an unknown list of builds counts as having the plain build.
    """
    if facts.guest_firmwares is None:
        return UnwantedFeature.SECURE_BOOT
    for feature in UnwantedFeature:
        if any(str(feature) not in build.features for build in facts.guest_firmwares):
            return feature
    return None
