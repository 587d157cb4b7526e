# SPDX-License-Identifier: Apache-2.0
"""Values that must be unique in the fleet, of all hosts of the inventory, also of those that no command is about.

A host whose layout cannot be read has none: that mistake is told where the host is asked for.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from vgpuctl.errors import InventoryError
from vgpuctl.planner.layout.fleet_values import FleetValues, collect, values_of

if TYPE_CHECKING:
    from vgpuctl.inventory.load import Inventory
    from vgpuctl.model.layout import HostLayout
    from vgpuctl.usecases.running.services import Services


def read_fleet_values(services: "Services") -> FleetValues:
    """Read the declared values from the inventory, and addresses from what was last read of each host."""
    layouts = _chassis_of(services.inventory)
    if not layouts:
        return collect(())
    with services.store.reading() as session:
        facts = session.all_facts()
    return collect(
        value
        for name, layout in layouts.items()
        for value in values_of(name, layout, facts[name].facts if name in facts else None)
    )


@lru_cache(maxsize=1)
def declared_values(inventory: "Inventory") -> FleetValues:
    """Read what is declared alone, once for all that ask about hosts of the inventory."""
    return collect(value for name, layout in _chassis_of(inventory).items() for value in values_of(name, layout, None))


def _chassis_of(inventory: "Inventory") -> "dict[str, HostLayout]":
    found: dict[str, HostLayout] = {}
    for name in inventory.hosts():
        try:
            layout = inventory.layout(name)
        except InventoryError:
            continue
        if layout is not None and layout.network is not None:
            found[name] = layout
    return found
