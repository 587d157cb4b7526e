# SPDX-License-Identifier: Apache-2.0
"""The UEFI variables and the TPM of a VM go where it goes, and end when it ends.

libvirt keeps both outside of its volumes, on the host alone. BitLocker encrypts a disk with a key of the TPM, so a
TPM is never replaced without a warning.
"""

from collections.abc import Iterator, Mapping, Sequence

from vgpuctl.agent.wire.guest_state import NVRAM_FOLDER, TPM_FOLDER, GuestState, StateAction, StateOrder
from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.model.guest_state import NVRAM_ENDING, has_state, has_tpm, nvram_file
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.support.garbage import Garbage, GarbageKind
from vgpuctl.usecases.support.services import HostSession, Services

RECOVERY = "Windows asks for the BitLocker recovery key without it"


def carry_state(services: Services, source: HostSession, target: HostSession, vm: Vm) -> None:
    """Copy the files of a VM that is off to the host where it goes; what a killed move left there is replaced.

    Raises StateError for a VM whose TPM is not on its host, and AgentProblem.
    """
    if not has_state(vm):
        return
    found = _ask(source, StateAction.READ, vm)
    has_tpm_files = _has_tpm_files(found)
    if has_tpm(vm) and not has_tpm_files and found.files:
        raise StateError(f"{vm.label}: cannot move: its TPM is not in {TPM_FOLDER}/{vm.uuid} on {vm.host}; {RECOVERY}")
    target.agent.guest_state(StateOrder(StateAction.WRITE, vm.uuid, (nvram_file(vm),), found.files))
    if found.files:
        services.say(f"{vm.label}: its {'TPM' if has_tpm_files else 'UEFI variables'} copied")


def drop_state(host: HostSession, vm: Vm) -> None:
    """Remove the files of a VM from a host where its domain is undefined; what is gone already is passed over."""
    if has_state(vm) and not vm.is_adopted:
        _ask(host, StateAction.REMOVE, vm)


def drop_left_state(services: Services, host: HostSession, vm: Vm) -> None:
    """Remove the files that a moved VM left on its old host; `gc` finds what cannot be removed now."""
    try:
        drop_state(host, vm)
    except VgpuctlError as error:
        services.say(f"{vm.label}: its TPM and UEFI variables are left on {host.name}, for `gc`: {error.message}")


def drop_tpm(host: HostSession, vm: Vm) -> None:
    """Remove the TPM of a VM whose domain is undefined with its UEFI variables: libvirt before 8.9 keeps it."""
    if has_tpm(vm) and not vm.is_adopted:
        _ask(host, StateAction.REMOVE, vm)


def refuse_losing_tpm(vm: Vm) -> None:
    """Raise StateError for a VM whose TPM is on a dead host alone."""
    if has_tpm(vm):
        raise StateError(
            f"its TPM is on {vm.host} itself, in {TPM_FOLDER}/{vm.uuid}; {RECOVERY}",
            hint=f"bring {vm.host} back; its disk and its TPM belong together",
        )


def warn_of_lost_tpm(services: Services, host: HostSession, vm: Vm) -> None:
    """Say it before libvirt gives a VM that has run before a new TPM, since it finds none."""
    if not has_tpm(vm) or vm.is_adopted or _has_tpm_files(_ask(host, StateAction.READ, vm)):
        return
    services.say(f"warning: {vm.label}: its TPM is not on {vm.host} any more, libvirt makes a new one; {RECOVERY}")


def stray_state(
    name: str, there: GuestState, known: Mapping[str, Vm], moving: Sequence[str], staying: Sequence[DomainFact]
) -> Iterator[tuple[Vm | None, Garbage]]:
    """The files of VMs that are on other hosts, as a killed move leaves them. Files of foreign domains are ignored.

    known: the store's VMs by UUID. moving: the UUIDs of those that a run moves now. staying: the host's domains.
    """
    uuids, names = {domain.uuid for domain in staying}, {domain.name for domain in staying}
    by_file = {nvram_file(vm): vm for vm in known.values() if has_state(vm)}
    for path in there.paths:
        folder, _, last = path.rpartition("/")
        vm = known.get(last) if folder == TPM_FOLDER else by_file.get(last)
        if vm is None:
            if (found := _unknown(name, folder, last, uuids)) is not None:
                yield None, found
        elif vm.host != name and vm.uuid not in (*moving, *uuids) and vm.domain_name not in names:
            yield vm, Garbage(GarbageKind.STATE, path, name, f"of VM {vm.label}, which is on {vm.host}")


def _unknown(host: str, folder: str, name: str, uuids: set[str]) -> Garbage | None:
    """A file of variables that is named as vgpuctl names them, after the UUID of no VM and no domain."""
    owner = name.removesuffix(NVRAM_ENDING)
    if folder != NVRAM_FOLDER or len(owner) != 36 or owner.count("-") != 4 or owner in uuids:
        return None
    why, left = "named after a UUID that no VM of the store has", "the store has no record that vgpuctl made it"
    return Garbage(GarbageKind.STATE, f"{folder}/{name}", host, why, left)


def _has_tpm_files(state: GuestState) -> bool:
    return any(file.path.startswith(f"{TPM_FOLDER}/") for file in state.files)


def _ask(host: HostSession, action: StateAction, vm: Vm) -> GuestState:
    return host.agent.guest_state(StateOrder(action, vm.uuid, (nvram_file(vm),)))
