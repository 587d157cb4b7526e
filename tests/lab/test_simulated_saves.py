# SPDX-License-Identifier: Apache-2.0
"""libvirt's own client saves domains of a simulated host and starts them again, as docs/lab.md says."""

import libvirt
import pytest

import vgpuctl_lab as lab
from tests.lab.moving_guests import FLEET, LOST, PAUSED, RUNNING, SOURCE, Guest, Hosts, clean, fleet, hosts
from vgpuctl_lab.simulated.layout import simulated_folder

__all__ = ["FLEET", "clean", "fleet", "hosts"]

SECURE = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE


def test_a_saved_domain_lets_its_device_go_and_goes_on_with_it(hosts: Hosts) -> None:
    guest = Guest(hosts)
    guest.domain.managedSave()
    assert hosts.states(guest.name)[0] == (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SAVED)
    assert (hosts.held(SOURCE), guest.domain.hasManagedSaveImage()) == ({}, 1)
    assert "reason=saved" in hosts.qemu_log(SOURCE, guest.name)
    assert guest.here in guest.domain.managedSaveGetXMLDesc(SECURE)
    guest.domain.create()
    assert hosts.states(guest.name)[0] == (RUNNING, libvirt.VIR_DOMAIN_RUNNING_RESTORED)
    assert (hosts.held(SOURCE), guest.domain.hasManagedSaveImage()) == ({guest.name: [guest.here]}, 0)
    assert guest.domain.isPersistent()


def test_a_saved_domain_goes_on_with_another_device(hosts: Hosts) -> None:
    guest, other = Guest(hosts), hosts.mdev(SOURCE)
    guest.domain.managedSave()
    guest.domain.managedSaveDefineXML(guest.domain.managedSaveGetXMLDesc(SECURE).replace(guest.here, other))
    guest.domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    assert hosts.states(guest.name)[0] == (PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)
    guest.domain.resume()
    assert hosts.held(SOURCE) == {guest.name: [other]}
    assert other in guest.domain.XMLDesc()
    assert guest.here in guest.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    assert LOST not in hosts.qemu_log(SOURCE, guest.name)


def test_a_saved_domain_on_a_vgpu_of_another_type_has_lost_its_state(hosts: Hosts) -> None:
    guest, other = Guest(hosts), hosts.mdev(SOURCE, 1)
    guest.domain.managedSave()
    guest.domain.managedSaveDefineXML(guest.domain.managedSaveGetXMLDesc(SECURE).replace(guest.here, other))
    guest.domain.create()
    assert LOST in hosts.qemu_log(SOURCE, guest.name)


def test_a_saved_domain_stays_saved_while_its_device_is_missing(hosts: Hosts) -> None:
    guest = Guest(hosts)
    guest.domain.managedSave()
    with hosts.machines[SOURCE].change() as state:
        state.vgpus.clear()
    with pytest.raises(libvirt.libvirtError, match=f"device not found: mediated device '{guest.here}' not found"):
        guest.domain.create()
    assert guest.domain.hasManagedSaveImage() == 1
    guest.domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)


@pytest.mark.parametrize("change", ["force-boot", "remove"], ids=lambda name: f"by-{name}")
def test_saved_memory_can_be_thrown_away(hosts: Hosts, change: str) -> None:
    guest = Guest(hosts)
    guest.domain.managedSave()
    if change == "remove":
        guest.domain.managedSaveRemove()
        with pytest.raises(libvirt.libvirtError, match="domain does not have managed save image"):
            guest.domain.managedSaveGetXMLDesc()
    guest.domain.createWithFlags(libvirt.VIR_DOMAIN_START_FORCE_BOOT if change == "force-boot" else 0)
    assert hosts.states(guest.name)[0] == (RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
    assert guest.domain.hasManagedSaveImage() == 0


def test_saved_memory_outlives_the_host_and_the_lab(hosts: Hosts) -> None:
    guest = Guest(hosts)
    guest.domain.managedSave()
    xml = guest.domain.managedSaveGetXMLDesc(SECURE)
    hosts.close()
    hosts.reboot(SOURCE)
    processes = simulated_folder(hosts.folder).read_processes()
    assert processes is not None
    processes[0].end(grace_s=10)
    lab.simulated.up(2, folder=hosts.folder)
    hosts.open()
    domain = hosts.source.lookupByName(guest.name)
    assert (domain.hasManagedSaveImage(), domain.managedSaveGetXMLDesc(SECURE)) == (1, xml)
    assert hosts.held(SOURCE) == {}
    with pytest.raises(libvirt.libvirtError, match="managed save image exists"):
        domain.undefine()
    with pytest.raises(libvirt.libvirtError, match="not found"):
        domain.create()
    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
    assert [one.name for one in (simulated_folder(hosts.folder).host(SOURCE) / "libvirt").iterdir()] == []


def test_a_domain_that_cannot_move_cannot_be_saved(hosts: Hosts) -> None:
    guest = Guest(hosts)
    hosts.fault(SOURCE, "move-unsupported")
    with pytest.raises(
        libvirt.libvirtError, match=r"cannot migrate domain: .*VFIO migration is not supported in kernel"
    ):
        guest.domain.managedSave()
    lab.faults.clear(SOURCE, folder=hosts.folder)
    hosts.fault(SOURCE, "move-refused")
    with pytest.raises(libvirt.libvirtError, match=r"'domain save' failed: .*Failed setting device state to STOP_COPY"):
        guest.domain.managedSave()
    assert hosts.held(SOURCE) == {guest.name: [guest.here]}
    assert guest.domain.hasManagedSaveImage() == 0
