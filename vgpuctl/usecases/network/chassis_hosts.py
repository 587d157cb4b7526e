# SPDX-License-Identifier: Apache-2.0
"""The names of hosts in OVN, and which host of the inventory a chassis is."""

import contextlib
from collections.abc import Iterable, Mapping

from vgpuctl.errors import InventoryError
from vgpuctl.usecases.running.services import Services


def chassis_of(services: Services, host: str) -> str:
    """A host's name in OVN: as its layout says, else as Open vSwitch had it at the last reading, else its own."""
    with contextlib.suppress(InventoryError):
        layout = services.inventory.layout(host)
        if layout is not None and layout.network is not None:
            return layout.network.chassis
    with services.store.reading() as session:
        record = session.facts(host)
    ovn = None if record is None else record.facts.ovn
    return host if ovn is None or ovn.chassis is None else ovn.chassis.system_id or host


def hosts_of(services: Services, chassis: Iterable[str]) -> Mapping[str, str | None]:
    """The host of the inventory that is each chassis; None where no host is. Raises UsageError without an inventory."""
    names = services.inventory.hosts()
    found: dict[str, str | None] = {}
    by_chassis: dict[str, str] | None = None
    for one in chassis:
        if one in names and chassis_of(services, one) == one:
            found[one] = one
            continue
        if by_chassis is None:
            by_chassis = {chassis_of(services, name): name for name in names}
        found[one] = by_chassis.get(one)
    return found
