# SPDX-License-Identifier: Apache-2.0
"""A domain's life in a real libvirtd with a real QEMU, emulated by TCG."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.guests.cases import CASES, facts, gpu, leases, vm, whole
from vgpuctl.errors import DomainRejected, GuestError, LibvirtMissing, NetworkMissing
from vgpuctl.guests.domain.disk_view import BackingView, DiskView, MediumView
from vgpuctl.guests.domain.nic_view import NicView
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.guests.facts.domain_facts import DiskSource, DomainState, GuestPciDevice
from vgpuctl.guests.libvirtd.console import Console, ConsoleEnd
from vgpuctl.guests.libvirtd.host_networks import check_network, networks_of
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.image import BaseImage, ImageFormat
from vgpuctl.model.numa import GuestNuma, NumaCell
from vgpuctl.model.vm import Firmware


def test_a_domain_lives_and_every_second_call_changes_nothing(hypervisor: Hypervisor, view: DomainView) -> None:
    assert hypervisor.state(view.name) is None
    assert hypervisor.xml(view.name) is None
    hypervisor.define(render_domain(view))
    hypervisor.define(render_domain(view))
    assert hypervisor.state(view.name) is DomainState.SHUT_OFF
    assert hypervisor.start(view.name)
    assert not hypervisor.start(view.name)
    assert hypervisor.state(view.name) is DomainState.RUNNING
    hypervisor.connection.lookupByName(view.name).setAutostart(1)
    assert hypervisor.is_autostarted(view.name) and hypervisor.autostarted() == {view.uuid}
    assert hypervisor.clear_autostart(view.name)
    assert not hypervisor.clear_autostart(view.name)
    assert not hypervisor.is_autostarted(view.name) and hypervisor.autostarted() == frozenset()
    assert hypervisor.destroy(view.name)
    assert not hypervisor.destroy(view.name)
    assert not hypervisor.shutdown(view.name, timeout_s=1)
    assert hypervisor.undefine(view.name)
    assert not hypervisor.undefine(view.name)
    assert hypervisor.state(view.name) is None


def test_a_domain_that_cannot_be_read_is_named(hypervisor: Hypervisor, view: DomainView) -> None:
    xml = render_domain(view)
    hypervisor.define(xml.replace("<vgpuctl:request>", "<vgpuctl:gpu index='zero'/><vgpuctl:request>", 1))
    with pytest.raises(GuestError, match=f"domain {view.name} .* could not be read: "):
        hypervisor.domains()
    assert hypervisor.undefine(view.name)


def test_many_domains_are_read_at_once_as_each_alone(hypervisor: Hypervisor, view: DomainView) -> None:
    uuids = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(1, 9)]
    views = [replace(view, name=f"acme.many-{uuid[7]}", uuid=uuid) for uuid in uuids]
    for one in views:
        hypervisor.define(render_domain(one))
    hypervisor.start(views[0].name, paused=True)
    try:
        read = {one.uuid: one for one in hypervisor.domains() if one.uuid in uuids}
        assert read == {uuid: hypervisor.domain(uuid) for uuid in uuids}
        states = hypervisor.states()
        assert {uuid: (one.name, one.state) for uuid, one in read.items()} == {
            uuid: (states[uuid].name, states[uuid].state) for uuid in uuids
        }
        assert read[uuids[0]].state is DomainState.PAUSED and read[uuids[1]].state is DomainState.SHUT_OFF
    finally:
        hypervisor.destroy(views[0].name)
        for one in views:
            hypervisor.undefine(one.name)
    assert hypervisor.domain(uuids[0]) is None


def test_a_guest_that_ignores_acpi_is_stopped_after_the_limit(hypervisor: Hypervisor, view: DomainView) -> None:
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name)
    assert hypervisor.shutdown(view.name, timeout_s=0.3)
    assert hypervisor.state(view.name) is DomainState.SHUT_OFF


def test_a_paused_guest_is_stopped_too(hypervisor: Hypervisor, view: DomainView) -> None:
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name, paused=True)
    assert hypervisor.state(view.name) is DomainState.PAUSED
    assert hypervisor.shutdown(view.name, timeout_s=0.3)


def test_qemu_boots_a_guest_with_numa_nodes_and_a_bus_for_each(hypervisor: Hypervisor, view: DomainView) -> None:
    import libvirt_qemu

    golden = CASES["vnuma_floating"]
    assert golden.numa is not None
    ports = domain_view(
        replace(vm(), numa=GuestNuma((NumaCell(0, 1, 128), NumaCell(1, 2, 128)), True, (0, 1, 1))),
        leases(*(whole(f"0000:{bus}:00.0") for bus in (10, 11, 12))),
        facts(*(gpu(f"0000:{bus}:00.0") for bus in (10, 11, 12)), kvm=False, numa_nodes=2),
    )
    # This machine may have one node: both cells of the guest are on its node 0.
    cells = tuple(replace(cell, host_cell=0, memory_mib=128) for cell in golden.numa.cells)
    numa = replace(golden.numa, host_cells="0", vcpu_cpus=("0", "0", "0"), emulator_cpus="0", cells=cells)
    guest = replace(view, numa=numa, vcpus=3, memory_mib=256)
    guest = replace(guest, expander_buses=ports.expander_buses, root_ports=ports.root_ports)
    hypervisor.define(render_domain(guest))
    hypervisor.start(guest.name)
    devices = _wait_for_device(hypervisor, guest.name, "rng0")
    by_identifier = {device.identifier: device.address for device in devices}
    assert by_identifier["rng0"] == "0000:03:00.0"
    domain = hypervisor.connection.lookupByName(guest.name)
    numa_text = libvirt_qemu.qemuMonitorCommand(domain, "info numa", libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP)
    assert "2 nodes" in numa_text
    assert "node 0 cpus: 0\r\n" in numa_text
    assert "node 1 cpus: 1 2\r\n" in numa_text
    tree = libvirt_qemu.qemuMonitorCommand(domain, "info qtree", libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP)
    for bus in ports.expander_buses:
        assert f'id "pci.{bus.index}"' in tree
    assert hypervisor.set_cpus(guest.name, [(0,), (0, 1), (0, 1)])
    assert not hypervisor.set_cpus(guest.name, [(0,), (0, 1), (0, 1)])


def test_qemu_shows_the_devices_at_the_addresses_of_the_view(hypervisor: Hypervisor, view: DomainView) -> None:
    cards = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x20)]
    ports = domain_view(
        vm(), leases(*(whole(card) for card in cards)), facts(*(gpu(card) for card in cards), kvm=False)
    )
    hypervisor.define(render_domain(replace(view, root_ports=ports.root_ports, mmio_window_gib=256)))
    hypervisor.start(view.name)
    devices = _wait_for_device(hypervisor, view.name, "rng0")
    by_address = {device.address: device for device in devices}
    assert by_address["0000:03:00.0"].identifier == "rng0"
    assert by_address["0000:04:00.0"].identifier == "virtio-serial0"
    for port in ports.root_ports:
        assert by_address[f"0000:00:{port.slot:02x}.{port.function}"].identifier == f"pci.{port.index}"


def test_a_uefi_guest_with_a_large_window_starts_and_leaves_no_nvram(hypervisor: Hypervisor, view: DomainView) -> None:
    asked = vm(replace(vm().request, firmware=Firmware.UEFI))
    uefi = replace(domain_view(asked, [], facts(kvm=False)), vcpus=1, mmio_window_gib=128, memory_mib=128)
    hypervisor.define(render_domain(uefi))
    hypervisor.start(view.name, paused=True)
    assert "<nvram" in (hypervisor.xml(view.name) or "")
    hypervisor.destroy(view.name)
    assert hypervisor.undefine(view.name)


@pytest.mark.parametrize("name", ["passthrough_uefi_window", "several_kinds"])
def test_the_test_driver_runs_a_whole_life_too(name: str) -> None:
    golden = CASES[name]
    with Hypervisor("test:///default") as hypervisor:
        hypervisor.define(render_domain(golden))
        assert hypervisor.start(golden.name)
        assert not hypervisor.start(golden.name)
        assert hypervisor.shutdown(golden.name, timeout_s=5)
        assert hypervisor.start(golden.name)
        assert hypervisor.destroy(golden.name)
        assert hypervisor.undefine(golden.name)
        assert hypervisor.state(golden.name) is None


def test_the_console_carries_both_ways_until_the_escape(hypervisor: Hypervisor, view: DomainView) -> None:
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name, paused=True)
    console = hypervisor.console(view.name)
    with pytest.raises(GuestError, match="open the console"):
        hypervisor.console(view.name)
    _wait_for_firmware(hypervisor, view, console)
    console.write(b"x")
    keyboard_read, keyboard_write = os.pipe()
    screen_read, screen_write = os.pipe()
    os.write(keyboard_write, b"ab\x1dignored")
    assert console.attach(keyboard_read, screen_write) is ConsoleEnd.DETACHED
    for descriptor in (keyboard_read, keyboard_write, screen_read, screen_write):
        os.close(descriptor)
    hypervisor.console(view.name).close()


def test_leaving_a_console_never_waits_for_the_guest(hypervisor: Hypervisor, view: DomainView) -> None:
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name)
    domain = hypervisor.connection.lookupByName(view.name)
    with Path(os.devnull).open("wb") as screen:
        for number in range(20):
            console = hypervisor.console(view.name)
            keyboard_read, keyboard_write = os.pipe()
            os.write(keyboard_write, b"abc\x1d")
            if number % 5 == 0:
                domain.reset()
            assert console.attach(keyboard_read, screen.fileno()) is ConsoleEnd.DETACHED
            os.close(keyboard_read)
            os.close(keyboard_write)
    with pytest.raises(GuestError, match="it has ended"):
        console.write(b"x")
    assert console.has_ended


def test_an_attached_console_ends_with_the_guest(hypervisor: Hypervisor, view: DomainView) -> None:
    hypervisor.define(render_domain(view))
    hypervisor.start(view.name)
    console = hypervisor.console(view.name)
    keyboard_read, keyboard_write = os.pipe()
    ends: list[ConsoleEnd] = []
    with Path(os.devnull).open("wb") as screen:
        attached = threading.Thread(target=lambda: ends.append(console.attach(keyboard_read, screen.fileno())))
        attached.start()
        hypervisor.destroy(view.name)
        attached.join(timeout=10)
    assert ends == [ConsoleEnd.GUEST_CLOSED]
    os.close(keyboard_read)
    os.close(keyboard_write)


def test_a_host_device_that_is_not_there_is_refused_with_the_answer_of_libvirt(
    hypervisor: Hypervisor, view: DomainView
) -> None:
    mdev = CASES["mdev"].hostdevs[0]
    missing = replace(view, hostdevs=(mdev,), root_ports=CASES["mdev"].root_ports)
    hypervisor.define(render_domain(missing))
    with pytest.raises(DomainRejected, match=r"cannot start domain acme\.web-1 on gpu1: .*VFIO") as caught:
        hypervisor.start(view.name)
    assert "modprobe vfio-pci" in (caught.value.hint or "")
    assert hypervisor.state(view.name) is DomainState.SHUT_OFF


def test_a_missing_network_lists_what_there_is(hypervisor: Hypervisor, view: DomainView) -> None:
    with pytest.raises(NetworkMissing, match="gpu1 has no network 'blue'") as caught:
        check_network(hypervisor, "blue")
    assert caught.value.context == ("the host has no network at all",)
    hypervisor.define(render_domain(replace(view, nics=(NicView("blue", "52:54:00:00:00:01"),))))
    with pytest.raises(DomainRejected) as refused:
        hypervisor.start(view.name)
    assert refused.value.hint is not None
    assert "net-list" in refused.value.hint


def test_a_network_that_is_down_says_how_to_bring_it_up() -> None:
    with Hypervisor("test:///default", host="gpu1") as hypervisor:
        check_network(hypervisor, "default")
        hypervisor.connection.networkLookupByName("default").destroy()
        assert networks_of(hypervisor) == {"default": False}
        with pytest.raises(NetworkMissing, match="not active") as caught:
            check_network(hypervisor, "default")
        assert "net-start default" in (caught.value.hint or "")
        with pytest.raises(NetworkMissing) as other:
            check_network(hypervisor, "blue")
        assert other.value.context == ("default: not active",)


def test_a_domain_that_is_gone_is_named(hypervisor: Hypervisor) -> None:
    with pytest.raises(GuestError, match=r"gpu1 has no domain acme\.gone"):
        hypervisor.start("acme.gone")


def test_a_daemon_that_does_not_answer_is_libvirt_missing() -> None:
    with (
        pytest.raises(LibvirtMissing, match="libvirt on gpu9 does not answer"),
        Hypervisor("qemu+unix:///system?socket=/nonexistent/socket&mode=legacy", host="gpu9"),
    ):
        pass


def test_the_version_is_the_one_of_the_daemon(hypervisor: Hypervisor) -> None:
    assert [part.isdecimal() for part in hypervisor.version().split(".")] == [True, True, True]


def test_a_domain_boots_from_an_overlay_with_its_seed(
    hypervisor: Hypervisor, storage: Storage, view: DomainView
) -> None:
    base = BaseImage(storage.create_disk("default", "base.qcow2", 1).path, ImageFormat.QCOW2, 2**20)
    disk = storage.create_overlay("default", "web.qcow2", 2, base)
    seed = storage.create_image("default", "seed.iso", b"x" * 4096)
    shown = DiskView(disk.path, BackingView(base.path, base.format))
    hypervisor.define(render_domain(replace(view, disks=(shown,), media=(MediumView(seed.path, "sda"),))))
    (domain,) = hypervisor.domains()
    assert domain.writable_disks == (DiskSource(disk.path),)
    hypervisor.start(view.name)
    devices = _wait_for_device(hypervisor, view.name, "virtio-disk0")
    assert {device.address for device in devices if device.identifier == "virtio-disk0"} == {"0000:01:00.0"}


def _wait_for_device(hypervisor: Hypervisor, name: str, identifier: str) -> list[GuestPciDevice]:
    """All PCI devices of a guest as soon as its firmware has numbered this one."""
    deadline = time.monotonic() + 20
    devices = hypervisor.pci_devices(name)
    while identifier not in {device.identifier for device in devices}:
        assert time.monotonic() < deadline, devices
        time.sleep(0.2)
        devices = hypervisor.pci_devices(name)
    return devices


def _wait_for_firmware(hypervisor: Hypervisor, view: DomainView, console: Console) -> None:
    """Let a paused guest go on and read what its firmware says: a guest that runs may have said it already."""
    hypervisor.connection.lookupByName(view.name).resume()
    seen = b""
    while b"SeaBIOS" not in seen:
        data = console.read(timeout_s=20)
        assert data
        seen += data


def test_a_process_without_file_descriptors_does_not_blame_the_host() -> None:
    program = """
import os, resource
from vgpuctl.errors import WayFailed
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.libvirtd.event_loop import ensure_event_loop
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
libvirt_module()
ensure_event_loop()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.dup(0)
except OSError:
    pass
try:
    Hypervisor("qemu+unix:///system?socket=/nonexistent/socket&mode=legacy", host="gpu1").__enter__()
except WayFailed as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False)
    assert "libvirt on gpu1 was not asked" in done.stdout, done.stderr
    assert "Too many open files" in done.stdout
