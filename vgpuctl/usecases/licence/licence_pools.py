# SPDX-License-Identifier: Apache-2.0
"""Pools of vGPU licences, whose seats VMs take."""

import base64
from dataclasses import dataclass, replace
from pathlib import Path

from vgpuctl.errors import StateError, UsageError
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.licence import LicencePool
from vgpuctl.model.licence_token import server_name
from vgpuctl.model.plural import counted
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.times import format_duration, format_time_to_second
from vgpuctl.model.vm import check_name
from vgpuctl.specs.secret_file import SecretFiles
from vgpuctl.usecases.found.deletion import Deletion
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licences import settle_seats, shortages, token_claims

MOST_SEATS = 1_000_000


def create_licence_pool(services: Services, pool: LicencePool, token_file: Path | None) -> tuple[LicencePool, bool]:
    """Create a pool with the token of its server. Returns it, and whether it changed anything.

    Running VMs whose vGPUs need its edition, and which hold no seat yet, get one, also beyond its number; the
    user is told of VMs that cannot start again.
    Raises UsageError for a token that cannot be used, StateError for a pool of this name with other values.
    """
    check_name(pool.name, what="licence pool")
    check_seats(pool)
    token = None if token_file is None else read_token_file(token_file)
    pool = with_server(services, pool, token)
    with services.store.transaction() as session:
        there = next((one for one in session.licence_pools() if one.name == pool.name), None)
        if there is not None:
            same_token = token is None or session.licence_token(pool.name) == token
            if replace(there, has_token=pool.has_token) == pool and same_token:
                return there, False
            raise StateError(
                f"licence pool {pool.name} is there, with other values",
                context=[f"{name}: {value}" for name, value in values_of_pool(there).items() if value is not None],
                hint=f"change it with `vgpuctl set-licence-pool {pool.name}`",
            )
        session.put_licence_pool(pool)
        if token is not None:
            session.set_licence_token(pool.name, token)
        pool = session.licence_pool(pool.name)
        session.add_event(EventKind.LICENCE_POOL_CREATED, pool.name, after=values_of_pool(pool))
        taken = settle_seats(session)
        lacking = shortages(session)
    if taken:
        services.say(f"{counted(len(taken), 'running VM')} with a seat now: `vgpuctl list-licence-pools {pool.name}`")
    for line in lacking:
        services.say(f"warning: {line}")
    return pool, True


def check_seats(pool: LicencePool) -> None:
    """Raise UsageError for numbers that no pool has."""
    if not 0 < pool.seats <= MOST_SEATS:
        raise UsageError(f"--seats {pool.seats} is no number of seats", hint=f"write a number from 1 to {MOST_SEATS}")
    if not 0 <= pool.lease_s <= 365 * 86_400:
        raise UsageError("--lease is longer than a year", hint="write the lease that the licence server gives: 24h")


def read_token_file(path: Path) -> SecretText:
    """Read a token that only its owner may read, into base64, as seeds have it. Raises UsageError."""
    return SecretText.of(base64.b64encode(SecretFiles(path).read(path.name).strip()).decode())


def with_server(services: Services, pool: LicencePool, token: SecretText | None) -> LicencePool:
    """The pool with its server: as given, else the first that its token names.

    Raises UsageError for a token of another server, and for one whose time is over.
    """
    server = None if pool.server is None else server_name(pool.server, what="--server")
    if token is None:
        return replace(pool, server=server)
    claims = token_claims(token)
    if server is not None and server not in claims.servers:
        raise UsageError(
            f"the token is of another server: it names {', '.join(claims.servers)}, the pool's server is {server}",
            hint="download the token of that service instance, or give --server as the token has it",
        )
    if claims.expires_at is not None and claims.expires_at <= services.store.now():
        raise UsageError(
            f"the token has expired at {format_time_to_second(claims.expires_at)}",
            hint="create a new client configuration token on the licence server",
        )
    return replace(pool, server=server or claims.servers[0], has_token=True)


def values_of_pool(pool: LicencePool) -> Values:
    """The pool for events and errors, without its token."""
    return {
        "edition": str(pool.edition),
        "seats": pool.seats,
        "lease": format_duration(pool.lease_s),
        "server": pool.server,
        "has token": pool.has_token,
    }


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


def delete_licence_pool(services: Services, pool: LicencePool) -> None:
    """Delete a pool with its token and its seats. Its VMs run on; another pool of its edition counts them.

    Raises NotFound.
    """
    with services.store.transaction() as session:
        there = session.licence_pool(pool.name)
        session.delete_licence_pool(there.name)
        session.add_event(EventKind.LICENCE_POOL_DELETED, there.name, before=values_of_pool(there))
        settle_seats(session)
        lacking = shortages(session)
    for line in lacking:
        services.say(f"warning: {line}")


DELETION = Deletion(
    find=lambda session, _tenant, name: session.licence_pool(name),
    names=lambda session, _tenant: [one.name for one in session.licence_pools()],
    printed=lambda one: one.name,
    describe=lambda pool: f"licence pool {pool.name}: {counted(pool.seats, 'seat')} of {pool.edition}",
    delete=delete_licence_pool,
)
