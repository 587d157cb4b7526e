# SPDX-License-Identifier: Apache-2.0
"""Decisions and refusals of domain_view."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.guests.cases import (
    A40_BARS,
    CASES,
    GIB,
    H100_BARS,
    MDEV_UUID,
    REQUEST,
    T4_BARS,
    facts,
    gpu,
    leases,
    on,
    vgpu,
    vm,
    whole,
)
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import GuestError, UsageError
from vgpuctl.guests.domain.disk_view import DiskView
from vgpuctl.guests.domain.mmio_window import window_gib
from vgpuctl.guests.domain.numa import numa_view
from vgpuctl.guests.domain.pci_layout import expander_buses
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import CpuMode, domain_view, parse_pci_address
from vgpuctl.model.lease import Share
from vgpuctl.model.network import mac_address
from vgpuctl.model.numa import GuestNuma, NumaCell
from vgpuctl.model.vm import DirectKernel, Firmware
from vgpuctl.scheduler.cell_choice import MOST_CELLS


def test_gpus_keep_their_guest_address_when_disk_and_network_come() -> None:
    shares = leases(whole("0000:41:00.0"), whole("0000:42:00.0"))
    host = facts(gpu("0000:41:00.0"), gpu("0000:42:00.0"))
    bare = domain_view(vm(), shares, host)
    full = domain_view(
        vm(replace(REQUEST, network="default")), shares, host, disk=DiskView("/d.qcow2"), seed_path="/s.iso"
    )
    assert bare.root_ports == full.root_ports
    assert bare.hostdevs == full.hostdevs


def test_each_gpu_sits_alone_behind_a_port_whose_index_is_its_bus() -> None:
    view = CASES["several_kinds"]
    buses = [hostdev.guest_bus for hostdev in view.hostdevs]
    assert buses == [5, 6, 6, 7]
    assert {port.index for port in view.root_ports} == set(range(1, 12)), "four of them are spare"
    places = [(port.slot, port.function) for port in view.root_ports]
    assert len(set(places)) == len(places)
    assert places == sorted(places)


def test_leases_in_any_order_give_the_same_view() -> None:
    shares = leases(whole("0000:41:00.0"), whole("0000:42:00.0"))
    host = facts(gpu("0000:41:00.0"), gpu("0000:42:00.0"))
    assert domain_view(vm(), shares, host) == domain_view(vm(), shares[::-1], host)


@pytest.mark.parametrize("character", ["\n", "\t", "\0", "\x7f", "\x85", "\ufffe", "\ud800"])
def test_characters_that_xml_cannot_carry_are_refused_with_the_field(character: str) -> None:
    kernel = DirectKernel("/boot/k", None, f"console=ttyS0{character}quiet")
    with pytest.raises(UsageError, match=r"direct_kernel\.command_line of VM 'web-1'"):
        domain_view(vm(), [], facts(), direct_kernel=kernel)


def test_a_lease_on_a_gpu_the_host_lacks_is_refused_with_what_there_is() -> None:
    with pytest.raises(GuestError, match=r"0000:99:00\.0, which host gpu1 does not have") as caught:
        domain_view(vm(), leases(whole("0000:99:00.0")), facts(gpu("0000:41:00.0")))
    assert caught.value.context == ("found: 0000:41:00.0 NVIDIA A40",)


def test_an_mdev_lease_without_uuid_is_refused() -> None:
    with pytest.raises(GuestError, match="no mdev UUID"):
        domain_view(vm(), leases(vgpu("0000:41:00.0", Sharing.MDEV, "0000:41:00.0")), facts(gpu("0000:41:00.0")))


def test_more_companions_than_a_slot_holds_are_refused() -> None:
    companions = [f"0000:41:00.{number}" for number in range(1, 8)] + ["0000:41:01.0"]
    with pytest.raises(GuestError, match="8 companion functions"):
        domain_view(vm(), leases(whole("0000:41:00.0", *companions)), facts(gpu("0000:41:00.0")))


@pytest.mark.parametrize(
    "text", ["", "41:00.0", "0000:41:00", "0000:41:00.8", "0000:41:20.0", "0000:4g:00.0", "0000:41:00.0\n"]
)
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    with pytest.raises(GuestError, match="is not a PCI address"):
        parse_pci_address(text)


def test_the_mac_address_is_stable_local_and_unicast() -> None:
    first = mac_address("6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01")
    assert first == mac_address("6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01")
    assert first != mac_address("6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a02")
    assert int(first[:2], 16) & 0b11 == 0b10


@pytest.mark.parametrize(
    ("bars", "count", "share", "expected"),
    [
        ((), 1, whole("0000:41:00.0"), None),
        (T4_BARS, 16, whole("0000:41:00.0"), None),
        ((16 * GIB, 16 * GIB), 1, whole("0000:41:00.0"), None),
        ((16 * GIB, 17 * GIB), 1, whole("0000:41:00.0"), 64),
        (A40_BARS, 1, whole("0000:41:00.0"), 128),
        (A40_BARS, 3, whole("0000:41:00.0"), 512),
        (H100_BARS, 8, whole("0000:41:00.0"), 2048),
        (A40_BARS, 1, vgpu("0000:41:00.0", Sharing.VF_PROFILE, "0000:41:00.4"), None),
        (A40_BARS, 4, vgpu("0000:41:00.0", Sharing.VF_PROFILE, "0000:41:00.4"), 64),
    ],
)
def test_the_window_holds_all_bars_aligned(
    bars: tuple[int, ...], count: int, share: Share, expected: int | None
) -> None:
    assert window_gib([(gpu("0000:41:00.0", bars=bars), share)] * count) == expected


def test_a_host_without_kvm_gets_a_window_that_tcg_can_address() -> None:
    cards = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x18)]
    host = facts(*(gpu(card, bars=H100_BARS) for card in cards), kvm=False)
    view = domain_view(vm(), leases(*(whole(card) for card in cards)), host)
    assert view.mmio_window_gib == 256
    assert view.cpu_mode is CpuMode.MAXIMUM
    assert not view.maxphysaddr_passthrough


@pytest.mark.parametrize(("version", "expected"), [(None, False), ("8.6.0", False), ("8.7.0", True), ("10.0.0", True)])
def test_maxphysaddr_is_written_only_for_a_libvirt_that_knows_it(version: str | None, *, expected: bool) -> None:
    cards = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x18)]
    host = facts(*(gpu(card, bars=H100_BARS) for card in cards), libvirt_version=version)
    view = domain_view(vm(), leases(*(whole(card) for card in cards)), host)
    assert view.maxphysaddr_passthrough is expected


def test_a_guest_is_kept_where_it_was_recorded_to_be() -> None:
    floating = {0: (0, 1, 2), 1: (8, 9)}
    assert numa_view(None, floating) is None
    pinned = numa_view(GuestNuma((NumaCell(1, 2, 4096, (12, 14)),)), floating)
    assert pinned is not None
    assert (pinned.host_cells, pinned.vcpu_cpus, pinned.emulator_cpus, pinned.cells) == ("1", ("12", "14"), "12,14", ())
    floats = numa_view(GuestNuma((NumaCell(0, 2, 4096),)), floating)
    assert floats is not None
    assert (floats.host_cells, floats.vcpu_cpus, floats.emulator_cpus) == ("0", ("0-2", "0-2"), "0-2")


def test_a_guest_without_numa_nodes_of_its_own_may_be_on_several_of_the_host() -> None:
    """As one of an older vgpuctl whose node is full: what the guest sees stays as it was."""
    flat = GuestNuma((NumaCell(0, 1, 1024), NumaCell(1, 1, 1024)))
    host = facts(gpu("0000:41:00.0"), numa_nodes=2)
    shares = leases(whole("0000:41:00.0"))
    before, after = (domain_view(replace(vm(), numa=nodes), shares, host) for nodes in (None, flat))
    assert after.numa is not None
    assert (after.numa.host_cells, after.numa.cells) == ("0-1", ())
    assert (before.root_ports, before.hostdevs, before.expander_buses) == (
        after.root_ports,
        after.hostdevs,
        after.expander_buses,
    )


def test_each_gpu_sits_on_the_expander_bus_of_its_node() -> None:
    view = CASES["vnuma"]
    expanders = {bus.index: bus.cell for bus in view.expander_buses}
    ports = {port.index: port for port in view.root_ports}
    assert [expanders[ports[one.guest_bus].bus] for one in view.hostdevs if one.guest_function == 0] == [0, 1, 1]
    assert all(bus < port.index for port in view.root_ports for bus in expanders if port.bus == bus)
    places = [(port.bus, port.slot, port.function) for port in view.root_ports]
    assert len(set(places)) == len(places)


def test_eight_h100_of_two_nodes_have_room_for_their_bars_each_at_its_own_node() -> None:
    """What NVLink and the guest's driver need: every BAR mapped, each card below its node, and KVM in sight."""
    nodes = (0, 1) * 4
    cards = [gpu(f"0000:{0x41 + 2 * at:02x}:00.0", numa_node=node, bars=H100_BARS) for at, node in enumerate(nodes)]
    request = replace(REQUEST, vcpus=4, memory_mib=8192, firmware=Firmware.UEFI)
    guest = on(request, NumaCell(0, 2, 4096, (0, 1)), NumaCell(1, 2, 4096, (8, 9)), gpu_cells=nodes)
    view = domain_view(guest, leases(*(whole(one.address) for one in cards)), facts(*cards, numa_nodes=2))
    assert view.mmio_window_gib is not None
    assert view.mmio_window_gib * GIB >= len(cards) * 2 * max(H100_BARS), "a root port's window is aligned as its BAR"
    buses = {one.index: one.cell for one in view.expander_buses}
    ports = {one.index: buses[one.bus] for one in view.root_ports if one.bus in buses}
    assert [ports[one.guest_bus] for one in view.hostdevs] == list(nodes)
    xml = render_domain(view)
    for wanted in ("<pcihole64 unit='GiB'>2048<", "X-PciMmio64Mb,string=2097152'", "<maxphysaddr mode='passthrough'/>"):
        assert wanted in xml
    assert "<kvm>" not in xml and "hypervisor" not in xml


def test_eight_expander_buses_have_room_for_their_ports() -> None:
    nodes = GuestNuma(tuple(NumaCell(node, 1, 1024) for node in range(MOST_CELLS)), has_vnuma=True)
    numbers = [bus.number for bus in expander_buses(nodes)]
    assert [after - before for before, after in pairwise([*numbers, 256])] == [28] * MOST_CELLS


def test_mdev_uuid_goes_to_mediated_devices_only() -> None:
    uuids = [hostdev.mdev_uuid for hostdev in CASES["several_kinds"].hostdevs]
    assert uuids == [None, None, None, MDEV_UUID]
