# SPDX-License-Identifier: Apache-2.0
"""Finding one VM of the store by its name."""

import difflib

from vgpuctl.errors import NotFound, StateError
from vgpuctl.model.lease import Lease
from vgpuctl.model.times import format_time
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.running.services import Services


def find_vm(services: Services, tenant: str, name: str) -> tuple[Vm, tuple[Lease, ...]]:
    """One VM and its live leases. Raises NotFound with near names."""
    with services.store.reading() as session:
        session.tenant(tenant)
        vm = session.vm(tenant, name)
        if vm is None:
            names = [other.request.name for other in session.vms(tenant=tenant)]
            kept = session.kept_vm(tenant, name)
            if kept is not None:
                raise NotFound(
                    f"VM {tenant}/{name} was deleted; its disks are kept on {kept.host} until"
                    f" {format_time(kept.until)} UTC",
                    hint=f"`vgpuctl restore-vm {tenant}/{name}` makes it again, `delete-disk` deletes its disks",
                )
            if session.queued(tenant, name) is not None:
                raise NotFound(
                    f"VM {tenant}/{name} waits in the queue and is not created yet",
                    hint=f"`vgpuctl wait {tenant}/{name} --for running` waits for it, "
                    f"`vgpuctl leave-queue {tenant}/{name}` takes it out, to create it in another way",
                )
            near = difflib.get_close_matches(name, names, n=3)
            raise NotFound(
                f"tenant {tenant} has no VM {name!r}",
                hint=f"did you mean {', '.join(near)}?" if near else f"see `vgpuctl list-vms --tenant {tenant}`",
            )
        return vm, tuple(session.leases(vm_uuid=vm.uuid))


def find_again(services: Services, vm: Vm) -> Vm:
    """Read a VM as the store has it now. Raises NotFound for one that was deleted since it was found."""
    with services.store.reading() as session:
        now = session.vm_of(vm.uuid)
    if now is None:
        raise NotFound(
            f"VM {vm.printed_name} is gone: another run has deleted it since this one began",
            hint=f"`vgpuctl list-events {vm.printed_name}` says who",
        )
    return now


def refuse_unfinished(vm: Vm, what: str = "") -> None:
    """Raise StateError for a VM whose creation or deletion has not ended, or was not rolled back.

    what: what cannot be done, for the message: `rename`.
    """
    if vm.state not in (VmState.RUNNING, VmState.STOPPED):
        why = f": {vm.problem}" if vm.problem else ""
        raise StateError(
            f"{f'cannot {what} ' if what else ''}{vm.printed_name}: it is {vm.state}{why}",
            hint="if no other command works on it, `vgpuctl repair` finishes that or rolls it back",
        )


def refuse_suspended(vm: Vm, what: str) -> None:
    """Raise StateError for a VM that is suspended to disk, and must come back as it was.

    what: what cannot be done, for the message: `rename`.
    """
    if vm.is_suspended:
        raise StateError(
            f"cannot {what} {vm.printed_name}: it is suspended, and must go on as it was",
            hint=f"`vgpuctl resume-vm {vm.printed_name}` first; or `vgpuctl start-vm {vm.printed_name} --discard-state`"
            " boots its guest and loses what it had in memory",
        )
