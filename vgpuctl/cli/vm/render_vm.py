# SPDX-License-Identifier: Apache-2.0
"""render-vm: print domain XML, change nothing."""

from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.vm_options import read_requests, vm_flags
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document


class JsonDomain(TypedDict):
    """The domain XML of a VM."""

    name: str
    xml: str


_JSON: "JsonOutput[list[JsonDomain]]" = JsonOutput()


@click.command("render-vm")
@vm_flags
@click.option("--existing", is_flag=True, help="Print the XML that the VM of this name has in libvirt.")
@options.many_hosts
@options.every_refusal
@options.as_json
def command(existing: bool, as_json: bool, **given: Any) -> None:
    """Print the domain XML that create-vm would define now. Writes nothing anywhere."""
    from vgpuctl.cli.forms.services import services, take_service_options
    from vgpuctl.usecases.vm.render_vm import render_vm

    where = take_service_options(given)
    requests = read_requests(**given)
    with services(**where) as opened:
        rendered = [render_vm(opened, request, existing=existing) for request in requests]
    if as_json:
        _JSON.print([{"name": request.name, "xml": xml} for request, xml in zip(requests, rendered, strict=True)])
        return
    for xml in rendered:
        print_document(xml)
