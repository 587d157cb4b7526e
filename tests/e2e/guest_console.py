# SPDX-License-Identifier: Apache-2.0
"""A VM's serial console as an operator uses it: read what was said, or sit at it on a terminal."""

import os
import pty
import select
import subprocess
import time

from tests.e2e.operator import Operator


def wait_for_words(operator: Operator, vm: str, words: str, *, tenant: str = "acme", timeout_s: float = 300) -> str:
    """Read what the guest has said until it has said the words; its console so far."""
    deadline = time.monotonic() + timeout_s
    while words not in (said := str(operator.json("console", vm, "--tenant", tenant, "--log")["console"])):
        assert time.monotonic() < deadline, f"the guest did not say {words!r}:\n{said}"
        time.sleep(0.2)
    return said


def sit_until(operator: Operator, vm: str, words: str, *, tenant: str = "acme", timeout_s: float = 900) -> None:
    """Sit at `vgpuctl console` on a real terminal until the words are shown, then leave it by Ctrl-]."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*operator.command, "console", vm, "--tenant", tenant],
        env=operator.environment, stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    deadline = time.monotonic() + timeout_s
    try:
        shown = b""
        while words.encode() not in shown:
            readable, _, _ = select.select([controller], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, shown.decode(errors="replace")
            shown += os.read(controller, 4096)
        os.write(controller, b"\x1d")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)
