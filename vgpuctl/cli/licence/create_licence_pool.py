# SPDX-License-Identifier: Apache-2.0
"""create-licence-pool: the seats of a licence server."""

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.licence import LicencePool

TOKEN_HELP = "File with the server's client configuration token, mode 0600; VMs get it in their seed."


class JsonLicencePool(TypedDict):
    """The licence pool; changed: false if it was there already."""

    changed: bool
    pool: "LicencePool"


_JSON: "JsonOutput[JsonLicencePool]" = JsonOutput()


@click.command("create-licence-pool")
@click.argument("name")
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
@options.database
@options.as_json
def command(
    name: str,
    edition: str,
    seats: int,
    lease: str,
    server: str | None,
    token_file: Path | None,
    database: str | None,
    as_json: bool,
) -> None:
    """Create a pool of vGPU licences. From the first pool on, every VM with vGPUs needs a seat to run."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.licence import Edition, LicencePool
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.licence.create_licence_pool import create_licence_pool

    wanted = LicencePool(name, Edition(edition), seats, parse_duration(lease, what="--lease"), server)
    with services(database=database) as opened:
        pool, changed = create_licence_pool(opened, wanted, token_file)
    if as_json:
        _JSON.print({"changed": changed, "pool": pool})
    else:
        say(
            f"licence pool {name}: {counted(pool.seats, 'seat')} of {pool.edition}"
            if changed
            else f"licence pool {name}: no change"
        )
