# SPDX-License-Identifier: Apache-2.0
"""Quotas: how they are written, what is charged, what exceeds them."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fleet_factory import a40_host, emulated_t4, host, intel_vf_host, vm
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.times import format_duration, format_time, format_time_left, parse_duration, parse_time
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota import charge
from vgpuctl.quota.host_pools import HostPool, closed_hosts
from vgpuctl.quota.limits import Excess, Quota, borrowed, changed, excesses, month_of, room_hint
from vgpuctl.quota.resources import (
    Resource,
    format_amount,
    normal_resource,
    parse_amount,
    parse_assignment,
    plain_amount,
)
from vgpuctl.scheduler.fleet import Fleet

GIB = 1024
A40_8Q = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", "0000:41:00.4", framebuffer_mib=8 * GIB)


@pytest.mark.parametrize(
    ("text", "resource", "amount", "shown"),
    [
        ("vms=10", "vms", 10, "10"),
        ("framebuffer=96GiB", "framebuffer", 96 * GIB, "96 GiB"),
        ("framebuffer=0", "framebuffer", 0, "0"),
        ("memory=512MiB", "memory", 512, "512 MiB"),
        ("gpu-hours=1.5", "gpu-hours", 5400, "1.5 h"),
        ("shares:A40-8Q=4", "shares:A40-8Q", 4, "4"),
    ],
)
def test_an_amount_is_read_and_written_in_the_unit_people_sell(
    text: str, resource: str, amount: int, shown: str
) -> None:
    assert parse_assignment(text, what="quota") == (resource, amount)
    assert format_amount(resource, amount) == shown


@pytest.mark.parametrize("text", ["vms", "vms=-1", "vms=1.5", "gpus=1", "shares:=1", "framebuffer=x", "gpu-hours=1e9",
                                  "memory=8", "framebuffer=96", "gpu-hours=0.0001",
                                  "vms=999999999999999999", "shares:<b>=1", "gpu-hours=nan", "vms=١"])  # fmt: skip
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_assignment(text, what="quota")


def test_a_request_is_charged_for_all_its_gpus() -> None:
    request = VmRequest("a", "acme", tuple(map(parse_gpu_request, ["2*A40-8Q", "A40-8Q", "passthrough:H100*2"])))
    charged = charge.of_request(request)
    guest = {"vms": 1, "vcpus": 2, "memory": 2048, "nics": 1, "bandwidth": 400_000}
    assert charged == {**guest, "shares:A40-8Q": 3, "cards": 2, "compute": 2000}
    mig = Share("0000:41:00.0", Sharing.VF_PROFILE, "A100-3-20C", "0000:41:00.5", framebuffer_mib=20 * GIB)
    card = Share("0000:51:00.0", Sharing.PASSTHROUGH, "passthrough", "0000:51:00.0", framebuffer_mib=80 * GIB)
    assert charge.of_shares([A40_8Q, mig, card]) == {
        "shares:A40-8Q": 1, "shares:A100-3-20C": 1, "cards": 1, "framebuffer": 108 * GIB, "mig-compute": 3,
        "compute": 166 + 428 + 1000,
    }  # fmt: skip


def test_the_compute_time_of_a_share_is_what_was_recorded_else_what_the_catalogue_knows() -> None:
    assert charge.milli_gpus(A40_8Q) == 166
    assert charge.milli_gpus(replace(A40_8Q, milli_gpus=250)) == 250
    assert charge.milli_gpus(Share("0000:9a:00.0", Sharing.VF, "vf", "0000:9a:00.1")) == 1000
    assert charge.milli_gpus(Share("0000:41:00.0", Sharing.MDEV, "Z9-1Q", "0000:41:00.0", mdev_uuid="u")) == 1000
    (share,) = placed(intel_vf_host(vfs=7), "vf")
    assert charge.milli_gpus(share) == 142
    (share,) = placed(a40_host("gpu1"), "A40-16Q")
    assert charge.milli_gpus(share) == 333


def placed(capacity: HostCapacity, gpu: str) -> tuple[Share, ...]:
    placement = Fleet([capacity]).place(vm(gpu))
    assert placement is not None
    return placement.shares


@pytest.mark.parametrize(
    ("written", "amount", "shown"), [("4", 4000, "4"), ("2.5", 2500, "2.5"), ("0.166", 166, "0.166")]
)
def test_compute_is_written_in_gpus(written: str, amount: int, shown: str) -> None:
    assert parse_amount(Resource.COMPUTE, written) == amount
    assert format_amount(Resource.COMPUTE, amount) == plain_amount(Resource.COMPUTE, amount) == shown


@pytest.mark.parametrize("written", ["1e3", "-1", "nan", "25%", "0.0001", "", "1.", "9" * 10])
def test_other_amounts_of_compute_are_refused(written: str) -> None:
    with pytest.raises(UsageError, match="is no number of GPUs"):
        parse_amount(Resource.COMPUTE, written)


def test_a_share_keeps_its_part_of_the_card_from_others() -> None:
    gpus = a40_host("gpu1").facts.gpus
    assert charge.part_of_card(A40_8Q, gpus) == pytest.approx(8 / 48)
    assert charge.part_of_card(A40_8Q, ()) == pytest.approx(8 / 48)
    mig = Share("0000:41:00.0", Sharing.VF_PROFILE, "A100-3-20C", "0000:41:00.5", framebuffer_mib=20 * GIB)
    assert charge.part_of_card(mig, ()) == pytest.approx(20 / 40)
    small = Share("0000:41:00.0", Sharing.VF_PROFILE, "A100-1-5C", "0000:41:00.5", framebuffer_mib=5 * GIB)
    assert charge.part_of_card(small, ()) == pytest.approx(1 / 7)
    unknown = Share("0000:41:00.0", Sharing.MDEV, "Z9-1Q", "0000:41:00.0", mdev_uuid="u", framebuffer_mib=1)
    assert charge.part_of_card(unknown, host("gpu1", emulated_t4()).facts.gpus) == 1.0


amounts = st.dictionaries(st.sampled_from(["vms", "framebuffer", "shares:A40-8Q", "gpu-hours"]), st.integers(0, 50))
quotas = st.lists(
    st.builds(Quota, st.sampled_from(["vms", "framebuffer", "shares:A40-8Q", "gpu-hours"]),
              st.none() | st.integers(0, 60), st.none() | st.integers(0, 60)),
    unique_by=lambda one: one.resource,
)  # fmt: skip


@given(quotas, amounts, amounts)
def test_what_is_admitted_stays_within_every_limit_and_what_is_refused_would_not(
    limits: list[Quota], used: dict[str, int], asked: dict[str, int]
) -> None:
    refused = {one.resource for one in excesses(limits, used, asked)}
    total = charge.add(used, asked)
    for quota in limits:
        takes = asked.get(quota.resource, 0) > 0
        over = quota.limit is not None and total.get(quota.resource, 0) > quota.limit
        used_up = quota.resource == "gpu-hours" and quota.resource in asked and quota.limit is not None
        used_up = used_up and used.get("gpu-hours", 0) >= (quota.limit or 0)
        assert (quota.resource in refused) == ((takes and over) or used_up)
    for resource, amount in borrowed(limits, used).items():
        guarantee = next(one.guaranteed for one in limits if one.resource == resource)
        assert guarantee is not None
        assert amount == used[resource] - guarantee > 0


def test_quotas_are_changed_one_by_one_and_taken_away_with_none() -> None:
    there = [Quota("framebuffer", 96), Quota("vms", 10, 4)]
    assert changed(there, {"vms": 12}, {}) == [Quota("framebuffer", 96), Quota("vms", 12, 4)]
    assert changed(there, {"framebuffer": None}, {"vms": None}) == [Quota("vms", 10)]


def test_a_month_begins_and_ends_at_midnight_utc_also_in_december() -> None:
    begin, end = month_of(datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp())
    assert (format_time(begin), format_time(end)) == ("2026-12-01 00:00", "2027-01-01 00:00")


def test_a_host_of_a_pool_is_closed_to_those_without_a_grant() -> None:
    pools = [HostPool("gold", ("gpu1", "gpu2"), ("acme",)), HostPool("silver", ("gpu3",), ())]
    assert closed_hosts("acme", pools) == {"gpu3": "silver"}
    assert closed_hosts("umbrella", pools) == {"gpu1": "gold", "gpu2": "gold", "gpu3": "silver"}


def test_times_and_durations_are_read_as_written() -> None:
    assert parse_time("2026-11-01T14:00+01:00", what="--from") == parse_time("2026-11-01T13:00", what="--from")
    assert format_time(parse_time("2026-11", what="--since")) == "2026-11-01 00:00"
    assert parse_duration("1d12h", what="--for") == 129_600
    assert [format_duration(seconds) for seconds in (0, 90, 7200, 129_600)] == ["0s", "1m30s", "2h", "1d12h"]
    left = [format_time_left(seconds) for seconds in (7199.9, 7200, 3599.7, 120, 119, 10)]
    assert left == ["1h58m", "1h59m", "58m", "1m", "59s", "5s"]
    for bad in ("", "2", "2x", "h", "0h", "-2h", "99999w"):
        with pytest.raises(UsageError):
            parse_duration(bad, what="--for")
    for bad in ("", "tomorrow", "2026-13", "99999-01-01"):
        with pytest.raises(UsageError):
            parse_time(bad, what="--from")


@pytest.mark.parametrize(
    ("resource", "used", "asked"),
    [
        ("memory", 1024, 42),
        ("framebuffer", 49_000, 151),
        ("disk", 3_000_001, 1),
        ("snapshots", 0, 1),
        ("compute", 996, 166),
        ("compute", 0, 1),
        ("vms", 3, 1),
        ("shares:GRID RTX6000-8Q", 2, 1),
        ("licences:vws", 0, 2),
    ],
)
def test_the_hint_of_a_quota_names_enough_and_no_more(resource: str, used: int, asked: int) -> None:
    command = room_hint("acme", Excess(resource, used, asked, used)).partition("raise it: ")[2]
    name, amount = parse_assignment(shlex.split(command)[-1], what="set-quota")
    assert (name.lower(), amount) == (normal_resource(resource).lower(), used + asked)
