# SPDX-License-Identifier: Apache-2.0
"""Another NVIDIA driver on a simulated host: its type ids are data of the driver, and may be others (reference 3.5)."""

from collections.abc import Mapping
from dataclasses import replace

from vgpuctl.catalog import short_name
from vgpuctl.errors import UsageError
from vgpuctl_lab.folder import LabFolder, default_folder
from vgpuctl_lab.simulated import fleet
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.shape import CardShape, Shape, VgpuType


def update_driver(
    host: str, version: str, type_ids: Mapping[str, int | None], *, folder: LabFolder | None = None
) -> None:
    """Install a driver on a simulated host and restart the host, as for every update of a driver that has vGPUs.

    type_ids: as for with_driver. Raises UsageError, LabError.
    """
    lab = folder or default_folder()
    path = simulated_folder(lab).host(host) / "machine.json"
    shapes.write(with_driver(shapes.read(path), version, type_ids), path)
    fleet.reboot(host, folder=lab)


def with_driver(shape: Shape, version: str, type_ids: Mapping[str, int | None]) -> Shape:
    """The host with another driver.

    type_ids: the ids of types that have another one, by name without the vendor; None for a type that the driver no
    longer has. Raises UsageError where no card has a type, or two types of a card would have one id.
    """
    known = {short_name(one.full_name) for card in shape.cards for one in card.types}
    unknown = sorted(type_ids.keys() - known)
    if unknown:
        raise UsageError(f"no card of {shape.hostname} has a vGPU type {unknown[0]}")
    return replace(
        shape, nvidia_driver=version, cards=tuple(_renumbered(shape.hostname, one, type_ids) for one in shape.cards)
    )


def _renumbered(hostname: str, card: CardShape, type_ids: Mapping[str, int | None]) -> CardShape:
    types: dict[int, VgpuType] = {}
    for one in card.types:
        number = type_ids.get(short_name(one.full_name), one.type_id)
        if number is None:
            continue
        if number in types:
            names = f"{types[number].full_name} and {one.full_name}"
            raise UsageError(f"{hostname}, {card.address}: {names} cannot both be type {number}")
        types[number] = replace(one, type_id=number)
    return replace(card, types=tuple(types[number] for number in sorted(types)))
