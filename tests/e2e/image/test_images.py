# SPDX-License-Identifier: Apache-2.0
"""The catalogue of images on simulated hosts: what VMs may name, and what no tenant's file reaches."""

import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from tests.lab.simulated_fixtures import machine

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--host", "sim-001")
IMAGES = "/var/lib/libvirt/images"


@pytest.fixture
def operator(fleet_operator: Operator, tmp_path: Path) -> Iterator[Operator]:
    """An operator with a store of the test's own and a tenant; the tenant's VMs are gone afterwards."""
    made = replace(fleet_operator, database=f"sqlite:///{tmp_path}/store.db")
    made.does("create-tenant", "acme")
    yield made
    made.does("offboard-tenant", "acme", "--yes", "--timeout", "0")


@pytest.fixture
def images(fleet: lab.LabFolder) -> Iterator[Path]:
    """The folder of images on sim-001's own disk."""
    folder = machine(fleet, "sim-001").root / IMAGES.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    for file in folder.iterdir():
        file.unlink()


def _qcow2(path: Path, *options: str) -> str:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), "4M"], check=True)
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _create(name: str, image: str = "debian-12") -> tuple[str, ...]:
    return ("create-vm", name, "--tenant", "acme", "--disk", "8MiB", "--base-image", image, *SIZE)


def test_a_vm_names_an_image_whose_copy_is_verified_once(operator: Operator, images: Path) -> None:
    checksum = _qcow2(images / "debian.qcow2")
    register = ("register-image", "debian-12", "--path", f"{IMAGES}/debian.qcow2", "--format", "qcow2")
    assert operator.json(*register, "--checksum", checksum, "--dry-run")["dry_run"] is True
    assert operator.json("list-images") == []
    assert operator.json(*register, "--checksum", checksum)["changed"] is True
    assert operator.json(*register, "--host", "sim-001")["changed"] is False
    other = operator.is_refused(*register, "--checksum", "sha256:" + "0" * 64)
    assert (other["reference"], other["context"][0].split(":")[0]) == ("image-differs", "checksum")
    planned = operator.json(*_create("web-1"), "--dry-run")
    assert f"<source file='{IMAGES}/debian.qcow2'/>" in planned[0]["xml"]
    first = operator.does(*_create("web-1"))
    assert "sim-001: verifying image debian-12 by its checksum" in first.err
    (listed,) = operator.json("list-images")
    assert [copy["host"] for copy in listed["copies"]] == ["sim-001"]
    assert "verifying image" not in operator.does(*_create("web-2")).err
    with libvirt_of(operator.inventory, "sim-001") as libvirt:
        xml = libvirt.xml("acme.web-1")
    assert xml is not None
    assert f"<source file='{IMAGES}/debian.qcow2'/>" in xml
    assert operator.json(*_create("web-1"))[0]["changed"] is False
    used = operator.is_refused("delete-image", "debian-12", "--yes")
    assert (used["reference"], used["context"]) == (
        "image-in-use",
        ["VM web-1 of tenant acme", "VM web-2 of tenant acme"],
    )
    for name in ("web-1", "web-2"):
        operator.does("delete-vm", name, "--tenant", "acme", "--yes", "--timeout", "0")
    operator.does("delete-image", "debian-12", "--yes")
    assert operator.json("list-images") == []
    assert (images / "debian.qcow2").exists()


def test_a_changed_copy_and_a_copy_on_other_files_are_refused(
    operator: Operator, images: Path, fleet_witness: FleetWitness
) -> None:
    checksum = _qcow2(images / "debian.qcow2")
    before = fleet_witness.state()
    operator.does(
        "register-image", "debian-12", "--path", f"{IMAGES}/debian.qcow2", "--format", "qcow2", "--checksum", checksum
    )
    operator.does(*_create("web-1"))
    operator.does("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")
    with (images / "debian.qcow2").open("ab") as file:
        file.write(b"more")
    changed = operator.is_refused(*_create("web-1"))
    assert (changed["reference"], "is not what was registered" in changed["message"]) == ("image-rejected", True)
    (images / "debian.qcow2").unlink()
    missing = operator.is_refused(*_create("web-1"))
    assert (missing["reference"], "does not exist" in missing["message"]) == ("image-missing", True)
    _qcow2(images / "on.qcow2", "-F", "raw", "-u", "-b", "/etc/shadow")
    register = ("register-image", "on", "--path", f"{IMAGES}/on.qcow2", "--host", "sim-001")
    stands = operator.is_refused(*register, "--format", "qcow2")
    assert (stands["reference"], "a backing file of its own" in stands["message"]) == ("image-rejected", True)
    raw = operator.json(*register, "--format", "raw")["image"]
    assert raw["format"] == "raw"
    xml = operator.json(*_create("web-1", "on"), "--dry-run")[0]["xml"]
    assert "<format type='raw'/>" in xml
    assert "/etc/shadow" not in xml
    assert operator.json("list-vms") == []
    assert fleet_witness.state() == before


def test_a_host_without_a_copy_is_left_out_and_another_is_chosen(operator: Operator, images: Path) -> None:
    checksum = _qcow2(images / "debian.qcow2")
    operator.does(
        "register-image", "debian-12", "--path", f"{IMAGES}/debian.qcow2", "--format", "qcow2", "--checksum", checksum
    )
    places = set()
    for number in range(4):
        wanted = _create(f"web-{number}")[:-2]
        (created,) = operator.json(*wanted, "--policy", "spread")
        places.add(created["vm"]["host"])
    assert places == {"sim-001"}


REFUSED = {
    "path": "disk: {base_image: /etc/shadow}",
    "volume of another tenant": "disk: {base_image: other.web-1.qcow2}",
    "kernel": "kernel: {image: /boot/vmlinuz}",
    "initrd": "kernel: {image: linux, initrd: /root/.ssh/id_ed25519}",
    "image of another kind": "disk: {base_image: linux}",
    "older mark": "disk: {base_image: 'unregistered:/etc/shadow'}",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_a_file_reaches_nothing_that_is_not_registered(
    operator: Operator, fleet_witness: FleetWitness, tmp_path: Path, text: str
) -> None:
    before = fleet_witness.state()
    checksum = ("--checksum", "sha256:" + "1" * 64)
    operator.does("register-image", "linux", "--path", "/boot/linux", "--format", "raw", "--kind", "kernel", *checksum)
    vm = f"name: web-1, vcpus: 1, memory: 96MiB, network: null, {text}"
    (tmp_path / "vm.yml").write_text(f"{{tenant: acme, {vm}}}\n")
    (tmp_path / "tenant.yml").write_text(f"version: 1\ntenant: other\nvms:\n- {{{vm}}}\n")
    for wanted in (
        ("create-vm", "-f", str(tmp_path / "vm.yml")),
        ("create-vm", "-f", str(tmp_path / "vm.yml"), "--gang"),
        ("create-vm", "-f", str(tmp_path / "vm.yml"), "--queue"),
        ("onboard", str(tmp_path / "tenant.yml"), "--dry-run"),
        ("onboard", str(tmp_path / "tenant.yml")),
    ):
        refused = operator.is_refused(*wanted)
        assert refused["reference"] == "image-unregistered", refused
        assert "register" in (refused["hint"] or "") or "list-images" in (refused["hint"] or "")
    assert [one["tenant"] for one in operator.json("list-tenants")] == ["acme"]
    assert fleet_witness.state() == before


def test_a_disk_that_a_domain_writes_is_no_image(operator: Operator, images: Path) -> None:
    operator.does("create-vm", "web-1", "--tenant", "acme", "--disk", "8MiB", *SIZE)
    with libvirt_of(operator.inventory, "sim-001") as libvirt:
        ((disk,),) = [domain.writable_disks for domain in libvirt.domains() if domain.name == "acme.web-1"]
    assert disk.path is not None
    name = Path(disk.path).name
    _qcow2(images / name)
    (images / "link.qcow2").symlink_to(name)
    for path in (disk.path, f"{IMAGES}/link.qcow2"):
        refused = operator.is_refused(
            "register-image", "stolen", "--path", path, "--format", "qcow2", "--host", "sim-001"
        )
        assert (refused["reference"], "is a disk of domain acme.web-1" in refused["message"]) == (
            "image-rejected",
            True,
        )
    checksum = f"sha256:{hashlib.sha256((images / name).read_bytes()).hexdigest()}"
    operator.does("register-image", "stolen", "--path", disk.path, "--format", "qcow2", "--checksum", checksum)
    refused = operator.is_refused(*_create("web-2", "stolen"))
    assert (refused["reference"], "acme.web-1" in refused["message"]) == ("image-rejected", True)
    operator.does("delete-image", "stolen", "--yes")
