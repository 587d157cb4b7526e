# SPDX-License-Identifier: Apache-2.0
"""Restrictions by the names that operators type: a host, or a GPU or VF of a host by its PCI address."""

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.errors import NotFound
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services


def find_gpu(services: Services, host: str, address: str) -> Gpu:
    """The GPU at an address, or the one that a VF belongs to; from cached facts, else read.

    Raises NotFound, and InventoryError for an unknown host.
    """
    services.inventory.require(host)
    seen = survey(services, [host], refresh=False)
    for _name, error in seen.failures:
        raise error
    gpus = [gpu for one in seen.capacities for gpu in one.facts.gpus]
    for gpu in gpus:
        if gpu.address == address or any(function.address == address for function in gpu.vfs):
            return gpu
    raise NotFound(
        f"host {host} has no GPU or VF {address}",
        context=[f"{gpu.address} {gpu.name or ''}".rstrip() for gpu in gpus],
        hint=f"see `vgpuctl list-gpus --limit {host}`; add --refresh when the hardware was changed",
    )


def is_set(services: Services, host: str, device: str, kind: RestrictionKind, gpu: Gpu | None = None) -> bool:
    """True if there is a restriction of this kind. gpu: the GPU at the device, or of the VF there."""
    with services.store.reading() as session:
        return bool(_of_kind(session, host, device, kind, gpu))


def stored_reason(session: Session, host: str, device: str, kind: RestrictionKind, gpu: Gpu | None) -> str:
    """The reason of a restriction that is there: the first one counts, whatever another command says later."""
    return _of_kind(session, host, device, kind, gpu)[0].reason


def _of_kind(session: Session, host: str, device: str, kind: RestrictionKind, gpu: Gpu | None) -> list[Restriction]:
    every = [one for one in session.restrictions() if one.kind is kind]
    if gpu is None:
        return [one for one in every if (one.host, one.device) == (host, device)]
    return restrictions_on(every, host, device, gpu.uuid if gpu.address == device else None)


def set_restriction(
    session: Session,
    host: str,
    device: str,
    kind: RestrictionKind,
    reason: str,
    gpu: Gpu | None = None,
    evidence: Values | None = None,
) -> bool:
    """Set a restriction with its event. gpu: the whole GPU that it is about. Returns False when there is one."""
    uuid = gpu.uuid if gpu is not None and gpu.address == device else None
    changed = session.restrict(host, device, kind, reason, gpu_uuid=uuid)
    if changed:
        session.add_event(
            _SET[kind, device == WHOLE_HOST],
            _subject(host, device),
            reason,
            host=host,
            after={str(kind): reason},
            evidence=evidence,
        )
    return changed


def lift(session: Session, one: Restriction, reason: str) -> None:
    """Lift a restriction, with its event."""
    session.lift_restriction(one.host, one.device, one.kind)
    session.add_event(
        _LIFTED[one.kind, one.device == WHOLE_HOST],
        _subject(one.host, one.device),
        reason,
        host=one.host,
        before={str(one.kind): one.reason, "finding": one.finding, "set_by": one.set_by},
    )


_SET = {
    (RestrictionKind.CORDON, True): EventKind.HOST_CORDONED,
    (RestrictionKind.CORDON, False): EventKind.GPU_CORDONED,
    (RestrictionKind.DRAIN, True): EventKind.HOST_DRAINED,
    (RestrictionKind.QUARANTINE, False): EventKind.GPU_QUARANTINED,
    (RestrictionKind.FENCE, True): EventKind.HOST_FENCED,
}
"""The event of a restriction that is set, of a whole host or not."""
_LIFTED = {
    (RestrictionKind.CORDON, True): EventKind.HOST_UNCORDONED,
    (RestrictionKind.CORDON, False): EventKind.GPU_UNCORDONED,
    (RestrictionKind.DRAIN, True): EventKind.HOST_UNCORDONED,
    (RestrictionKind.QUARANTINE, False): EventKind.GPU_RELEASED,
    (RestrictionKind.FENCE, True): EventKind.HOST_TRUSTED,
}
"""The event of a restriction that is lifted."""


def _subject(host: str, device: str) -> str:
    return f"{host} {device}".strip()
