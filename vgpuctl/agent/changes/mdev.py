# SPDX-License-Identifier: Apache-2.0
"""Create and remove mediated devices (reference 2.1)."""

from typing import Optional

from vgpuctl.agent.changes.refusal import vgpu_refused
from vgpuctl.agent.facts import mdev, pci
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.steps import Change, CreateMdev, DeleteMdev

# Just after a VM stopped the driver still winds its vGPU down; Proxmox waits as long.
_REMOVE_TRIES = 20
_REMOVE_PAUSE_S = 0.5
_WINDING_DOWN = ("EAGAIN", "EBUSY", "EIO")
_GONE = ("ENODEV", "ENOENT")


def ensure_created(host: Host, step: CreateMdev, *, dry_run: bool) -> Change:
    """Create one mediated device under a PF or VF.

    Raises Problem: `mdev-differs` when the UUID is active with another parent or type, `type-not-offered`,
    `vgpu-refused` with errno, resource manager code and the kernel's lines.
    """
    uuid, type_id = mdev.check_uuid(step.uuid), mdev.check_type(step.type_id)
    wanted = f"{step.parent} {type_id}"
    pci.require(host, step.parent)
    existing = mdev.read(host, uuid)
    if existing is not None:
        before = f"{existing.parent} {existing.type_id}"
        if before != wanted:
            raise Problem(
                "mdev-differs",
                f"the mediated device {uuid} exists on {existing.parent} as {existing.type_id}, "
                f"wanted on {step.parent} as {type_id}",
                path=f"{mdev.BUS}/{uuid}",
                errno="EEXIST",
                hint="delete it first, or use another UUID",
            )
        return Change(step.op, uuid, before, before, changed=False)
    folder = mdev.types_folder(step.parent)
    if type_id not in (host.listdir_optional(folder) or ()):
        raise Problem(
            "type-not-offered",
            f"{step.parent} offers no mdev type {type_id}",
            path=folder,
            hint="run `vgpuctl inspect-host` to see the types of this host",
        )
    if dry_run:
        _check_available(host, step.parent, type_id)
        return Change(step.op, uuid, None, wanted, changed=True)
    with host.kernel_log() as log:
        try:
            host.write(f"{folder}/{type_id}/create", uuid)
        except Problem as problem:
            what = f"creating {type_id} on {step.parent}"
            raise vgpu_refused(what, problem, log.lines()) from problem
    created = mdev.read(host, uuid)
    if created is None or f"{created.parent} {created.type_id}" != wanted:
        raise Problem(
            "read-back-differs",
            f"the kernel accepted {uuid} but then shows {created or 'no such device'}",
            path=f"{mdev.BUS}/{uuid}",
        )
    return Change(step.op, uuid, None, wanted, changed=True)


def ensure_deleted(host: Host, step: DeleteMdev, *, dry_run: bool) -> Change:
    """Remove one mediated device, waiting up to 10 s for the driver; one that is gone already is no error.

    Raises Problem: `held` while a process has it open, `write-refused`, `still-there`.
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
    problem: Optional[Problem] = None
    is_accepted = False
    for attempt in range(_REMOVE_TRIES):
        if attempt:
            host.wait(_REMOVE_PAUSE_S)
        if not host.exists(f"{mdev.BUS}/{uuid}"):
            return Change(step.op, uuid, before, None, changed=True)
        if is_accepted:
            continue
        try:
            host.write(f"{mdev.BUS}/{uuid}/remove", "1")
            is_accepted = True
        except Problem as refused:
            problem = refused
            if refused.errno not in (*_WINDING_DOWN, *_GONE):
                raise
        if not host.exists(f"{mdev.BUS}/{uuid}"):
            return Change(step.op, uuid, before, None, changed=True)
    seconds = _REMOVE_TRIES * _REMOVE_PAUSE_S
    if problem is not None and not is_accepted:
        raise problem
    raise Problem(
        "still-there",
        f"the mediated device {uuid} is still there {seconds:g} s after its removal",
        path=f"{mdev.BUS}/{uuid}",
        hint="look at dmesg for what the driver waits for",
    )


def _check_available(host: Host, parent: str, type_id: str) -> None:
    if mdev.read_type(host, parent, type_id).available < 1:
        raise Problem(
            "vgpu-refused",
            f"{parent} can take no further {type_id} now",
            path=f"{mdev.types_folder(parent)}/{type_id}/available_instances",
            hint="run `vgpuctl inspect-host` to see what the GPU can still take",
        )
