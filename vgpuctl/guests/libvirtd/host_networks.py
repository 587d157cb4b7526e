# SPDX-License-Identifier: Apache-2.0
"""The libvirt networks of a host, whoever made them; those of tenants are made in networks.py."""

from vgpuctl.errors import NetworkMissing
from vgpuctl.guests.libvirt_errors import translated
from vgpuctl.guests.libvirtd.connection import LibvirtConnection


def networks_of(hypervisor: LibvirtConnection) -> dict[str, bool]:
    """Read the host's networks: name → whether it is active."""
    with translated(f"list the networks on {hypervisor.host}"):
        return {
            network.name(): bool(network.isActive())
            for network in sorted(hypervisor.connection.listAllNetworks(0), key=lambda network: network.name())
        }


def check_network(
    hypervisor: LibvirtConnection,
    name: str,
    *,
    hint: str = "choose one of these with --network, or none with --network none",
) -> None:
    """Accept an active network. Raises NetworkMissing with the networks of the host, and with the hint."""
    networks = networks_of(hypervisor)
    if networks.get(name):
        return
    context = [f"{other}: {'active' if active else 'not active'}" for other, active in networks.items()]
    if name in networks:
        raise NetworkMissing(
            f"network {name!r} on {hypervisor.host} is not active",
            context=context,
            hint=f"run `virsh net-start {name}` and `virsh net-autostart {name}` on the host",
        )
    raise NetworkMissing(
        f"{hypervisor.host} has no network {name!r}",
        context=context or ["the host has no network at all"],
        hint=hint,
    )
