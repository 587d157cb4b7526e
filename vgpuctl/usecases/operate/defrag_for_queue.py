# SPDX-License-Identifier: Apache-2.0
"""controller --defrag: a live move, at most one a round, that makes room for the first VM of the queue without room."""

from dataclasses import dataclass, field

from vgpuctl.errors import ConcurrentChange, VgpuctlError
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.times import is_within
from vgpuctl.scheduler.defrag.search import NO_LIMITS
from vgpuctl.usecases.maintenance.planned_moves import MadeStep, MoveRules, StepOutcome, carry_out, plan_room
from vgpuctl.usecases.network.ports import with_networks
from vgpuctl.usecases.operate.serve_queue import Served
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.running.operations import may_run
from vgpuctl.usecases.running.services import Services

_BY = "controller"


@dataclass
class QueueDefrag:
    """When moves may begin, and how many in an hour by all controllers together.

    window: as `parse_window` reads it. looked_at: entry and leases of the last plan
    that found no move; these are not planned for again.
    """

    moves_per_hour: int
    window: tuple[float, float]
    looked_at: object = field(default=None, init=False)

    def move_one(self, services: Services, entry: QueueEntry) -> Served | None:
        """Make the first move of a plan of live moves after which the entry has room; None where nothing is done.

        Nothing is done for an entry of several VMs, or that asks for one host, or while any other run moves a VM.
        """
        if len(entry.requests) > 1 or not entry.request.gpus or entry.request.host or not self._is_open(services):
            return None
        try:
            with services.store.operation("defrag", "defrag:queue", exclusive=True):
                made = self._make(services, entry)
        except ConcurrentChange:
            return None  # another controller is at it
        except VgpuctlError as error:
            return Served(entry.name, f"no room is made: {error.message}")
        if made is None:
            return None
        if made.outcome is StepOutcome.MOVED:
            return Served(made.step.name, f"moved to {made.step.placement.host} to make room for {entry.name}")
        return Served(made.step.name, f"failed: {made.reason}")

    def _is_open(self, services: Services) -> bool:
        """True inside the window, with moves of the last hour left, while no run moves a VM."""
        now = services.store.now()
        if not is_within(self.window, now):
            return False
        recent = EventFilter(subjects=(_BY,), kinds=(EventKind.MOVES_BEGUN,), since=now - 3600)
        with services.store.reading() as session:
            moving = [one for one in session.open_operations() if one.kind == "move-vm" and may_run(one)]
            return not moving and len(session.events(None, recent)) < self.moves_per_hour

    def _make(self, services: Services, entry: QueueEntry) -> MadeStep | None:
        with services.store.reading() as session:
            leases = frozenset((one.id, one.host, one.state) for one in session.leases())
        looked_at = (entry.id, leases)
        if looked_at == self.looked_at or not self._is_open(services):
            return None
        request = with_networks(services, entry.request)
        on = frozenset(usable_hosts(services, request))
        planned = plan_room(services, request, 1, NO_LIMITS, only_live=True, room_on=on)
        if planned.refused or not planned.found.plan.steps:
            self.looked_at = looked_at
            return None
        (made,) = carry_out(services, _BY, planned.found.plan.steps[:1], MoveRules(f"room for {entry.name}"))
        return made
