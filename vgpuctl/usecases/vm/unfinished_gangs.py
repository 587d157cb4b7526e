# SPDX-License-Identifier: Apache-2.0
"""Gangs whose run died before all of their VMs ran: every member is rolled back, also those that run."""

from collections.abc import Sequence

from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.records import Operation
from vgpuctl.usecases.running.operations import may_run
from vgpuctl.usecases.running.services import Services

CREATE_GANG = "create-gang"
"""The operation of each member. A member that is `creating` while its run is dead is rolled back with the others."""


def given_up(operations: Sequence[Operation], vms: Sequence[Vm]) -> list[Vm]:
    """Members of gangs whose run died before all of them ran, as far as they are not `running` in the store."""
    dead = {one.subject for one in operations if one.kind == CREATE_GANG and not may_run(one)}
    return [vm for vm in vms if vm.uuid in dead and vm.state is VmState.CREATING]


def give_up_gangs(services: Services) -> None:
    """Note in the store that such members are to be rolled back."""
    with services.store.transaction() as session:
        for vm in given_up(session.open_operations(), session.vms()):
            session.set_vm_state(vm.uuid, VmState.DELETING, "the VMs that were to be created with it do not all exist")
