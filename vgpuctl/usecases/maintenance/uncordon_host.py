# SPDX-License-Identifier: Apache-2.0
"""uncordon-host: a host, or one of its GPUs, takes VMs again."""

from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.model.plural import counted
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.planner.layout import plan_host
from vgpuctl.usecases.maintenance.drain_host import stopped_by_drain
from vgpuctl.usecases.maintenance.restricted import find_gpu, is_set, lift
from vgpuctl.usecases.support.layout_records import shares_made
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import survey
from vgpuctl.usecases.vm.start_vm import start_vm


def uncordon_host(
    services: Services, host: str, *, gpu: str | None, reason: str, dry_run: bool = False, force: bool = False
) -> list[Restriction]:
    """Lift the cordon of a host or its drain, or the cordon of one GPU by its PCI address. Returns what was lifted.

    A drained host is read first, and must be as it is declared: StateError names the differences. force: lift it all
    the same. A quarantine stays: `release-gpu` lifts it. Raises InventoryError for an unknown host, NotFound for
    an unknown GPU.
    """
    card = None if gpu is None else find_gpu(services, host, gpu)
    services.inventory.require(host)
    if card is None and not force:
        _verify(services, host)
    with services.store.reading() if dry_run else services.store.transaction() as session:
        every = [one for one in session.restrictions() if one.kind in (RestrictionKind.CORDON, RestrictionKind.DRAIN)]
        if card is not None:
            found = restrictions_on(every, host, card.address, card.uuid)
        else:
            found = [one for one in every if (one.host, one.device) == (host, WHOLE_HOST)]
        for one in () if dry_run else found:
            lift(session, one, reason)
    return found


def _verify(services: Services, host: str) -> None:
    """Read a drained host after its maintenance. Raises its error, and StateError for what is not as declared."""
    if not is_set(services, host, WHOLE_HOST, RestrictionKind.DRAIN):
        return
    seen = survey(services, [host], refresh=True)
    for _name, error in seen.failures:
        raise error
    (capacity,) = seen.capacities
    found = [f"GPU {gpu.address}: {problem}" for gpu in capacity.facts.gpus for problem in gpu.problems]
    layout = services.inventory.layout(host)
    if layout is not None:
        with services.store.reading() as session:
            leases = session.leases(host=host)
        plan = plan_host(layout, capacity.facts, leases, shares_made(services, host, capacity.facts))
        found += [str(one) for one in plan.differences]
    if found:
        raise StateError(
            f"{host} is not as it was before its maintenance: {counted(len(found), 'finding')}",
            context=found,
            hint=f"run `vgpuctl apply-hosts --limit {host}`, or add --force to let it take VMs as it is",
        )


def start_drained(services: Services, host: str) -> list[tuple[str, str]]:
    """Start the VMs that a drain stopped, the most important first. Returns each with `running`, or why it is not."""
    with services.store.reading() as session:
        vms = stopped_by_drain(session.vms(host=host))
    outcomes = []
    for vm in vms:
        try:
            start_vm(services, [vm])
            outcomes.append((vm.label, "running"))
        except VgpuctlError as error:
            outcomes.append((vm.label, f"failed: {error.message}"))
    return outcomes
