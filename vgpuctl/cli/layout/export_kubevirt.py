# SPDX-License-Identifier: Apache-2.0
"""export kubevirt: what KubeVirt needs to hand out the GPUs of hosts."""

from pathlib import Path
from typing import Any

import click

from vgpuctl.cli.forms.tool_export import JsonToolExport, export_options, show_export
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput

_JSON: "JsonOutput[JsonToolExport]" = JsonOutput()


@click.command("export kubevirt")
@export_options
@options.many_hosts
@options.as_json
def command(
    hosts: tuple[str, ...], profile: str | None, folder: Path | None, refresh: bool, as_json: bool, **where: Any
) -> None:
    """Write what KubeVirt needs to hand out the GPUs of hosts. These are permitted devices, mediated devices, and GPUs
    of VMs.

    The form of each GPU is its declared layout's, else what it offers now. Limits of KubeVirt are named on stderr and
    in comments. VFs with a vGPU type need KubeVirt 1.9. Nothing is written to hosts.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.layout.export_kubevirt import export_kubevirt

    with services(**where) as opened:
        found = export_kubevirt(opened, hosts, profile=profile, refresh=refresh)
    show_export(found, folder, _JSON if as_json else None)
