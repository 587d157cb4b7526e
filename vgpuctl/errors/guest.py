# SPDX-License-Identifier: Apache-2.0
"""Errors of libvirt on a host."""

from vgpuctl.errors.base import VgpuctlError


class GuestError(VgpuctlError):
    """libvirt refused something."""

    reference = "guest"
    exit_code = 7


class DomainRejected(GuestError):
    """libvirt refused to define or start a domain."""

    reference = "domain-rejected"


class VolumeRejected(GuestError):
    """libvirt refused a storage volume, or a base image is missing."""

    reference = "volume-rejected"


class VolumeExists(VolumeRejected):
    """A storage volume of the name exists and is not ours; it stays as it is."""

    reference = "volume-exists"


class NetworkMissing(GuestError):
    """The libvirt network of a VM does not exist or is not active."""

    reference = "network-missing"


class NetworkRejected(GuestError):
    """libvirt refused to define, start or change a tenant's network."""

    reference = "network-rejected"
