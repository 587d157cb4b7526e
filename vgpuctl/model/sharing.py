# SPDX-License-Identifier: Apache-2.0
"""How a GPU is handed out (design, section 5)."""

from enum import StrEnum


class Sharing(StrEnum):
    """One way to give a VM a GPU or a share of it."""

    PASSTHROUGH = "passthrough"
    MDEV = "mdev"
    MDEV_VF = "mdev-vf"
    VF_PROFILE = "vf-profile"
    VF = "vf"

    def is_vgpu(self) -> bool:
        """Whether the share is a vendor's vGPU type rather than a plain function."""
        return self in (Sharing.MDEV, Sharing.MDEV_VF, Sharing.VF_PROFILE)

    def needs_virtual_functions(self) -> bool:
        """Whether the share sits on an SR-IOV virtual function."""
        return self in (Sharing.MDEV_VF, Sharing.VF_PROFILE, Sharing.VF)

    def is_mediated(self) -> bool:
        """Whether the share is a mediated device, named by a UUID."""
        return self in (Sharing.MDEV, Sharing.MDEV_VF)

    def is_managed(self) -> bool:
        """Whether libvirt binds the function to vfio-pci itself (`managed='yes'`)."""
        return self in (Sharing.PASSTHROUGH, Sharing.VF)
