# SPDX-License-Identifier: Apache-2.0
"""Faults of simulated hosts: in the machine's state, and at the listeners of the lab daemon."""

from vgpuctl.errors import LabError, UsageError
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.simulated import fleet
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine import fabric_manager, faults
from vgpuctl_lab.simulated.machine.rules import TYPES_ALONE
from vgpuctl_lab.simulated.machine.shape import PASSTHROUGH, CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder

NVIDIA, INTEL = "10de", "8086"
Active = tuple[str, str | None, int]
# Faults that the lab daemon applies; the agent sees the others by itself.
_AT_LISTENERS = ("libvirtd", "sshd", "network", "power-off")
_OF_HOST = (*_AT_LISTENERS, "disk-full", "clock-skew", "move-seconds", "move-port", *faults.OF_FABRIC)


def begin(lab: LabFolder, host: str, kind: str, value: int, address: str | None) -> str | None:
    """Let a fault begin; the card it is on, None for one of the host."""
    machine = _machine(lab, host)
    if kind in (*faults.OF_FABRIC, fabric_manager.FAILED_LINKS) and not machine.shape.has_fabric_manager:
        raise UsageError(
            f"{host} has no Fabric Manager", hint="hosts with two boards with NVSwitch have it, such as h100-sxm5"
        )
    if kind in _OF_HOST:
        with machine.change() as state:
            faults.set_on_host(machine, state, kind, value)
        _heed(lab, host, kind)
        return None
    card = _card(machine, host, address, kind, of_any_vendor=kind in faults.OF_PCI)
    _refuse_too_many(card, kind, value)
    with machine.change() as state:
        faults.set_on_card(machine, state, card, kind, value)
    return card.address


def end(lab: LabFolder, host: str, kind: str, address: str | None) -> None:
    """End a fault."""
    machine = _machine(lab, host)
    with machine.change() as state:
        if address is None:
            faults.set_on_host(machine, state, kind, 0)
        else:
            faults.set_on_card(machine, state, _card(machine, host, address, of_any_vendor=True), kind, 0)
    _heed(lab, host, kind)


def active(lab: LabFolder, host: str) -> list[Active]:
    """The faults that a host has now."""
    machine = _machine(lab, host)
    state = machine.state()
    found: list[Active] = [
        (kind, None, value) for kind, value in state.host_faults.items() if faults.host_fault_left(state, kind, value)
    ]
    for card in machine.shape.cards:
        kinds = state.faults.get(card.address, {})
        now = {kind: faults.left_of(state, card, kind, value) for kind, value in kinds.items()}
        found += [(kind, card.address, value) for kind, value in now.items() if value]
    return found


def _refuse_too_many(card: CardShape, kind: str, value: int) -> None:
    """Raise UsageError for a fault of more than the card has: of a VF, of NVLinks, of vGPU types."""
    limits = {
        faults.WEDGED: (card.total_vfs, "VFs"),
        fabric_manager.FAILED_LINKS: (card.links.count, "NVLinks"),
        TYPES_ALONE: (value if card.types else 0, "vGPU types"),
    }
    there, what = limits.get(kind, (value, ""))
    if value > there:
        raise UsageError(f"{kind} {value}: {card.address} has {there} {what}", hint="name another with --card")


def _heed(lab: LabFolder, host: str, kind: str) -> None:
    if kind in _AT_LISTENERS:
        fleet.heed_faults(host, folder=lab)


def _machine(lab: LabFolder, host: str) -> MachineFolder:
    folder = simulated_folder(lab).host(host)
    if not (folder / "state.json").is_file():
        raise LabError(f"the simulated host {host} is not complete", hint="`vgpuctl lab down` removes it")
    return MachineFolder(folder)


def _card(
    machine: MachineFolder, host: str, address: str | None, kind: str | None = None, *, of_any_vendor: bool = False
) -> CardShape:
    """The card that is named, else the first of the vendor whose fault it is. of_any_vendor: a named one may be any."""
    vendor, with_vfs = INTEL if kind in faults.OF_INTEL else NVIDIA, kind in faults.OF_SRIOV
    of_any_vendor = of_any_vendor and address is not None
    cards = [card for card in machine.shape.cards if of_any_vendor or card.vendor == vendor]
    if with_vfs:
        cards = [card for card in cards if card.total_vfs and card.interface != PASSTHROUGH]
    for card in cards:
        if address in (None, card.address):
            return card
    there = ", ".join(card.address for card in cards) or "none"
    what = ("NVIDIA GPU" if vendor == NVIDIA else "Intel GPU") + (" with SR-IOV" if with_vfs else "")
    raise UsageError(f"{host} has no {what} {address or ''}".rstrip(), hint=f"it has {there}")
