# SPDX-License-Identifier: Apache-2.0
"""Chassis whose hosts are drained or fenced: they carry a tenant's gateway only if no other chassis can."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

_KIND = "gateways-aside"


def set_aside(session: "Session", host: str, chassis: str) -> bool:
    """Record the chassis of a host that is drained or fenced. Returns False if it is recorded already."""
    there = session.host_record(host, _KIND)
    if there is not None and there.content == chassis:
        return False
    session.save_host_record(host, _KIND, chassis)
    return True


def end_aside(session: "Session", host: str) -> str | None:
    """Let a host's chassis carry gateways in its turn again. Returns the chassis, None if it was not aside."""
    there = session.host_record(host, _KIND)
    session.drop_host_record(host, _KIND)
    return None if there is None else there.content


def chassis_aside(session: "Session") -> frozenset[str]:
    """The chassis that are last in every gateway's group."""
    return frozenset(record.content for record in session.host_records(_KIND))
