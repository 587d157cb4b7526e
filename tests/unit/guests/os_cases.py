# SPDX-License-Identifier: Apache-2.0
"""The views of the profiles of operating systems: one for each, and those of hosts that cannot give all of it."""

from dataclasses import replace

from tests.unit.guests.cases import A40, REQUEST, facts, gpu, leases, vm, whole
from vgpuctl.agent.wire.facts import GuestFirmware, HostFacts
from vgpuctl.catalog.guest_os import GUEST_OSES, with_os_defaults
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.model.guest_firmware import Variables
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, VmRequest

# The builds of Debian's ovmf.
BUILDS = (
    GuestFirmware("40-edk2-x86_64-secure-enrolled.json", ("enrolled-keys", "requires-smm", "secure-boot")),
    GuestFirmware("50-edk2-x86_64-secure.json", ("requires-smm", "secure-boot")),
    GuestFirmware("60-edk2-x86_64.json", ("acpi-s3",)),
)
# Builds of 4 MiB that were put before those of 2 MiB, as Fedora has them since edk2 of 2023.
_SECURE = ("enrolled-keys", "requires-smm", "secure-boot")
BUILDS_AFTER_AN_UPGRADE = (
    GuestFirmware("30-4m-secure.json", _SECURE, "/usr/share/edk2/ovmf/OVMF_CODE_4M.secboot.qcow2", "qcow2", 540_672),
    GuestFirmware("31-4m.json", (), "/usr/share/edk2/ovmf/OVMF_CODE_4M.qcow2", "qcow2", 540_672),
    GuestFirmware("40-secure.json", _SECURE, "/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "raw", 131_072),
    GuestFirmware("50.json", (), "/usr/share/edk2/ovmf/OVMF_CODE.fd", "raw", 131_072),
)
# Hyper-V features that libvirt reports on a host with KVM (Linux 6.1, QEMU 7.2).
REPORTED = frozenset(
    (
        "relaxed",
        "vapic",
        "spinlocks",
        "vpindex",
        "runtime",
        "synic",
        "stimer",
        "reset",
        "vendor_id",
        "frequencies",
        "reenlightenment",
        "tlbflush",
        "ipi",
        "evmcs",
        "avic",
    )
)
_H100_BARS = (16 << 20, 128 << 30, 32 << 20)


def host(*, kvm: bool = True, libvirt_version: str = "10.0.0") -> HostFacts:
    """Make a host with all builds of UEFI, and swtpm."""
    made = facts(A40, kvm=kvm, libvirt_version=libvirt_version)
    return replace(made, guest_firmwares=BUILDS, tpm_programs=("swtpm", "swtpm_setup"))


def asks_for(name: str, **more: object) -> VmRequest:
    """Make the request of a VM with this operating system."""
    return with_os_defaults(replace(REQUEST, os=name, memory_mib=4096, **more))  # type: ignore[arg-type]


OS_CASES: dict[str, DomainView] = {
    **{f"os_{name}": domain_view(vm(asks_for(name)), [], host(), hyperv=REPORTED) for name in GUEST_OSES},
    "os_win11_tcg": domain_view(vm(asks_for("win11")), [], host(kvm=False)),
    "os_win11_libvirt_5": domain_view(vm(asks_for("win11")), [], host(libvirt_version="5.6.0")),
    "os_win11_without_vpindex": domain_view(vm(asks_for("win11")), [], host(), hyperv=REPORTED - {"vpindex", "reset"}),
    "os_win11_eight_cards": domain_view(
        vm(replace(asks_for("win11"), vcpus=96, memory_mib=1 << 20)),
        leases(*(whole(f"0000:{bus:02x}:00.0") for bus in range(0x10, 0x18))),
        replace(host(), gpus=tuple(gpu(f"0000:{bus:02x}:00.0", bars=_H100_BARS) for bus in range(0x10, 0x18))),
        hyperv=REPORTED,
    ),
    "secure_boot_off_with_secure_builds_only": domain_view(
        vm(replace(REQUEST, firmware=Firmware.UEFI, secure_boot=Switch.OFF)),
        [],
        replace(host(), guest_firmwares=BUILDS[:2]),
    ),
    "uefi_of_a_former_build": domain_view(
        vm(replace(REQUEST, firmware=Firmware.UEFI)),
        [],
        replace(host(), guest_firmwares=BUILDS_AFTER_AN_UPGRADE),
        variables=Variables("raw", 131_072),
    ),
    "uefi_of_a_former_secure_build": domain_view(
        vm(asks_for("win11")),
        [],
        replace(host(), guest_firmwares=BUILDS_AFTER_AN_UPGRADE),
        hyperv=REPORTED,
        variables=Variables("raw", 131_072),
    ),
    "tpm_with_bios": domain_view(vm(replace(REQUEST, tpm=Switch.ON)), [], host()),
}
