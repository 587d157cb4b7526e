# SPDX-License-Identifier: Apache-2.0
"""Who uses a card beside the VMs: services and other programs that have its own node open."""

from vgpuctl.lab.simulated.machine.shape import NVIDIA, Card, Shape
from vgpuctl.lab.simulated.machine.state import Process, State

# libvirtd and sshd are real; the keeper heeds whether they run. Of the others, CLIENTS
# hold every card while they run (reference 9, row 6).
LIBVIRTD, SSHD = "libvirtd.service", "ssh.service"
# The fault of the host that a stopped service is.
_FAULTS = {LIBVIRTD: "libvirtd", SSHD: "sshd"}
CLIENTS = {"nvidia-persistenced.service": "nvidia-persistenced", "nvidia-dcgm.service": "nv-hostengine"}


def is_used(state: State, card: Card) -> bool:
    """Whether some program other than a VM holds the card, or it is said to be busy."""
    return bool(state.fault(card, "busy")) or any(one.card == card.address for one in state.processes)


def start_service(shape: Shape, state: State, name: str) -> None:
    """Start a service; a client of the cards takes those on their driver."""
    state.services[name] = True
    state.host_faults.pop(_FAULTS.get(name, ""), None)
    if name in CLIENTS:
        pid, state.next_pid = state.next_pid, state.next_pid + 1
        state.processes += [
            Process(pid, CLIENTS[name], card.address)
            for card in shape.cards
            if card.vendor == NVIDIA and state.drivers.get(card.address) == card.driver
        ]


def stop_service(state: State, name: str) -> None:
    """Stop a service; a client of the cards lets go of them."""
    state.services[name] = False
    if name in CLIENTS:
        state.processes = [one for one in state.processes if one.name != CLIENTS[name]]
