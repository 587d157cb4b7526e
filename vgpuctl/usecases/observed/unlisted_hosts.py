# SPDX-License-Identifier: Apache-2.0
"""Hosts that the store knows and no inventory lists any more: what was read of them is dropped after a week."""

from collections.abc import Collection

from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.declared.layout_records import OWED, hosts_with_shares
from vgpuctl.usecases.observed.tuning_record import end_tuning

UNLISTED_KEPT_S = 7 * 86_400.0
"""As long as a GPU that is missing. An inventory beside this one, whose hosts these are, reads them more often."""


def forget_unlisted(session: Session, listed: Collection[str]) -> list[str]:
    """Forget hosts that are not listed, were not read for a week, and have nothing that the store would lose.

    Shares that a layout made count too: a host that comes back would take them for somebody else's.
    """
    over = session.now() - UNLISTED_KEPT_S
    old = sorted(host for host, at in session.recorded_hosts().items() if host not in listed and at < over)
    kept = hosts_with_shares(session) if old else ()
    gone = [host for host in old if host not in kept and not has_objects(session, host)]
    for host in gone:
        forget_readings(session, host)
        session.add_event(EventKind.HOST_FORGOTTEN, host, "no inventory lists it, and it was not read for a week")
    return gone


def has_objects(session: Session, host: str) -> bool:
    """True if the store has rows of a host, such as VMs, shares, disks or reservations."""
    return bool(
        session.vms(host=host)
        or session.leases(host=host)
        or session.volumes(host=host)
        or session.kept_vms(host=host)
        or any(one.request.host == host for one in session.networks())
        or any(one.host == host for one in session.reservations())
        or any(one.host == host for one in session.restrictions())
        or any(one.host == host for kind in OWED for one in session.host_records(kind))
    )


def forget_readings(session: Session, host: str) -> None:
    """Drop all that was read of a host. A change in trial there ends, with its event, and is left as it is."""
    end_tuning(session, host, "the host was forgotten, and the change is left as it is")
    session.forget_facts(host)
    session.drop_host_records(host)
