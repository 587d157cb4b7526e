# SPDX-License-Identifier: Apache-2.0
"""adopt-host: what runs on a host becomes VMs, leases and a declared layout."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_document, print_table, say
from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.usecases.host.adopt_host import AdoptedVm, LeftAlone


class JsonAdoption(TypedDict):
    """Adopted VMs. shares: idle vGPUs, the layout's now. left: not adopted, with reasons. vgpu: the layout."""

    host: str
    changed: bool
    vms: "Sequence[AdoptedVm]"
    shares: "Sequence[str]"
    left: "Sequence[LeftAlone]"
    vgpu: Mapping[str, object]


_JSON: "JsonOutput[JsonAdoption]" = JsonOutput()


@click.command("adopt-host")
@click.argument("host")
@click.option(
    "--tenant",
    metavar="NAME",
    help="Tenant of the domains that hold GPUs.  [default: only domains named by other options]",
)
@click.option(
    "--vm",
    "named",
    multiple=True,
    metavar="DOMAIN=TENANT[/NAME]",
    help="Tenant and VM name of one domain; several times.",
)
@click.option(
    "--owners",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="YAML or JSON file that maps domains to TENANT or TENANT/NAME.",
)
@click.option(
    "--layout-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the layout to this file of host_vars.  [default: stdout]",
)
@options.dry_run
@options.one_host
@options.as_json
def command(
    host: str,
    tenant: str | None,
    named: tuple[str, ...],
    owners: Path | None,
    layout_file: Path | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Adopt a host as it is, with its VMs and its layout. Its domains with GPUs become VMs with leases, its GPUs become
    a declared layout.

    Nothing on the host is written or restarted. vgpuctl never touches domains and vGPUs that were not adopted.
    The same command again changes nothing, and continues an interrupted run.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.inventory.owners_file import read_owners
    from vgpuctl.usecases.host.adopt_host import adopt_host, parse_owner, save_layout

    texts = read_owners(str(owners)) if owners is not None else {}
    for text in named:
        domain, equals, owner = text.partition("=")
        if not equals:
            raise UsageError(f"--vm {text!r} names no owner", hint="write it as DOMAIN=TENANT or DOMAIN=TENANT/NAME")
        texts[domain] = owner
    wanted = {domain: parse_owner(text) for domain, text in texts.items()}
    with services(rehearses=dry_run, **where) as opened:
        found = adopt_host(opened, host, owners=wanted, tenant=tenant)
    written = layout_file is not None and not dry_run and save_layout(found, layout_file)
    if as_json:
        _JSON.print(
            {
                "host": found.host,
                "changed": found.changed or written,
                "vms": found.vms,
                "shares": found.shares,
                "left": found.left,
                "vgpu": found.variable,
            }
        )
        return
    new = [one for one in found.vms if one.is_new]
    for one in new:
        shares = ", ".join(f"{lease.share.profile} on {lease.share.function}" for lease in one.leases)
        verb = "would be" if dry_run else "is"
        say(f"{one.vm.domain_name} {verb} VM {one.vm.request.name} of tenant {one.vm.request.tenant}: {shares}")
    if not found.changed:
        say(f"{host}: no change, {len(found.vms)} VMs are known")
    if found.left:
        print_table(["LEFT ALONE", "WHY"], [(one.subject, one.reason) for one in found.left], empty="")
    if layout_file is None:
        print_document(found.text, nl=False)
