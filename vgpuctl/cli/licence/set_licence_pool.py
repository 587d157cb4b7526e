# SPDX-License-Identifier: Apache-2.0
"""set-licence-pool: change a pool of licences."""

from pathlib import Path

import click

from vgpuctl.cli.licence.create_licence_pool import TOKEN_HELP, JsonLicencePool
from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import say

_JSON: "JsonOutput[JsonLicencePool]" = JsonOutput()


@click.command("set-licence-pool")
@click.argument("name")
@click.option("--seats", type=WholeRange(1, 1_000_000), help="Number of licences.  [default: unchanged]")
@click.option(
    "--lease", metavar="DURATION", help="Lease of the server, as for create-licence-pool.  [default: unchanged]"
)
@click.option("--server", metavar="HOST", help="Licence server.  [default: unchanged]")
@click.option("--token", "token_file", metavar="FILE", type=click.Path(path_type=Path), help=TOKEN_HELP)
@click.option("--no-token", "forgets_token", is_flag=True, help="Forget the token; new VMs get none.")
@options.database
@options.as_json
def command(
    name: str,
    seats: int | None,
    lease: str | None,
    server: str | None,
    token_file: Path | None,
    forgets_token: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Change a pool of vGPU licences. VMs that hold a seat keep it, also when there are fewer seats now."""
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.times import parse_duration
    from vgpuctl.usecases.licence.set_licence_pool import PoolChanges, set_licence_pool

    lease_s = None if lease is None else parse_duration(lease, what="--lease")
    changes = PoolChanges(seats, lease_s, server, token_file, forgets_token)
    with services(database=database) as opened:
        pool, changed = set_licence_pool(opened, name, changes)
    if as_json:
        _JSON.print({"changed": changed, "pool": pool})
    else:
        say(f"licence pool {name}: {'changed' if changed else 'no change'}")
