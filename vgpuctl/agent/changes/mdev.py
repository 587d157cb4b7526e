# SPDX-License-Identifier: Apache-2.0
"""Create and remove mediated devices (reference 2.1)."""

from typing import Union

from vgpuctl.agent.changes import letting_go, vgpu_params
from vgpuctl.agent.changes.refusal import vgpu_refused
from vgpuctl.agent.changes.vgpu_type import require_named
from vgpuctl.agent.facts import mdev, pci
from vgpuctl.agent.facts import vgpu_params as facts_of_params
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev
from vgpuctl.agent.wire.steps import Change


def ensure(host: Host, step: Union[CreateMdev, DeleteMdev], *, dry_run: bool) -> Change:
    """Create or remove one mediated device. Raises Problem."""
    if isinstance(step, CreateMdev):
        return ensure_created(host, step, dry_run=dry_run)
    return ensure_deleted(host, step, dry_run=dry_run)


def ensure_created(host: Host, step: CreateMdev, *, dry_run: bool) -> Change:
    """Create one mediated device under a PF or VF, and write its parameters where they differ.

    Raises Problem: `mdev-differs` when the UUID is active with another parent or type, `held` when it is in use with
    other parameters, `type-not-offered`, `type-differs`, `vgpu-refused` with errno, resource manager code and the
    kernel's lines.
    """
    uuid, type_id = mdev.check_uuid(step.uuid), mdev.check_type(step.type_id)
    wanted = f"{step.parent} {type_id}"
    pci.require(host, step.parent)
    existing = mdev.read(host, uuid)
    if existing is not None:
        before = f"{existing.parent} {existing.type_id}"
        if before != wanted:
            raise Problem(
                ProblemCode.MDEV_DIFFERS,
                f"the mediated device {uuid} exists on {existing.parent} as {existing.type_id}, "
                f"wanted on {step.parent} as {type_id}",
                path=f"{mdev.BUS}/{uuid}",
                errno="EEXIST",
                hint="delete it first, or use another UUID",
            )
        require_named(step.parent, type_id, step.profile, mdev.read_names(host, step.parent))
        return _ensure_params(host, step, before, dry_run=dry_run)
    folder = mdev.types_folder(step.parent)
    if type_id not in (host.listdir_optional(folder) or ()):
        raise Problem(
            ProblemCode.TYPE_NOT_OFFERED,
            f"{step.parent} offers no mdev type {type_id}",
            path=folder,
            hint="run `vgpuctl inspect-host` to see the types of this host",
        )
    require_named(step.parent, type_id, step.profile, mdev.read_names(host, step.parent))
    if dry_run:
        _check_available(host, step.parent, type_id)
        return Change(step.op, uuid, None, vgpu_params.with_params(wanted, step.params), changed=True)
    with host.kernel_log() as log:
        try:
            host.write(f"{folder}/{type_id}/create", uuid)
        except Problem as problem:
            what = f"creating {type_id} on {step.parent}"
            raise vgpu_refused(what, problem, log.lines(), is_root=host.is_root()) from problem
    created = mdev.read(host, uuid)
    if created is None or f"{created.parent} {created.type_id}" != wanted:
        raise Problem(
            ProblemCode.READ_BACK_DIFFERS,
            f"the kernel accepted {uuid} but then shows {created or 'no such device'}",
            path=f"{mdev.BUS}/{uuid}",
        )
    vgpu_params.write_or_undo(
        host,
        f"{mdev.BUS}/{uuid}",
        step.params,
        what=f"the mediated device {uuid}",
        undo=lambda: ensure_deleted(host, DeleteMdev(uuid), dry_run=False),
    )
    return Change(step.op, uuid, None, vgpu_params.with_params(wanted, step.params), changed=True)


def _ensure_params(host: Host, step: CreateMdev, before: str, *, dry_run: bool) -> Change:
    """Bring the parameters of a device that exists to the wanted ones; the driver takes them while nothing has it."""
    uuid, folder = mdev.check_uuid(step.uuid), f"{mdev.BUS}/{mdev.check_uuid(step.uuid)}"
    if not vgpu_params.differ(host, folder, step.params):
        return Change(step.op, uuid, before, before, changed=False)
    nodes = OpenNodes(host)
    require_unheld(nodes, f"the mediated device {uuid}", nodes.holders_of_mdev(uuid))
    found = facts_of_params.read(host, folder)
    if not dry_run:
        vgpu_params.write(host, folder, step.params or "", what=f"the mediated device {uuid}")
    after = vgpu_params.with_params(before, step.params)
    return Change(step.op, uuid, vgpu_params.with_params(before, found), after, changed=True)


def ensure_deleted(host: Host, step: DeleteMdev, *, dry_run: bool) -> Change:
    """Remove one mediated device, and wait for a driver that releases it late. One already gone is not an error.

    Linux since 5.2 does not pass on a refusal of the vendor's driver: the write may block instead.
    Raises Problem: `held` while a process has it open, `vgpu-refused`, `write-blocked`, `still-there`.
    """
    uuid = mdev.check_uuid(step.uuid)
    existing = mdev.read(host, uuid)
    if existing is None:
        return Change(step.op, uuid, None, None, changed=False)
    before = f"{existing.parent} {existing.type_id}"
    nodes = OpenNodes(host)
    require_unheld(nodes, f"the mediated device {uuid}", nodes.holders_of_mdev(uuid))
    if dry_run:
        return Change(step.op, uuid, before, None, changed=True)
    path = f"{mdev.BUS}/{uuid}"
    is_gone = letting_go.write_until_gone(
        host,
        f"{path}/remove",
        "1",
        what=f"removing the mediated device {uuid}",
        is_gone=lambda: not host.exists(path),
    )
    if is_gone:
        return Change(step.op, uuid, before, None, changed=True)
    raise Problem(
        ProblemCode.STILL_THERE,
        f"the mediated device {uuid} is still there {letting_go.LIMIT_S:g} s after its removal",
        path=path,
        hint="look at dmesg for what the driver waits for",
    )


def _check_available(host: Host, parent: str, type_id: str) -> None:
    if mdev.read_type(host, parent, type_id).available < 1:
        raise Problem(
            ProblemCode.VGPU_REFUSED,
            f"{parent} can take no further {type_id} now",
            path=f"{mdev.types_folder(parent)}/{type_id}/available_instances",
            hint="run `vgpuctl inspect-host` to see what the GPU can still take",
        )
