# SPDX-License-Identifier: Apache-2.0
"""list-events: what happened and who did it, once or followed as it happens."""

import difflib
import fnmatch
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vgpuctl.errors import StoreNotTheSame, StoreUnusable, UsageError
from vgpuctl.model.event import Event, EventFilter, events_of_vms
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import printed_name
from vgpuctl.usecases.running.services import Services

_PAGE = 1000


def list_events(services: Services, wanted: EventFilter, *, limit: int | None) -> Sequence[Event]:
    """The last `limit` events that fit, or all of them; the oldest first. Raises UsageError as check_filter does."""
    check_filter(services, wanted)
    with services.store.reading() as session:
        return session.events(limit, wanted)


def check_filter(services: Services, wanted: EventFilter) -> None:
    """Tell the user of a kind that no event has; one of an older vgpuctl may have had it.

    Raises UsageError for a period that ends before it begins, and for a node pool without its tenant.
    """
    if wanted.node_pool is not None and wanted.tenant is None:
        raise UsageError("the name of a node pool needs its tenant", hint="give --tenant NAME")
    if wanted.since is not None and wanted.until is not None and wanted.until <= wanted.since:
        raise UsageError("--until is not after --since", hint="2h is 2 hours ago: --since 3h --until 2h")
    for kind in wanted.kinds:
        if not fnmatch.filter(EventKind, kind.replace("[", "[[]").replace("?", "[?]")):
            alike = [one for one in EventKind if one.partition("-")[0] == kind.partition("-")[0]]
            near = difflib.get_close_matches(kind, alike or EventKind, n=3, cutoff=0.0 if alike else 0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else "docs/events.md lists them"
            services.say(f"warning: vgpuctl writes no event of the kind {kind!r}; {hint}")


def follow_events(
    services: Services, wanted: EventFilter, stop: threading.Event, *, limit: int | None, interval_s: float
) -> Iterator[Sequence[Event]]:
    """Give the last `limit` events that fit, then the new ones as they come, until `stop` is set or `wanted` is over.

    A store that does not answer for a while (a fail-over) is asked again; no event is left out or given twice.
    Raises StoreUnusable when it does not answer at the beginning, StoreNotTheSame, and UsageError as check_filter does.
    """
    check_filter(services, wanted)
    with services.store.reading() as session:
        seen = session.last_event_id()
        found = session.events(limit, wanted)
    yield found
    is_lost = False
    while not stop.is_set():
        try:
            with services.store.reading() as session:
                is_over = wanted.until is not None and session.now() >= wanted.until
                newest = session.last_event_id()
                found = session.next_events(_PAGE, replace(wanted, after_id=max(seen, wanted.after_id)))
        except StoreNotTheSame:
            raise
        except StoreUnusable as error:
            if not is_lost:
                services.say(f"the store does not answer and is asked again: {error.message}")
            is_lost = True
            stop.wait(interval_s)
            continue
        is_lost = False
        if found:
            yield found
        seen = found[-1].id if len(found) == _PAGE else newest
        if len(found) < _PAGE:
            if is_over:
                return
            stop.wait(interval_s)


def vm_history(services: Services, tenant: str, name: str) -> Sequence[Event]:
    """Every event of a VM by its name, with its leases, shares and volumes; also of one that is deleted.

    They are of each VM that ever had the name, and of the names that it had before. Events of a tenant's other objects
    of the same name are left out.
    """
    with services.store.reading() as session:
        names = [name]
        for one in names:
            renames = session.events(None, EventFilter((printed_name(tenant, one),), (EventKind.VM_RENAMED,)))
            before = [str(rename.before["name"]) for rename in renames if rename.after.get("name") == one]
            names += [former for former in dict.fromkeys(before) if former not in names]
        return session.events(None, events_of_vms([printed_name(tenant, one) for one in names]))
