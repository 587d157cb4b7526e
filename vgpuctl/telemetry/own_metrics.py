# SPDX-License-Identifier: Apache-2.0
"""The metrics that the exporter adds to the measures and the states: identity, gaps in the readings, and itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire import labelled as wire
from vgpuctl.agent.wire.labelled import OBJECT_LABELS
from vgpuctl.agent.wire.measures import VGPU
from vgpuctl.telemetry.exposition import new_family
from vgpuctl.telemetry.family import MetricFamily

Rows = Iterable[tuple[Sequence[str], float]]


@dataclass(frozen=True)
class OwnMetric:
    """One metric. labels: in the order of the rows' values. is_counter: its name ends with `_total`."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False

    def of(self, rows: Rows) -> MetricFamily:
        """Return its family."""
        return new_family(self.name, self.text, self.labels, rows, counter=self.is_counter)


GPU_INFO, VGPU_INFO, READING_MISSING, COLLECT_SUCCESS = (
    OwnMetric(one.name, one.text, one.labels)
    for one in (wire.GPU_INFO, wire.VGPU_INFO, wire.READING_MISSING, wire.COLLECT_SUCCESS)
)
SHARE_TELEMETRY = OwnMetric(
    "vgpuctl_share_telemetry",
    "Always 1 for each lease. source: who measures it: host, guest (a dcgm-exporter that the tenant allows) or none.",
    (*OBJECT_LABELS[VGPU], "source"),
)
COLLECT_DURATION = OwnMetric("vgpuctl_collect_duration_seconds", "Duration of the last reading of the host.", ("host",))
SNAPSHOT_AGE = OwnMetric(
    "vgpuctl_snapshot_age_seconds", "Age of the last reading; a host without any has no series.", ("host",)
)
CLOCK_SKEW = OwnMetric(
    "vgpuctl_host_clock_skew_seconds", "How far the host's clock is ahead of the exporter's.", ("host",)
)
DROPPED_SERIES = OwnMetric(
    "vgpuctl_dropped_series",
    "Series of the host's last reading that are not exposed. reason: duplicate, too-many or malformed.",
    ("host", "reason"),
)
STORE_UP = OwnMetric("vgpuctl_store_up", "1 if the states of the store could be read the last time.")
STORE_AGE = OwnMetric("vgpuctl_store_age_seconds", "Age of the states of the store that are exposed.")
HISTORY_UP = OwnMetric("vgpuctl_history_up", "1 if the last readings could be added to the history of readings.")
CERTIFICATE_EXPIRY = OwnMetric(
    "vgpuctl_certificate_expiry_timestamp_seconds",
    "Earliest end of the certificates in a file of the exporter or of OVN.",
    ("file",),
)
REFUSED_REQUESTS = OwnMetric(
    "vgpuctl_refused_requests_total",
    "Requests and connections that the server refused. reason: host, origin, content-type, body, method, malformed, "
    "wrong-login, login-wait (after wrong logins), connections (too many) or time (too slow).",
    ("reason",),
    is_counter=True,
)
EXPORTER_INFO = OwnMetric("vgpuctl_exporter_info", "Always 1. version: of vgpuctl.", ("version",))
PROBE_SUCCESS = OwnMetric(
    "probe_success", "1 if the host answered its last reading and the reading is still exposed.", ()
)
FRAMEBUFFER_EXHAUSTION = OwnMetric(
    "vgpuctl_vgpu_framebuffer_exhaustion_seconds",
    "Time until the framebuffer is full if it grows as in the last two hours; only for a day ahead; 0 while it is full."
    " bound: expected, or earliest and latest with 90 % between.",
    (*OBJECT_LABELS[VGPU], "bound"),
)
CONTENTION = OwnMetric(
    "vgpuctl_gpu_contention_ratio",
    "Up to this part of the GPU's time was taken by the VM of the labels from neighbours that were promised it.",
    OBJECT_LABELS[VGPU],
)
_RESOURCE = ("host", "resource", "name")
EXHAUSTION = OwnMetric(
    "vgpuctl_exhaustion_seconds",
    "Time until a resource is used up if it grows as it did; 0 while it is. resource: host-memory, huge-pages,"
    " disk-pool or licence-seats. host: empty for what is not of one host. name: for people."
    " bound: expected, or earliest and latest with 90 % between.",
    (*_RESOURCE, "bound"),
)
EXHAUSTION_CAUSE = OwnMetric(
    "vgpuctl_exhaustion_cause_ratio",
    "Part of the growth of such a resource that a VM is behind; of its use where it does not grow.",
    (*_RESOURCE, "tenant", "vm"),
)
OWN_METRICS = tuple(one for one in list(globals().values()) if isinstance(one, OwnMetric))
