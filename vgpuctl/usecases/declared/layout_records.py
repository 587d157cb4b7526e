# SPDX-License-Identifier: Apache-2.0
"""Records of a host's layout in the store: its shares, and pending restarts of an interrupted run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import TYPED_STEPS, VGPU_STEPS
from vgpuctl.agent.wire.steps import Step
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.sharing.occupancy import ExistingVgpu
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services

_SHARES = "layout-shares"
_PENDING = "pending-restarts"
OWED = (_PENDING,)
"""Records of what a run that was cut short still owes its host."""


@dataclass(frozen=True)
class PendingRestarts:
    """Services and VMs that a run stopped and must start again. services: by name. vms: (tenant, name)."""

    services: tuple[str, ...] = ()
    vms: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _MadeShare:
    """The type of a share that a layout made. profile: None of a record from before names were kept."""

    type_id: str
    profile: str | None

    def is_of(self, vgpu: ExistingVgpu) -> bool:
        """True if a vGPU may be the one that was made: the driver may number its type in another way by now."""
        return vgpu.type_id == self.type_id or (self.profile is not None and vgpu.profile == self.profile)


def shares_made(services: Services, host: str, facts: HostFacts) -> frozenset[str]:
    """The mdevs and VFs whose vGPU a layout made, in this boot of the host and still of the same type.

    Shares made before the boot count where the boot's unit made them again: by the name of the type, or by its id where
    an older unit knew no more, so that one of a wrong type is known as the layout's too.
    """
    with services.store.reading() as session:
        made = _read_shares(session, host, facts.boot_id)
        if not made and facts.boot is not None and facts.boot.restored_boot_id == facts.boot_id:
            before = _read_shares(session, host, None)
            made = {device: wanted for device, wanted in before.items() if device in facts.boot.shares}
    found = {vgpu.vfio_device: vgpu for gpu in facts.gpus for vgpu in existing_vgpus(gpu)}
    return frozenset(device for device, wanted in made.items() if device in found and wanted.is_of(found[device]))


def note_share(services: Services, host: str, boot_id: str, step: Step) -> None:
    """Record the share that a step makes, or forget the one that it deletes; other steps change nothing."""
    if not isinstance(step, VGPU_STEPS):
        return
    with services.store.transaction() as session:
        made = _read_shares(session, host, boot_id)
        if step.made is None:
            made.pop(step.device, None)
        else:
            _function, type_id = step.made
            made[step.device] = _MadeShare(type_id, step.profile if isinstance(step, TYPED_STEPS) else None)
        types = {device: one.type_id for device, one in made.items()}
        profiles = {device: one.profile for device, one in made.items() if one.profile is not None}
        content = {"boot_id": boot_id, "made": types, "profiles": profiles}
        session.save_host_record(host, _SHARES, json.dumps(content))


def hosts_with_shares(session: Session) -> set[str]:
    """The hosts on which a layout has made shares, and has not removed all of them."""
    return {one.host for one in session.host_records(_SHARES) if json.loads(one.content)["made"]}


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


def service_restart(name: str) -> str:
    """A service that is started again, in words."""
    return f"start {name} again"


def vm_restart(name: tuple[str, str]) -> str:
    """A VM that is started again, in words. name: its tenant and its own."""
    return f"start VM {name[1]} of {name[0]} again"


def restarts_in_words(pending: PendingRestarts, vms: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Everything that is to be started again. vms: further ones."""
    names = dict.fromkeys((*pending.vms, *vms))
    return [*map(service_restart, pending.services), *map(vm_restart, names)]


def keep_pending_restarts(services: Services, host: str, left: PendingRestarts) -> None:
    """Keep only what could not be started again."""
    with services.store.transaction() as session:
        if left == PendingRestarts():
            session.drop_host_record(host, _PENDING)
        else:
            session.save_host_record(host, _PENDING, json.dumps(asdict(left)))


def _read_shares(session: Session, host: str, boot_id: str | None) -> dict[str, _MadeShare]:
    """The shares made in a boot, by device; boot None: the last one with any."""
    record = session.host_record(host, _SHARES)
    content = json.loads(record.content) if record else {}
    if not content or boot_id not in (None, content["boot_id"]):
        return {}
    profiles = content.get("profiles", {})
    return {device: _MadeShare(type_id, profiles.get(device)) for device, type_id in content["made"].items()}


def _read_pending(session: Session, host: str) -> PendingRestarts:
    record = session.host_record(host, _PENDING)
    if record is None:
        return PendingRestarts()
    content = json.loads(record.content)
    vms: Sequence[Sequence[str]] = content["vms"]
    return PendingRestarts(tuple(content["services"]), tuple((vm[0], vm[1]) for vm in vms))
