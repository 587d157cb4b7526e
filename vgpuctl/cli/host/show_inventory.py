# SPDX-License-Identifier: Apache-2.0
"""show-inventory: hosts, groups and variables of the inventory."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_table, say
from vgpuctl.errors import InventoryError

if TYPE_CHECKING:
    from vgpuctl.usecases.host.show_inventory import InventoryHost


_JSON: "JsonOutput[Mapping[str, Mapping[str, object]]]" = JsonOutput()


@click.command("show-inventory")
@options.inventory
@options.limit
@click.option("--with-secrets", is_flag=True, help="Print the value of every variable in --json, passwords too.")
@options.as_json
def command(inventories: tuple[str, ...], limit: str | None, with_secrets: bool, as_json: bool) -> None:
    """Show the hosts, groups and variables of the inventory. No host is contacted.

    --json prints every variable, as `ansible-inventory --list` does. Values are shown of the connection and of the
    variables of vgpuctl, without passwords, vaults, commands and arguments of ssh; every other one is masked, because
    nobody knows what it holds. With --with-secrets the output is exactly that of ansible-inventory.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.host.show_inventory import inventory_warnings, list_like_ansible, show_inventory

    if with_secrets and not as_json:
        raise click.UsageError("--with-secrets goes with --json: the table has no secrets.")
    hosts: Sequence[InventoryHost] = ()
    with services(inventories=inventories, limit=limit) as opened:
        if as_json:
            _JSON.print(list_like_ansible(opened, limit, with_secrets=with_secrets), indent=4)
        else:
            hosts = show_inventory(opened, limit)
            print_table(
                ["HOST", "ADDRESS", "PORT", "USER", "BECOME", "GROUPS"],
                [_row(host) for host in hosts],
                empty="the inventory has no host",
            )
        for warning in inventory_warnings(opened):
            say(f"warning: {warning}")
    _report([host.problem for host in hosts if host.problem is not None])


def _row(host: "InventoryHost") -> Sequence[object]:
    groups = " ".join(host.groups)
    if host.target is None:
        return (host.name, "invalid", None, None, None, groups)
    target = host.target
    become = (target.become_user or "root") if target.become else None
    return (host.name, target.address, target.port, target.user, become, groups)


def _report(problems: Sequence[InventoryError]) -> None:
    if len(problems) > 1:
        raise InventoryError(
            f"{len(problems)} hosts cannot be reached as the inventory describes them",
            context=[problem.message + (f" (hint: {problem.hint})" if problem.hint else "") for problem in problems],
        )
    for problem in problems:
        raise problem
