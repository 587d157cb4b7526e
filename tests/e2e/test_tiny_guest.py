# SPDX-License-Identifier: Apache-2.0
"""A guest of its own kernel and busybox boots in the VM and says on its console which GPU it sees."""

import os
import pty
import subprocess
import time

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

pytestmark = pytest.mark.kernel_lab

CREATE = (
    "create-vm", "tiny", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "192MiB", "--vcpus", "1",
    "--kernel", "/run/lab/guest/vmlinux", "--initrd", "/run/lab/guest/initramfs",
    "--kernel-args", "console=ttyS0 quiet tsc=reliable no_timer_check mitigations=off", "--network", "none", "--wait",
)  # fmt: skip


def _console(operator: Operator) -> str:
    return str(operator.json("console", "tiny", "--tenant", "acme", "--log")["console"])


def test_the_guests_own_console_lists_the_gpu(operator: Operator, witness: Witness) -> None:
    before = witness.state()
    operator.does("create-tenant", "acme")
    operator.does(*CREATE, timeout_s=600)
    try:
        deadline = time.monotonic() + 1000
        while "tiny guest: ready" not in _console(operator):
            assert time.monotonic() < deadline, _console(operator)
            time.sleep(2)
        seen = [line.split() for line in _console(operator).splitlines() if line.startswith("tiny guest: 0000")]
        gpus = [words for words in seen if words[3] == "0x10de"]
        assert [(words[4], words[5]) for words in gpus] == [("0x2235", "0x030200")]
        _attach_and_leave(operator)
    finally:
        operator.does("delete-vm", "tiny", "--tenant", "acme", "--yes", "--timeout", "0")
    assert witness.state() == before


def _attach_and_leave(operator: Operator) -> None:
    """`vgpuctl console` on a real terminal ends with Ctrl-] and leaves the guest running."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*operator.command, "console", "tiny", "--tenant", "acme"],
        env=operator.environment, stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    try:
        shown = b""
        while b"Ctrl-]" not in shown:
            shown += os.read(controller, 4096)
        os.write(controller, b"\x1d")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    assert operator.json("show-vm", "tiny", "--tenant", "acme")["domain_state"] == "running"
