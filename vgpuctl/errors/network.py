# SPDX-License-Identifier: Apache-2.0
"""Errors of tenants' networks in the store, and of OVN."""

from vgpuctl.errors.base import VgpuctlError
from vgpuctl.errors.state import StateError


class NetworkDiffers(StateError):
    """A network of this name exists with another specification."""

    reference = "network-differs"


class VpcObjectDiffers(StateError):
    """A network object of this name exists with another specification."""

    reference = "vpc-object-differs"


class NetworkInUse(StateError):
    """A network still has VMs, something of it is still used, or its addresses overlap where they may not."""

    reference = "network-in-use"


class AddressesExhausted(StateError):
    """A network has no free address."""

    reference = "addresses-exhausted"


class OvnError(VgpuctlError):
    """OVN's databases did not do what was asked."""

    reference = "ovn"
    exit_code = 11


class OvnUnreachable(OvnError):
    """A database of OVN does not answer."""

    reference = "ovn-unreachable"


class OvnRefused(OvnError):
    """OVN's northbound database did not take a change."""

    reference = "ovn-refused"
