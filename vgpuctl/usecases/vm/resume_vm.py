# SPDX-License-Identifier: Apache-2.0
"""resume-vm: a VM that suspend-vm or a preemption suspended goes on where it was."""

from vgpuctl.errors import StateError
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.start_vm import start_vm


def resume_vm(services: Services, vm: Vm) -> tuple[Vm, bool]:
    """Let a suspended VM go on. Returns it as it is now, and whether anything changed.

    Raises what start_vm raises, StateError for one that is off and not suspended, and GuestError for one that runs
    again without the state of its vGPUs.
    """
    if vm.state is VmState.STOPPED and not vm.is_suspended:
        raise StateError(
            f"{vm.printed_name} is stopped, not suspended", hint=f"`vgpuctl start-vm {vm.printed_name}` boots it"
        )
    ((now, changed),) = start_vm(services, [vm])
    return now, changed
