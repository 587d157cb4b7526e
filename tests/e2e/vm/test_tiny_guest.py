# SPDX-License-Identifier: Apache-2.0
"""A guest gets its kernel, arguments and initramfs from libvirt, and says on its console which GPU it sees."""

import hashlib

import pytest

from tests.e2e.guest_console import wait_for_words
from tests.e2e.operator import Operator
from tests.e2e.witness import Witness
from tests.lab_fixtures import KernelHost

pytestmark = pytest.mark.kernel_lab

GUEST = "vgpuctl lab guest:"
ARGUMENTS = "console=ttyS0 answer=42"
INITRAMFS = b"vgpuctl" * 1000
CREATE = (
    "create-vm", "tiny", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1",
    "--kernel", "tiny", "--initrd", "data", "--kernel-args", ARGUMENTS, "--network", "none", "--wait",
)  # fmt: skip


def test_the_guests_own_console_lists_the_gpu(operator: Operator, witness: Witness, kernel_host: KernelHost) -> None:
    before = witness.state()
    operator.does("create-tenant", "acme")
    code, _out, err = kernel_host.run("mkdir -p /run/boot; printf 'vgpuctl%.0s' $(seq 1000) >/run/boot/data")
    assert code == 0, err
    checksum = f"sha256:{hashlib.sha256(INITRAMFS).hexdigest()}"
    for name, kind, path in (("tiny", "kernel", "/run/lab/guest/idle.img"), ("data", "initrd", "/run/boot/data")):
        given = ("--checksum", checksum) if kind == "initrd" else ()
        operator.does(
            "register-image", name, "--path", path, "--kind", kind, "--format", "raw", "--host", "gpu1", *given
        )
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
