# SPDX-License-Identifier: Apache-2.0
"""Remove a vGPU from a driver that releases it late (reference 4.2), for VFs and for mediated devices.

After the end of a VM the write is refused for a while: EPERM while the VFIO device counts as used, which lasts longer
than the QEMU process and its open files; EBUSY while the vGPU's plugin runs; EIO or EAGAIN while the resource manager
refuses.
"""

from typing import Callable, Optional

from vgpuctl.agent.changes.refusal import vgpu_refused
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem

LIMIT_S = 45.0
_PAUSE_S = 0.5
_LATE = ("EAGAIN", "EBUSY", "EIO")
_GOING = ("ENODEV", "ENOENT")


def write_until_gone(host: Host, path: str, text: str, *, what: str, is_gone: Callable[[], bool]) -> bool:
    """Write `text` to `path`, and again after each temporary refusal, until `is_gone` or LIMIT_S has passed.

    what: the attempt in words, for the message. Returns False when the write was accepted and the vGPU is still there.
    EPERM is temporary only for root. Raises Problem `vgpu-refused` with the last refusal, `write-blocked`.
    """
    refusal: Optional[Problem] = None
    is_accepted = False
    with host.kernel_log() as log:
        for attempt in range(int(LIMIT_S / _PAUSE_S)):
            if attempt:
                host.wait(_PAUSE_S)
            if is_gone():
                return True
            if is_accepted:
                continue
            try:
                host.write(path, text)
                is_accepted = True
            except Problem as problem:
                refusal = problem
                if not _is_passing(host, problem):
                    raise _refused(host, what, problem, log.lines()) from problem
            if is_gone():
                return True
        if is_accepted or refusal is None:
            return False
        raise _refused(host, f"{what} for {LIMIT_S:g} s", refusal, log.lines()) from refusal


def _is_passing(host: Host, problem: Problem) -> bool:
    return problem.errno in (*_LATE, *_GOING) or (problem.errno == "EPERM" and host.is_root())


def _refused(host: Host, what: str, problem: Problem, kernel_lines: "tuple[str, ...]") -> Problem:
    if problem.errno is None:
        return problem
    return vgpu_refused(what, problem, kernel_lines, is_root=host.is_root())
