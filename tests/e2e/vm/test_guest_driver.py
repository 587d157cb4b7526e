# SPDX-License-Identifier: Apache-2.0
"""The GPU's driver as an operator asks for it: the page's example, a tenant's default, and refusals by name."""

import json
import re
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine
from vgpuctl.guests.libvirtd.storage import Storage

PAGE = Path(__file__).parents[3] / "docs" / "guest-drivers.md"
VM = ("--tenant", "acme", "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    return fleet_operator


def _example() -> str:
    (found,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def test_the_example_of_the_page_gets_a_seed_that_its_vm_has(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "worker.yml"
    file.write_text(_example() + "network: none\n")
    (created,) = operator.json("create-vm", "-f", str(file))
    host, uuid = created["vm"]["host"], created["vm"]["uuid"]
    try:
        with libvirt_of(operator.inventory, host) as there:
            assert Storage(there).find_volume("default", f"{uuid}-seed.iso") is not None
            assert f"{uuid}-seed.iso" in (there.xml("acme.worker-1") or "")
        (again,) = operator.json("create-vm", "-f", str(file))
        assert not again["changed"]
        shown = operator.json("show-vm", "worker-1", "--tenant", "acme")
        assert shown["vm"]["request"]["guest_driver"]["package"] == "nvidia-driver-grid"
    finally:
        operator.does("delete-vm", "worker-1", "--tenant", "acme", "--yes", "--timeout", "0")
    with libvirt_of(operator.inventory, host) as there:
        assert Storage(there).find_volume("default", f"{uuid}-seed.iso") is None


def test_what_cannot_work_is_refused_before_anything_is_placed(operator: Operator, tmp_path: Path) -> None:
    refused = operator.is_refused("create-vm", "w", *VM, "--guest-driver", "packages")
    assert "the driver's source packages has no package" in refused["message"]
    refused = operator.is_refused("create-vm", "w", *VM, "--os", "win11", "--guest-driver", "run-file")
    assert "for Linux, and win11 is Windows" in refused["message"]
    refused = operator.is_refused("create-vm", "w", *VM, "--os", "rhel-9", "--iso", "rhel", "--unattended")
    assert "no answers for the installer of rhel-9" in refused["message"]
    file = tmp_path / "secure.yml"
    file.write_text(
        "name: w\ntenant: acme\nsecure_boot: 'on'\ngpus: [A40-8Q]\nguest_driver:\n  source: run-file\n"
        f"  url: https://files.example/driver.run\n  sha256: {'a' * 64}\n"
    )
    assert "cannot load with Secure Boot" in operator.is_refused("create-vm", "-f", str(file))["message"]
    file.write_text(file.read_text().replace("https://", "https://me:secret@"))
    refused = operator.is_refused("create-vm", "-f", str(file))
    assert "has a user or a password before '@'" in refused["message"]
    assert "secret@" not in str(refused)


def test_a_tenants_driver_is_for_its_vms_with_a_gpu(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "acme.yml"
    file.write_text(
        "version: 1\ntenant: acme\nguest_driver: {source: image, version: '580'}\nvms:\n"
        "  - {name: with-gpu, gpus: [A40-8Q], vcpus: 1, memory: 96MiB, network: none}\n"
        "  - {name: without, vcpus: 1, memory: 96MiB, network: none}\n"
        "  - {name: own, gpus: [A40-8Q], vcpus: 1, memory: 96MiB, network: none, guest_driver: {source: none}}\n"
    )
    operator.does("onboard", str(file))
    try:
        sources = {}
        for name in ("with-gpu", "without", "own"):
            request = operator.json("show-vm", name, "--tenant", "acme")["vm"]["request"]
            sources[name] = request.get("guest_driver", {}).get("source", "none")
        assert sources == {"with-gpu": "image", "without": "none", "own": "none"}
    finally:
        for name in ("with-gpu", "without", "own"):
            operator.does("delete-vm", name, "--tenant", "acme", "--yes", "--timeout", "0")


IMAGE = "/var/lib/libvirt/images/cuda.img"


def test_mps_is_part_of_the_vm_and_a_share_that_it_cannot_divide_is_refused(
    operator: Operator, fleet: lab.LabFolder, tmp_path: Path
) -> None:
    place = machine(fleet, "sim-001").root / IMAGE.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"\0" * 4096)
    operator.does("register-image", "cuda", "--path", IMAGE, "--format", "raw", "--host", "sim-001")
    base = (*VM, "--host", "sim-001", "--disk", "1MiB", "--base-image", "cuda", "--guest-driver", "image")
    refused = operator.is_refused("create-vm", "mps", *base, "--mps", "49")
    assert "49 clients of MPS need a driver from R590 on, and the guest's driver is not named" in str(
        refused["context"]
    )
    refused = operator.is_refused("create-vm", "mps", *base, "--mps", "4,memory=9GiB")
    assert "9 GiB for each MPS client are more than the 8 GiB of A40-8Q" in refused["message"]
    wanted = (*base, "--mps", "4,threads=25%,memory=2GiB")
    (made,) = operator.json("create-vm", "mps", *wanted)
    try:
        assert made["vm"]["request"]["guest"]["mps"] == {"clients": 4, "threads_percent": 25, "memory_mib": 2048}
        assert "no change" in operator.does("create-vm", "mps", *wanted).err
        shown = operator.does("show-vm", "mps", "--tenant", "acme").out
        assert "MPS       in the guest: 4 clients of each GPU, 25% of the threads and 2 GiB each" in shown
        differs = operator.is_refused("create-vm", "mps", *base, "--mps", "2")
        assert "guest.mps: 4,threads=25%,memory=2GiB there, 2 wanted" in str(differs)
        checked = json.loads(operator.run("check-vm", "mps", "--tenant", "acme", "--json").out)
        (row,) = [one for one in checked["findings"] if one["row"] == "mps"]
        assert (row["verdict"], row["promised"]) == (
            "not-looked-at",
            "25% of the threads and 2048 MiB for each program",
        )
    finally:
        operator.does("delete-vm", "mps", "--tenant", "acme", "--yes", "--timeout", "0")
        place.unlink()
