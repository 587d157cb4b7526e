# SPDX-License-Identifier: Apache-2.0
"""The backends of tenants' networks: made what the store says, one run at a time."""

import contextlib
import time
from collections.abc import Iterator

from vgpuctl.errors import ConcurrentChange
from vgpuctl.guests.networks import LibvirtNetworks
from vgpuctl.model.network import Network
from vgpuctl.usecases.services import Services

LOCK_TIMEOUT_S = 120.0
_POLL_S = 0.1


@contextlib.contextmanager
def locked(services: Services, network: Network) -> Iterator[None]:
    """Let one run at a time read the store's ports and write them to the backend, so that the last word is the newest.

    Waits for other runs; one that was killed does not hold it. Raises ConcurrentChange after LOCK_TIMEOUT_S.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(
                    services.store.operation("network", f"network:{network.id}", network.label, exclusive=True)
                )
                break
            except ConcurrentChange:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)
        yield


def apply_network(
    services: Services, network: Network, *, without_vm: str | None = None, dry_run: bool = False
) -> list[str]:
    """Make the backend's network what the store says now. Returns what had to be done; call it within `locked`.

    without_vm: a VM whose port counts as gone already.
    """
    with services.store.reading() as session:
        ports = [port for port in session.ports(network_id=network.id) if port.vm_uuid != without_vm]
    assert network.request.host is not None
    networks = LibvirtNetworks(services.host(network.request.host).hypervisor)
    return networks.ensure(network, ports, dry_run=dry_run)


def remove_network(services: Services, network: Network) -> None:
    """Take the network away from its backend; gone already is fine."""
    assert network.request.host is not None
    LibvirtNetworks(services.host(network.request.host).hypervisor).remove(network)
