# SPDX-License-Identifier: Apache-2.0
"""set-console: what the console of a VM shows from its next start on."""

from dataclasses import dataclass, replace

from vgpuctl.catalog.guest_display import console_display, refuse_contradiction
from vgpuctl.catalog.vgpu_terms import terms_of
from vgpuctl.errors import ConcurrentChange, StateError
from vgpuctl.guests.domain.display_view import shown_device
from vgpuctl.model.display import ConsolePicture, DisplayRequest
from vgpuctl.model.event import Values
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.planner.plan import refuse_terms
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.shares import describe_share


@dataclass(frozen=True)
class ConsoleChange:
    """The VM as it is now. changed: False when it showed that console before.

    is_pending: True until it is stopped and started.
    """

    vm: Vm
    changed: bool
    is_pending: bool


def set_console(services: Services, vm: Vm, leases: tuple[Lease, ...], console: ConsolePicture) -> ConsoleChange:
    """Change what a VM shows. The next start defines the domain with it; a VM that runs does not change.

    Raises StateError for an adopted VM and for a vGPU whose parameters take its picture away, UsageError for a VM
    without GPU that is to show one, GuestError where the host's libvirt cannot show it, as far as the store knows the
    host.
    """
    if vm.is_adopted:
        raise StateError(
            f"VM {vm.printed_name} was adopted, and vgpuctl never writes the definition of its domain",
            hint=f"change the video and graphics elements with `virsh edit {vm.domain_name}` on {vm.host}",
        )
    wanted = replace(vm.request, display=console_display(vm.request, console))
    refuse_contradiction(wanted)
    _refuse_on_host(services, vm, leases, wanted)
    changed = wanted.display != vm.request.display
    after = replace(vm, request=wanted)
    if changed:
        with services.store.transaction() as session:
            stored = session.vm(vm.request.tenant, vm.request.name)
            if stored is None or (stored.uuid, stored.request) != (vm.uuid, vm.request):
                raise ConcurrentChange(
                    f"another run has just changed {vm.printed_name}", hint="run the same command again"
                )
            session.set_vm_request(vm.uuid, wanted)
            before = _values(vm.request.display)
            session.add_vm_event(
                EventKind.VM_CONSOLE_SET, vm, str(console), before=before, after=_values(wanted.display)
            )
    return ConsoleChange(after, changed, changed and vm.has_to_run)


def _refuse_on_host(services: Services, vm: Vm, leases: tuple[Lease, ...], wanted: VmRequest) -> None:
    """A VM without shares now is checked when it starts, on the host's own word."""
    with services.store.reading() as session:
        known = session.facts(vm.host)
    if not leases or known is None:
        return
    ordered = sorted(leases, key=lambda lease: lease.index)
    shown_device(wanted.display, ordered, known.facts)
    rules, terms = rules_of(services, vm.host), replace(terms_of(wanted), guest_driver=None)
    for lease in ordered:
        refusal = refuse_terms(lease.share, known.facts, rules, terms)
        if refusal is not None:
            raise StateError(
                f"{vm.printed_name} cannot show {describe_share(lease)} of {vm.host}: {refusal}",
                hint="the layout of the host has the parameter: docs/vgpu-parameters.md",
            )


def _values(display: DisplayRequest) -> Values:
    return {
        "display": str(display.kind or "none"),
        "video": str(display.video or "none"),
        "vgpu": str(display.vgpu or "off"),
    }
