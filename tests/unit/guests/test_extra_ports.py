# SPDX-License-Identifier: Apache-2.0
"""Ports of further devices: GPUs and base devices keep theirs, and each device its slot, whatever else there is."""

from itertools import product

from vgpuctl.guests.domain.pci_layout import ExtraBuses, Extras, extra_buses, root_ports
from vgpuctl.model.numa import GuestNuma, NumaCell

NUMA = GuestNuma((NumaCell(0, 1, 128), NumaCell(1, 1, 128)), True, (0, 1))


def test_without_further_devices_the_ports_are_as_before() -> None:
    for nodes in (None, NUMA):
        assert root_ports(2, nodes, Extras()) == root_ports(2, nodes)


def test_every_port_has_an_index_and_a_place_of_its_own() -> None:
    for gpus, nodes in product((0, 2, 16), (None, NUMA)):
        extras = Extras(has_scsi=True, has_usb=True, nics=8, disks=16, spare=16)
        ports = root_ports(gpus, nodes, extras)
        assert ports[: len(root_ports(gpus, nodes))] == root_ports(gpus, nodes)
        assert len({port.index for port in ports}) == len(ports)
        assert len({(port.bus, port.slot, port.function) for port in ports}) == len(ports)
        assert max(port.slot for port in ports) < 31, "31 is the chipset's"
        for port in ports:
            others = [one for one in ports if (one.bus, one.slot) == (port.bus, port.slot) and one is not port]
            assert port.multifunction == (port.function == 0 and bool(others))
            assert any(one.function == 0 for one in (*others, port))


def test_a_device_keeps_its_slot_when_others_come() -> None:
    few, many = Extras(nics=1), Extras(has_scsi=True, has_usb=True, nics=2, disks=3, spare=4)
    places = []
    for extras in (few, many):
        bus = extra_buses(2, None, extras).nics[0]
        (port,) = (one for one in root_ports(2, None, extras) if one.index == bus)
        places.append((port.bus, port.slot, port.function))
    assert places[0] == places[1]


def test_buses_follow_the_gpus() -> None:
    found = extra_buses(2, None, Extras(has_usb=True, nics=1, disks=2, spare=1))
    assert found == ExtraBuses(None, 7, (8,), (9, 10), (11,))
    assert extra_buses(2, NUMA, Extras(has_scsi=True)).scsi == 9
