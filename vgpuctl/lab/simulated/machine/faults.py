# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated machine: what they change, and what the kernel says of them (reference 9)."""

from vgpuctl.lab.simulated.machine import usage
from vgpuctl.lab.simulated.machine.drivers import STUB, Drivers
from vgpuctl.lab.simulated.machine.shape import Card
from vgpuctl.lab.simulated.machine.state import MachineFolder, State

PF_STUB, FALLEN, XID, ECC = "pf-stub", "fallen", "xid", "ecc"
# Faults of the host that are a stopped service.
STOPPED = {"libvirtd": usage.LIBVIRTD, "sshd": usage.SSHD}
_FALLEN_XID, _DOUBLE_BIT_XID = 79, 48


def set_on_card(machine: MachineFolder, state: State, card: Card, kind: str, value: int) -> None:
    """Let a fault of a card begin; value 0 ends it."""
    own = state.faults.setdefault(card.address, {})
    was = own.pop(kind, 0)
    if value:
        own[kind] = value
    if kind == FALLEN and value and not was:
        _log_xid(machine, card, _FALLEN_XID, "GPU has fallen off the bus.")
    elif kind == XID and value:
        _log_xid(machine, card, value, "Ch 00000000")
    elif kind == ECC and value:
        _log_xid(machine, card, _DOUBLE_BIT_XID, "DBE (double bit error) ECC Error")
    elif kind == PF_STUB:
        if value:
            Drivers(machine, state).set_vfs(card, 0)
            state.drivers[card.address] = STUB
        elif state.drivers.get(card.address) == STUB:
            state.drivers[card.address] = card.driver


def set_on_host(machine: MachineFolder, state: State, kind: str, value: int) -> None:
    """Let a fault of the host itself begin; value 0 ends it."""
    state.host_faults.pop(kind, None)
    if value:
        state.host_faults[kind] = value
    if kind in STOPPED:
        if value:
            usage.stop_service(state, STOPPED[kind])
            state.host_faults[kind] = value
        else:
            usage.start_service(machine.shape, state, STOPPED[kind])


def _log_xid(machine: MachineFolder, card: Card, xid: int, text: str) -> None:
    place = card.address.rpartition(".")[0]
    machine.log(f"NVRM: Xid (PCI:{place}): {xid}, pid='<unknown>', name=<unknown>, {text}")
