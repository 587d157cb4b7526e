# SPDX-License-Identifier: Apache-2.0
"""set-node-pool: other values of a pool. Nodes that are there keep what they were made with."""

from collections.abc import Callable, Mapping
from typing import Any

from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.node_pool import NodePool
from vgpuctl.specs.node_pool import changed_pool
from vgpuctl.usecases.node.create_node_pool import check_pool_in, values_of_pool
from vgpuctl.usecases.support.services import Services


def set_node_pool(services: Services, tenant: str, name: str, given: Mapping[str, Any]) -> tuple[NodePool, bool]:
    """Change the fields that flags name. Returns the pool, and whether it changed anything.

    given: by `Field.parameter`. A minimum that is higher is filled by the controller. Nodes above a lower maximum stay
    until they are let go, and none is made there again.
    Raises NotFound, QuotaExceeded, and UsageError for values that do not fit together.
    """
    return replace_pool(services, tenant, name, lambda there: changed_pool(there, given))


def replace_pool(
    services: Services, tenant: str, name: str, change: Callable[[NodePool], NodePool]
) -> tuple[NodePool, bool]:
    """The same with what `change` makes of the pool that is there; it gets the pool with its secrets."""
    with services.store.transaction() as session:
        there = session.with_pool_secrets(session.node_pool(tenant, name))
        wanted = change(there)
        if wanted == there:
            return there, False
        services.check_cluster(wanted)
        check_pool_in(session, wanted, tell=services.say)
        session.put_node_pool(wanted)
        before, after = values_of_pool(there), values_of_pool(wanted)
        session.add_event(EventKind.NODE_POOL_CHANGED, wanted.printed_name, tenant=tenant, before=before, after=after)
        for key, value in after.items():
            if value != before[key]:
                services.say(f"node pool {wanted.printed_name}: {key}: {_text(before[key])} -> {_text(value)}")
    return wanted, True


def _text(value: Any) -> str:
    return ", ".join(value) or "-" if isinstance(value, list) else str(value)
