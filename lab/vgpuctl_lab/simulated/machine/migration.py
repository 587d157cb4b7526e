# SPDX-License-Identifier: Apache-2.0
"""The machine's part of a live migration: which devices can move, how large their state is, and their faults."""

from vgpuctl_lab.simulated.machine.domains import log_of_qemu
from vgpuctl_lab.simulated.machine.state import Domain, MachineFolder, State, Vgpu

UNSUPPORTED, STOP_COPY, UNREADABLE = "migration-unsupported", "migration-stop-copy", "migration-read"
EARLY, LATE, STALL, STATE_MIB = "migration-early", "migration-late", "migration-stall", "migration-state"
# Faults of a card, and of the host.
OF_CARD = (UNSUPPORTED, STOP_COPY, UNREADABLE, EARLY, LATE, STALL, STATE_MIB)
BANDWIDTH_MIB, DIRTY_MIB, SLOW_S, PORT = "migration-bandwidth", "migration-dirty", "migration-slow", "migration-port"
OF_HOST = (BANDWIDTH_MIB, DIRTY_MIB, SLOW_S, PORT)
_MIB = 1 << 20
# What the vGPU of an idle guest has to tell.
_IDLE_STATE_MIB = 64
# A link of 10 Gbit/s.
_LINK_MIB = 1250


def blockers(machine: MachineFolder, vm_uuid: str) -> list[str]:
    """Why QEMU would not move a running VM, one text for each device; a vGPU alone has a driver that can move it."""
    state = machine.state()
    domain = state.domains[vm_uuid]
    movable = [_name(vgpu) for vgpu in vgpus_of(state, domain) if not _fault(machine, state, vgpu, UNSUPPORTED)]
    return [
        f"{device}: VFIO migration is not supported in kernel"
        for device in (*domain.mdevs, *domain.functions)
        if device not in movable
    ]


def vgpus_of(state: State, domain: Domain) -> list[Vgpu]:
    """The vGPUs that a running VM holds, in the order in which it took them."""
    by_name = {_name(vgpu): vgpu for vgpu in state.vgpus}
    return [by_name[name] for name in (*domain.mdevs, *domain.functions) if name in by_name]


def types_of(machine: MachineFolder, vm_uuid: str) -> list[tuple[str, int]]:
    """The types of a running VM's vGPUs: names and ids."""
    state = machine.state()
    found = []
    for vgpu in vgpus_of(state, state.domains[vm_uuid]):
        card = next(one for one in machine.shape.cards if one.address == vgpu.card)
        kind = card.type_of(vgpu.type_id)
        found.append(("" if kind is None else kind.full_name, vgpu.type_id))
    return found


def fault(machine: MachineFolder, vm_uuid: str, kind: str) -> int:
    """The largest value of a fault at the cards of a running VM's vGPUs, 0 without one."""
    state = machine.state()
    domain = state.domains.get(vm_uuid)
    return (
        0 if domain is None else max((_fault(machine, state, one, kind) for one in vgpus_of(state, domain)), default=0)
    )


def state_bytes(machine: MachineFolder, vgpu: Vgpu) -> int:
    """How large the state of a vGPU is that moves while its VM stands still."""
    return (_fault(machine, machine.state(), vgpu, STATE_MIB) or _IDLE_STATE_MIB) * _MIB


def link_bytes(machine: MachineFolder, asked_mib: int) -> int:
    """What a migration may send each second. asked_mib: the limit of the migration, 0 without one."""
    faults = machine.state().host_faults
    if "network" in faults:
        return 0
    return min(asked_mib or _LINK_MIB, faults.get(BANDWIDTH_MIB, _LINK_MIB)) * _MIB


def dirty_bytes(machine: MachineFolder) -> int:
    """How much memory each guest of the machine dirties in a second."""
    return machine.state().host_faults.get(DIRTY_MIB, 0) * _MIB


def lose_state(machine: MachineFolder, vm_uuid: str, source: tuple[str, int], target: tuple[str, int]) -> None:
    """Let a vGPU's driver refuse the state at the end: QEMU resets the vGPU and tells its log alone."""
    domain = machine.state().domains[vm_uuid]
    for name in (*domain.mdevs, *domain.functions)[:1]:
        log_of_qemu(
            machine,
            domain.name,
            f"qemu-system-x86_64: {name}: Failed setting device state to RUNNING_P2P."
            " Recover state is ERROR. Resetting device: Invalid argument",
        )
    machine.log(f"NVRM: vGPU migration: source type 0x{source[1]:x}, destination 0x{target[1]:x}")


def _name(vgpu: Vgpu) -> str:
    return vgpu.function if vgpu.uuid is None else vgpu.uuid


def _fault(machine: MachineFolder, state: State, vgpu: Vgpu, kind: str) -> int:
    return next((state.fault(card, kind) for card in machine.shape.cards if card.address == vgpu.card), 0)
