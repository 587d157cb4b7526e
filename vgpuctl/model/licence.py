# SPDX-License-Identifier: Apache-2.0
"""Licences of vGPU software as a resource (reference guest, section 2)."""

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_LEASE_S = 86_400.0
"""The lease of NVIDIA's licence service unless its administrator sets another one."""


class Edition(StrEnum):
    """NVIDIA's vGPU software products, as their licences are counted."""

    VWS = "vws"
    VPC = "vpc"
    VAPPS = "vapps"
    VCS = "vcs"

    @classmethod
    def _missing_(cls, value: object) -> "Edition | None":
        """NVIDIA writes vWS, vPC and so on; every case is read."""
        lower = str(value).lower()
        return next((one for one in cls if one == lower), None)


@dataclass(frozen=True)
class LicencePool:
    """Seats of one licence server. lease_s: how long a seat stays taken after a guest that could not return it.

    server: the host name that the server's token must name; None for any. has_token: True if the store has the
    server's token, sealed; VMs that take a seat get it in their seed.
    """

    name: str
    edition: Edition
    seats: int
    lease_s: float = DEFAULT_LEASE_S
    server: str | None = None
    has_token: bool = False


@dataclass(frozen=True)
class LicenceSeat:
    """A VM's seat of a pool. Times are seconds since the epoch, UTC.

    used_at: when its guest was started, which then checks a licence out. None before, and after the guest powered off.
    released_at: when it comes back; None while it is held. A time that has passed: it is free.
    """

    pool: str
    tenant: str
    vm_uuid: str
    vm_name: str
    edition: Edition
    taken_at: float
    used_at: float | None = None
    released_at: float | None = None
