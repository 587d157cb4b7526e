# SPDX-License-Identifier: Apache-2.0
"""create-certificate: identities for OVN's databases."""

import os
from pathlib import Path

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json, print_line


@click.command("create-certificate")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the authority is; default: VGPUCTL_AUTHORITY_FOLDER, or vgpuctl/authority in the user's data folder.",
)
@options.as_json
def command(names: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Make keys and certificates for OVN's databases, and with the first one our own authority.

    One for the machine of ovn-central, one named vgpuctl for this command. Hosts get theirs from apply-hosts.
    """
    from vgpuctl.usecases.network.create_certificate import create_certificates

    named = os.environ.get("VGPUCTL_AUTHORITY_FOLDER")
    made = create_certificates(names, folder or (Path(named) if named else None))
    if as_json:
        print_json(made)
        return
    for one in made:
        print_line(f"{one.name}: {'made' if one.changed else 'there already'}")
        print_line(f"  key         {one.key}")
        print_line(f"  certificate {one.certificate}")
        print_line(f"  authority   {one.authority}")
        print_line(f"  operators   {one.operators}")
