# SPDX-License-Identifier: Apache-2.0
"""Limits of a VM that runs: of its vCPUs, disks and interfaces, brought to what its request says."""

from collections.abc import Callable, Sequence

from vgpuctl.errors import StateError
from vgpuctl.guests.facts.domain_limits import LimitChange, limit_changes
from vgpuctl.guests.live.limits import LiveLimits
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.definition import define_again, parts_again
from vgpuctl.usecases.running.services import Services

RESIZE = "resize-vm"


def limits_to_set(services: Services, vm: Vm) -> tuple[LiveLimits, Sequence[LimitChange], str]:
    """The limits of the running domain that are not as the VM's request has them, and the definition that has them.

    None of a VM that is off. Raises what rendering a domain raises.
    """
    host = services.host(vm.host)
    live = LiveLimits(host.hypervisor, vm.domain_name, uuid=vm.uuid)
    if vm.is_adopted or not vm.has_to_run or live.xml() is None:
        return live, (), ""
    definition = guest.render(host, parts_again(services, host, vm))
    return live, live.differing(definition), definition


class FixedLimits(Exception):
    """Some limit changes after a stop of the VM only. The text says which."""


def refuse_live(services: Services, vm: Vm) -> str | None:
    """Say which limits of the VM's request cannot be set while it runs, None where all can. Nothing is written."""
    live, changes, _definition = limits_to_set(services, vm)
    found = live.impossible(changes)
    return None if found is None else _fixed(vm, found)


def _fixed(vm: Vm, change: LimitChange) -> str:
    return f"libvirt on {vm.host} cannot limit {change} of a VM that runs"


def unfinished_limits(services: Services, vm: Vm) -> tuple[str, str, Callable[[], object]] | None:
    """Limits that a run gave a domain which ended before the store had them: what was found, the outcome, and the fix.

    None where there are none. Raises what rendering a domain raises.
    """
    with services.store.reading() as session:
        was_cut_short = any(one.kind == RESIZE and one.subject == vm.uuid for one in session.open_operations())
    if not was_cut_short or vm.is_adopted:
        return None
    host = services.host(vm.host)
    _live, changes, _definition = limits_to_set(services, vm)
    defined = host.hypervisor.definition(vm.domain_name, uuid=vm.uuid)
    stale = [] if defined is None else limit_changes(defined, guest.render(host, parts_again(services, host, vm)))
    left = ", ".join(dict.fromkeys(map(str, (*changes, *stale))))

    def finish() -> None:
        set_limits(services, vm)
        define_again(services, host, vm)

    return (f"its resize did not end: other limits of {left}", "finished", finish) if left else None


def set_limits(services: Services, vm: Vm) -> bool:
    """Have the running domain limited as the VM's request says; whether it was otherwise. A rehearsal only says so.

    Raises StateError for a limit that cannot change while it runs, and DomainRejected.
    """
    try:
        return try_limits(services, vm)
    except FixedLimits as fixed:
        raise StateError(f"{vm.printed_name}: {fixed}", hint="stop it and start it again") from fixed


def try_limits(services: Services, vm: Vm) -> bool:
    """The same. Raises FixedLimits, when some may be set, and DomainRejected."""
    live, changes, definition = limits_to_set(services, vm)
    found = live.impossible(changes)
    if found is None and services.rehearsal is None:
        found = live.set(changes, definition) if changes else None
    if found is not None:
        raise FixedLimits(_fixed(vm, found))
    if services.rehearsal is not None:
        for one in changes:
            services.rehearsal.would(vm.host, f"limit {one} of domain {vm.domain_name}")
    return bool(changes)
