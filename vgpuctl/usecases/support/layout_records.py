# SPDX-License-Identifier: Apache-2.0
"""Records of a host's layout in the store: its shares, and pending restarts of an interrupted run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import VGPU_STEPS
from vgpuctl.agent.wire.steps import Step
from vgpuctl.planner.layout import plan_host
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.store.store import Session
from vgpuctl.usecases.support.services import Services

_SHARES = "layout-shares"
_PENDING = "pending-restarts"


@dataclass(frozen=True)
class PendingRestarts:
    """Services and VMs that a run stopped and must start again. services: by name. vms: (tenant, name)."""

    services: tuple[str, ...] = ()
    vms: tuple[tuple[str, str], ...] = ()


def shares_made(services: Services, host: str, facts: HostFacts) -> frozenset[str]:
    """The mdevs and VFs whose vGPU a layout made, in this boot of the host and still of the same type.

    Shares made before the boot count where the boot's unit made them again.
    """
    with services.store.reading() as session:
        made = _read_shares(session, host, facts.boot_id)
        if not made and facts.boot is not None and facts.boot.restored_boot_id == facts.boot_id:
            before = _read_shares(session, host, None)
            made = {device: type_id for device, type_id in before.items() if device in facts.boot.shares}
    found = {vgpu.vfio_device: vgpu.type_id for gpu in facts.gpus for vgpu in existing_vgpus(gpu)}
    return frozenset(device for device, type_id in made.items() if found.get(device) == type_id)


def layout_differences(services: Services, host: str, facts: HostFacts) -> tuple[str, ...] | None:
    """Differences from the host's declared layout and its obstacles, in words; None without a layout."""
    layout = services.inventory.layout(host)
    if layout is None:
        return None
    with services.store.reading() as session:
        leases = session.leases(host=host)
    plan = plan_host(layout, facts, leases, shares_made(services, host, facts))
    return tuple(map(str, (*plan.differences, *plan.obstacles)))


def note_share(services: Services, host: str, boot_id: str, step: Step) -> None:
    """Record the share that a step makes, or forget the one that it deletes; other steps change nothing."""
    if not isinstance(step, VGPU_STEPS):
        return
    with services.store.transaction() as session:
        made = _read_shares(session, host, boot_id)
        if step.made is None:
            made.pop(step.device, None)
        else:
            _function, made[step.device] = step.made
        session.save_host_record(host, _SHARES, json.dumps({"boot_id": boot_id, "made": made}))


def makes_share(step: Step) -> bool:
    """True if the step makes a vGPU."""
    return isinstance(step, VGPU_STEPS) and step.made is not None


def note_pending_restart(
    services: Services, host: str, *, service: str | None = None, vm: tuple[str, str] | None = None
) -> None:
    """Note, before it is stopped, what has to be started again."""
    with services.store.transaction() as session:
        pending = _read_pending(session, host)
        if service is not None and service not in pending.services:
            pending = replace(pending, services=(*pending.services, service))
        if vm is not None and vm not in pending.vms:
            pending = replace(pending, vms=(*pending.vms, vm))
        session.save_host_record(host, _PENDING, json.dumps(asdict(pending)))


def pending_restarts(services: Services, host: str) -> PendingRestarts:
    """The services and VMs of a host that are still to be started."""
    with services.store.reading() as session:
        return _read_pending(session, host)


def keep_pending_restarts(services: Services, host: str, left: PendingRestarts) -> None:
    """Keep only what could not be started again."""
    with services.store.transaction() as session:
        if left == PendingRestarts():
            session.drop_host_record(host, _PENDING)
        else:
            session.save_host_record(host, _PENDING, json.dumps(asdict(left)))


def _read_shares(session: Session, host: str, boot_id: str | None) -> dict[str, str]:
    """The shares made in a boot; boot None: the last one with any."""
    record = session.host_record(host, _SHARES)
    content = json.loads(record.content) if record else {}
    return dict(content["made"]) if content and boot_id in (None, content["boot_id"]) else {}


def _read_pending(session: Session, host: str) -> PendingRestarts:
    record = session.host_record(host, _PENDING)
    if record is None:
        return PendingRestarts()
    content = json.loads(record.content)
    vms: Sequence[Sequence[str]] = content["vms"]
    return PendingRestarts(tuple(content["services"]), tuple((vm[0], vm[1]) for vm in vms))
