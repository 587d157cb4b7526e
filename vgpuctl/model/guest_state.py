# SPDX-License-Identifier: Apache-2.0
"""The state of a guest beside its disks: the variables of its UEFI firmware, and its TPM. Names of their files."""

from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, Vm

NVRAM_ENDING = "_VARS.fd"


def nvram_file(vm: Vm) -> str:
    """The name of the file of its variables: after its UUID, or as libvirt names it by default, after its domain.

    libvirt's own name is that of VMs whose request says nothing of Secure Boot.
    """
    owner = vm.domain_name if vm.request.secure_boot is None else vm.uuid
    return f"{owner}{NVRAM_ENDING}"


def has_tpm(vm: Vm) -> bool:
    """True if the VM has a TPM, whose loss locks a disk that is encrypted with its key."""
    return vm.request.tpm is Switch.ON


def has_state(vm: Vm) -> bool:
    """True if the VM has a file of variables or a TPM."""
    return vm.request.firmware is Firmware.UEFI or has_tpm(vm)
