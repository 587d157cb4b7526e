# SPDX-License-Identifier: Apache-2.0
"""The network interfaces that a VM is asked to have beside its first one."""

from dataclasses import dataclass
from enum import StrEnum


class NicModel(StrEnum):
    """How the guest sees an interface; e1000e needs no driver that an installer lacks."""

    VIRTIO = "virtio"
    E1000E = "e1000e"


@dataclass(frozen=True)
class NicRequest:
    """One more interface, in a network of the tenant or of the host. model: None as the profile says."""

    network: str
    model: NicModel | None = None
    security_groups: tuple[str, ...] = ()
    bandwidth_mbps: int | None = None
