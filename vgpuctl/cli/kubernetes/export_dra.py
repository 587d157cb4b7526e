# SPDX-License-Identifier: Apache-2.0
"""export dra: the fleet as ResourceSlices of Kubernetes."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document

_JSON: "JsonOutput[Sequence[Mapping[str, object]]]" = JsonOutput()


@click.command("export dra")
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@options.limit
@options.inventory
@options.database
@options.as_json
def command(hosts: tuple[str, ...], as_json: bool, **where: Any) -> None:
    """Write what is free of the fleet as ResourceSlices of Kubernetes. They are of resource.k8s.io/v1, with one pool
    per host.

    A Kubernetes control plane can plan with them; nothing is allocated by it. No host is contacted.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.kubernetes.export_dra import as_documents, export_dra

    with services(**where) as opened:
        slices = export_dra(opened, hosts)
    if as_json:
        _JSON.print(slices)
    elif slices:
        print_document(as_documents(slices), nl=False)
