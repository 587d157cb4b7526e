# SPDX-License-Identifier: Apache-2.0
"""The names of nodes belong to their pools: no VM of another kind takes one."""

from collections.abc import Sequence

from vgpuctl.errors import StateError
from vgpuctl.model.vm import VmRequest
from vgpuctl.usecases.running.services import Services


def refuse_names_of_nodes(services: Services, requests: Sequence[VmRequest]) -> None:
    """Raise StateError for a VM with the name of a node that is wanted and has no VM yet."""
    with services.store.reading() as session:
        for one in requests:
            node = session.node(one.tenant, one.name)
            if node is not None and session.vm(one.tenant, one.name) is None:
                raise StateError(
                    f"{one.name} is a node of pool {node.pool} of tenant {one.tenant}, whose VM is not there yet",
                    hint=f"choose another name; see `vgpuctl list-node-pools {one.tenant}/{node.pool}`",
                )
