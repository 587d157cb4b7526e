# SPDX-License-Identifier: Apache-2.0
"""Alerts on capacity: shares, queue, node pools, quotas, licences, and what hosts run out of."""

from collections.abc import Iterator, Mapping

from vgpuctl.model import exhaustible
from vgpuctl.model.exhaustible import Exhaustible
from vgpuctl.model.faults import FaultId
from vgpuctl.telemetry.alerts.alert import CRITICAL, INFO, WARNING, Alert, AlertSeverity

_POOL = "node pool {{ $labels.tenant }}/{{ $labels.node_pool }}"
_HOURS_4, _DAYS_3 = 14_400, 259_200
_BEFORE: Mapping[Exhaustible, tuple[AlertSeverity, int]] = {
    exhaustible.HOST_MEMORY: (WARNING, _HOURS_4),
    exhaustible.HUGE_PAGES: (INFO, _HOURS_4),
    exhaustible.DISK_POOL: (CRITICAL, _HOURS_4),
    exhaustible.LICENCE_SEATS: (WARNING, _DAYS_3),
}
"""How urgent the end of each kind of resource is, and how many seconds before it somebody looks."""


def _exhaustion_alerts() -> Iterator[Alert]:
    """One for each kind of resource that several VMs use."""
    for kind in exhaustible.OF_RESOURCES:
        severity, before_s = _BEFORE[kind]
        yield Alert(
            kind.fault,
            "capacity",
            f"Vgpuctl{''.join(word.capitalize() for word in kind.fault.split('-'))}",
            severity,
            f'vgpuctl_exhaustion_seconds{{resource="{kind.name}",bound="expected"}} < {before_s}',
            "{{ $labels.name }}: used up in {{ $value | humanizeDuration }} if it grows on",
            "5m",
            "15m",
        )


OF_CAPACITY = (
    Alert(
        FaultId.NO_CAPACITY,
        "capacity",
        "VgpuctlNoCapacity",
        WARNING,
        'sum by (profile) (vgpuctl_slices{state="free"}) == 0\n'
        'and on (profile) sum by (profile) (vgpuctl_slices{state="leased"}) > 0',
        "No share of {{ $labels.profile }} is left on any host",
        "15m",
    ),
    Alert(
        FaultId.QUEUE_STARVES,
        "capacity",
        "VgpuctlQueueStarves",
        WARNING,
        "vgpuctl_queue_oldest_age_seconds > 14400",
        "A VM of {{ $labels.tenant }} waits in the queue for {{ $value | humanizeDuration }}",
        "5m",
    ),
    Alert(
        FaultId.NODE_POOL_SHORT,
        "capacity",
        "VgpuctlNodePoolBelowMinimum",
        WARNING,
        "vgpuctl_node_pool_available_nodes < vgpuctl_node_pool_minimum",
        f"{_POOL} has {{{{ $value }}}} available nodes, fewer than its minimum",
        "30m",
    ),
    Alert(
        FaultId.NODES_NEVER_JOIN,
        "capacity",
        "VgpuctlNodesNeverJoin",
        WARNING,
        "vgpuctl_node_pool_never_joined > 1",
        f"{{{{ $value }}}} nodes of {_POOL} in succession did not join cluster {{{{ $labels.cluster }}}}",
        "1m",
    ),
    Alert(
        FaultId.CLUSTER_SILENT,
        "capacity",
        "VgpuctlClusterSilent",
        WARNING,
        "vgpuctl_node_pool_cluster_silence_seconds > 600",
        f"Cluster {{{{ $labels.cluster }}}} has told nothing of {_POOL} for {{{{ $value | humanizeDuration }}}}",
        "5m",
    ),
    Alert(
        FaultId.QUOTA_NEARLY_USED,
        "capacity",
        "VgpuctlQuotaNearlyUsed",
        INFO,
        "vgpuctl_tenant_quota_used / (vgpuctl_tenant_quota_limit > 0) >= 0.9",
        "{{ $labels.tenant }} has used {{ $value | humanizePercentage }} of its {{ $labels.resource }}",
        "15m",
        "15m",
    ),
    *_exhaustion_alerts(),
    Alert(
        FaultId.LICENCE_POOL_FULL,
        "capacity",
        "VgpuctlLicencePoolNearlyFull",
        WARNING,
        'vgpuctl_licence_seats{state="free"}\n'
        "< on (pool, edition) group_left () 0.1 * sum by (pool, edition) (vgpuctl_licence_seats)",
        "{{ $value }} seats of licence pool {{ $labels.pool }} ({{ $labels.edition }}) are free",
        "15m",
        "15m",
    ),
)
