# SPDX-License-Identifier: Apache-2.0
"""show-inventory: hosts, groups and variables as the sources say, without contacting any host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vgpuctl.errors import InventoryError
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.model.host_target import HostTarget


@dataclass(frozen=True)
class InventoryHost:
    """One host: its groups, and its target or why it has none."""

    name: str
    groups: tuple[str, ...]
    target: "HostTarget | None"
    problem: InventoryError | None = None


def show_inventory(services: Services, limit: str | None) -> Sequence[InventoryHost]:
    """The hosts that fit a limit, in the inventory's order. A target that cannot be made is a value, not an error."""
    return [_show(services, name) for name in services.inventory.select(limit)]


def list_like_ansible(services: Services, limit: str | None, *, with_secrets: bool) -> dict[str, dict[str, Any]]:
    """The output of `ansible-inventory --list` for the same sources and limit, keys in order.

    with_secrets: without masks in the place of passwords, vaults and arguments of ssh.
    """
    return services.inventory.as_ansible_list(limit, with_secrets=with_secrets)


def inventory_warnings(services: Services) -> Sequence[str]:
    """The warnings about variables, those about hosts having been told; complete once the variables were read.

    Also what is wrong with the chosen hosts' addresses for moves: two hosts that have the same look fine alone.
    """
    told, shared = services.inventory.structure_warnings, []
    for name in services.hosts():
        try:
            if services.inventory.move_link(name).network is not None:
                services.inventory.move_address(name)
        except InventoryError as error:
            shared.append(error.message)
    return [*(one for one in services.inventory.warnings if one not in told), *shared]


def _show(services: Services, name: str) -> InventoryHost:
    groups = services.inventory.groups_of(name)
    try:
        return InventoryHost(name, groups, services.inventory.target(name))
    except InventoryError as error:
        return InventoryHost(name, groups, None, error)
