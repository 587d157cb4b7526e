# SPDX-License-Identifier: Apache-2.0
"""advise: what goes wrong, by which VM, and changes that are worth it, each with its proof."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vgpuctl.errors import NotFound, StateError
from vgpuctl.model import exhaustible
from vgpuctl.model.vm import printed_name
from vgpuctl.scheduler.advice.advice import Advice, MeasuredFault
from vgpuctl.scheduler.advice.contention import Unmeasured, find_unmeasured
from vgpuctl.scheduler.advice.everything import advise_all, find_all
from vgpuctl.scheduler.advice.exhaustion import Outlook
from vgpuctl.scheduler.advice.measured import FRAMEBUFFER, MeasuredFleet
from vgpuctl.scheduler.advice.tunable import TUNABLE
from vgpuctl.usecases.observed.tuning_record import Trial
from vgpuctl.usecases.running.history import Past, open_past
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.measured_fleet import REPLAYED, Windows, read_fleet_measured
from vgpuctl.usecases.telemetry.measured_resources import read_outlooks
from vgpuctl.usecases.telemetry.tuning_advice import ShownTrial, TuningView, shown, tuning_of


@dataclass(frozen=True)
class Advised:
    """findings: what goes wrong now. recommendations: by kind, host and GPU. outlooks: of what VMs share.

    measured: leases with readings, of all leases. hours: that were measured of the one that was measured longest.
    trials: the changes that controllers have in trial. tuning: what a controller makes of a recommendation, by its id.
    unmeasured: GPUs whose VMs nobody measures for the time that one takes from another.
    """

    findings: tuple[MeasuredFault, ...]
    recommendations: tuple[Advice, ...]
    measured: int
    leases: int
    hours: float
    trials: tuple[ShownTrial, ...] = ()
    tuning: Mapping[str, str] = field(default_factory=dict)
    outlooks: tuple[Outlook, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()


def advise(
    services: Services, *, since_s: float, replay_s: float, tenant: str | None = None, host: str | None = None
) -> Advised:
    """Look at the past readings of the whole fleet, and return the advice for a tenant or a host. No host is contacted.

    since_s: how far back sizes are looked at. replay_s: how many seconds of minutes are replayed.
    Raises NotFound without past readings, or for the tenant or host, StoreUnusable, PrometheusUnusable.
    """
    if tenant is not None:
        with services.store.reading() as session:
            session.tenant(tenant)
    if host is not None and host not in services.inventory.select(None):
        raise NotFound(f"the inventory has no host {host}", hint="see `vgpuctl list-hosts`")
    with _opened_past(services) as past:
        fleet = _measured_fleet(services, past, since_s, replay_s)
        every = read_outlooks(services.store, past, fleet.now, frozenset(services.inventory.select(None)), tenant)
    advised = tuple(one for one in advise_all(fleet) if _concerns(one, tenant, host))
    trials: tuple[ShownTrial, ...] = ()
    try:
        with services.store.reading() as session:
            view = TuningView.read(session)
        trials = tuple(shown(one) for one in view.trials if _concerns(one, tenant, host))
        tuning = tuning_of(advised, fleet, view)
    except StateError as error:
        # A record of one host that nobody can read hides no advice.
        services.say(f"warning: what controllers have in trial is not known: {error.message}")
        tuning = {one.id: f"not tried: {error.message}" for one in advised if one.kind in TUNABLE}
    outlooks = tuple(one for one in every if one.concerns(tenant, host))
    shared = (one.finding for one in outlooks)
    return Advised(
        findings=(
            *(one for one in find_all(fleet) if _concerns(one, tenant, host)),
            *(one for one in shared if one is not None),
        ),
        recommendations=advised,
        measured=len(fleet.vgpus),
        leases=len(fleet.leases),
        hours=_hours(fleet),
        trials=trials,
        tuning=tuning,
        outlooks=outlooks,
        unmeasured=tuple(_unmeasured(fleet, tenant, host)),
    )


def _unmeasured(fleet: MeasuredFleet, tenant: str | None, host: str | None) -> Iterator[Unmeasured]:
    """Those of a host that concern a tenant, whose VMs alone are named then."""
    own = {printed_name(one.tenant, one.vm_name) for one in fleet.leases if tenant in (None, one.tenant)}
    for one in find_unmeasured(fleet.leases):
        names = tuple(name for name in one.vms if name in own)
        if names and host in (None, one.host):
            yield replace(one, vms=names)


def measured_fleet(services: Services, since_s: float, replay_s: float) -> MeasuredFleet:
    """The fleet with its past readings. Raises NotFound without any, StoreUnusable, PrometheusUnusable."""
    with _opened_past(services) as past:
        return _measured_fleet(services, past, since_s, replay_s)


@contextlib.contextmanager
def _opened_past(services: Services) -> Iterator[Past]:
    with open_past(services.past()) as opened:
        if opened.past is None:
            raise NotFound(
                opened.problem or "there is no history of readings",
                hint="advice is given from measurements only: run `vgpuctl serve exporter`, or name --prometheus",
            )
        yield opened.past


def _measured_fleet(services: Services, past: Past, since_s: float, replay_s: float) -> MeasuredFleet:
    minutes = dict.fromkeys(REPLAYED, replay_s) | {FRAMEBUFFER: exhaustible.FRAMEBUFFER.window_s}
    return read_fleet_measured(services, past, Windows(since_s, minutes, power=replay_s))


def _hours(fleet: MeasuredFleet) -> float:
    return max((one.measured_hours for one in fleet.vgpus), default=0.0)


def _concerns(one: Advice | MeasuredFault | Trial, tenant: str | None, host: str | None) -> bool:
    return tenant in (None, one.tenant) and host in (None, one.host)
