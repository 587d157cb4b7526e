# SPDX-License-Identifier: Apache-2.0
"""`guest: {mps: …}`: what it says, and what no guest could have is refused by name before anything is placed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.fleet_factory import a40_host, intel_vf_host, passthrough_host, vm
from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.mps import Mps
from vgpuctl.model.network import Backend
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.place import place
from vgpuctl.specs.tenant import read_tenant_files
from vgpuctl.specs.vm import list_differences, read_vm_file, read_vm_flags

VM = """name: web-1
os: ubuntu-24.04
memory: 4GiB
disk: {size: 30GiB, base_image: cloud}
guest_driver: {source: image}
"""


def read(folder: Path, gpu: str, mps: str, *changes: tuple[str, str]) -> Mps | None:
    text = f"{VM}gpus: ['{gpu}']\nguest: {{mps: {mps}}}\n"
    for old, new in changes:
        text = text.replace(old, new)
    (folder / "vm.yml").write_text(text)
    (request,) = read_vm_file(folder / "vm.yml", tenant="acme")
    return request.guest.mps


def _tenant(path: Path) -> tuple[VmRequest, ...]:
    (file,) = read_tenant_files(path, default_backend=Backend.LIBVIRT)
    return tuple(file.vms)


@pytest.mark.parametrize(
    ("gpu", "written", "mps", "threads"),
    [
        ("A40-8Q", "{clients: 4, threads: 25%, memory: 2GiB}", Mps(4, 25, 2048), 25),
        ("A40-8Q", "{clients: 3}", Mps(3), 33),
        ("A40-8Q", "{clients: 48, threads: 100%}", Mps(48, 100), 100),
        ("A40-48C", "{clients: 60, memory: 48GiB}", Mps(60, None, 48 * 1024), 1),
        ("passthrough:H100", "{clients: 2, threads: 1 %}", Mps(2, 1), 1),
        ("memory>=16GiB", "{clients: 1}", Mps(1), 100),
        ("A100-1-5C", "{clients: 6}", Mps(6), 16),
    ],
)
def test_it_is_read(tmp_path: Path, gpu: str, written: str, mps: Mps, threads: int) -> None:
    assert read(tmp_path, gpu, written) == mps
    assert mps.threads == threads


@pytest.mark.parametrize(
    ("gpu", "mps", "reason"),
    [
        ("A40-8Q", "{clients: 0}", r"vm.yml:7: vm.guest.mps.clients is 0"),
        ("A40-8Q", "{clients: 61}", "vm.guest.mps.clients is 61"),
        ("A40-8Q", "{clients: -1}", "vm.guest.mps.clients is -1"),
        ("A40-8Q", "{clients: 2.5}", "vm.guest.mps.clients is 2.5"),
        ("A40-8Q", "{clients: many}", "vm.guest.mps.clients is 'many'"),
        ("A40-8Q", "{clients: 4, threads: 0.25}", "vm.guest.mps.threads is 0.25"),
        ("A40-8Q", "{clients: 4, threads: 25}", "vm.guest.mps.threads is 25"),
        ("A40-8Q", "{clients: 4, threads: 125%}", "'125%', which is no part of the GPU's threads"),
        ("A40-8Q", "{clients: 4, threads: 0%}", "'0%', which is no part"),
        ("A40-8Q", "{clients: 4, threads: -25%}", "'-25%', which is no part"),
        ("A40-8Q", "{clients: 4, threads: 99999999999%}", "which is no part"),
        ("A40-8Q", "{clients: 4, threads: ٢٥%}", "which is no part"),
        ("A40-8Q", "{clients: 4, memory: 8}", "vm.guest.mps.memory is 8, a number, not text"),
        ("A40-8Q", "{threads: 25%}", "vm.guest.mps has no 'clients'"),
        ("A40-8Q", "{client: 4}", "client is not a key of a VM"),
        ("A40-8Q", "[4]", "vm.guest.mps is a list"),
        ("A40-8Q", "{clients: 4, memory: 9GiB}", "9 GiB for each MPS client are more than the 8 GiB of A40-8Q"),
        ("A40-2B", "{clients: 4}", "A40-2B has no CUDA"),
        ("A16-1A", "{clients: 4}", "A16-1A has no CUDA"),
        ("M60-8Q", "{clients: 4}", "Tesla M60 cannot limit the threads and memory of MPS clients"),
        ("P40-24Q", "{clients: 4}", "that begins with Volta"),
        ("A100-1-5C", "{clients: 7}", "A100-1-5C has 1 of 7 compute slices, and MPS takes 6 clients there"),
        ("2*A100-1-5C", "{clients: 6}", "CUDA uses one MIG instance in a program, and the VM asks for 2"),
        ("vf", "{clients: 4}", "asks for a VF of another vendor"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, gpu: str, mps: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, gpu, mps)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("ubuntu-24.04", "win10"), "MPS is for Linux guests, and win10 is Windows"),
        (("gpus: ['A40-8Q']", "gpus: []"), "the VM asks for none"),
        (("{source: image}", "{source: none}"), "the guest is set up with none"),
        ((", base_image: cloud", ""), "an empty disk has none"),
        ((", base_image: cloud}", "}\ninstall: {iso: ubuntu}"), "installed by hand"),
    ],
)
def test_a_guest_that_would_not_set_it_up_is_refused(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, "A40-8Q", "{clients: 4}", change)


def test_more_clients_need_a_driver_that_takes_them(tmp_path: Path) -> None:
    old = ("{source: image}", "{source: image, version: '580'}")
    with pytest.raises(UsageError, match="49 clients of MPS need a driver from R590 on, and the guest's driver is 580"):
        read(tmp_path, "A40-8Q", "{clients: 49}", old)
    new = ("{source: image}", "{source: image, version: 595.45.04}")
    assert read(tmp_path, "A40-8Q", "{clients: 60}", new) == Mps(60)


def test_the_flag_says_the_same_and_a_difference_is_told() -> None:
    given = {"name": "web-1", "tenant": "acme", "gpus": ("A40-8Q",), "guest_driver_source": "image"}
    given |= {"disk_base_image": "cloud", "disk_size": "30GiB"}
    made = read_vm_flags({**given, "guest_mps": "4,threads=25%,memory=1GiB"}, lambda path: path)
    assert made.guest.mps == Mps(4, 25, 1024)
    other = replace(made, guest=replace(made.guest, mps=Mps(2)))
    assert list_differences(made, other) == ["guest.mps: 4,threads=25%,memory=1GiB there, 2 wanted"]
    with pytest.raises(UsageError, match=r"threads is '0\.25'"):
        read_vm_flags({**given, "guest_mps": "4,threads=0.25"}, lambda path: path)


def test_the_tenants_driver_counts(tmp_path: Path) -> None:
    vm = "".join(f"  {line}\n" for line in VM.splitlines() if not line.startswith("guest_driver"))
    vm = f"- {vm.lstrip()}  gpus: [A40-8Q]\n  guest: {{mps: {{clients: 2}}}}\n"
    text = f"version: 1\ntenant: acme\nguest_driver: {{source: image}}\nvms:\n{vm}"
    (tmp_path / "acme.yml").write_text(text)
    (made,) = _tenant(tmp_path / "acme.yml")
    assert (made.guest.mps, made.guest_driver.source) == (Mps(2), DriverSource.IMAGE)
    (tmp_path / "acme.yml").write_text(text.replace("guest_driver: {source: image}\n", ""))
    with pytest.raises(VgpuctlError, match="the guest is set up with none"):
        _tenant(tmp_path / "acme.yml")


@pytest.mark.parametrize(
    ("gpu", "mps", "driver", "capacity", "refusal"),
    [
        ("A40-8Q", Mps(48), None, a40_host(), None),
        ("A40-8Q", Mps(49), None, a40_host(), "the guest's driver is not named"),
        ("A40-8Q", Mps(49), "580.95.05", a40_host(), "the guest's driver is 580.95.05"),
        ("passthrough", Mps(60), "590.44", passthrough_host(), None),
        ("memory>=1GiB,series=B", Mps(2), None, a40_host(), "has no CUDA"),
        ("memory>=8GiB", Mps(2, None, 10 * 1024), None, a40_host(), None),
        ("memory>=40GiB", Mps(2, None, 49 * 1024), None, a40_host(), "are more than the 48 GiB"),
        ("passthrough", Mps(2, None, 24 * 1024), None, passthrough_host(), None),
        ("passthrough", Mps(2, None, 200 * 1024), None, passthrough_host(), "of the card"),
        ("passthrough", Mps(2), None, passthrough_host(board="nvidia-tesla-p40"), "Tesla P40 cannot limit"),
        ("vf", Mps(2), None, intel_vf_host(), "MPS is NVIDIA's, and this GPU is not"),
    ],
)
def test_a_gpu_that_mps_cannot_divide_is_left_out(
    gpu: str, mps: Mps, driver: str | None, capacity: HostCapacity, refusal: str | None
) -> None:
    request = vm(gpu)
    request = replace(
        request,
        guest=replace(request.guest, mps=mps),
        guest_driver=GuestDriver(DriverSource.IMAGE, version=driver),
    )
    if refusal is None:
        assert place(request, [capacity], []).shares
        return
    answer = explain(request, [capacity], [])
    assert not isinstance(answer, Placement)
    assert [(str(one.code), refusal in one.reason) for one in answer] == [("guest-mps", True)] * len(answer)
