# SPDX-License-Identifier: Apache-2.0
"""A host's libvirt, for tests that look at it or do there what others would do."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.inventory.load import load_inventory


@contextlib.contextmanager
def libvirt_of(inventory: Path, host: str) -> Iterator[Hypervisor]:
    """Open libvirt on one host of an inventory."""
    target = load_inventory([str(inventory)]).target(host)
    settings = SshSettings(known_hosts_file=Path("/nonexistent"), ssh_config_file=Path("/dev/null"))
    with Connection(target, settings=settings) as connection, connection.libvirt_uri() as uri, Hypervisor(uri) as there:
        yield there


def domains_on(inventory: Path, host: str) -> dict[str, str]:
    """The state of every domain of a host, by name."""
    with libvirt_of(inventory, host) as there:
        return {one.name: str(one.state) for one in there.domains()}
