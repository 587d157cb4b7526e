# SPDX-License-Identifier: Apache-2.0
"""Restarts of the VMs of one host: how often the controller started them again, and when the next may begin."""

import msgspec

from vgpuctl import typed_json
from vgpuctl.store.store import Session

FIRST_DELAY_S = 10.0
LONGEST_DELAY_S = 300.0
_KIND = "restarts"


class Attempt(msgspec.Struct, frozen=True):
    """The last restart of one VM. count: of those in a row. problem: why it failed, None when it did not."""

    count: int
    at: float
    problem: str | None = None

    def is_over(self, now: float) -> bool:
        """True if the next may begin. A clock that was set back ends the wait: it is never longer than was meant."""
        return not 0 <= now - self.at < self.delay_s

    @property
    def delay_s(self) -> float:
        """Seconds from this restart to the next."""
        return min(FIRST_DELAY_S * 2.0 ** min(self.count - 1, 10), LONGEST_DELAY_S)


class Restarts(msgspec.Struct, frozen=True):
    """The restarts on one host. boot_id: of the boot that was brought back. vms: by UUID.

    returning: UUIDs of the VMs that this boot found off and that have to start, until they have.
    """

    boot_id: str | None = None
    vms: dict[str, Attempt] = {}
    returning: tuple[str, ...] = ()


def read_restarts(session: Session, host: str) -> Restarts:
    """The restarts on a host; none where no controller has made any."""
    record = session.host_record(host, _KIND)
    restarts: Restarts = Restarts() if record is None else typed_json.decode(record.content, Restarts)
    return restarts


def save_restarts(session: Session, host: str, restarts: Restarts) -> None:
    """Keep the restarts on a host."""
    session.save_host_record(host, _KIND, msgspec.json.encode(restarts).decode())
