# SPDX-License-Identifier: Apache-2.0
"""Errors of images: the catalogue, a host's copy."""

from vgpuctl.errors.base import UsageError
from vgpuctl.errors.guest import GuestError
from vgpuctl.errors.host import HostError
from vgpuctl.errors.state import StateError


class ImageUnregistered(UsageError):
    """A VM names a path, a volume or an image that the catalogue does not have."""

    reference = "image-unregistered"


class ImageMissing(HostError):
    """A host has no copy of an image."""

    reference = "image-missing"


class ImageDiffers(StateError):
    """An image of this name is registered with another place, format or checksum."""

    reference = "image-differs"


class ImageInUse(StateError):
    """VMs or queued VMs name the image."""

    reference = "image-in-use"


class ImageRejected(GuestError):
    """A host's copy of an image is not what was registered, or is a VM's disk."""

    reference = "image-rejected"
