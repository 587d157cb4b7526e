# SPDX-License-Identifier: Apache-2.0
"""Licences of vGPU software as a resource (reference guest, section 2)."""

from dataclasses import dataclass
from enum import StrEnum


class Edition(StrEnum):
    """NVIDIA's vGPU software products, as their licences are counted."""

    VWS = "vws"
    VPC = "vpc"
    VAPPS = "vapps"
    VCS = "vcs"


@dataclass(frozen=True)
class LicencePool:
    """Seats of one licence server. lease_s: how long a seat stays taken after a guest that could not return it.

    server: the host name that the server's token must name; None for any.
    """

    name: str
    edition: Edition
    seats: int
    lease_s: float = 86400.0
    server: str | None = None


@dataclass(frozen=True)
class LicenceSeat:
    """A VM's seat of a pool. released_at: when it comes back (seconds since the epoch, UTC); None while it is held."""

    pool: str
    tenant: str
    vm_uuid: str
    vm_name: str
    edition: Edition
    taken_at: float
    released_at: float | None = None
