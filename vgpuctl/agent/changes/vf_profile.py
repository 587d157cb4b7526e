# SPDX-License-Identifier: Apache-2.0
"""Set and clear the vGPU type of a VF with vendor-specific VFIO (reference 4.2)."""

from contextlib import suppress

from vgpuctl.agent.changes import letting_go, vgpu_params
from vgpuctl.agent.changes.refusal import vgpu_refused
from vgpuctl.agent.changes.vgpu_type import require_named
from vgpuctl.agent.facts import pci, vf_profile
from vgpuctl.agent.facts import vgpu_params as facts_of_params
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.facts.vf_profile import NO_TYPE
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetVfProfile
from vgpuctl.agent.wire.steps import Change


def ensure(host: Host, step: SetVfProfile, *, dry_run: bool) -> Change:
    """Bring a VF's `current_vgpu_type` to one decimal id; another type that is set is removed first.

    Its parameters follow where they are wanted, and are cleared with the type.

    Raises Problem: `no-vgpu-interface` when the VF has no such file, `held` while a process has it open,
    `type-not-creatable` (dry run), `type-differs`, `vgpu-refused` with errno, resource manager code and the kernel's
    lines.
    """
    address, wanted = step.address, vf_profile.check_type(step.type_id)
    pci.require(host, address)
    path = vf_profile.current_path(address)
    if not host.exists(path):
        raise Problem(
            ProblemCode.NO_VGPU_INTERFACE,
            f"{address} is no VF with vendor-specific VFIO: it has no nvidia/current_vgpu_type",
            path=path,
            errno="ENOENT",
        )
    before = vf_profile.read_current(host, address)
    params = step.params if wanted != NO_TYPE else None
    if before == wanted and not vgpu_params.differ(host, pci.folder(address), params):
        return Change(step.op, address, before, before, changed=False)
    nodes = OpenNodes(host)
    require_unheld(nodes, f"the VF {address}", nodes.holders_of_function(address))
    found = vgpu_params.with_params(before, facts_of_params.read(host, pci.folder(address)) if params else None)
    change = Change(step.op, address, found, vgpu_params.with_params(wanted, params), changed=True)
    what = f"the vGPU on VF {address}"
    if before == NO_TYPE:
        require_named(address, wanted, step.profile, vf_profile.read_creatable(host, address))
    if dry_run:
        if before == NO_TYPE:
            _check_creatable(host, address, wanted)
        return change
    if before == wanted:
        vgpu_params.write(host, pci.folder(address), params or "", what=what)
        return change
    if before != NO_TYPE:
        _clear(host, address)
        require_named(address, wanted, step.profile, vf_profile.read_creatable(host, address))
    if wanted != NO_TYPE:
        with host.kernel_log() as log:
            try:
                host.write(path, wanted)
            except Problem as problem:
                what = f"setting the vGPU type {wanted} on {address}"
                raise vgpu_refused(what, problem, log.lines(), is_root=host.is_root()) from problem
            _check_read_back(host, address, wanted, log.lines())
        folder = pci.folder(address)
        # A VF may still show what its last vGPU had.
        vgpu_params.write_or_undo(host, folder, params or "", what=what, undo=lambda: _clear(host, address))
    return change


def _clear(host: Host, address: str) -> None:
    """Remove the vGPU; its parameters go first, since the file is the VF's and not the vGPU's.

    A driver that still winds the VM down refuses them; the type decides then.
    """
    path, folder = vf_profile.current_path(address), pci.folder(address)
    if vgpu_params.differ(host, folder, ""):
        with suppress(Problem):
            vgpu_params.write(host, folder, "", what=f"the vGPU on VF {address}")
    what = f"clearing the vGPU of {address}"
    with host.kernel_log() as log:
        if not letting_go.write_until_gone(
            host, path, NO_TYPE, what=what, is_gone=lambda: vf_profile.read_current(host, address) == NO_TYPE
        ):
            _check_read_back(host, address, NO_TYPE, log.lines())


def _check_read_back(host: Host, address: str, wanted: str, kernel_lines: "tuple[str, ...]") -> None:
    after = vf_profile.read_current(host, address)
    if after != wanted:
        raise Problem(
            ProblemCode.READ_BACK_DIFFERS,
            f"{address} accepted the vGPU type {wanted} but reads {after}",
            path=vf_profile.current_path(address),
            kernel_lines=kernel_lines,
        )


def _check_creatable(host: Host, address: str, wanted: str) -> None:
    creatable = vf_profile.read_creatable(host, address)
    if wanted not in creatable:
        offered = ", ".join(sorted(creatable, key=int)) or "none"
        raise Problem(
            ProblemCode.TYPE_NOT_CREATABLE,
            f"{address} cannot take the vGPU type {wanted} now; it can take: {offered}",
            path=f"{pci.folder(address)}/nvidia/creatable_vgpu_types",
        )
