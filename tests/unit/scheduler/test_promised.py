# SPDX-License-Identifier: Apache-2.0
"""GPUs that reservations keep from a request, and remedies in time."""

from dataclasses import replace

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import emulated_a40, host, vm
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Share
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.calendar import Booking
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.promised import changes_in_time, promised_leases, rejections_with_promises
from vgpuctl.sharing.codes import Code

NOW = 1_800_000_000.0
HOUR = 3600.0


def promise(card: EmulatedGpu, begin: float, end: float) -> Booking:
    held = Share(card.address, Sharing.VF_PROFILE, "A40-48Q", card.functions[0], framebuffer_mib=49152)
    return Booking("umbrella/reservation training", "gpu1", (held,), begin, end)


def answers(request: VmRequest, card: EmulatedGpu, *promises: Booking) -> list[tuple[str, str, str | None]]:
    hosts = [host("gpu1", card)]
    fleet = Fleet(hosts, promised_leases([], promises, NOW, request.duration_s))
    found = rejections_with_promises(request, fleet, Fleet(hosts, []), promises, NOW)
    return [(one.code, one.reason, one.remedy) for one in found]


def test_a_gpu_that_is_only_reserved_says_so_and_until_when_it_is_open_to_backfill() -> None:
    card = emulated_a40()
    later = promise(card, NOW + HOUR, NOW + 2 * HOUR)
    ((code, reason, remedy),) = answers(vm("A40-8Q"), card, later)
    assert code == Code.RESERVED_IN_CALENDAR
    assert reason == "reservation training of umbrella has A40-48Q from 2027-01-15 09:00 to 2027-01-15 10:00 UTC"
    assert remedy == "give --for 59m or less"
    assert answers(replace(vm("A40-8Q"), duration_s=HOUR), card, later) == []


def test_a_present_window_tells_when_it_ends() -> None:
    card = emulated_a40()
    ((code, _, remedy),) = answers(vm("A40-8Q"), card, promise(card, NOW - HOUR, NOW + HOUR))
    assert (code, remedy) == (Code.RESERVED_IN_CALENDAR, "wait until 2027-01-15 09:00 UTC")


def test_what_would_be_refused_without_the_reservation_keeps_its_reason() -> None:
    card = emulated_a40()
    ((code, _, _),) = answers(vm("T4-2Q"), card, promise(card, NOW + HOUR, NOW + 2 * HOUR))
    assert code == Code.NO_SUCH_TYPE


def test_a_shorter_run_and_a_later_start_are_told() -> None:
    card = emulated_a40()
    later = promise(card, NOW + HOUR, NOW + 2 * HOUR)
    found = changes_in_time(vm("A40-8Q"), [host("gpu1", card)], [], [later], NOW)
    assert [one.text for one in found] == [
        "it ran for 59m at most, until reservation training of umbrella begins at 2027-01-15 09:00 UTC",
        "it began at 2027-01-15 10:00 UTC, when reservation training of umbrella ends",
    ]
    assert {one.placement.host for one in found} == {"gpu1"}
    assert changes_in_time(vm("T4-2Q"), [host("gpu1", card)], [], [later], NOW) == []
