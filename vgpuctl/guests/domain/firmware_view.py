# SPDX-License-Identifier: Apache-2.0
"""The firmware of a guest and its TPM as the domain template needs them."""

from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.guest_firmware import BuildFeature, Variables, build_for, unwanted_feature
from vgpuctl.model.guest_state import nvram_file
from vgpuctl.model.switch import Switch
from vgpuctl.model.version import version_of
from vgpuctl.model.vm import Firmware, Vm

NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"
_KEEPS_TPM_STATE_SINCE = (7, 0)
# Before, the features alone chose a build but did not make libvirt require SMM (libvirt, kbase/secureboot).
_NO_SECURE_LOADER_SINCE = (8, 6)
# QEMU's default TSEG of 16 MiB is enough for about 48 vCPUs and 1 TiB, or 272 vCPUs and 5 GiB; each further TiB of
# addresses takes about 8 MiB (libvirt, formatdomain, "tseg").
_TSEG_MIB = 16
_TSEG_STEP_MIB = 8
_TSEG_VCPUS = 48
_VCPUS_A_STEP = 224
_TIB_MIB = 1 << 20


@dataclass(frozen=True)
class FeatureView:
    """A feature that the UEFI build must have, or must not have."""

    name: BuildFeature
    is_wanted: bool


@dataclass(frozen=True)
class UefiView:
    """A guest's UEFI firmware, which libvirt chooses by its features.

    has_smm: system management mode is on, by which Secure Boot keeps its variables from the guest's kernel. tseg_mib:
    its memory, None for QEMU's default. has_secure_loader: older versions of libvirt want it said. nvram: the path of
    the file of its variables, None for the one that libvirt names after the domain. code: the path of the build where
    libvirt's choice would not fit the variables; libvirt reads their format from the descriptor of that build.
    """

    features: tuple[FeatureView, ...]
    has_smm: bool = False
    tseg_mib: int | None = None
    has_secure_loader: bool = False
    nvram: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class TpmView:
    """An emulated TPM 2.0. is_persistent: libvirt keeps its state when the domain is undefined."""

    is_persistent: bool


def uefi_view(
    vm: Vm,
    facts: HostFacts,
    *,
    window_gib: int | None,
    nvram_folder: str = NVRAM_FOLDER,
    variables: Variables | None = None,
) -> UefiView | None:
    """Decide the UEFI firmware of a VM on its host; None for BIOS. Raises StateError without a build for its variables.

    variables: those that it has there, None before its first start.
    window_gib: the 64-bit window for the GPUs' BARs. A VM whose request says nothing of Secure Boot keeps the file of
    variables that libvirt names after the domain; any other has one named after its UUID, which a rename keeps.
    """
    request = vm.request
    if request.firmware is not Firmware.UEFI:
        return None
    unwanted = unwanted_feature(facts) or BuildFeature.SECURE_BOOT
    build = build_for(facts, request, variables)
    if request.secure_boot is None and build is None:
        return UefiView((FeatureView(unwanted, is_wanted=False),))
    is_secure = request.secure_boot is Switch.ON
    has_smm = is_secure or unwanted is BuildFeature.ENROLLED_KEYS
    if build is not None:
        has_smm = "requires-smm" in build.features
    wanted = tuple(FeatureView(one, is_wanted=True) for one in BuildFeature)
    memory_mib = request.memory_mib + 1024 * (window_gib or 0)
    return UefiView(
        wanted if is_secure else (FeatureView(unwanted, is_wanted=False),),
        has_smm=has_smm,
        tseg_mib=tseg_mib(memory_mib, request.vcpus) if has_smm else None,
        has_secure_loader=is_secure and version_of(facts.libvirt_version) < _NO_SECURE_LOADER_SINCE
        if build is None
        else has_smm,
        nvram=f"{nvram_folder}/{nvram_file(vm)}",
        code=None if build is None else build.code,
    )


def tseg_mib(addresses_mib: int, vcpus: int) -> int | None:
    """The memory of system management mode in a guest; None where QEMU's default is enough.

    addresses_mib: its memory and the window of its devices.
    """
    more = -(-max(addresses_mib - _TIB_MIB, 0) // _TIB_MIB) - (-max(vcpus - _TSEG_VCPUS, 0) // _VCPUS_A_STEP)
    return _TSEG_MIB + _TSEG_STEP_MIB * more if more else None


def tpm_view(vm: Vm, facts: HostFacts) -> TpmView | None:
    """Decide the TPM of a VM; None without one."""
    if vm.request.tpm is not Switch.ON:
        return None
    return TpmView(is_persistent=version_of(facts.libvirt_version) >= _KEEPS_TPM_STATE_SINCE)
