# SPDX-License-Identifier: Apache-2.0
"""Resources that VMs share: from readings of hosts over the history to outlooks, findings, events and metrics."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from vgpuctl.agent.wire.readings import HostReadings, Measured, VmReadings
from vgpuctl.model.licence import Edition, LicencePool, LicenceSeat
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.states import STATE_KINDS, StateRow
from vgpuctl.scheduler.advice.exhaustion import Outlook, Prospect
from vgpuctl.store.store import Store
from vgpuctl.telemetry.exposition import encode
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
from vgpuctl.telemetry.host_page import kept_values
from vgpuctl.usecases.observed.states import States
from vgpuctl.usecases.telemetry.findings_watch import page_of
from vgpuctl.usecases.telemetry.measured_resources import kept_seats, read_outlooks

NOW = 1_800_000_000.0
GIB = float(1 << 30)
NAS, SRV = "nas:/vms", "/srv"
Amount = Callable[[int], float]
"""GiB by minutes before now."""


@dataclass
class Told:
    """The readings of a host by time. pools: (total, free) by pool and file system; disks, memory: of VMs, by name."""

    memory: tuple[Amount, Amount] | None = None
    pages: tuple[Amount, Amount] | None = None
    pools: Mapping[tuple[str, str], tuple[Amount, Amount]] = field(default_factory=dict)
    disks: Mapping[tuple[str, str], Amount] = field(default_factory=dict)
    rss: Mapping[str, Amount] = field(default_factory=dict)
    vm_pages: Mapping[str, Amount] = field(default_factory=dict)
    tenant: str | None = "acme"
    are_pools_read: bool = True

    def readings(self, before: int) -> HostReadings:
        values: list[tuple[str, tuple[str, ...], float]] = [("pools_read", (), float(self.are_pools_read))]
        parts = {("memory", ()): self.memory, ("hugepages", ("1048576",)): self.pages}
        parts |= {("pool", labels): amounts for labels, amounts in self.pools.items()}
        for (name, labels), amounts in parts.items():
            if amounts is not None:
                rest = "free" if name == "hugepages" else "available"
                whole = "without_hugepages" if name == "memory" else "total"
                for measure, of in zip((whole, rest), amounts, strict=True):
                    values.append((f"{name}_{measure}_bytes", labels, of(before) * GIB))
        names = sorted({name for name, _ in self.disks} | set(self.rss) | set(self.vm_pages))
        prefix = "" if self.tenant is None else f"{self.tenant}."
        vms = tuple(
            VmReadings(f"uuid-{name}", f"{prefix}{name}", self.tenant, self._of_vm(name, before)) for name in names
        )
        return HostReadings("boot", 0.0, 0.0, vms=vms, measured=Measured(tuple(values)))

    def _of_vm(self, name: str, before: int) -> Measured:
        held: list[tuple[str, tuple[str, ...], float]] = [
            ("disk_allocated_bytes", (filesystem,), of(before) * GIB)
            for (one, filesystem), of in self.disks.items()
            if one == name
        ]
        for measure, labels, amounts in (
            ("memory_rss_bytes", (), self.rss),
            ("hugepages_bytes", ("1048576",), self.vm_pages),
        ):
            if name in amounts:
                held.append((measure, labels, amounts[name](before) * GIB))
        return Measured(tuple(one for one in held if math.isfinite(one[2])))


def flat(amount: float) -> Amount:
    return lambda _before: amount


def falls(end: float, by: float) -> Amount:
    """Free room that loses `by` GiB a minute."""
    return lambda before: end + by * before


def grows(end: float, by: float) -> Amount:
    return lambda before: end - by * before


def keep(history: History, hosts: Mapping[str, Told], *, first: int = 120, last: int = 1, step: int = 3) -> None:
    """Keep readings from `first` to `last` minutes before now."""
    for before in range(first, last - 1, -1):
        if (before - last) % step == 0:
            for host, told in hosts.items():
                history.add(NOW - 60 * before, kept_values(host, told.readings(before), ()))


def outlooks(store: Store, history: History, *hosts: str) -> dict[tuple[str, str], Outlook]:
    return {(one.host, one.resource): one for one in read_outlooks(store, history, NOW, hosts or None)}


def test_each_kind_of_a_host_is_told_with_its_vm(store: Store, history: History) -> None:
    told = Told(
        memory=(flat(512), falls(40, 0.25)),
        pages=(flat(64), flat(0)),
        pools={("default", SRV): (flat(1000), falls(100, 0.5))},
        disks={("web", SRV): grows(300, 0.5), ("db", SRV): flat(200)},
        rss={"web": flat(60), "db": grows(80, 0.2)},
        vm_pages={"web": flat(48), "db": flat(16)},
    )
    keep(history, {"gpu1": told})
    found = outlooks(store, history)
    assert list(found) == [
        ("gpu1", "memory"),
        ("gpu1", "1 GiB huge pages"),
        ("gpu1", f"disk pool on {SRV}"),
    ]
    memory, pages, pool = found.values()
    assert [one.ending for one in found.values()] == [
        Prospect.RUNS_OUT,
        Prospect.USED_UP,
        Prospect.RUNS_OUT,
    ]
    assert memory.figures["exhaustion_seconds"] == pytest.approx(40 / 0.25 * 60, rel=0.02)
    assert [(one.vm, round(one.ratio, 2)) for one in memory.causes] == [("db", 0.8)]
    assert [(one.vm, one.ratio) for one in pages.causes] == [("web", 0.75), ("db", 0.25)]
    assert [(one.vm, round(one.ratio, 2)) for one in pool.causes] == [("web", 1.0)]
    assert pool.readings == 40
    assert "acme/web 100%" in pool.text


def test_a_shared_pool_is_one_resource_with_the_vms_of_all_its_hosts(store: Store, history: History) -> None:
    room = (flat(1000), falls(100, 0.5))
    first = Told(pools={("vms", NAS): room, ("more", NAS): room}, disks={("web", NAS): grows(300, 0.3)})
    second = Told(pools={("vms", NAS): room}, disks={("db", NAS): grows(300, 0.2)})
    # Another server that this host knows by the same name.
    third = Told(pools={("vms", NAS): (flat(50), flat(40))})
    local = Told(pools={("vms", SRV): (flat(50), flat(40))})
    keep(history, {"gpu1": first, "gpu2": second, "gpu3": third, "gpu4": local, "gpu5": local})
    found = read_outlooks(store, history, NOW)
    assert [(one.hosts, one.resource, one.ending) for one in found] == [
        (("gpu4",), f"disk pool on {SRV}", Prospect.LASTS),
        (("gpu5",), f"disk pool on {SRV}", Prospect.LASTS),
        (("gpu1", "gpu2"), f"disk pool on {NAS}", Prospect.RUNS_OUT),
        (("gpu3",), f"disk pool on {NAS} (vms)", Prospect.LASTS),
    ]
    shared = found[2]
    assert [(one.vm, round(one.ratio, 1)) for one in shared.causes] == [("web", 0.6), ("db", 0.4)]
    assert f"disk pool on {NAS} (more, vms) of gpu1, gpu2: " in shared.text
    assert shared.concerns("acme", "gpu2") and not shared.concerns("acme", "gpu4") and not shared.concerns("x", None)


def test_foreign_domains_of_one_name_are_told_apart_by_their_hosts(store: Store, history: History) -> None:
    room = (flat(1000), falls(100, 0.5))

    def host(by: float) -> Told:
        return Told(pools={("vms", NAS): room}, disks={("pet", NAS): grows(300, by)}, tenant=None)

    keep(history, {"gpu1": host(0.3), "gpu2": host(0.2)})
    (found,) = read_outlooks(store, history, NOW)
    assert [(one.host, one.name, round(one.ratio, 1)) for one in found.causes] == [
        ("gpu1", "the foreign domain pet of gpu1", 0.6),
        ("gpu2", "the foreign domain pet of gpu2", 0.4),
    ]
    assert found.finding is not None
    text = encode([page_of([found.finding])], "")[0].decode()
    (line,) = [one for one in text.splitlines() if one.startswith("vgpuctl_exhaustion_cause_ratio{")]
    assert float(line.rpartition(" ")[2]) == pytest.approx(1.0, abs=0.01)


def test_a_host_that_was_resized_has_its_present_size(store: Store, history: History) -> None:
    def total(before: int) -> float:
        return 1000 if before > 60 else 2000

    keep(history, {"gpu1": Told(pools={("p", SRV): (total, lambda b: total(b) - 900 + b / 2)})})
    (found,) = outlooks(store, history).values()
    assert found.ending is Prospect.RUNS_OUT
    assert found.figures["used_ratio"] == pytest.approx(0.45, abs=0.01)
    assert found.figures["exhaustion_seconds"] == pytest.approx(1100 / 0.5 * 60, rel=0.02)


@pytest.mark.parametrize(("own", "left", "by"), [(400, 100, 0.5), (50, 300, 20)], ids=["little", "most of it"])
def test_a_whole_that_shrinks_with_the_room_of_others_is_used_up_by_them(
    store: Store, history: History, own: float, left: float, by: float
) -> None:
    """The pool is a file system of ZFS, and another one of the same zpool grows."""
    free = falls(left, by)
    keep(history, {"gpu1": Told(pools={("p", SRV): (lambda before: own + free(before), free)})})
    (found,) = outlooks(store, history).values()
    assert found.ending is Prospect.RUNS_OUT
    assert found.figures["exhaustion_seconds"] == pytest.approx((left / by + 1) * 60, rel=0.02)
    assert found.figures["used_ratio"] == pytest.approx(own / (own + left + by), abs=0.01)


def test_pools_of_one_file_system_with_quotas_of_their_own_are_told_apart(store: Store, history: History) -> None:
    """As by project quotas of XFS: each folder has the size of its quota."""
    pools = {("a", SRV): (flat(1000), flat(10)), ("b", SRV): (flat(100), flat(90)), ("c", SRV): (flat(1005), flat(12))}
    keep(history, {"gpu1": Told(pools=pools)})
    found = outlooks(store, history)
    assert {resource: one.ending for (_host, resource), one in found.items()} == {
        f"disk pool on {SRV}": Prospect.USED_UP,
        f"disk pool on {SRV} (b)": Prospect.LASTS,
    }
    assert found["gpu1", f"disk pool on {SRV}"].text.startswith(f"disk pool on {SRV} (a, c): 991")
    assert found["gpu1", f"disk pool on {SRV} (b)"].text.startswith(f"disk pool on {SRV} (b): not used up")


def test_a_silent_host_still_has_the_file_system_that_the_others_resized(store: Store, history: History) -> None:
    def total(before: int) -> float:
        return 1000 if before > 60 else 2000

    room = (total, lambda before: total(before) - 500)
    keep(history, {"gpu1": Told(pools={("p", NAS): room})}, first=120, last=72)
    keep(history, {"gpu2": Told(pools={("p", NAS): room}), "gpu3": Told(pools={("p", NAS): (flat(50), flat(40))})})
    found = read_outlooks(store, history, NOW)
    assert [(one.host, one.hosts, one.ending) for one in found] == [
        ("", ("gpu1", "gpu2"), Prospect.LASTS),
        ("gpu3", ("gpu3",), Prospect.LASTS),
    ]


def test_a_vm_that_was_deleted_is_behind_nothing_and_a_new_trend_begins(store: Store, history: History) -> None:
    told = Told(
        pools={("p", SRV): (flat(1000), lambda b: 300 + b / 2 if b <= 50 else 100 + b / 2)},
        disks={
            ("web", SRV): grows(300, 0.4),
            ("gone", SRV): lambda b: 200 - 0.1 * b if b > 50 else math.nan,
        },
    )
    keep(history, {"gpu1": told})
    (found,) = outlooks(store, history).values()
    assert found.ending is Prospect.RUNS_OUT
    assert "since it fell by 19" in found.text
    assert [(one.vm, round(one.ratio, 1)) for one in found.causes] == [("web", 0.8)]
    assert "no VM named here is behind the other 20%" in found.text


def test_a_pool_that_nobody_can_measure_is_unknown_with_the_reason(store: Store, history: History) -> None:
    room = (flat(1000), flat(900))
    keep(history, {"gpu1": Told(pools={("vms", SRV): room, ("late", NAS): room})})
    for before, host, labels in (
        (2, "gpu1", ("ceph", "rbd", "not-measurable")),
        (2, "gpu1", ("fast", "logical", "not-readable")),
        (1, "gpu1", ("late", "netfs", "not-readable")),
        (60, "gpu1", ("gone", "rbd", "not-measurable")),
        (2, "gpu1", ("odd", "x\x1b[2J{host}", "made up")),
        (2, "gpu2", ("ceph", "rbd", "not-measurable")),
        (2, "gpu3", ("ceph", "rbd", "not-measurable")),
    ):
        pool = Subject("host", host, "").part(labels)
        history.add(NOW - 60 * before, [MeasuredValue(pool, "pool_unmeasured", 1.0)])
    with store.transaction() as session:
        session.restrict("gpu2", WHOLE_HOST, RestrictionKind.DRAIN, "new fans")
    found = outlooks(store, history, "gpu1", "gpu2")
    pools = {
        (host, name): one for (host, name), one in found.items() if name.startswith("disk pool ") and not one.is_read
    }
    assert {key: one.ending for key, one in pools.items()} == dict.fromkeys(
        [("gpu1", "disk pool ceph"), ("gpu1", "disk pool fast"), ("gpu1", "disk pool odd"), ("gpu2", "disk pool ceph")],
        Prospect.UNKNOWN,
    ), "a pool whose room was read before is told by its file system"
    assert "no reading for pools of type rbd" in pools["gpu1", "disk pool ceph"].text
    assert "`vgpuctl check-hosts --limit gpu1`" in pools["gpu1", "disk pool fast"].text
    assert "drained for maintenance" in pools["gpu2", "disk pool ceph"].text
    assert [one.finding for one in pools.values()] == [None] * 4


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (Told(memory=(flat(512), flat(math.nan))), None),
        (Told(memory=(flat(512), flat(math.inf))), None),
        (Told(memory=(flat(512), flat(600))), "there is no reading of the last 5m"),
        (Told(pools={("p", SRV): (flat(0), flat(0))}), None),
    ],
)
def test_numbers_that_cannot_be_are_no_reading(store: Store, history: History, told: Told, text: str | None) -> None:
    keep(history, {"gpu1": told})
    found = list(outlooks(store, history).values())
    assert [one.finding for one in found] == [None] * len(found)
    assert len(found) == (text is not None)
    assert all(text is not None and text in one.text for one in found)


def test_one_reading_and_none_are_unknown_and_said_so(store: Store, history: History) -> None:
    keep(history, {"gpu1": Told(memory=(flat(512), flat(100)))}, first=1)
    keep(history, {"gpu2": Told(memory=(flat(512), flat(1)))}, first=110, last=20)
    found = outlooks(store, history, "gpu1", "gpu2", "gpu3")
    assert [(one.ending, one.readings, one.is_read) for one in found.values()] == [
        (Prospect.UNKNOWN, 1, True),
        (Prospect.UNKNOWN, 0, False),
        (Prospect.UNKNOWN, 0, False),
    ]
    assert found["gpu1", "memory"].text == "memory: 1 reading, and a trend needs 6 or more"
    assert found["gpu3", "memory"].text == "memory: there is no reading of the last 5m"


def test_a_host_in_maintenance_is_told_as_such_and_others_of_its_pool_go_on(store: Store, history: History) -> None:
    room = (flat(1000), flat(10))
    keep(history, {name: Told(memory=(flat(512), flat(1)), pools={("p", NAS): room}) for name in ("gpu1", "gpu2")})
    with store.transaction() as session:
        session.restrict("gpu1", WHOLE_HOST, RestrictionKind.DRAIN, "new fans")
        session.restrict("gpu2", WHOLE_HOST, RestrictionKind.CORDON, "busy")
    found = outlooks(store, history)
    assert "drained for maintenance" in found["gpu1", "memory"].text
    assert found["gpu2", "memory"].ending is Prospect.USED_UP
    assert found["", f"disk pool on {NAS}"].ending is Prospect.USED_UP


def test_names_that_a_host_makes_up_break_nothing(store: Store, history: History) -> None:
    told = Told(pools={("a\nb\x1b[2J", "x\ny"): (flat(100), flat(1))})
    keep(history, {"gpu1": told})
    (found,) = outlooks(store, history).values()
    assert found.ending is Prospect.USED_UP and found.text.isprintable()


def test_a_host_that_sends_a_wrong_number_of_labels_costs_itself_alone(store: Store, history: History) -> None:
    """Such rows may also be of an earlier version, which kept them."""
    room = (flat(1000), falls(100, 0.5))
    keep(history, {"gpu1": Told(pools={("default", SRV): room})})
    for before in range(120, 0, -3):
        for labels in ((), (SRV,), ("default", SRV, "more")):
            pool = Subject("host", "odd", "").part(labels)
            values = [MeasuredValue(pool, f"pool_{name}_bytes", 1.0) for name in ("total", "available")]
            history.add(NOW - 60 * before, values)
    (found,) = outlooks(store, history).values()
    assert (found.host, found.ending) == ("gpu1", Prospect.RUNS_OUT)


def _seats(history: History, free: Callable[[int], int], *, hours: int, total: int = 10) -> None:
    """Keep the states of the store by hours before now, as the exporter does."""
    for before in range(hours, 0, -1):
        rows: dict[str, list[StateRow]] = {one.name: [] for one in STATE_KINDS}
        rows["licence_seats"] = [
            StateRow(("dls", "vws", "free"), value=free(before)),
            StateRow(("dls", "vws", "held"), value=total - free(before)),
            StateRow(("dls", "vws", "coming-back"), value=0),
        ]
        history.add(NOW - 3600 * before, kept_seats(States(NOW - 3600 * before, rows, [], [])))


def test_licence_seats_are_named_with_the_vms_that_took_them(store: Store, history: History) -> None:
    with store.transaction() as session:
        session.put_licence_pool(LicencePool("dls", Edition.VWS, 10))
        for number in range(7):
            taken_at = NOW - 3600 * (400 if number < 3 else 20 * (7 - number))
            session.take_licence_seat(LicenceSeat("dls", "acme", f"u{number}", f"vm{number}", Edition.VWS, taken_at))
    (alone,) = outlooks(store, history).values()
    assert alone.text.startswith("licence pool dls: 1 reading, and a trend needs 6")
    _seats(history, lambda before: 3 + before // 60, hours=300)
    (found,) = outlooks(store, history).values()
    assert (found.hosts, found.ending) == ((), Prospect.RUNS_OUT)
    assert {one.vm for one in found.causes} == {"vm3", "vm4", "vm5", "vm6"}
    with store.transaction() as session:
        session.put_licence_pool(LicencePool("dls", Edition.VWS, 7))
    (full,) = outlooks(store, history).values()
    assert full.ending is Prospect.USED_UP and "7 of 7 are used" in full.text
    with store.transaction() as session:
        session.delete_licence_pool("dls")
    assert outlooks(store, history) == {}
