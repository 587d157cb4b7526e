# SPDX-License-Identifier: Apache-2.0
"""Network interfaces of a running guest in a real QEMU: attached to a port, and kept by a guest without a system."""

from dataclasses import replace

import pytest

from tests.unit.guests.cases import REQUEST, facts, vm
from vgpuctl.errors import DomainRejected
from vgpuctl.guests.domain.nic_view import NicView
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.guests.facts.nic_facts import NicPlace, find_place
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.live.domain import LiveChange
from vgpuctl.guests.live.nics import LiveNics

MAC = "52:54:00:77:00:01"


@pytest.fixture
def running(hypervisor: Hypervisor) -> DomainView:
    """A guest without an operating system: its firmware never lets go of a device. Two ports are spare."""
    view = replace(
        domain_view(replace(vm(), request=replace(REQUEST, spare_ports=2)), [], facts(kvm=False)),
        memory_mib=64,
        vcpus=1,
    )
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name)
    return view


def _attach(hypervisor: Hypervisor, view: DomainView, mac: str, bus: int) -> None:
    """Attach an interface that needs no network of the host."""
    element = (
        f"<interface type='user'><mac address='{mac}'/><model type='virtio'/>"
        f"<address type='pci' domain='0x0000' bus='{bus:#04x}' slot='0x00' function='0x0'/></interface>"
    )
    domain = hypervisor.connection.lookupByName(view.name)
    domain.attachDeviceFlags(element, libvirt_module().VIR_DOMAIN_AFFECT_LIVE)


def test_an_interface_takes_its_port_and_a_guest_that_keeps_it_leaves_it_pending(
    hypervisor: Hypervisor, running: DomainView
) -> None:
    nics = LiveNics(hypervisor, running.name, uuid=running.uuid)
    assert find_place(nics.xml() or "", 0) == NicPlace(2)
    assert find_place(nics.xml() or "", 1) == NicPlace(5, spare_port=0)
    assert find_place(nics.xml() or "", 1, reserved=[0]) == NicPlace(6, spare_port=1)
    _attach(hypervisor, running, MAC, 5)
    assert nics.macs() == {MAC}
    assert nics.attach(NicView("lan", MAC, 5)) is LiveChange.DONE
    assert find_place(nics.xml() or "", 2) == NicPlace(6, spare_port=1)
    with pytest.raises(DomainRejected, match="attach an interface in network nowhere to domain"):
        nics.attach(NicView("nowhere", "52:54:00:77:00:02", 6))
    _attach(hypervisor, running, "52:54:00:77:00:03", 6)
    assert find_place(nics.xml() or "", 3) is None
    assert nics.detach(MAC, timeout_s=0.5) is LiveChange.PENDING
    assert MAC in nics.macs()
    hypervisor.destroy(running.name)
    assert nics.detach(MAC, timeout_s=0.5) is LiveChange.DONE
    assert nics.attach(NicView("lan", MAC, 5)) is LiveChange.NEXT_START
