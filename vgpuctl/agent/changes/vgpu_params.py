# SPDX-License-Identifier: Apache-2.0
"""Write the parameters of one vGPU (reference 2.3): after the vGPU is made, and while nothing has it open."""

from typing import Callable, Optional

from vgpuctl.agent.changes.refusal import vgpu_refused
from vgpuctl.agent.facts import vgpu_params
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

_CLEAR = " "
"""Clears the parameters; the driver takes an empty write for no write."""


def differ(host: Host, folder: str, wanted: Optional[str]) -> bool:
    """Tell whether the parameters have to be written. wanted: None to leave them, empty for none."""
    if wanted is None:
        return False
    return (vgpu_params.read(host, folder) or "") != vgpu_params.normal(wanted)


def write(host: Host, folder: str, wanted: str, *, what: str) -> None:
    """Write the parameters and read them back. what: the vGPU in words.

    Raises Problem: `no-vgpu-interface` without the file, `vgpu-refused` with errno (the vGPU is in use, or the driver
    does not take the text), `read-back-differs`.
    """
    path = vgpu_params.path_of(folder)
    if not host.exists(path):
        raise Problem(
            ProblemCode.NO_VGPU_INTERFACE,
            f"{what} takes no parameters: its driver has no file nvidia/vgpu_params",
            path=path,
            errno="ENOENT",
            hint="leave `vgpu_params` out of the VM and of the host's layout",
        )
    text = vgpu_params.normal(wanted)
    with host.kernel_log() as log:
        try:
            host.write(path, text or _CLEAR)
        except Problem as problem:
            doing = f"writing the parameters {text or 'none'} of {what}"
            raise vgpu_refused(doing, problem, log.lines(), is_root=host.is_root()) from problem
    after = vgpu_params.read(host, folder) or ""
    if after != text:
        raise Problem(
            ProblemCode.READ_BACK_DIFFERS, f"{what} accepted the parameters {text!r} but reads {after!r}", path=path
        )


def write_or_undo(host: Host, folder: str, wanted: Optional[str], *, what: str, undo: Callable[[], object]) -> None:
    """Write the parameters of a vGPU that was just made; without them it must not stay. Raises as `write` does."""
    if not differ(host, folder, wanted):
        return
    try:
        write(host, folder, wanted or "", what=what)
    except Problem:
        undo()
        raise


def with_params(text: str, params: Optional[str]) -> str:
    """Return a vGPU in words with its parameters, for a Change."""
    return f"{text} {params}" if params else text
