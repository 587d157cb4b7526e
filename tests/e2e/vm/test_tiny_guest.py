# SPDX-License-Identifier: Apache-2.0
"""A guest gets its kernel, arguments and initramfs from libvirt, and says on its console which GPU it sees."""

import hashlib

import pytest

from tests.e2e.guest_console import wait_for_words
from tests.e2e.kills import kill_after
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from tests.e2e.witness import Witness
from tests.lab_fixtures import KernelHost

pytestmark = pytest.mark.kernel_lab

GUEST = "vgpuctl lab guest:"
PLUG = ("plug", *ACME)
ARGUMENTS = "console=ttyS0 answer=42"
INITRAMFS = b"vgpuctl" * 1000
CREATE = (
    "create-vm", "tiny", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1",
    "--kernel", "tiny", "--initrd", "data", "--kernel-args", ARGUMENTS, "--network", "none", "--wait",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def boot_files(operator: Operator, kernel_host: KernelHost) -> None:
    """A tenant, and a kernel and an initramfs on the host as its images `tiny` and `data`."""
    operator.does("create-tenant", "acme")
    code, _out, err = kernel_host.run("mkdir -p /run/boot; printf 'vgpuctl%.0s' $(seq 1000) >/run/boot/data")
    assert code == 0, err
    checksum = f"sha256:{hashlib.sha256(INITRAMFS).hexdigest()}"
    for name, kind, path in (("tiny", "kernel", "/run/lab/guest/idle.img"), ("data", "initrd", "/run/boot/data")):
        given = ("--checksum", checksum) if kind == "initrd" else ()
        operator.does(
            "register-image", name, "--path", path, "--kind", kind, "--format", "raw", "--host", "gpu1", *given
        )


@pytest.mark.long(
    "tests/e2e/vm/test_create_vm.py::test_the_console_shows_what_the_guest_printed_and_can_be_left",
    "tests/e2e/vm/test_live_changes.py::test_a_guest_sees_a_disk_come_grow_and_go",
)
def test_the_guests_own_console_lists_the_gpu(operator: Operator, witness: Witness) -> None:
    before = witness.state()
    operator.does(*CREATE)
    try:
        said = wait_for_words(operator, "tiny", f"{GUEST} halting").splitlines()
        assert f"{GUEST} arguments {ARGUMENTS}" in said
        assert f"{GUEST} initramfs of 0x{len(INITRAMFS):08x} bytes" in said
        functions = [line.removeprefix(f"{GUEST} pci ").split() for line in said if line.startswith(f"{GUEST} pci ")]
        assert [(ids, kind) for _address, ids, kind in functions if ids.startswith("10de:")] == [("10de:2235", "0302")]
    finally:
        operator.does("delete-vm", "tiny", "--tenant", "acme", "--yes", "--timeout", "0")
    assert witness.state() == before


@pytest.mark.long(
    "tests/e2e/vm/test_attach_gpu.py::test_a_vgpu_comes_and_goes_at_the_next_start_and_the_others_keep_their_place",
    "tests/e2e/vm/test_attach_gpu.py::test_repair_finishes_a_detach_whose_vm_ended_by_itself",
)
def test_a_guest_lets_go_of_a_gpu_that_was_attached_while_it_runs(operator: Operator, witness: Witness) -> None:
    """attach-gpu is killed when libvirt has attached the GPU, and is finished by repair."""
    before = witness.state()
    boot = ("--kernel", "tiny", "--kernel-args", "eject", "--network", "none")
    operator.does("create-vm", *PLUG, "--memory", "96MiB", "--vcpus", "1", "--spare-ports", "1", *boot)
    try:
        wait_for_words(operator, "plug", f"{GUEST} halting")
        kill_after(operator, "attach", "attach-gpu", "plug", "vf", *ACME)
        (found,) = operator.json("repair")
        assert (found["found"], found["outcome"]) == ("1 GPU attached to the guest", "finished")
        assert _shares(operator, "plug") == [(0, "vf", "vf", "running")], "its QEMU holds it"
        detached = operator.json("detach-gpu", "plug", "0", *ACME)
        assert detached["state"] == "detached"
        assert f"{GUEST} released a device" in wait_for_words(operator, "plug", "released")
        assert (_shares(operator, "plug"), operator.json("repair")) == ([], [])
    finally:
        operator.does("delete-vm", *PLUG, "--yes", "--timeout", "0")
    assert witness.state() == before


GPUS = ("grow", *ACME)
NOW = ("--restart", "--shutdown-timeout", "0")


def _shares(operator: Operator, name: str) -> list[tuple[int, str, str, str]]:
    (found,) = [one for one in operator.json("list-vms") if one["vm"]["request"]["name"] == name]
    return [(one["index"], one["share"]["sharing"], one["share"]["profile"], one["state"]) for one in found["leases"]]


@pytest.mark.long(
    "tests/e2e/vm/test_resize_vm.py::test_a_running_vm_gets_its_new_size_and_the_old_share_is_free",
    "tests/e2e/vm/test_pending_gpu.py::test_it_is_seen_and_asked_for_again_and_others_come_beside_it",
)
def test_vgpus_of_two_kinds_are_resized_and_gpus_come_and_go(operator: Operator, witness: Witness) -> None:
    """A VF is attached while the guest runs; a guest that halts never lets go of it, so that its stop ends it."""
    before = witness.state()
    size = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB", "--base-image", "idle")
    operator.does("create-vm", *GPUS, "--gpu", "A40-8Q", "--gpu", "T4-2Q", "--spare-ports", "2", *size)
    try:
        operator.does("resize-vm", *GPUS, "--gpu", "A40-12Q", "--gpu", "T4-4Q", *NOW)
        assert _shares(operator, "grow") == [
            (0, "vf-profile", "A40-12Q", "running"), (1, "mdev", "T4-4Q", "running"),
        ]  # fmt: skip
        attached = operator.json("attach-gpu", "grow", "vf", *ACME)
        assert (attached["when"], attached["position"]) == ("now", 2)
        assert _shares(operator, "grow")[2] == (2, "vf", "vf", "running"), "its QEMU holds it"
        card = operator.json("attach-gpu", "grow", "passthrough", *ACME)
        assert (card["when"], card["lease"]["state"]) == ("at the next start", "reserved")
        kept = operator.json("detach-gpu", "grow", "2", *ACME, "--timeout", "1")
        assert (kept["state"], _shares(operator, "grow")[2][3]) == ("pending", "releasing")
        assert [one["outcome"] for one in operator.json("repair")] == ["pending: the guest was asked again"]
        operator.does("stop-vm", *GPUS, "--timeout", "0")
        operator.does("start-vm", *GPUS)
        assert [one[::2] for one in _shares(operator, "grow")] == [(0, "A40-12Q"), (1, "T4-4Q"), (3, "passthrough")]
        operator.does("detach-gpu", "grow", "3", *ACME, "--next-start")
        operator.does("stop-vm", *GPUS, "--timeout", "0")
        assert [one[0] for one in _shares(operator, "grow")] == [0, 1]
        assert operator.json("repair") == []
    finally:
        operator.does("delete-vm", *GPUS, "--yes", "--timeout", "0")
    assert witness.state() == before
