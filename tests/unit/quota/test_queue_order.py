# SPDX-License-Identifier: Apache-2.0
"""Who comes first in the queue under each policy, and that nobody waits for ever."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.queue import QueueEntry, QueueKind, QueuePolicy, QueueSettings
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.queue_order import dominant_share, has_aged, in_order

HOUR = 3600.0
NOW = 1000 * HOUR
FLEET = {"vcpus": 100, "memory": 100 * 1024, "framebuffer": 100 * 1024}


def entry(number: int, *, waits_h: float = 0.5, tenant: str = "acme", priority: int = 500,
          hours: float | None = None, gpu: str | None = None, vcpus: int = 1) -> QueueEntry:  # fmt: skip
    gpus = () if gpu is None else (parse_gpu_request(gpu),)
    duration_s = None if hours is None else hours * HOUR
    request = VmRequest(
        f"vm-{number}", tenant, gpus, vcpus=vcpus, memory_mib=1024, priority=priority, duration_s=duration_s
    )
    return QueueEntry(number, QueueKind.CREATE, request, NOW - waits_h * HOUR)


def order(policy: str, *entries: QueueEntry, used: dict[str, dict[str, int]] | None = None) -> list[int]:
    settings = QueueSettings(QueuePolicy(policy), HOUR)
    return [one.id for one in in_order(entries, settings, NOW, used=used or {}, capacity=FLEET)]


def test_fifo_goes_by_the_time_they_came() -> None:
    assert order("fifo", entry(1, waits_h=1), entry(2, waits_h=3, priority=0), entry(3, waits_h=2)) == [2, 3, 1]


def test_priority_goes_first_until_others_have_aged() -> None:
    assert order("priority", entry(1, priority=100), entry(2, priority=700), entry(3)) == [2, 3, 1]
    assert order("priority", entry(1, priority=100, waits_h=7), entry(2, priority=700)) == [1, 2]


def test_shortest_first_goes_by_declared_time_and_an_open_end_is_last() -> None:
    assert order("shortest-first", entry(1), entry(2, hours=5), entry(3, hours=1)) == [3, 2, 1]


def test_fair_share_goes_by_the_tenants_dominant_share_and_counts_what_it_gives() -> None:
    used = {"acme": {"vcpus": 2, "framebuffer": 50 * 1024}, "umbrella": {"vcpus": 40}}
    assert dominant_share(used["acme"], FLEET) == pytest.approx(0.5)
    waiting = [entry(1), entry(2), *(entry(n, tenant="umbrella", vcpus=15) for n in (3, 4, 5))]
    assert order("fair-share", *waiting, used=used) == [3, 1, 2, 4, 5]
    by_gpu = [entry(1, gpu="A40-24Q"), entry(2, gpu="A40-24Q"), entry(3, tenant="umbrella", vcpus=30)]
    assert order("fair-share", *by_gpu) == [1, 3, 2]


entries = st.lists(
    st.builds(
        entry, st.integers(0, 10**6), waits_h=st.floats(0, 50), tenant=st.sampled_from(["acme", "umbrella", "initech"]),
        priority=st.integers(0, 1000), hours=st.none() | st.floats(0.01, 500),
        gpu=st.sampled_from([None, "A40-8Q", "2*A40-48Q", "passthrough:A40", "memory>=8GiB"]),
    ),
    max_size=12,
)  # fmt: skip


@given(entries, st.sampled_from(list(QueuePolicy)), st.randoms())
def test_an_order_holds_each_once_and_does_not_depend_on_how_they_are_listed(
    waiting: list[QueueEntry], policy: QueuePolicy, random: object
) -> None:
    waiting = [replace(one, id=number) for number, one in enumerate(waiting)]
    shuffled = list(waiting)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(order(policy, *waiting)) == list(range(len(waiting)))
    assert order(policy, *waiting) == order(policy, *shuffled)


@given(entries, st.sampled_from(list(QueuePolicy)))
def test_who_waits_long_enough_comes_first_whatever_else_waits(waiting: list[QueueEntry], policy: QueuePolicy) -> None:
    old = entry(-1, waits_h=20_000, priority=0, tenant="old", gpu="2*A40-48Q")
    used = {"old": dict(FLEET)}
    assert order(policy, *waiting, old, used=used)[0] == -1
    assert has_aged(old, QueueSettings(policy, HOUR), NOW)
    assert not has_aged(entry(1), QueueSettings(policy, HOUR), NOW)


def test_a_gang_counts_as_all_of_its_vms() -> None:
    gang = replace(entry(1, priority=700, hours=1), others=(entry(9, priority=100, hours=9, vcpus=90).request,))
    assert order("priority", gang, entry(2)) == [2, 1]
    assert order("shortest-first", gang, entry(2, hours=5)) == [2, 1]
    after = entry(3, waits_h=0.4)
    assert order("fair-share", gang, after, entry(2, tenant="umbrella", vcpus=50, waits_h=0.3)) == [1, 2, 3]
