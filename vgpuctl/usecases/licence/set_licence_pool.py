# SPDX-License-Identifier: Apache-2.0
"""set-licence-pool: change the seats, lease, server or token of a pool."""

from dataclasses import dataclass, replace
from pathlib import Path

from vgpuctl.errors import UsageError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.licence import LicencePool
from vgpuctl.usecases.licence.create_licence_pool import check_seats, read_token_file, values_of_pool, with_server
from vgpuctl.usecases.support.licences import settle_seats, shortages
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class PoolChanges:
    """None leaves a value as it is. token_file: of the new token; forgets_token: have none."""

    seats: int | None = None
    lease_s: float | None = None
    server: str | None = None
    token_file: Path | None = None
    forgets_token: bool = False


def set_licence_pool(services: Services, name: str, changes: PoolChanges) -> tuple[LicencePool, bool]:
    """Change a pool. Fewer seats than are taken is allowed: nobody loses one, and no further VM gets one.

    Guests keep the token that their seed had; a new one reaches VMs that are created from now on.
    Returns the pool, and whether anything changed. Raises NotFound, and UsageError as create_licence_pool does.
    """
    if changes.token_file is not None and changes.forgets_token:
        raise UsageError("--token and --no-token exclude each other")
    token = None if changes.token_file is None else read_token_file(changes.token_file)
    with services.store.transaction() as session:
        there = session.licence_pool(name)
        pool = replace(
            there,
            seats=there.seats if changes.seats is None else changes.seats,
            lease_s=there.lease_s if changes.lease_s is None else changes.lease_s,
            server=there.server if changes.server is None else changes.server,
        )
        check_seats(pool)
        old = session.licence_token(name) if token is not None or changes.server is not None else None
        known = token or (None if changes.forgets_token else old)
        pool = with_server(services, pool, known)
        new_token = token is not None and old != token
        forgets = changes.forgets_token and there.has_token
        if replace(pool, has_token=there.has_token) == there and not new_token and not forgets:
            return there, False
        session.put_licence_pool(pool)
        if new_token or forgets:
            session.set_licence_token(name, token)
        pool = session.licence_pool(name)
        before = values_of_pool(there)
        after = {**values_of_pool(pool), **({"token": "another one"} if new_token and there.has_token else {})}
        session.add_event(EventKind.LICENCE_POOL_CHANGED, name, before=before, after=after)
        settle_seats(session)
        lacking = shortages(session)
    for line in lacking:
        services.say(f"warning: {line}")
    return pool, True
