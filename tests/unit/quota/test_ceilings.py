# SPDX-License-Identifier: Apache-2.0
"""Ceilings and defaults of a tenant's VMs: how they are written, what a VM gets, what is above."""

from dataclasses import replace

import pytest

from vgpuctl.errors import QuotaExceeded, UsageError
from vgpuctl.guests.facts.domain_limits import domain_limits
from vgpuctl.model.cpu_time import parse_cpu_limit
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.nic import NicRequest
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.ceilings import above, as_there, ceilings_of, parts_above, refusal, refuse_contradiction, with_usual
from vgpuctl.quota.limits import Excess, Quota, exceeded
from vgpuctl.quota.resources import Limited, format_amount, parse_assignment

VM = VmRequest(
    "web", "acme", disk=DiskRequest(), data_disks=(DataDisk("data", 1024, iops=900),), nics=(NicRequest("b"),)
)
QUOTAS = (
    Quota("each:disk-iops", 1000),
    Quota("default:disk-iops", 200),
    Quota("each:nic-mbps", 500),
    Quota("default:cpu-limit", 50),
    Quota("vms", 3),
)
CEILINGS = ceilings_of(QUOTAS)


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        ("each:disk-iops=5000", "each:disk-iops", 5000),
        ("EACH:Disk-MBps=1000000", "each:disk-mbps", 1000000),
        ("default:nic-mbps=1", "default:nic-mbps", 1),
        ("each:cpu-limit=100%", "each:cpu-limit", 100),
        ("default:cpu-weight=2", "default:cpu-weight", 2),
        ("each:cpu-limit=none", "each:cpu-limit", None),
        ("over-promise=allow", "over-promise", 0),
        ("over-promise=move", "over-promise", 3),
    ],
)
def test_a_ceiling_is_written_as_a_quota(text: str, resource: str, amount: int | None) -> None:
    assert parse_assignment(text, what="quota") == (resource, amount)
    if amount is not None:
        again = f"{resource}={format_amount(resource, amount)}"
        assert parse_assignment(again, what="quota") == (resource, amount)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("each:disk-iops=0", "from 1 to 10000000"),
        ("each:disk-iops=nan", "operations a second"),
        ("each:disk-mbps=1e3", "megabytes a second"),
        ("each:nic-mbps=-1", "Mbit/s"),
        ("each:nic-mbps=400001", "to 400000"),
        ("each:cpu-limit=30", "for each vCPU"),
        ("each:cpu-limit=0.3", "for each vCPU"),
        ("each:cpu-limit=30 %", "for each vCPU"),
        ("each:cpu-limit=0%", "for each vCPU"),
        ("each:cpu-limit=101%", "for each vCPU"),
        ("default:cpu-weight=1", "from 2 to 10000"),
        ("each:disk-iop=5", "did you mean each:disk-iops?"),
        ("each:vms=5", "each:"),
        ("default:=5", "default:"),
        ("over-promise=halt", "allow, notify, limit, move, stop"),
        ("over-promise=1", "allow, notify, limit, move"),
    ],
)
def test_another_ceiling_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_assignment(text, what="quota")
    assert words in (refused.value.hint or "")


@pytest.mark.parametrize("text", ["30", "0.3", "30 %", "nan", "", "%", "0%", "101%", "-5%", "1000%", "5.5%"])
def test_a_part_of_a_cpu_is_a_percentage(text: str) -> None:
    with pytest.raises(UsageError, match="no part of a CPU") as refused:
        parse_cpu_limit(text)
    assert ("write 30%: " in (refused.value.hint or "")) == (text == "30")


def test_a_part_that_asks_for_nothing_gets_the_default_else_the_ceiling() -> None:
    given = with_usual(VM, CEILINGS)
    assert given.disk is not None and given.disk.iops == 200
    assert [one.iops for one in given.data_disks] == [900]
    assert (given.bandwidth_mbps, [one.bandwidth_mbps for one in given.nics]) == (500, [500])
    assert (given.cpu_limit, given.cpu_weight) == (50, None)
    assert given.disk.mbps is None, "nothing is said of it"
    assert with_usual(given, CEILINGS) == given and above(given, CEILINGS) == []
    assert with_usual(VM, ()) is VM


def test_what_a_vm_has_already_is_not_given_again() -> None:
    there = replace(VM, disk=DiskRequest(iops=7), cpu_limit=80)
    kept = with_usual(replace(VM, data_disks=()), CEILINGS, there)
    assert kept.disk is not None and (kept.disk.iops, kept.cpu_limit) == (7, 80)
    assert kept.bandwidth_mbps is None, "it has none, and a command about something else gives none"
    grown = with_usual(replace(there, nics=(*there.nics, NicRequest("c"))), CEILINGS, there)
    assert [one.bandwidth_mbps for one in grown.nics] == [None, 500]


def test_an_unasked_limit_is_the_one_that_is_there_whatever_became_of_the_default() -> None:
    high = (Quota("default:disk-mbps", 7), Quota("each:cpu-weight", 30))
    there = with_usual(VM, ceilings_of((*QUOTAS, *high)))
    assert there.disk is not None and (there.disk.iops, there.disk.mbps, there.cpu_weight) == (200, 7, 30)
    assert as_there(VM, there) == there
    assert as_there(there, VM) == there, "what is asked for stays asked for"
    asked = as_there(replace(VM, cpu_weight=31, disk=DiskRequest(iops=9)), there)
    assert asked == replace(there, cpu_weight=31, disk=DiskRequest(iops=9, mbps=7))
    more = as_there(replace(VM, data_disks=(*VM.data_disks, DataDisk("new", 1))), there)
    assert [one.iops for one in more.data_disks] == [900, None]


def test_each_part_above_is_named_and_no_limit_is_above_any() -> None:
    high = replace(VM, disk=DiskRequest(iops=1001), bandwidth_mbps=500)
    found = above(high, CEILINGS)
    assert list(map(str, found)) == [
        "disk-iops of the first disk: 1001 asked, 1000 is the most",
        "nic-mbps of interface 1: no limit asked, 500 is the most",
    ]
    error = refusal(high, found)
    assert error.message == "VM web is above a ceiling of tenant acme: disk-iops, nic-mbps"
    raising = "raise it: vgpuctl set-quota acme each:disk-iops=1001 each:nic-mbps=none"
    assert error.hint == f"ask for less, or {raising}"
    amounts = "disk-iops of the first disk: 1001 asked, 1000 is the most; nic-mbps of interface 1: no limit asked"
    assert error.reason_to_wait.startswith(f"above a ceiling of tenant acme: {amounts}, 500 is the most; ask for less")
    kept = refusal(high, found, is_kept=True).hint or ""
    assert kept.endswith(raising) and "ask for less" not in kept, "restore-vm has no option for it"
    higher = replace(high, data_disks=(DataDisk("data", 1024, iops=3000),), bandwidth_mbps=600, nics=())
    both = refusal(higher, above(higher, CEILINGS)).hint or ""
    assert both.endswith("set-quota acme each:disk-iops=3000 each:nic-mbps=600"), "the most of each"


def test_the_reason_to_wait_names_each_resource_once_with_the_amounts() -> None:
    found = [Excess("vms", 3, 1, 3), Excess("shares:A40-8Q", 2, 1, 2)]
    over = exceeded(VM, found)
    assert over.message == "VM web does not fit into the quota of tenant acme: vms, shares:A40-8Q"
    amounts = "vms: 3 of 3 used, 1 asked; shares:A40-8Q: 2 of 2 used, 1 asked"
    remedy = "delete VMs of acme, or raise it: vgpuctl set-quota acme vms=4"
    assert over.reason_to_wait == f"over the quota of tenant acme: {amounts}; {remedy}"
    assert QuotaExceeded("too much", context=["vms"]).reason_to_wait == "too much: vms"


def test_what_was_there_before_its_ceiling_may_stay_and_not_grow() -> None:
    there = replace(VM, disk=DiskRequest(iops=5000), nics=())
    assert above(there, CEILINGS, there) == []
    assert above(replace(there, disk=DiskRequest(iops=4000)), CEILINGS, there) == []
    (grown,) = above(replace(there, disk=DiskRequest(iops=6000)), CEILINGS, there)
    assert grown.asked == 6000
    (unlimited,) = above(replace(there, disk=DiskRequest()), CEILINGS, there)
    assert unlimited.asked is None
    (new,) = above(replace(there, nics=(NicRequest("b", bandwidth_mbps=900),)), CEILINGS, there)
    assert (new.name, new.part) == (Limited.NIC_MBPS, "interface 1")


def test_a_default_above_its_ceiling_and_a_guarantee_are_refused() -> None:
    with pytest.raises(UsageError, match="default:disk-iops=9 is more than the ceiling of 8"):
        refuse_contradiction((Quota("each:disk-iops", 8), Quota("default:disk-iops", 9)))
    with pytest.raises(UsageError, match="over-promise cannot be guaranteed: it is a policy") as refused:
        refuse_contradiction((Quota("over-promise", None, guaranteed=2),))
    assert refused.value.hint == "set it without --guaranteed, for example over-promise=limit"
    with pytest.raises(UsageError, match="each:disk-iops cannot be guaranteed"):
        refuse_contradiction((Quota("each:disk-iops", 8, guaranteed=3),))
    refuse_contradiction(QUOTAS)


DISK = "<disk device='{}'><target dev='{}'/><iotune>{}</iotune></disk>"
NIC = "<interface type='{}'><bandwidth><inbound {}/><outbound {}/></bandwidth></interface>"


@pytest.mark.parametrize(
    ("devices", "above_it"),
    [
        (DISK.format("disk", "a", "<total_iops_sec>900</total_iops_sec>"), []),
        (
            DISK.format("disk", "a", "<read_iops_sec>600</read_iops_sec><write_iops_sec>600</write_iops_sec>"),
            ["disk-iops of disk a: 1200 asked"],
        ),
        (DISK.format("disk", "a", "<read_iops_sec>600</read_iops_sec>"), ["disk-iops of disk a: no limit asked"]),
        (
            DISK.format(
                "disk", "a", "<total_iops_sec>100</total_iops_sec><total_iops_sec_max>99999</total_iops_sec_max>"
            ),
            ["disk-iops of disk a: 99999 asked"],
        ),
        (
            DISK.format(
                "disk",
                "a",
                "<read_iops_sec>1</read_iops_sec><write_iops_sec>1</write_iops_sec>"
                "<write_iops_sec_max>5000</write_iops_sec_max><write_iops_sec_max_length>9</write_iops_sec_max_length>",
            ),
            ["disk-iops of disk a: 5001 asked"],
        ),
        (
            DISK.format("disk", "a", "<total_iops_sec_max>10</total_iops_sec_max>"),
            ["disk-iops of disk a: no limit asked"],
        ),
        (
            DISK.format("disk", "a", "<total_iops_sec>900</total_iops_sec><total_iops_sec_max>9</total_iops_sec_max>"),
            [],
        ),
        (
            DISK.format("lun", "b", "<total_iops_sec>900</total_iops_sec>"),
            ["disk-iops of disk b: no limit asked"],
        ),
        ("<disk><target dev='c'/></disk>", ["disk-iops of disk c: no limit asked"]),
        ("<disk device='cdrom'><target dev='sda'/></disk>", []),
        ("<hostdev type='pci'/><hostdev type='scsi'/>", ["disk-iops of hostdev 1: no limit asked"]),
        (NIC.format("bridge", "average='61000'", "average='61000'"), []),
        (NIC.format("bridge", "average='61000'", "average='70000'"), ["nic-mbps of interface 0: 574 asked"]),
        ("<interface type='bridge'/>", ["nic-mbps of interface 0: no limit asked"]),
        (NIC.format("network", "average='10'", ""), ["nic-mbps of interface 0: no limit asked"]),
        (NIC.format("hostdev", "average='10'", "average='10'"), ["nic-mbps of interface 0: no limit asked"]),
        (
            NIC.format("direct", "average='100' peak='10000000' burst='9'", "average='100'"),
            ["nic-mbps of interface 0: 81920 asked"],
        ),
        (NIC.format("bridge", "average='100' peak='200' burst='90000'", "average='100' peak='999999'"), []),
        (NIC.format("bridge", "average='100' burst='90000'", "average='1'"), ["nic-mbps of interface 0: 739 asked"]),
        (NIC.format("bridge", "average='1'", "average='100' burst='90000'"), ["nic-mbps of interface 0: 739 asked"]),
    ],
)
def test_a_foreign_domain_counts_with_the_most_that_libvirt_lets_through(devices: str, above_it: list[str]) -> None:
    limits = domain_limits(f"<domain><devices>{devices}</devices></domain>")
    found = [str(one) for one in parts_above(limits, ceilings_of(QUOTAS))]
    assert [one.partition(",")[0] for one in found] == above_it


def test_a_foreign_domains_part_of_a_cpu_is_rounded_up() -> None:
    limits = domain_limits("<domain><cputune><quota>25001</quota></cputune></domain>")
    (found,) = parts_above(limits, ceilings_of([Quota("each:cpu-limit", 25)]))
    assert str(found) == "cpu-limit of its vCPUs: 26% asked, 25% is the most"
