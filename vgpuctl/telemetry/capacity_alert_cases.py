# SPDX-License-Identifier: Apache-2.0
"""The cases of alerts on capacity: queues, quotas, pools, and resources that run out."""

from vgpuctl.model import exhaustible
from vgpuctl.model.faults import FaultId
from vgpuctl.telemetry.alert_case import HOST, AlertCase, series, steps
from vgpuctl.telemetry.alerts import ALERTS

_ENDING = {**HOST, "name": "memory of gpu1"}
_NODES = {"tenant": "acme", "cluster": "main", "node_pool": "gpu"}
_POOL = {"pool": "dls-1", "edition": "vws"}
_OF_RESOURCES = tuple(
    AlertCase(
        next(one.name for one in ALERTS if one.fault is kind.fault),
        f"{kind.name}: the end comes nearer, is there, and is averted",
        {
            series("vgpuctl_exhaustion_seconds", {**_ENDING, "resource": kind.name}, bound="expected"): steps(
                ("_", 10), (3600, 50), (0, 30)
            )
            + " stale",
            series("vgpuctl_exhaustion_seconds", {**_ENDING, "resource": kind.name}, bound="earliest"): "600x90",
        },
        (kind.fault,),
        {**_ENDING, "resource": kind.name, "bound": "expected"},
        fires_at=(15, 59),
        silent_at=(9, 14, 110),
        value="1h 0m 0s",
    )
    for kind in exhaustible.OF_RESOURCES
)
_OF_CAPACITY = (
    AlertCase(
        "VgpuctlNoCapacity",
        "the last share of a profile is taken, then one is free",
        {
            series("vgpuctl_slices", HOST, profile="A40-8Q", state="free"): steps((1, 10), (0, 30), (1, 30)),
            series("vgpuctl_slices", HOST, profile="A40-8Q", state="leased"): "6x70",
        },
        (FaultId.NO_CAPACITY,),
        {"profile": "A40-8Q"},
        fires_at=(25, 39),
        silent_at=(24, 40),
    ),
    AlertCase(
        "VgpuctlNoCapacity",
        "a profile that nobody uses needs no capacity",
        {
            series("vgpuctl_slices", HOST, profile="A40-8Q", state="free"): "0x70",
            series("vgpuctl_slices", HOST, profile="A40-8Q", state="leased"): "0x70",
        },
        silent_at=(60,),
    ),
    AlertCase(
        "VgpuctlQueueStarves",
        "a VM waits for five hours",
        {series("vgpuctl_queue_oldest_age_seconds", {"tenant": "acme"}): "0+60x300 0x30"},
        (FaultId.QUEUE_STARVES,),
        {"tenant": "acme"},
        fires_at=(300,),
        silent_at=(240, 310),
        value="5h 0m 0s",
    ),
    AlertCase(
        "VgpuctlNodePoolBelowMinimum",
        "one of two nodes is missing for 50 minutes",
        {
            series("vgpuctl_node_pool_available_nodes", _NODES): steps((2, 10), (1, 50), (2, 20)),
            series("vgpuctl_node_pool_minimum", _NODES): "2x80",
        },
        (FaultId.NODE_POOL_SHORT,),
        _NODES,
        fires_at=(40, 59),
        silent_at=(9, 39, 60),
        value="1",
    ),
    AlertCase(
        "VgpuctlNodePoolBelowMinimum",
        "a pool without a minimum may be empty",
        {
            series("vgpuctl_node_pool_available_nodes", _NODES): "0x80",
            series("vgpuctl_node_pool_minimum", _NODES): "0x80",
        },
        silent_at=(60,),
    ),
    AlertCase(
        "VgpuctlNodesNeverJoin",
        "three nodes in succession do not join, then one does",
        {series("vgpuctl_node_pool_never_joined", _NODES): steps((1, 10), (3, 30), (0, 20))},
        (FaultId.NODES_NEVER_JOIN,),
        _NODES,
        fires_at=(11, 39),
        silent_at=(10, 40),
        value="3",
    ),
    AlertCase(
        "VgpuctlClusterSilent",
        "an API server does not answer for half an hour",
        {series("vgpuctl_node_pool_cluster_silence_seconds", _NODES): "10x9 0+60x30 10x20"},
        (FaultId.CLUSTER_SILENT,),
        _NODES,
        fires_at=(26,),
        silent_at=(25, 41),
        value="16m 0s",
    ),
    AlertCase(
        "VgpuctlQuotaNearlyUsed",
        "a tenant uses nine of ten, then gives back",
        {
            series("vgpuctl_tenant_quota_used", {"tenant": "acme", "resource": "vms"}): steps(
                (1, 10), (9, 30), (1, 60)
            ),
            series("vgpuctl_tenant_quota_limit", {"tenant": "acme", "resource": "vms"}): "10x100",
        },
        (FaultId.QUOTA_NEARLY_USED,),
        {"tenant": "acme", "resource": "vms"},
        fires_at=(25, 39, 50),
        silent_at=(24, 60),
        value="90%",
    ),
    AlertCase(
        "VgpuctlQuotaNearlyUsed",
        "a quota of nothing is not nearly used",
        {
            series("vgpuctl_tenant_quota_used", {"tenant": "acme", "resource": "vms"}): "0x60",
            series("vgpuctl_tenant_quota_limit", {"tenant": "acme", "resource": "vms"}): "0x60",
        },
        silent_at=(40,),
    ),
    AlertCase(
        "VgpuctlLicencePoolNearlyFull",
        "one of twenty seats is free, then half of them",
        {
            series("vgpuctl_licence_seats", _POOL, state="free"): steps((1, 40), (10, 40)),
            series("vgpuctl_licence_seats", _POOL, state="held"): steps((18, 40), (9, 40)),
            series("vgpuctl_licence_seats", _POOL, state="coming-back"): "1x80",
        },
        (FaultId.LICENCE_POOL_FULL,),
        {**_POOL, "state": "free"},
        fires_at=(15, 39, 50),
        silent_at=(14, 60),
        value="1",
    ),
)
CAPACITY_CASES: tuple[AlertCase, ...] = (*_OF_CAPACITY, *_OF_RESOURCES)
