# SPDX-License-Identifier: Apache-2.0
"""The loads of a measured fleet: of each share, by its readings or by its kind, and of what else uses a GPU."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from vgpuctl.scheduler.advice.measured import UTILIZATION, MeasuredFleet
from vgpuctl.scheduler.balance import RECENT_S, LoadedFleet, Place, ShareLoad, share_load
from vgpuctl.scheduler.unmeasured import UnmeasuredLoad

Samples = Sequence[tuple[float, float]]
"""Begin of a minute in seconds since the epoch, and the part of the time that was used."""

_GUESSED = 0.3
"""Relative deviation of a share that counts with the load of its kind."""


def loaded_fleet(fleet: MeasuredFleet, gpus: Mapping[Place, Samples], kinds: Mapping[str, float]) -> LoadedFleet:
    """The fleet with its loads. gpus: the use of whole GPUs. kinds: as in UnmeasuredLoad.

    Something else is the least that a GPU used in a recent minute beside its shares: so a VM that left a minute ago
    does not count.
    """
    used = {one.lease.id: [(point.at, point.mean) for point in one.of(UTILIZATION)] for one in fleet.vgpus}
    cards = {(one.name, gpu.address): gpu for one in fleet.capacities for gpu in one.facts.gpus}
    unmeasured = UnmeasuredLoad({}, kinds)
    shares: dict[str, ShareLoad] = {}
    unmoved = set()
    guessed: defaultdict[Place, float] = defaultdict(float)
    together: defaultdict[Place, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for lease in fleet.leases:
        place = (lease.host, lease.share.gpu)
        load = share_load(used.get(lease.id, ()), fleet.now)
        if load is None:
            unmoved.add(lease.id)
            percent = unmeasured.percent([lease], cards[place]) if place in cards else 0.0
            load = ShareLoad(percent, _GUESSED * percent)
            guessed[place] += percent
        shares[lease.id] = load
        for at, part in used.get(lease.id, ()):
            together[place][int(at // 60)] += 100 * part
    others = {}
    for place, samples in gpus.items():
        beside = [
            100 * min(1.0, part) - together[place][int(at // 60)]
            for at, part in samples
            if -60 <= fleet.now - at <= RECENT_S
        ]
        least = min(beside, default=0.0) - guessed[place]
        if place in cards and least > 0:
            others[place] = least
    return LoadedFleet(fleet.capacities, fleet.leases, fleet.vms, shares, others, frozenset(unmoved))
