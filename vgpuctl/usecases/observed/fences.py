# SPDX-License-Identifier: Apache-2.0
"""Fenced hosts: declared dead, so that nothing contacts them and what they held is settled in the store alone."""

from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services


def is_fenced(session: Session, host: str) -> bool:
    """True if the host was declared dead, and not trusted again since."""
    return any((one.host, one.kind) == (host, RestrictionKind.FENCE) for one in session.restrictions())


def is_host_fenced(services: Services, host: str) -> bool:
    """The same in a transaction of its own."""
    with services.store.reading() as session:
        return is_fenced(session, host)
