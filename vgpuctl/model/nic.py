# SPDX-License-Identifier: Apache-2.0
"""The network interfaces that a VM is asked to have beside its first one."""

from dataclasses import dataclass
from enum import StrEnum

MOST_NICS = 8
"""As many as there are functions in the slot of their ports (guests/domain/pci_layout.py)."""


class NicModel(StrEnum):
    """How the guest sees an interface; e1000e needs no driver that an installer lacks."""

    VIRTIO = "virtio"
    E1000E = "e1000e"


@dataclass(frozen=True)
class NicRequest:
    """One more interface, in a network of the tenant or of the host. model: None as the profile says.

    position: which of the VM's interfaces it is, from 1; None for the first position that is free. spare_port: the
    spare port that it was attached to while the VM ran, from 0; None for the port of its position. Both are noted by
    attach-nic and detach-nic, so that no other interface moves in the guest.
    """

    network: str
    model: NicModel | None = None
    security_groups: tuple[str, ...] = ()
    bandwidth_mbps: int | None = None
    position: int | None = None
    spare_port: int | None = None


def limit_kib_s(mbps: int) -> int:
    """A rate as libvirt limits it, in KiB a second; at least 1, for 0 would be no limit."""
    return max(mbps * 1_000_000 // 8 // 1024, 1)
