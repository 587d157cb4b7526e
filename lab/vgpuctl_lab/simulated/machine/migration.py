# SPDX-License-Identifier: Apache-2.0
"""The machine's part of a live migration: which devices can move, how large their state is, and their faults."""

from collections.abc import Sequence

from vgpuctl_lab.simulated.machine.domains import BY_QEMU, log_of_qemu
from vgpuctl_lab.simulated.machine.state import Domain, MachineFolder, State, Vgpu
from vgpuctl_lab.simulated.machine.transfer import Rates

UNSUPPORTED, UNTRACKED = "move-unsupported", "move-untracked"
UNSAVED, UNREADABLE = "move-refused", "move-read-error"
HEADER_REFUSED, CHECKED_EARLY, LOAD_REFUSED = "move-header-refused", "move-checked-early", "move-load-refused"
_STATE_MIB, _STATE_MIB_S, _DIRTY_MIB_S, STALL = "move-state", "move-bandwidth", "move-dirty", "move-stall"
# Faults of the host.
SECONDS, PORT = "move-seconds", "move-port"
_MIB = 1 << 20
# Of a vGPU's state, as on an emulated host, and of the memory that a guest writes in a second.
_OTHERWISE_MIB = 1
# A link of 10 Gbit/s.
_LINK_MIB = 1250
NamedType = tuple[str, int]
"""A vGPU type: name and id."""
_Pair = tuple[NamedType, NamedType]


def blockers(machine: MachineFolder, vm_uuid: str) -> list[str]:
    """Why QEMU would not move a running VM, one text for each device; a vGPU alone has a driver that can move it."""
    state = machine.state()
    domain = state.domains[vm_uuid]
    vgpus = {_name(vgpu): vgpu for vgpu in vgpus_of(state, domain)}
    found = []
    for device in (*domain.mdevs, *domain.functions):
        vgpu = vgpus.get(device)
        if vgpu is None or _fault(machine, state, vgpu, UNSUPPORTED):
            found.append(f"{device}: VFIO migration is not supported in kernel")
        elif _fault(machine, state, vgpu, UNTRACKED):
            found.append(f"{device}: VFIO device doesn't support device and IOMMU dirty tracking")
    return found


def vgpus_of(state: State, domain: Domain) -> list[Vgpu]:
    """The vGPUs that a running VM holds, in the order in which it took them."""
    by_name = {_name(vgpu): vgpu for vgpu in state.vgpus}
    return [by_name[name] for name in (*domain.mdevs, *domain.functions) if name in by_name]


def fault(machine: MachineFolder, vm_uuid: str, kind: str) -> int:
    """The largest value of a fault at the cards of a running VM's vGPUs, 0 without one."""
    state = machine.state()
    domain = state.domains.get(vm_uuid)
    vgpus = [] if domain is None else vgpus_of(state, domain)
    return max((_fault(machine, state, vgpu, kind) for vgpu in vgpus), default=0)


def state_bytes(machine: MachineFolder, vm_uuid: str) -> int:
    """How large the state of a running VM's vGPUs is; it moves while the VM stands still."""
    state = machine.state()
    vgpus = vgpus_of(state, state.domains[vm_uuid])
    return sum(_fault(machine, state, vgpu, _STATE_MIB) or _OTHERWISE_MIB for vgpu in vgpus) * _MIB


def rates(source: MachineFolder, target: MachineFolder, vm_uuid: str, asked_mib: int, max_downtime_ms: int) -> Rates:
    """What a move can copy now. asked_mib: its limit in MiB/s, 0 without one."""
    is_cut = any("network" in machine.state().host_faults for machine in (source, target))
    link = 0 if is_cut or fault(source, vm_uuid, STALL) else asked_mib or _LINK_MIB
    slowest = min(fault(machine, vm_uuid, _STATE_MIB_S) or link for machine in (source, target))
    return Rates(link * _MIB, min(link, slowest) * _MIB, dirty_mib(source, vm_uuid) * _MIB, max_downtime_ms)


def dirty_mib(machine: MachineFolder, vm_uuid: str) -> int:
    """How much of its memory a running VM writes in a second, in MiB."""
    return fault(machine, vm_uuid, _DIRTY_MIB_S) or _OTHERWISE_MIB


def types_of(machine: MachineFolder, vm_uuid: str) -> list[NamedType]:
    """The types of a running VM's vGPUs, in the order in which it took them."""
    state = machine.state()
    cards = {card.address: card for card in machine.shape.cards}
    found = []
    for vgpu in vgpus_of(state, state.domains[vm_uuid]):
        kind = cards[vgpu.card].type_of(vgpu.type_id)
        found.append(("" if kind is None else kind.full_name, vgpu.type_id))
    return found


def vgpu_names(machine: MachineFolder, vm_uuid: str) -> list[str]:
    """The vGPUs of a running VM, by UUID or function."""
    state = machine.state()
    return [_name(vgpu) for vgpu in vgpus_of(state, state.domains[vm_uuid])]


def cannot_be_read(machine: MachineFolder, vm_uuid: str) -> bool:
    """True if the driver does not hand out the state of a VM's vGPUs; the kernel says so."""
    limit = fault(machine, vm_uuid, UNREADABLE)
    if limit:
        machine.log(f"NVRM: vGPU migration: reading the state failed after {limit} bytes")
    return bool(limit)


def cannot_be_saved(machine: MachineFolder, vm_uuid: str) -> str | None:
    """What QEMU says when a vGPU's state cannot be saved; it resets the vGPU then. None if it can."""
    if not fault(machine, vm_uuid, UNSAVED):
        return None
    name = vgpu_names(machine, vm_uuid)[0]
    machine.log(f"NVRM: vGPU migration: {name}: the state cannot be saved")
    return _reset(machine, vm_uuid, "STOP_COPY", "Input/output error", BY_QEMU)


def refused_early(target: MachineFolder, vm_uuid: str, types: Sequence[NamedType]) -> bool:
    """True if the target's driver refuses a state at its first bytes; the kernel says so. types: of the source."""
    if fault(target, vm_uuid, HEADER_REFUSED):
        target.log("NVRM: vGPU migration: the state's header was refused")
        return True
    pair = _other_types(target, vm_uuid, types)
    if pair is None or not fault(target, vm_uuid, CHECKED_EARLY):
        return False
    _log_types(target, pair)
    return True


def refused_late(target: MachineFolder, vm_uuid: str, types: Sequence[NamedType]) -> bool:
    """True if the target's driver refuses a state after all of it has come; the kernel alone says so."""
    pair = _other_types(target, vm_uuid, types)
    if pair is not None:
        _log_types(target, pair)
    elif fault(target, vm_uuid, LOAD_REFUSED):
        target.log(f"NVRM: vGPU migration: {vgpu_names(target, vm_uuid)[0]}: the state was refused")
    else:
        return False
    return True


def lose_state(machine: MachineFolder, vm_uuid: str) -> None:
    """Let QEMU reset the vGPU whose driver has refused its state; its log alone tells."""
    # During a command of libvirt, QEMU writes neither time nor name before what it says.
    _reset(machine, vm_uuid, "RUNNING_P2P", "Invalid argument", "")


def _reset(machine: MachineFolder, vm_uuid: str, state: str, error: str, form: str) -> str:
    """Let QEMU reset a vGPU that does not get into a state of its migration. Returns what QEMU says."""
    name = vgpu_names(machine, vm_uuid)[0]
    said = f"{name}: Failed setting device state to {state}. Recover state is ERROR. Resetting device: {error}"
    log_of_qemu(machine, machine.state().domains[vm_uuid].name, said, form=form)
    return said


def _other_types(target: MachineFolder, vm_uuid: str, types: Sequence[NamedType]) -> _Pair | None:
    """The first type of a VM's vGPUs that is another one on the target."""
    pairs = zip(types, types_of(target, vm_uuid), strict=False)
    return next((pair for pair in pairs if pair[0][0] != pair[1][0]), None)


def _log_types(machine: MachineFolder, pair: _Pair) -> None:
    machine.log(f"NVRM: vGPU migration: source type 0x{pair[0][1]:x}, destination 0x{pair[1][1]:x}")


def _name(vgpu: Vgpu) -> str:
    return vgpu.function if vgpu.uuid is None else vgpu.uuid


def _fault(machine: MachineFolder, state: State, vgpu: Vgpu, kind: str) -> int:
    return next((state.fault(card, kind) for card in machine.shape.cards if card.address == vgpu.card), 0)
