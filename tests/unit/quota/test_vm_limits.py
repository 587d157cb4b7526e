# SPDX-License-Identifier: Apache-2.0
"""Limits of a VM's parts: changed by name, written as options, and added up for quotas of rates."""

from dataclasses import replace

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.nic import NicRequest
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.charge import of_guest, rates_of
from vgpuctl.quota.limits import Excess, room_hint
from vgpuctl.quota.resources import Limited, parse_assignment, parse_limit
from vgpuctl.quota.vm_limits import (
    WantedLimit,
    changed_limits,
    describe_unlimited,
    resize_words,
    show_limits,
    with_limits_of,
    with_wanted,
)

VM = VmRequest(
    "web",
    "acme",
    disk=DiskRequest(iops=500),
    data_disks=(DataDisk("data", 1024, iops=900), DataDisk("logs", 1024)),
    network="front",
    nics=(NicRequest("back", bandwidth_mbps=100), NicRequest("back", position=4), NicRequest("front")),
    cpu_limit=50,
)
IOPS, MBPS, NIC, LIMIT, WEIGHT = (
    Limited.DISK_IOPS,
    Limited.DISK_MBPS,
    Limited.NIC_MBPS,
    Limited.CPU_LIMIT,
    Limited.CPU_WEIGHT,
)
# The wish, the limits that change, and the options for them.
CHANGES: dict[str, tuple[tuple[WantedLimit, ...], list[tuple[Limited, str, int | None]], list[str]]] = {
    "the same": ((WantedLimit(IOPS, None, 500), WantedLimit(LIMIT, None, 50)), [], []),
    "first disk": ((WantedLimit(IOPS, None, 600),), [(IOPS, "the first disk", 600)], ["--disk-iops", "600"]),
    "no limit": ((WantedLimit(IOPS, None, None),), [(IOPS, "the first disk", None)], ["--disk-iops", "none"]),
    "another disk": ((WantedLimit(MBPS, "logs", 20),), [(MBPS, "disk logs", 20)], ["--disk-mbps", "logs=20"]),
    "first interface": ((WantedLimit(NIC, None, 10),), [(NIC, "interface 0", 10)], ["--bandwidth", "10"]),
    "a network": (
        (WantedLimit(NIC, "back", 10),),
        [(NIC, "interface 1", 10), (NIC, "interface 4", 10)],
        ["--bandwidth", "back=10"],
    ),
    "CPUs": (
        (WantedLimit(LIMIT, None, None), WantedLimit(WEIGHT, None, 300)),
        [(LIMIT, "its vCPUs", None), (WEIGHT, "its vCPUs", 300)],
        ["--cpu-limit", "none", "--cpu-weight", "300"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_limit_is_changed_by_the_name_of_its_disk_or_network(name: str) -> None:
    wanted, changed, words = CHANGES[name]
    after = with_wanted(VM, wanted)
    assert changed_limits(VM, after) == changed
    assert resize_words(VM, after) == words
    assert with_limits_of(after, VM) == VM and replace(after, vcpus=3) != VM
    assert with_wanted(after, wanted) == after


@pytest.mark.parametrize(
    ("wanted", "words", "hint"),
    [
        (WantedLimit(IOPS, "nope", 1), "has no disk 'nope'", "data, logs: --disk-iops DISK=NUMBER"),
        (WantedLimit(NIC, "nope", 1), "no interface in network 'nope'", "front, back: --bandwidth NETWORK=MBIT/S"),
    ],
)
def test_a_part_that_the_vm_does_not_have_is_refused_with_those_that_it_has(
    wanted: WantedLimit, words: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        with_wanted(VM, (wanted,))
    assert hint in (refused.value.hint or "")


def test_a_vm_without_disks_and_interfaces_has_no_limits_of_them() -> None:
    bare = VmRequest("bare", "acme", network=None)
    for name, words in ((IOPS, "no first disk"), (NIC, "no first interface")):
        with pytest.raises(UsageError, match=words):
            with_wanted(bare, (WantedLimit(name, None, 1),))
    assert show_limits(bare) == [] and describe_unlimited(bare, IOPS) is None
    assert rates_of(bare) == {}


def test_the_limits_of_a_vm_are_told() -> None:
    assert show_limits(VM) == [
        "disk-iops of the first disk: 500",
        "disk-iops of disk data: 900",
        "nic-mbps of interface 1: 100",
        "cpu-limit of its vCPUs: 50%",
    ]
    assert describe_unlimited(VM, IOPS) == (
        "acme/web has no disk-iops for disk logs: `vgpuctl resize-vm acme/web --disk-iops` gives it one"
    )


@pytest.mark.parametrize(
    ("request_", "iops", "bandwidth"),
    [
        (VM, 500 + 900 + 10_000_000, 100 + 3 * 400_000),
        (with_wanted(VM, (WantedLimit(IOPS, "logs", 1), WantedLimit(NIC, "front", 5))), 1401, 100 + 400_000 + 10),
        (VmRequest("adopted", "acme", network=None, domain="old"), 10_000_000, 400_000),
    ],
)
def test_rates_add_up_and_what_has_no_limit_counts_as_the_highest(
    request_: VmRequest, iops: int, bandwidth: int
) -> None:
    assert rates_of(request_) == {"iops": iops, "bandwidth": bandwidth}
    assert {**of_guest(request_), **rates_of(request_)} == of_guest(request_)


def test_a_refusal_says_how_to_ask_for_less() -> None:
    unlimited = room_hint("acme", Excess("iops", 500, 10_000_000, 5000))
    assert "ask for one by --disk-iops" in unlimited and "set-quota acme default:disk-iops=NUMBER" in unlimited
    assert unlimited.endswith("raise it: vgpuctl set-quota acme iops=10000500")
    assert room_hint("acme", Excess("bandwidth", 500, 100, 550)) == (
        "delete VMs or their network interfaces of acme, or raise it: vgpuctl set-quota acme bandwidth=600"
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (IOPS, "0", "--x='0' is no limit"),
        (IOPS, "nan", "operations a second"),
        (MBPS, "20MB", "megabytes a second"),
        (NIC, "400001", "from 1 to 400000"),
        (WEIGHT, "1", "from 2 to 10000"),
        (LIMIT, "50", "write 50%"),
        (LIMIT, "", "no part of a CPU"),
    ],
)
def test_bad_limits_are_refused_with_their_unit(name: Limited, text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_limit(name, text, what="--x")
    assert words in f"{refused.value.message} {refused.value.hint}"


def test_quotas_of_rates_are_whole_numbers() -> None:
    assert parse_assignment("IOPS=5000", what="quota") == ("iops", 5000)
    assert parse_assignment("bandwidth=none", what="quota") == ("bandwidth", None)
    for bad in ("iops=1e3", "bandwidth=10GiB", "iops=-1"):
        with pytest.raises(UsageError, match="no amount"):
            parse_assignment(bad, what="quota")
