# SPDX-License-Identifier: Apache-2.0
"""unbindLock: NVIDIA's driver releases a card only to the lock's holder, and nobody can open the card meanwhile.

Asking again for a lock that is held changes nothing (kernel-open/nvidia/nv-procfs.c), so a program that asks for itself
can run under it.
"""

from contextlib import contextmanager
from typing import Iterator, Tuple

from vgpuctl.agent.facts import nvidia
from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

_TRIES = 5
_PAUSE_S = 1.0


@contextmanager
def held(host: Host, address: str) -> Iterator[None]:
    """Hold a card's lock while the block runs, where its driver has one; it goes with the card's binding.

    Raises Problem `unbind-lock`, which names who uses the card, after 5 tries 1 s apart; nothing is changed then.
    """
    path = f"{nvidia.PROC}/gpus/{address}/unbindLock"
    with host.kernel_log() as log:
        for attempt in range(_TRIES):
            if attempt:
                host.wait(_PAUSE_S)
            if not host.exists(path):
                break
            # The driver acts when the file is closed, and the write does not fail on a refusal.
            host.write(path, "1\n")
            if host.read(path).strip() == "1":
                break
        else:
            raise refused(host, address, log.lines())
    try:
        yield
    finally:
        if (host.read_optional(path) or "").strip() == "1":
            host.write(path, "0\n")


def refused(host: Host, address: str, kernel_lines: Tuple[str, ...]) -> Problem:
    """Return the problem of a lock that was not granted."""
    users = OpenNodes(host).users(address)
    names = ", ".join(f"{user.command} (pid {user.pid})" for user in users) or "some NVML client"
    return Problem(
        ProblemCode.UNBIND_LOCK,
        f"{address} cannot be taken from its driver: {names} uses it",
        path=f"{nvidia.PROC}/gpus/{address}/unbindLock",
        kernel_lines=kernel_lines,
        hint="stop nvidia-persistenced, DCGM and nvidia-smi loops, then run again",
    )
