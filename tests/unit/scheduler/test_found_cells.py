# SPDX-License-Identifier: Apache-2.0
"""An adopted VM counts at the NUMA nodes and CPUs that its domain names."""

import pytest

from tests.unit.fleet_factory import GIB, a40_host, numa_host
from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.domain_shape import domain_shape
from vgpuctl.model.numa import Footprint, GuestNuma, NumaCell
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.found_cells import numa_as_found
from vgpuctl.scheduler.host_cells import books_of
from vgpuctl.scheduler.host_memory import with_promised

HOST = numa_host("a", 0, 1, nodes=3)
PINS = "<cputune><vcpupin vcpu='0' cpuset='17'/><vcpupin vcpu='1' cpuset='18'/><vcpupin vcpu='9' cpuset='1'/></cputune>"
AT_1 = "<numatune><memory mode='strict' nodeset='1'/></numatune>"
CELLS = (
    "<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='0' mode='strict' nodeset='0'/></numatune>"
    "<cpu><numa><cell id='0' cpus='0' memory='2097152'/><cell id='1' cpus='1-3' memory='6291456'/></numa></cpu>"
)


def found(inner: str, vcpu: str = "<vcpu>4</vcpu>", host: HostCapacity = HOST) -> GuestNuma | None:
    shape = domain_shape(f"<domain><memory unit='KiB'>{8 * GIB * 1024}</memory>{vcpu}{inner}</domain>")
    return numa_as_found(host.facts, shape.vcpus, shape.memory_mib, shape.tuning)


def test_memory_and_cpus_count_where_the_domain_has_them() -> None:
    assert found(PINS + AT_1) == GuestNuma((NumaCell(1, 2, 8 * GIB, (17, 18)), NumaCell(1, 2, 0)))
    assert found(AT_1) == GuestNuma((NumaCell(1, 4, 8 * GIB),))
    assert found("", "<vcpu cpuset='0-15,^3,40'>4</vcpu>") == GuestNuma(
        (NumaCell(0, 2, 4 * GIB), NumaCell(2, 2, 4 * GIB))
    )
    assert found(CELLS) == GuestNuma((NumaCell(0, 2, 5 * GIB), NumaCell(1, 2, 3 * GIB)))


def test_a_domain_that_names_no_nodes_of_the_host_is_not_recorded() -> None:
    assert found("") is None
    assert found("<numatune><memory mode='strict' nodeset='7'/></numatune>") is None
    assert found(AT_1, host=a40_host()) is None
    assert found("<numatune><memory mode='strict' placement='auto'/></numatune>") is None


def test_what_an_adopted_vm_has_is_not_promised_again() -> None:
    nodes = found(PINS + AT_1)
    _, node, _ = books_of(with_promised(HOST, more=[Footprint(vcpus=4, numa=nodes)]))
    assert sorted(node.pins) == [17, 18]
    assert node.shared_vcpus == 2
    assert node.promised_mib[0] == 8 * GIB


@pytest.mark.parametrize(
    ("cpuset", "counts"),
    [("0-999999999", "0-8191"), ("0-15,9000", "0-15"), ("0-15,9000-9001", "0-15"), ("0-9999,^9000,^3", "0-8191,^3")],
)
def test_cpus_that_no_host_has_keep_no_domain_from_being_read(cpuset: str, counts: str) -> None:
    of = [found(AT_1, f"<vcpu cpuset='{text}'>4</vcpu>") for text in (cpuset, counts)]
    assert of[0] == of[1] and of[0] is not None


@pytest.mark.parametrize(
    ("pages", "size_kib"),
    [("", 2048), ("<page size='1048576' unit='KiB'/>", 1048576), ("<page size='2048'/><page size='2048'/>", 2048)],
)
def test_huge_pages_of_one_size_count(pages: str, size_kib: int) -> None:
    backing = f"<memoryBacking><hugepages>{pages}</hugepages></memoryBacking>"
    assert domain_shape(f"<domain><memory>1024</memory>{backing}</domain>").hugepages_kib == size_kib


def test_huge_pages_of_several_sizes_are_said() -> None:
    pages = "<page size='2048' nodeset='0'/><page size='1048576' nodeset='1'/>"
    with pytest.raises(GuestError, match="huge pages of several sizes: 2 MiB, 1 GiB"):
        domain_shape(
            f"<domain><memory>1024</memory><memoryBacking><hugepages>{pages}</hugepages></memoryBacking></domain>"
        )


@pytest.mark.parametrize("cpuset", ["0-", "x", "5-2", "-1"])
def test_a_damaged_list_is_said(cpuset: str) -> None:
    with pytest.raises(GuestError, match="where CPUs or NUMA nodes are named"):
        found(f"<cputune><vcpupin vcpu='0' cpuset='{cpuset}'/></cputune>")
