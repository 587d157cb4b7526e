# SPDX-License-Identifier: Apache-2.0
"""A guest of its own kernel and busybox boots in the VM and says on its console which GPU it sees."""

import os
import pty
import select
import subprocess
import time

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

pytestmark = [pytest.mark.kernel_lab, pytest.mark.timeout(1400)]

# Left out is what takes Debian's kernel longest when it is emulated twice:
# self-tests of ciphers, certificates, kprobes, page checks.
ARGUMENTS = (
    "console=ttyS0 nokaslr tsc=reliable no_timer_check noreplace-smp mitigations=off cryptomgr.notests "
    "rodata=off initcall_blacklist=load_system_certificate_list,init_kprobe_trace,cubictcp_register"
)
CREATE = (
    "create-vm", "tiny", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "192MiB", "--vcpus", "1",
    "--kernel", "linux", "--initrd", "initramfs",
    "--kernel-args", ARGUMENTS, "--network", "none", "--wait",
)  # fmt: skip


def test_the_guests_own_console_lists_the_gpu(operator: Operator, witness: Witness) -> None:
    before = witness.state()
    operator.does("create-tenant", "acme")
    for name, kind, file in (("linux", "kernel", "vmlinux"), ("initramfs", "initrd", "initramfs")):
        place = ("--path", f"/run/lab/guest/{file}", "--kind", kind)
        operator.does("register-image", name, *place, "--format", "raw", "--host", "gpu1")
    operator.does(*CREATE)
    try:
        _watch_until(operator, "tiny guest: ready")
        log = str(operator.json("console", "tiny", "--tenant", "acme", "--log")["console"])
        seen = [line.split() for line in log.splitlines() if line.startswith("tiny guest: 0000")]
        gpus = [words for words in seen if words[3] == "0x10de"]
        assert [(words[4], words[5]) for words in gpus] == [("0x2235", "0x030200")]
    finally:
        operator.does("delete-vm", "tiny", "--tenant", "acme", "--yes", "--timeout", "0")
    assert witness.state() == before


def _watch_until(operator: Operator, words: str) -> None:
    """Sit at `vgpuctl console` on a terminal while the guest boots, over one connection; then leave it."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*operator.command, "console", "tiny", "--tenant", "acme"],
        env=operator.environment, stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    deadline = time.monotonic() + 900
    try:
        shown = b""
        while words.encode() not in shown:
            readable, _, _ = select.select([controller], [], [], deadline - time.monotonic())
            assert readable, shown.decode(errors="replace")
            shown += os.read(controller, 4096)
        os.write(controller, b"\x1d")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)
