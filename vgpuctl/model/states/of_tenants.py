# SPDX-License-Identifier: Apache-2.0
"""States of what tenants have, wait for and were promised."""

from vgpuctl.model.states.kind import StateKind, number

SEAT_STATES = {
    "held": "A VM holds it.",
    "coming-back": "Its guest could not return it; the licence server counts it until its lease ends.",
}

_POOL = ("tenant", "cluster", "node_pool")

OF_TENANTS: tuple[StateKind, ...] = (
    number(
        "queue_entries",
        "queue",
        "Queue",
        "Entries of the queue.",
        ("tenant", "kind"),
        kind={
            "create": "A new VM waits.",
            "start": "A preempted VM waits to start again.",
            "gang": "New VMs wait to be created together.",
            "start-gang": "Preempted VMs wait to start again together.",
        },
    ),
    number(
        "queue_oldest_age_seconds",
        "queue",
        "Oldest entry",
        "Age of the oldest entry of the queue; 0 for an empty queue.",
        ("tenant",),
    ),
    number(
        "node_pool_nodes",
        "node-pool",
        "Nodes",
        "Nodes of a pool of a tenant's cluster.",
        (*_POOL, "state"),
        state={
            "waiting": "Its VM waits in the queue.",
            "creating": "Its VM is being created, or starts.",
            "joining": "Its VM runs; the cluster does not have it yet, or vgpuctl does not ask the cluster.",
            "ready": "It is a member of its cluster and takes work.",
            "not-ready": "It is a member that does not answer its cluster, or takes no work.",
            "stopped": "Its VM is stopped, or is no longer where it was.",
            "leaving": "It is drained and deleted.",
        },
    ),
    number("node_pool_minimum", "node-pool", "Minimum", "Nodes that vgpuctl keeps in a pool.", _POOL),
    number("node_pool_maximum", "node-pool", "Maximum", "Nodes that a pool may have.", _POOL),
    number(
        "node_pool_available_nodes",
        "node-pool",
        "Available nodes",
        "Nodes that are ready; where vgpuctl does not ask the cluster, those whose VM runs.",
        _POOL,
    ),
    number(
        "node_pool_never_joined",
        "node-pool",
        "Never joined",
        "Nodes in succession that did not join their cluster in time.",
        _POOL,
    ),
    number(
        "node_pool_oldest_wait_seconds",
        "node-pool",
        "Longest wait",
        "Longest time that a wanted node has waited for its VM or its cluster; 0 if none waits.",
        _POOL,
    ),
    number(
        "node_pool_cluster_silence_seconds",
        "node-pool",
        "Cluster's silence",
        "Time since the cluster last told of a node that is its member; no series without such a node.",
        _POOL,
    ),
    number(
        "tenant_quota_limit",
        "quota",
        "Quota",
        "The most that a tenant may use of a resource.",
        ("tenant", "resource", "unit"),
    ),
    number(
        "tenant_quota_guaranteed",
        "quota",
        "Guaranteed",
        "The amount of a resource that a tenant can count on.",
        ("tenant", "resource", "unit"),
    ),
    number(
        "tenant_quota_used",
        "quota",
        "Used",
        "The amount of a resource that a tenant uses; of gpu-hours, in this month.",
        ("tenant", "resource", "unit"),
    ),
    number(
        "licence_seats",
        "licence",
        "Licences",
        "Seats of a licence pool.",
        ("pool", "edition", "state"),
        state=SEAT_STATES | {"free": "The next VM can take it."},
    ),
    number(
        "tenant_licence_seats",
        "licence",
        "Licences of tenants",
        "Seats of a licence pool that a tenant's VMs take.",
        ("tenant", "pool", "edition", "state"),
        state=SEAT_STATES,
    ),
    number(
        "slices",
        "capacity",
        "Capacity",
        "Shares of a profile on a host. Those that are free are counted for each profile alone.",
        ("host", "profile", "state"),
        state={
            "free": "The share can still be created.",
            "leased": "The share is leased.",
        },
    ),
    StateKind(
        "reservation_state",
        "reservation",
        "Reservation",
        "The reservation of a tenant.",
        ("host", "tenant", "reservation"),
        {
            "to-come": "Its next window has not begun.",
            "open": "Its window has begun and no VM uses it.",
            "used": "A VM uses it.",
            "over": "No window is left.",
        },
    ),
    number(
        "reservation_begin_timestamp_seconds",
        "reservation",
        "Begin",
        "Begin of the reservation's present or next window.",
        ("host", "tenant", "reservation"),
    ),
    number(
        "reservation_end_timestamp_seconds",
        "reservation",
        "End",
        "End of the reservation's present or next window.",
        ("host", "tenant", "reservation"),
    ),
    StateKind(
        "network_state",
        "network",
        "Network",
        "The network of a tenant in the store.",
        ("tenant", "network"),
        {
            "creating": "The network is being created.",
            "created": "The network was created, and read back from its backend then.",
            "deleting": "The network is being deleted.",
        },
    ),
    number(
        "volumes",
        "volume",
        "Volumes",
        "Volumes of VMs on a host.",
        ("host", "state"),
        state={
            "intended": "The volume is to be made, or its making was interrupted.",
            "made": "libvirt has made the volume.",
            "detaching": "The volume is to leave its VM, whose guest has not released it yet.",
            "merging": "A snapshot's overlay is being merged into the disk below it.",
        },
    ),
)
