# SPDX-License-Identifier: Apache-2.0
"""Every golden domain is accepted by libvirt: by its test driver as it is, by its QEMU driver as emulated guest."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.unit.guests.cases import CASES
from vgpuctl.errors import DomainRejected
from vgpuctl.guests.hypervisor import Hypervisor
from vgpuctl.guests.render import render_domain
from vgpuctl.guests.view import CpuMode


@pytest.mark.parametrize("name", CASES)
def test_the_test_driver_defines_it(name: str) -> None:
    view = CASES[name]
    with Hypervisor("test:///default") as hypervisor:
        hypervisor.define(render_domain(view))
        fact = next(fact for fact in hypervisor.domains() if fact.name == view.name)
        assert fact.uuid == view.uuid
        assert fact.metadata == view.metadata
        assert [hostdev.alias for hostdev in fact.hostdevs] == [hostdev.alias for hostdev in view.hostdevs]


@pytest.mark.parametrize("name", CASES)
def test_the_qemu_driver_defines_it_and_changes_no_address(name: str, hypervisor: Hypervisor) -> None:
    view = replace(CASES[name], kvm=False, cpu_mode=CpuMode.MAXIMUM, maxphysaddr_passthrough=False)
    wanted = render_domain(view)
    hypervisor.define(wanted)
    defined = hypervisor.xml(view.name)
    assert defined is not None
    assert _guest_addresses(wanted) <= _guest_addresses(defined)
    # libvirt adds what q35 has built in (SATA) and no PCI device of its own choice.
    added = _guest_addresses(defined) - _guest_addresses(wanted)
    assert {address for address in added if address[0] != "0x00"} == set()
    hypervisor.define(wanted)
    assert hypervisor.xml(view.name) == defined


def test_a_domain_that_breaks_the_schema_is_refused(hypervisor: Hypervisor) -> None:
    broken = render_domain(CASES["no_gpu_tcg"]).replace("<memballoon model='none'/>", "<memballoon model='huge'/>")
    with pytest.raises(DomainRejected, match=r"cannot define the domain on gpu1: .*libvirt error \d+"):
        hypervisor.define(broken)


def test_a_kvm_domain_on_a_host_without_kvm_is_refused_with_a_hint(hypervisor: Hypervisor) -> None:
    with pytest.raises(DomainRejected) as caught:
        hypervisor.define(render_domain(CASES["no_gpu_kvm"]))
        hypervisor.start(CASES["no_gpu_kvm"].name)
    assert caught.value.hint is not None
    assert "/dev/kvm" in caught.value.hint


def test_libvirt_itself_prints_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with Hypervisor("test:///default") as hypervisor, pytest.raises(DomainRejected):
        hypervisor.define("<domain/>")
    assert capfd.readouterr().err == ""


def _guest_addresses(xml: str) -> set[tuple[str, str, str]]:
    root = ElementTree.fromstring(xml)
    return {
        (address.get("bus", ""), address.get("slot", ""), address.get("function", ""))
        for address in root.iterfind("devices/*/address[@type='pci']")
    }
