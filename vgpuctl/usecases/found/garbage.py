# SPDX-License-Identifier: Apache-2.0
"""A leftover that gc finds: made by vgpuctl on a host or in OVN, and unknown to the store."""

from dataclasses import dataclass
from enum import StrEnum


class GarbageKind(StrEnum):
    """The kinds of leftovers, in the order of their deletion."""

    DOMAIN = "domain"
    VOLUME = "volume"
    NETWORK = "network"
    VGPU = "vgpu"
    OVN = "ovn"
    STATE = "guest-state"
    FUNCTION = "function"


@dataclass(frozen=True)
class Garbage:
    """One thing that no object of the store has.

    name: a domain, `POOL/VOLUME`, a libvirt network, an mdev's UUID or a VF, an owner of OVN's rows, a path of UEFI
    variables or of a TPM, a network function. host: `-` for OVN.
    why: what makes it garbage. left: why it is left alone nevertheless, None when it can be deleted.
    """

    kind: GarbageKind
    name: str
    host: str
    why: str
    left: str | None = None
