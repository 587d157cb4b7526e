# SPDX-License-Identifier: Apache-2.0
"""The same work on several VMs: those of one host in turn, several hosts at the same time; one failure stops no other.

Each VM is a run of its own: when one fails, or the user interrupts, it alone is rolled back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vgpuctl.errors import VgpuctlError
from vgpuctl.model.rehearsal import RehearsalEnds, RehearsedStep
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.running import interruptions
from vgpuctl.usecases.running.at_work import AtWork
from vgpuctl.usecases.running.services import Services

Value = TypeVar("Value")


@dataclass(frozen=True)
class VmResult(Generic[Value]):
    """The result of the work on one VM: `value`, or `error`.

    steps: the changes that a dry run has noted. is_cut: True if one of them ended the run before a value.
    """

    vm: Vm
    value: Value | None = None
    error: VgpuctlError | None = None
    steps: tuple[RehearsedStep, ...] = ()
    is_cut: bool = False


def on_each_vm(
    services: Services, vms: Sequence[Vm], work: Callable[[Vm], Value], *, is_in_turn: bool = False
) -> list[VmResult[Value]]:
    """Call `work(vm)` for each VM; results come in the order of `vms`.

    At most `services.forks` hosts are at work at the same time. is_in_turn: one VM after the other, in this thread.
    After an interrupt no further VM is begun, those at work end, and KeyboardInterrupt is raised.
    A host that gave no answer for one VM is not waited for again for its others.
    """
    with services.asking_once():
        return _on_each(services, vms, work, is_in_turn=is_in_turn)


def _on_each(
    services: Services, vms: Sequence[Vm], work: Callable[[Vm], Value], *, is_in_turn: bool
) -> list[VmResult[Value]]:
    hosts: dict[str, list[Vm]] = {}
    for vm in vms:
        hosts.setdefault(vm.host, []).append(vm)
    if is_in_turn or len(hosts) <= 1:
        return [_one(services, vm, work) for vm in vms]
    services.open_for_threads()
    at_work = AtWork("VM", "to be done")
    found: dict[str, VmResult[Value]] = {}

    def on_host(host: str) -> None:
        for vm in hosts[host]:
            with at_work.one() as is_begun:
                if not is_begun:
                    return
                found[vm.uuid] = _one(services, vm, work)

    interruptions.enter()
    try:
        for result in services.on_hosts(list(hosts), on_host):
            if result.error is not None:
                found.update(
                    {vm.uuid: VmResult(vm, error=result.error) for vm in hosts[result.name] if vm.uuid not in found}
                )
    except BaseException:
        interruptions.hold()
        at_work.end(services.say)
        raise
    finally:
        interruptions.leave()
    return [found[vm.uuid] for vm in vms]


def _one(services: Services, vm: Vm, work: Callable[[Vm], Value]) -> VmResult[Value]:
    is_cut, value = False, None
    try:
        value = work(vm)
    except VgpuctlError as error:
        services.note_silent(vm.host, error)
        return VmResult(vm, error=error)
    except RehearsalEnds:
        is_cut = True
    return VmResult(vm, value, steps=() if services.rehearsal is None else services.rehearsal.take(), is_cut=is_cut)
