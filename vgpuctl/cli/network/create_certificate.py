# SPDX-License-Identifier: Apache-2.0
"""create-certificate: identities for OVN's databases."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.configuration import configured
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line

if TYPE_CHECKING:
    from vgpuctl.usecases.network.create_certificate import CreatedCertificate


_JSON: "JsonOutput[list[CreatedCertificate]]" = JsonOutput()


@click.command("create-certificate")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of our authority; default: VGPUCTL_AUTHORITY_FOLDER, or vgpuctl/authority in the user's data folder.",
)
@options.database
@options.as_json
def command(names: tuple[str, ...], folder: Path | None, database: str | None, as_json: bool) -> None:
    """Create keys and certificates for OVN's databases. The first time also an authority of our own.

    One for the machine of ovn-central, one named vgpuctl for this command. Hosts get theirs from apply-hosts.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.network.create_certificate import create_certificates

    named = configured("authority_folder")
    with services(database=database) as opened:
        made = create_certificates(opened, names, folder or (Path(named) if named else None))
    if as_json:
        _JSON.print(made)
        return
    for one in made:
        print_line(f"{one.name}: {'created' if one.changed else 'no change'}")
        print_line(f"  key         {one.key}")
        print_line(f"  certificate {one.certificate}")
        print_line(f"  authority   {one.authority}")
        print_line(f"  operators   {one.operators}")
