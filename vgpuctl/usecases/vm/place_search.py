# SPDX-License-Identifier: Apache-2.0
"""The hosts on which VMs may be created together: what is known of them, and where the VMs fit."""

import time
from collections.abc import Collection, Sequence

from vgpuctl.errors import HostError, NoCapacity
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import Placement
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import HostOfNetwork, VmRequest
from vgpuctl.scheduler.explain import rejections_of
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import as_one
from vgpuctl.scheduler.kept_fleet import KeptFleet
from vgpuctl.scheduler.place import place_all
from vgpuctl.scheduler.scorer import FleetView
from vgpuctl.scheduler.victims import Eviction
from vgpuctl.sharing.codes import Code
from vgpuctl.usecases.measured.measured_view import PlacingMeasurements, last_view, read_measurements
from vgpuctl.usecases.observed.failed_hosts import FailedHosts
from vgpuctl.usecases.observed.observations import is_seen_by_controller
from vgpuctl.usecases.placement.preemption import find_eviction
from vgpuctl.usecases.placement.reservations import (
    explain_by_reservation,
    placement_of,
    refuse_closed_shares,
    with_promises,
)
from vgpuctl.usecases.placement.usable_hosts import usable_hosts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.created_vm import PlacementReason

FRESH_S = 10.0
"""A host that this process read within this time is not read again before VMs are refused."""


class PlaceSearch:
    """One search, from the first look at the hosts to the placement that held.

    requests: VMs of one tenant, with the hosts of their networks. reservation: what the only VM uses, if it uses one.
    fleet: kept by the command from VM to VM. refresh: read every host first.
    Raises NoCapacity when the tenant may use none of the hosts, and the first host's error when none answers.
    """

    def __init__(
        self,
        services: Services,
        requests: Sequence[VmRequest],
        reservation: Reservation | None,
        fleet: KeptFleet,
        *,
        refresh: bool,
    ) -> None:
        self._services = services
        self._requests = requests
        self._reservation = reservation
        self._fleet = fleet
        self._names: Sequence[str] = ()
        for request in {one.host: one for one in requests}.values():
            self._names = usable_hosts(services, request)
        self._failed = FailedHosts(services)
        self._capacities = refuse_closed_shares(reservation, self._failed.read_others(self._names, refresh=refresh))
        self._is_fresh = refresh

    @property
    def generations(self) -> dict[str, int]:
        """The store's counter of each host, as it was before the host was looked at."""
        return {one.name: one.generation for one in self._capacities}

    def place(self) -> list[Placement]:
        """Where all the VMs fit, in their order. When they do not fit what is cached, hosts are read again, once.

        Raises NoCapacity, and UsageError for a type that nobody knows.
        """
        try:
            return self._place()
        except NoCapacity as full:
            if self._is_fresh or full.stays:
                raise
            self._is_fresh = True
            again = self._worth_reading()
            if not again:
                self._services.say("nothing fits, and no host is worth reading again; --refresh reads all of them")
                raise
        self._services.say("nothing fits what was read of the hosts before")
        self.look_again(again)
        return self._place()

    def find_eviction(self, full: NoCapacity) -> Eviction:
        """Choose VMs to preempt so that the new ones fit. Raises `full`, with the failed hosts, when none helps."""
        eviction = find_eviction(self._services, self._requests, self._capacities, failed=self._failed.names)
        if eviction is None:
            reserved = explain_by_reservation(self._services, self._requests, self._capacities, full)
            raise self._failed.explain(reserved or full) from full
        return eviction

    def leave_out(self, error: HostError) -> None:
        """Go on without the host that failed.

        Raises the error when something of the VMs is left there, when they must run there, or when no host is left.
        """
        self._capacities = self._failed.after(error, self._requests, self._capacities)

    def look_again(self, hosts: Collection[str]) -> None:
        """Read these hosts again, and what the store promises on all of them. One that does not answer is left out.

        Raises NoCapacity where what a host says now closes the shares of the reservation.
        """
        again = self._failed.read_again([one.name for one in self._capacities], hosts)
        self._capacities = refuse_closed_shares(self._reservation, again)

    def fleet(self) -> Fleet:
        """The hosts as they were last read, with what the store promises on them. It is changed by the next call."""
        together = as_one(self._requests)
        leases, view = self._look(together, read_measurements(self._services, together, self._capacities))
        return self._fleet.with_hosts(self._capacities, leases, view)

    def why(self, request: VmRequest) -> PlacementReason:
        """Why `place` chose for this VM: the policy, and how many GPUs take it; a host where it has no GPU."""
        fleet = self.fleet()
        policy = str(fleet.policy_for(request))
        if self._reservation is not None:
            return PlacementReason(policy, reservation=self._reservation.name)
        refused = {(one.host, one.gpu) for one in rejections_of(fleet, request)}
        every = [(name, gpu) for name, host in fleet.hosts.items() for gpu in (host.cards if request.gpus else [None])]
        takers = [(name, gpu) for name, gpu in every if (name, None) not in refused and (name, gpu) not in refused]
        network = request.host.network if isinstance(request.host, HostOfNetwork) else None
        hosts, refusing = len({name for name, _ in takers}), len(every) - len(takers)
        return PlacementReason(policy, len(takers), hosts, refusing, network=network)

    def _worth_reading(self) -> list[str]:
        """The hosts whose facts may be old, and whose answer could admit the VMs.

        This process may have read a host just now, and a controller reads those that it watches all the time. Of a host
        that the request itself rules out, as by its cards' model or a cordon, nothing that it answers matters.
        """
        ruled_out: set[str] = set()
        if len(self._requests) == 1 and self._reservation is None:
            codes: dict[str, list[Code]] = {}
            for one in rejections_of(self.fleet(), self._requests[0]):
                codes.setdefault(one.host, []).append(Code(one.code))
            ruled_out = {host for host, own in codes.items() if all(one.follows_from_the_request() for one in own)}
        since, read_at = time.monotonic() - FRESH_S, self._services.read_at
        old = [one.name for one in self._capacities if read_at.get(one.name, since) <= since]
        with self._services.store.reading() as session:
            return [name for name in old if name not in ruled_out and not is_seen_by_controller(session, name)]

    def _place(self) -> list[Placement]:
        together = as_one(self._requests)
        measured = read_measurements(self._services, together, self._capacities)
        if measured.model_problem is not None:
            self._services.say(f"warning: {measured.model_problem}")
        leases, view = self._look(together, measured)
        if self._reservation is not None:
            return [placement_of(self._reservation, together, self._capacities, leases)]
        return place_all(self._fleet.with_hosts(self._capacities, leases, view), self._requests)

    def _look(self, together: VmRequest, measured: PlacingMeasurements) -> tuple[list[Lease], FleetView]:
        """The leases with what is promised, and what the policy looks at."""
        with self._services.store.reading() as session:
            view = last_view(session, measured, together, self._capacities)
            return with_promises(session, session.leases(), together), view
