# SPDX-License-Identifier: Apache-2.0
"""Who uses a card beside the VMs: services and other programs that have its own node open."""

from vgpuctl_lab.simulated.machine.shape import NVIDIA, CardShape, Shape
from vgpuctl_lab.simulated.machine.state import Process, State

# libvirtd and sshd are real; the lab daemon heeds whether they run. Of the others, CLIENTS
# hold every card while they run (reference 9, row 6).
LIBVIRTD, SSHD = "libvirtd.service", "ssh.service"
# The fault of the host that a stopped service is.
_FAULTS = {LIBVIRTD: "libvirtd", SSHD: "sshd"}
PERSISTENCED = "nvidia-persistenced.service"
CLIENTS = {PERSISTENCED: "nvidia-persistenced", "nvidia-dcgm.service": "nv-hostengine"}
MANAGER = "nvidia-vgpu-mgr"


def is_used(state: State, card: CardShape) -> bool:
    """True if some program other than a VM holds the card, or it is said to be busy."""
    return bool(state.fault(card, "busy")) or any(one.card == card.address for one in state.running())


def start_service(shape: Shape, state: State, name: str) -> None:
    """Start a service; a client of the cards takes those on their driver."""
    state.services[name] = True
    state.host_faults.pop(_FAULTS.get(name, ""), None)
    if name in CLIENTS:
        pid, state.next_pid = state.next_pid, state.next_pid + 1
        _take_cards(shape, state, pid, CLIENTS[name])


def stop_service(state: State, name: str) -> None:
    """Stop a service; a client of the cards lets go of them."""
    state.services[name] = False
    if name in CLIENTS:
        state.processes = [one for one in state.processes if one.name != CLIENTS[name]]


def persist(shape: Shape, state: State) -> None:
    """`nvidia-smi -pm 1`: nvidia-persistenced, if it runs, opens every card on the driver."""
    daemon = CLIENTS[PERSISTENCED]
    if state.services.get(PERSISTENCED):
        pids = [one.pid for one in state.processes if one.name == daemon]
        if not pids:
            pids, state.next_pid = [state.next_pid], state.next_pid + 1
        _take_cards(shape, state, pids[0], daemon)


def hold_for(state: State, card: CardShape, seconds: float) -> None:
    """Let the vGPU manager have a card open for a while, as it does after the driver's probe of it."""
    state.processes = [one for one in state.processes if (one.name, one.card) != (MANAGER, card.address)]
    if seconds:
        pid, state.next_pid = state.next_pid, state.next_pid + 1
        state.processes.append(Process(pid, MANAGER, card.address, state.now() + seconds))


def _take_cards(shape: Shape, state: State, pid: int, name: str) -> None:
    held = {one.card for one in state.processes if one.name == name}
    state.processes += [
        Process(pid, name, card.address)
        for card in shape.cards
        if card.vendor == NVIDIA and card.address not in held and state.drivers.get(card.address) == card.driver
    ]
