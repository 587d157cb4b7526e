# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated machine: what they change, and what the kernel says of them (reference 9)."""

from vgpuctl_lab.simulated.machine import fabric_manager, usage
from vgpuctl_lab.simulated.machine.drivers import STUB, UNREGISTERED, Drivers
from vgpuctl_lab.simulated.machine.rules import DRIVER
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.sriov_manage import PF_UNBOUND, SILENT
from vgpuctl_lab.simulated.machine.state import FABRIC_MANAGER, MachineFolder, State

PF_STUB, FALLEN, XID, ECC = "pf-stub", "fallen", "xid", "ecc"
VFS_ON_STUB, LOCK_BUSY, WEDGED = "vfs-on-stub", "lock-busy", "vf-wedged"
# Faults that only a card with SR-IOV and vGPUs can have.
OF_SRIOV = (PF_STUB, PF_UNBOUND, VFS_ON_STUB, UNREGISTERED, SILENT, "board-unknown")
# Faults that a card of any vendor can have.
OF_PCI = ("bar-unassigned", "reset-fails", "no-reset", "flr-fails", "config-differs", "driver-lost")
# Faults that only Intel's cards can have.
OF_INTEL = ("no-sriov-admin", "vf-params-refused")
# Faults of Fabric Manager, on a host with NVSwitch.
FABRIC_STARTING, FABRIC_DEAD, FABRIC_RESTARTED = "fabric-starting", "fabric-dead", "fabric-restarted"
OF_FABRIC = (FABRIC_STARTING, FABRIC_DEAD, FABRIC_RESTARTED, fabric_manager.VERSION_FAULT)
# Faults of the host that are a stopped service.
STOPPED = {"libvirtd": usage.LIBVIRTD, "sshd": usage.SSHD}
_FALLEN_XID, _DOUBLE_BIT_XID = 79, 48


def set_on_card(machine: MachineFolder, state: State, card: CardShape, kind: str, value: int) -> None:
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
    elif kind == LOCK_BUSY:
        usage.hold_for(state, card, value)
    elif kind == WEDGED:
        own_vfs = state.vfs_of(card)
        state.wedged = [one for one in state.wedged if one not in own_vfs] + own_vfs[value - 1 : value]
    elif kind in OF_SRIOV:
        _set_on_sriov(machine, state, card, kind, value)
    if not own:
        state.faults.pop(card.address)


def left_of(state: State, card: CardShape, kind: str, value: int) -> int:
    """A fault's number as it is now; 0 once it has ended by itself: its count was used up, or it was repaired."""
    driver = state.drivers.get(card.address)
    if kind == UNREGISTERED:  # the present VFs are one of the times
        return value + (card.address in state.unregistered)
    if kind == PF_UNBOUND:
        return max(value, int(driver is None))
    is_there = {
        PF_STUB: driver == STUB,
        WEDGED: bool(set(state.wedged) & set(state.vfs_of(card))),
        VFS_ON_STUB: any(state.drivers.get(vf) == STUB for vf in state.vfs_of(card)),
        LOCK_BUSY: any((one.name, one.card) == (usage.MANAGER, card.address) for one in state.running()),
    }
    return value if is_there.get(kind, True) else 0


def _set_on_sriov(machine: MachineFolder, state: State, card: CardShape, kind: str, value: int) -> None:
    """Create the state that a fault of SR-IOV leaves behind; the end of the fault repairs it."""
    drivers = Drivers(machine, state)
    if kind in (PF_STUB, PF_UNBOUND):
        stranded = STUB if kind == PF_STUB else None
        if value:
            drivers.set_vfs(card, 0)
            state.drivers[card.address] = stranded
        elif state.drivers.get(card.address) == stranded:
            state.drivers[card.address] = card.driver
        if kind == PF_UNBOUND and value:
            state.faults[card.address][kind] = value - 1
    elif kind == VFS_ON_STUB:
        if value and not state.vf_counts.get(card.address):
            drivers.set_vfs(card, card.total_vfs)
        for vf in state.vfs_of(card):
            state.drivers[vf] = STUB if value else DRIVER
        state.vgpus = [vgpu for vgpu in state.vgpus if vgpu.card != card.address]
    elif kind == UNREGISTERED:
        if value and state.vf_counts.get(card.address):
            state.use_up(card, kind)
            state.unregistered.append(card.address)
            state.vgpus = [vgpu for vgpu in state.vgpus if vgpu.card != card.address]
            machine.log(f"nvidia-vgpu-vfio: Parent {card.address} is not currently registered for mdev support")
        elif not value and card.address in state.unregistered:
            state.unregistered.remove(card.address)


def set_on_host(machine: MachineFolder, state: State, kind: str, value: int) -> None:
    """Let a fault of the host itself begin; value 0 ends it."""
    state.host_faults.pop(kind, None)
    if value:
        state.host_faults[kind] = value
    if kind in OF_FABRIC:
        _set_on_fabric_manager(machine, state, kind, value)
    if kind in STOPPED:
        if value:
            usage.stop_service(state, STOPPED[kind])
            state.host_faults[kind] = value
        else:
            usage.start_service(machine.shape, state, STOPPED[kind])


def _set_on_fabric_manager(machine: MachineFolder, state: State, kind: str, value: int) -> None:
    """Let it be set up anew for a while, die, be restarted with its partitions, or be of another version."""
    fabric_manager.settle(state)
    over = [one for one in OF_FABRIC if one != kind and not host_fault_left(state, one, 1)]
    state.host_faults = {one: number for one, number in state.host_faults.items() if one not in over}
    if kind == FABRIC_STARTING or (kind == FABRIC_RESTARTED and not value):
        fabric_manager.start(machine, state, keeps_partitions=False, starting_s=value)
    elif kind == FABRIC_RESTARTED:
        fabric_manager.start(machine, state, keeps_partitions=True)
    elif value:
        state.services[FABRIC_MANAGER] = False
    else:
        fabric_manager.control(machine, state, "start")


def host_fault_left(state: State, kind: str, value: int) -> int:
    """The same of a fault of the host."""
    fabric = state.fabric
    if kind == FABRIC_STARTING:
        return value if fabric.starting_until > state.now() else 0
    if kind == FABRIC_RESTARTED:
        return value if fabric.window_ends is not None and fabric_manager.is_running(state) else 0
    if kind == FABRIC_DEAD:
        return 0 if fabric_manager.is_running(state) else value
    return value


def _log_xid(machine: MachineFolder, card: CardShape, xid: int, text: str) -> None:
    place = card.address.rpartition(".")[0]
    machine.log(f"NVRM: Xid (PCI:{place}): {xid}, pid='<unknown>', name=<unknown>, {text}")
