# SPDX-License-Identifier: Apache-2.0
"""The definition of a VM's domain made again from what the store has of it: for changes between two starts."""

from dataclasses import replace

from vgpuctl.errors import StateError
from vgpuctl.model.lease import without_leaving
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.domain.guest_state import variables_on
from vgpuctl.usecases.found.find_vm import refuse_suspended, refuse_unfinished
from vgpuctl.usecases.image.image_gate import images_again
from vgpuctl.usecases.image.volumes import recorded_volumes
from vgpuctl.usecases.network.ports import attachments_of
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.share.cpu_pins import floating_on


def parts_again(services: Services, host: HostSession, vm: Vm) -> guest.DomainParts:
    """All that the domain of a VM is rendered from, as the store and its host have it now."""
    facts = host.agent.facts()
    with services.store.reading() as session:
        leases = without_leaving(session.leases(vm_uuid=vm.uuid))
    if vm.request.gpus and not leases:
        # Its shares are released: there is no vGPU to show until it starts again.
        vm = replace(vm, request=replace(vm.request, display=replace(vm.request.display, vgpu=None)))
    images, volumes = images_again(services, host, vm), recorded_volumes(services, vm)
    floating = floating_on(services, vm.host, facts)
    variables, attachments = variables_on(host, vm), attachments_of(services, vm)
    return guest.DomainParts(vm, leases, facts, attachments, images, volumes, floating, variables=variables)


def define_again(services: Services, host: HostSession, vm: Vm) -> str:
    """Define the domain of a VM as the store has it now. Returns its XML. Raises DomainRejected."""
    guest.refuse_other_domain(host, vm)
    return guest.define(host, parts_again(services, host, vm))


def refuse_fixed(vm: Vm, what: str) -> None:
    """Raise StateError for a VM whose devices vgpuctl cannot change now. what: the change, `attach a disk to`."""
    if vm.is_adopted:
        raise StateError(
            f"cannot {what} {vm.printed_name}: its domain {vm.domain_name} is adopted, and never written by vgpuctl",
            hint=f"use `virsh` on {vm.host}",
        )
    refuse_unfinished(vm, what)
    refuse_suspended(vm, what)
    if vm.is_on_its_way:
        raise StateError(f"cannot {what} {vm.printed_name}: it {vm.problem}", hint="run `vgpuctl repair`")
