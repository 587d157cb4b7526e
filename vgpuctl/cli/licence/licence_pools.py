# SPDX-License-Identifier: Apache-2.0
"""create-, set-, list- and delete-licence-pool: pools of vGPU licences."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, ColumnUnit, Listing, ListOutput
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.output import print_line
from vgpuctl.model.plural import counted
from vgpuctl.model.times import format_time_to_second

if TYPE_CHECKING:
    from vgpuctl.model.licence import LicencePool
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.licence.list_licence_pools import LicencePoolState
    from vgpuctl.usecases.running.services import Services


TOKEN_HELP = "File with the server's client configuration token, mode 0600; VMs get it in their seed."


_POOLS: "StoredKind[LicencePool]" = StoredKind("licence pool", "list-licence-pools", "pool")


@_POOLS.changes(lambda pool: f"{counted(pool.seats, 'seat')} of {pool.edition}", is_new=True)
@click.option(
    "--edition",
    required=True,
    type=click.Choice(["vws", "vpc", "vapps", "vcs"], case_sensitive=False),
    help="Product: vws (Q types), vpc (B types), vapps (A types) or vcs (C types).",
)
@click.option("--seats", required=True, type=WholeRange(1, 1_000_000), help="Number of licences.")
@click.option(
    "--lease",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="Time that the server keeps a licence for a guest that did not return it.",
)
@click.option("--server", metavar="HOST", help="Licence server.  [default: the first one that the token names]")
@click.option("--token", "token_file", metavar="FILE", type=click.Path(path_type=Path), help=TOKEN_HELP)
def create_licence_pool(
    opened: "Services", name: str, edition: str, seats: int, lease: str, server: str | None, token_file: Path | None
) -> "tuple[LicencePool, bool]":
    """Create a pool of vGPU licences, of which VMs take seats. From the first pool on, every VM with vGPUs needs a seat
    to run.
    """
    from vgpuctl.model.licence import Edition, LicencePool
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.licence.licence_pools import create_licence_pool

    wanted = LicencePool(name, Edition(edition), seats, parse_duration(lease, what="--lease"), server)
    return create_licence_pool(opened, wanted, token_file)


@_POOLS.changes(lambda _pool: "changed")
@click.option("--seats", type=WholeRange(1, 1_000_000), help="Number of licences.  [default: unchanged]")
@click.option(
    "--lease", metavar="DURATION", help="Lease of the server, as for create-licence-pool.  [default: unchanged]"
)
@click.option("--server", metavar="HOST", help="Licence server.  [default: unchanged]")
@click.option("--token", "token_file", metavar="FILE", type=click.Path(path_type=Path), help=TOKEN_HELP)
@click.option("--no-token", "forgets_token", is_flag=True, help="Forget the token; new VMs get none.")
def set_licence_pool(
    opened: "Services",
    name: str,
    seats: int | None,
    lease: str | None,
    server: str | None,
    token_file: Path | None,
    forgets_token: bool,
) -> "tuple[LicencePool, bool]":
    """Change the seats, lease, server or token of a licence pool. VMs that hold a seat keep it, also when there are
    fewer seats now.
    """
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.licence.licence_pools import PoolChanges, set_licence_pool

    lease_s = None if lease is None else parse_duration(lease, what="--lease")
    return set_licence_pool(opened, name, PoolChanges(seats, lease_s, server, token_file, forgets_token))


def _tenants(one: "LicencePoolState") -> tuple[str, ...] | None:
    return tuple(f"{tenant}: {count}" for tenant, count in one.tenants.items()) or None


_LISTING: "Listing[LicencePoolState, LicencePoolState]" = Listing(
    columns=(
        Column("POOL", lambda one: one.pool.name),
        Column("EDITION", lambda one: one.pool.edition, drops=5),
        Column("SEATS", lambda one: one.pool.seats),
        Column("HELD", lambda one: one.held),
        Column("COMING BACK", lambda one: one.coming_back, drops=4),
        Column("FREE", lambda one: one.free),
        Column("TENANTS", _tenants, drops=1),
        Column(
            "WAITING", lambda one: one.waiting or None, drops=2, colour=lambda one: "yellow" if one.waiting else None
        ),
        Column("LEASE", lambda one: one.pool.lease_s, unit=ColumnUnit.SECONDS, drops=6),
        Column("SERVER", lambda one: one.pool.server, drops=3),
        Column("TOKEN", lambda one: "yes" if one.pool.has_token else "no", drops=7),
    ),
    name=lambda one: one.pool.name,
    json=lambda one: one,
    empty="no licence pool: licences are not counted",
)


def _print_seats(states: "Sequence[LicencePoolState]", _output: ListOutput) -> None:
    for one in states:
        for seat in one.seats:
            back = seat.released_at
            until = "held" if back is None else f"comes back at {format_time_to_second(back)}"
            print_line(f"{one.pool.name}: {seat.tenant}/{seat.vm_name}: {until}")


@_POOLS.lists(_LISTING, _print_seats)
@_POOLS.argument("names", metavar="[NAME]...", nargs=-1)
def list_licence_pools(opened: "Services", names: tuple[str, ...]) -> "Sequence[LicencePoolState]":
    """List licence pools: seats, who holds them, who waits. Also seats that come back later, and the tenants.

    With names, also each taken seat with its VM.
    """
    from vgpuctl.usecases.licence.list_licence_pools import list_licence_pools

    return list_licence_pools(opened, names)


@_POOLS.deletes(whose=", with the tokens")
def delete_licence_pool() -> "Deletion[LicencePool]":
    """Delete licence pools with their tokens. VMs that hold seats of them run on."""
    from vgpuctl.usecases.licence.licence_pools import DELETION

    return DELETION
