# SPDX-License-Identifier: Apache-2.0
"""An unattended installation is one run of a VM: no later start has its answers, which wipe a disk unasked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine, simulated_fleet
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.libvirtd.storage import Storage

IMAGES = "/var/lib/libvirt/images"
ACME = ("--tenant", "acme")
SIZE = ("--memory", "4GiB", "--vcpus", "2", "--disk", "64GiB", "--network", "none")
MEDIA = ("--iso", "windows", "--drivers-iso", "virtio", "--unattended")
WINDOWS = (*ACME, "--os", "win11", "--gpu", "A40-8Q", *SIZE, *MEDIA)
UBUNTU = (*ACME, "--os", "ubuntu-24.04", *SIZE, "--iso", "windows", "--unattended", "--hostname", "u")
HOSTS = ("sim-001", "sim-002")
OFF = ("--timeout", "0")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """Two equal hosts with one A40 each."""
    with simulated_fleet(tmp_path_factory.mktemp("unattended"), 2, "a40") as made:
        yield made


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator, fleet: lab.LabFolder) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    for host in HOSTS:
        for name in ("windows", "virtio"):
            _medium(fleet, host, name).parent.mkdir(parents=True, exist_ok=True)
            _medium(fleet, host, name).write_bytes(name.encode() * 512)
    for name in ("windows", "virtio"):
        kind = ("--path", f"{IMAGES}/{name}.iso", "--format", "raw", "--kind", "iso")
        fleet_operator.does("register-image", name, *kind, "--host", "sim-001")
    return fleet_operator


def _medium(fleet: lab.LabFolder, host: str, name: str) -> Path:
    return machine(fleet, host).root / IMAGES.lstrip("/") / f"{name}.iso"


def _media(operator: Operator, host: str, domain: str, *, is_live: bool) -> list[str]:
    """The media in the drives of a domain, as it runs, or as it starts the next time."""
    library = libvirt_module()
    with libvirt_of(operator.inventory, host) as there:
        flags = 0 if is_live else library.VIR_DOMAIN_XML_INACTIVE
        xml = there.connection.lookupByName(domain).XMLDesc(flags)
    return [Path(one.path).name for one in domain_disks(xml) if one.is_cdrom and one.path]


def _answers(operator: Operator, host: str, uuid: str) -> bool:
    with libvirt_of(operator.inventory, host) as there:
        return Storage(there).find_volume("default", f"{uuid}-answers.iso") is not None


@pytest.fixture
def desk(operator: Operator) -> Iterator[tuple[str, str]]:
    """A Windows that is being installed: its UUID and its host."""
    (made,) = operator.json("create-vm", "desk", *WINDOWS)
    yield made["vm"]["uuid"], made["vm"]["host"]
    operator.does("delete-vm", "desk", *ACME, "--yes", *OFF)


def test_only_the_first_run_has_the_answers(operator: Operator, desk: tuple[str, str]) -> None:
    uuid, host = desk
    later = [f"{uuid}-seed.iso", "windows.iso", "virtio.iso"]
    assert _media(operator, host, "acme.desk", is_live=True) == [*later, f"{uuid}-answers.iso"]
    assert _media(operator, host, "acme.desk", is_live=False) == later, "whoever starts it, it is not installed again"
    assert not operator.json("create-vm", "desk", *WINDOWS)[0]["changed"]
    operator.does("stop-vm", "desk", *ACME, *OFF)
    assert not _answers(operator, host, uuid), "the password in them goes too"
    operator.does("start-vm", "desk", *ACME)
    assert _media(operator, host, "acme.desk", is_live=True) == later
    assert not operator.json("create-vm", "desk", *WINDOWS)[0]["changed"]


def test_a_vm_that_ended_by_itself_starts_without_the_answers(operator: Operator, desk: tuple[str, str]) -> None:
    uuid, host = desk
    with libvirt_of(operator.inventory, host) as there:
        there.destroy("acme.desk")
    assert _answers(operator, host, uuid)
    operator.does("repair")
    assert "asks from now on" in operator.does("start-vm", "desk", *ACME).err
    assert _media(operator, host, "acme.desk", is_live=True) == [f"{uuid}-seed.iso", "windows.iso", "virtio.iso"]
    assert not _answers(operator, host, uuid)


def test_a_creation_that_is_killed_at_its_start_leaves_no_answers_for_the_next(operator: Operator) -> None:
    kill_after(operator, "start", "create-vm", "u", *UBUNTU)
    operator.does("repair")
    (listed,) = operator.json("list-vms")
    uuid, host = listed["vm"]["uuid"], listed["vm"]["host"]
    assert listed["vm"]["state"] == "running"
    assert _media(operator, host, "acme.u", is_live=False) == [f"{uuid}-seed.iso", "windows.iso"]
    operator.does("delete-vm", "u", *ACME, "--yes", *OFF)


def test_a_moved_vm_leaves_the_answers_behind(operator: Operator, desk: tuple[str, str]) -> None:
    uuid, host = desk
    (other,) = set(HOSTS) - {host}
    operator.does("move-vm", "desk", *ACME, "--to", other, "--shutdown-timeout", "0")
    assert _media(operator, other, "acme.desk", is_live=True) == [f"{uuid}-seed.iso", "windows.iso", "virtio.iso"]
    assert not _answers(operator, host, uuid) and not _answers(operator, other, uuid)


def test_ejecting_takes_media_and_answers_out_of_every_definition(
    operator: Operator, fleet: lab.LabFolder, desk: tuple[str, str]
) -> None:
    uuid, host = desk
    refused = operator.is_refused("attach-disk", "desk", "data,size=1GiB", *ACME)
    assert "could take the disk for the one that it wipes" in refused["message"]
    operator.does("stop-vm", "desk", *ACME, *OFF)
    medium = _medium(fleet, host, "windows")
    content = medium.read_bytes()
    medium.unlink()
    refused = operator.is_refused("start-vm", "desk", *ACME)
    assert (refused["reference"], "eject-iso acme/desk" in refused["hint"]) == ("image-missing", True)
    operator.does("eject-iso", "desk", *ACME)
    medium.write_bytes(content)
    assert _media(operator, host, "acme.desk", is_live=False) == [f"{uuid}-seed.iso"]
    operator.does("start-vm", "desk", *ACME)
    assert _media(operator, host, "acme.desk", is_live=True) == [f"{uuid}-seed.iso"]
    operator.does("attach-disk", "desk", "data,size=1GiB", *ACME)
    assert operator.json("eject-iso", "desk", *ACME)["changed"] is False


def test_ubuntus_installer_finds_its_answers_in_place_of_the_seed(operator: Operator) -> None:
    (made,) = operator.json("create-vm", "u", *UBUNTU)
    uuid, host = made["vm"]["uuid"], made["vm"]["host"]
    try:
        assert _media(operator, host, "acme.u", is_live=True) == [f"{uuid}-answers.iso", "windows.iso"]
        assert _media(operator, host, "acme.u", is_live=False) == [f"{uuid}-seed.iso", "windows.iso"]
        refused = operator.is_refused("delete-image", "windows", "--yes")
        assert "eject-iso" in refused["hint"]
    finally:
        operator.does("delete-vm", "u", *ACME, "--yes", *OFF)
    with libvirt_of(operator.inventory, host) as there:
        assert Storage(there).volumes("default") == []


def test_an_installer_never_sees_a_data_disk(operator: Operator) -> None:
    refused = operator.is_refused("create-vm", "u", *UBUNTU, "--data-disk", "data,size=1GiB")
    assert "could take data disk data for it" in refused["message"]
