# SPDX-License-Identifier: Apache-2.0
"""Interfaces of a VM: each has a position that it keeps, whatever others come and go."""

from dataclasses import replace

from vgpuctl.model.interfaces import host_mac, interface_at, interfaces_of, port_count, spare_ports_taken
from vgpuctl.model.nic import NicModel, NicRequest
from vgpuctl.model.vm import VmRequest

PLAIN = VmRequest("web", "acme", network="front")


def test_interfaces_have_the_positions_of_their_order() -> None:
    request = replace(PLAIN, nics=(NicRequest("back", NicModel.E1000E), NicRequest("lan")))
    assert [(one.position, one.network) for one in interfaces_of(request)] == [(0, "front"), (1, "back"), (2, "lan")]
    assert [one.position for one in interfaces_of(replace(request, network=None))] == [1, 2]
    assert interface_at(request, 1) == interfaces_of(request)[1]
    assert interface_at(request, 3) is None
    assert port_count(request) == 2


def test_an_interface_keeps_its_position_when_another_is_gone() -> None:
    kept = NicRequest("lan", position=2)
    request = replace(PLAIN, nics=(kept, NicRequest("back")))
    assert [(one.position, one.network) for one in interfaces_of(request)] == [(0, "front"), (1, "back"), (2, "lan")]
    assert port_count(replace(PLAIN, nics=(kept,))) == 2


def test_an_interface_on_a_spare_port_needs_no_other() -> None:
    request = replace(PLAIN, nics=(NicRequest("lan", position=1, spare_port=3),))
    assert (port_count(request), spare_ports_taken(request)) == (0, 4)


def test_each_position_has_another_mac_address_in_networks_of_the_host() -> None:
    assert len({host_mac("6f1f0a52", position) for position in range(9)}) == 9
