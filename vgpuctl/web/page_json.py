# SPDX-License-Identifier: Apache-2.0
"""The data of the pages as JSON, for programs: what the templates write, in the types of page_types.py."""

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flask import Response, request

from vgpuctl.agent.wire.readings import Measured
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.event import Event
from vgpuctl.model.gpu_map import Closed
from vgpuctl.model.lease import Lease
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.states import StateKind, StateRow
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.placement.capacity import Capacity
from vgpuctl.usecases.placement.queue import Waiting
from vgpuctl.usecases.telemetry.fleet_view import GpuView, HostView
from vgpuctl.usecases.telemetry.state_view import StateSummary
from vgpuctl.usecases.vm.list_vms import ListedVm
from vgpuctl.web.page_types import (
    PageCount,
    PageError,
    PageEvent,
    PageGpu,
    PageHost,
    PageListedVm,
    PageMeasured,
    PageReservation,
    PageShare,
    PageState,
    PageStateKind,
    PageVm,
    PageWaiting,
)


def is_wanted() -> bool:
    """True if the request is for JSON: `Accept: application/json`, and not rather HTML."""
    return request.accept_mimetypes.best_match(("text/html", "application/json")) == "application/json"


def response(page: Mapping[str, object], status: int = 200) -> Response:
    """Answer with the data of a page, one of page_types.PAGES.

    Raises TypeError for what has no JSON, ValueError for a number that is not finite.
    """
    text = json.dumps(page, default=_plain, allow_nan=False)
    return Response(text, status, content_type="application/json")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Collection):
        return list(value)
    raise TypeError(f"a page has no JSON for a {type(value).__name__}")


def error_json(error: VgpuctlError) -> PageError:
    """An error that a page tells."""
    return {
        "reference": error.reference,
        "message": error.message,
        "context": list(error.context),
        "hint": error.hint,
    }


def count_json(counted: Capacity, refusals: Sequence[str]) -> PageCount:
    """What was counted of one kind of VM. refusals: why no host takes one, in lines."""
    return {
        "now": counted.now,
        "backfill": counted.backfill,
        "hosts_take": counted.hosts_take,
        "quota": counted.quota,
        "free_licences": counted.free_licences,
        "hosts": counted.hosts,
        "refusals": refusals,
        "not_looked_at": counted.not_looked_at,
    }


def kind_json(summary: StateSummary) -> PageStateKind:
    """A kind of state with its counts."""
    kind = summary.kind
    return {
        "name": kind.name,
        "heading": kind.heading,
        "text": kind.text,
        "objects": summary.objects,
        "states": summary.counts,
    }


def measured_json(measured: Measured) -> PageMeasured:
    """Readings with their names."""
    return {
        "values": [
            {"name": name, "labels": labels, "value": value if math.isfinite(value) else None}
            for name, labels, value in measured.values
        ],
        "missing": [{"name": name, "word": word, "reason": reason} for name, word, reason in measured.missing],
    }


def share_json(lease: Lease, measured: Measured | None = None) -> PageShare:
    """A share with its use."""
    use, memory = (
        None if measured is None or (value := measured.get(name)) is None or not math.isfinite(value) else value
        for name in ("share_utilization_ratio", "framebuffer_used_bytes")
    )
    return {
        "host": lease.host,
        "gpu": lease.share.gpu,
        "device": lease.share.device,
        "profile": lease.share.profile,
        "tenant": lease.tenant,
        "vm": lease.vm_name,
        "state": lease.state,
        "problem": lease.problem,
        "used_of_promise": use,
        "framebuffer_used_bytes": memory,
    }


def event_json(event: Event) -> PageEvent:
    """An event."""
    return {
        "at": event.at,
        "kind": event.kind,
        "subject": event.subject,
        "tenant": event.tenant,
        "host": event.host,
        "detail": event.detail,
        "changes": event.changes,
        "by": event.who,
        "command": event.actor.command,
    }


def state_json(kind: StateKind, row: StateRow) -> PageState:
    """A row of a state."""
    labels = dict(zip(kind.labels, row.labels, strict=True))
    return {
        "kind": kind.name,
        "labels": labels,
        "states": row.states,
        "value": None if row.value is None or not math.isfinite(row.value) else row.value,
        "at": row.at,
        "text": row.text,
    }


def gpu_json(host: str, gpu: GpuView) -> PageGpu:
    """A GPU of the map."""
    use = gpu.utilization
    return {
        "host": host,
        "address": gpu.gpu.address,
        "states": gpu.states,
        "observed": gpu.observation.state,
        "utilization": None if use is None or not math.isfinite(use) else use,
        "map": gpu.map,
        "shares": [share_json(one, gpu.shares.get(one.share.device)) for one in gpu.leases],
    }


def host_json(host: HostView) -> PageHost:
    """A host with its GPUs."""
    closed = host.closed
    return {
        "name": host.name,
        "state": host.state,
        "seen": host.seen,
        "groups": host.groups,
        "closed": None if closed is None else Closed(closed.code, closed.reason, closed.remedy),
        "problem": host.problem,
        "readings_problem": host.readings_problem,
        "readings_age_s": host.readings_age_s,
        "attention": host.attention,
        "gpus": [gpu_json(host.name, one) for one in host.gpus],
    }


def vm_json(vm: Vm) -> PageVm:
    """A VM of the store."""
    asked = vm.request
    return {
        "tenant": asked.tenant,
        "name": asked.name,
        "uuid": vm.uuid,
        "host": vm.host,
        "domain_name": vm.domain_name,
        "declared": vm.state,
        "problem": vm.problem,
        "gpus": [one.text for one in asked.gpus],
        "vcpus": asked.vcpus,
        "memory_mib": asked.memory_mib,
        "network": asked.network,
        "priority": asked.priority,
        "restart": asked.restart,
        "ends_at": vm.ends_at,
    }


def listed_json(one: ListedVm) -> PageListedVm:
    """A VM of a list."""
    return {
        "vm": vm_json(one.vm),
        "state": one.word,
        "seen": one.state,
        "shares": [share_json(lease) for lease in one.leases],
    }


def waiting_json(waiting: Iterable[Waiting]) -> list[PageWaiting]:
    """The entries of the queue."""
    return [
        {
            "position": one.position,
            "tenant": one.entry.request.tenant,
            "vms": [asked.name for asked in one.entry.requests],
            "kind": one.entry.kind,
            "gpus": [gpu.text for gpu in one.entry.request.gpus],
            "priority": one.entry.priority,
            "duration_s": one.entry.duration_s,
            "queued_at": one.entry.queued_at,
            "expected_at": one.expected_at,
            "reason": one.entry.why,
        }
        for one in waiting
    ]


def reservations_json(reservations: Iterable[Reservation], now: float) -> list[PageReservation]:
    """Reservations with the window that is now or comes next."""
    return [
        {
            "tenant": one.tenant,
            "name": one.name,
            "gpus": [gpu.text for gpu in one.gpus],
            "host": one.host,
            "begin": begin,
            "end": end,
            "every_s": one.every_s,
        }
        for one in reservations
        for begin, end in [one.window_after(now) or (one.begin, one.end)]
    ]
