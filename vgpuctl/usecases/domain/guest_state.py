# SPDX-License-Identifier: Apache-2.0
"""The UEFI variables and the TPM of a VM go where it goes, and end when it ends.

libvirt keeps both outside of its volumes, on the host alone. BitLocker encrypts a disk with a key of the TPM, so a
TPM is never replaced without a warning.
"""

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.guest_state import NVRAM_FOLDER, TPM_FOLDER, GuestState, StateAction, StateOrder
from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainFact
from vgpuctl.model.guest_firmware import Variables, build_for
from vgpuctl.model.guest_state import NVRAM_ENDING, has_state, has_tpm, nvram_file
from vgpuctl.model.vm import Firmware, Vm
from vgpuctl.usecases.found.garbage import Garbage, GarbageKind
from vgpuctl.usecases.running.services import HostSession, Services

_MOST_BYTES = 8 << 20
_QCOW2 = b"QFI\xfb"
MAY_BE_SHARED = "they are on a network file system, and may be what the VM uses on its host"
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
        raise StateError(
            f"{vm.printed_name}: cannot move: its TPM is not in {TPM_FOLDER}/{vm.uuid} on {vm.host}; {RECOVERY}"
        )
    if found.remote and _ask(target, StateAction.READ, vm).files == found.files:
        services.say(f"{vm.printed_name}: its TPM and UEFI variables are on storage that both hosts have")
        return
    target.agent.guest_state(StateOrder(StateAction.WRITE, vm.uuid, (nvram_file(vm),), found.files))
    if found.files:
        services.say(f"{vm.printed_name}: its {'TPM' if has_tpm_files else 'UEFI variables'} copied")


def variables_on(host: HostSession, vm: Vm) -> Variables | None:
    """The UEFI variables that a VM has on a host; None without any, for a BIOS, and for an adopted domain."""
    if vm.request.firmware is not Firmware.UEFI or vm.is_adopted:
        return None
    return _variables(_ask(host, StateAction.READ, vm), vm)


def _variables(found: GuestState, vm: Vm) -> Variables | None:
    """Format and size of a file of variables. Its content comes from the host, so that it is unpacked with a limit."""
    file = next((one for one in found.files if one.path.rpartition("/")[2] == nvram_file(vm)), None)
    if file is None:
        return None
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(file.data), _MOST_BYTES)
    except (ValueError, zlib.error) as error:
        raise StateError(
            f"{vm.printed_name}: the content of {file.path} on {vm.host} cannot be read: {error}"
        ) from error
    if data[:4] == _QCOW2:
        return Variables("qcow2", int.from_bytes(data[24:32], "big"))
    return Variables("raw", len(data))


def refuse_other_build(host: HostSession, facts: HostFacts, vm: Vm, variables: Variables | None) -> None:
    """Raise StateError where a host has no UEFI build that can use a VM's variables."""
    try:
        build_for(facts, vm.request, variables)
    except StateError as error:
        error.message = f"{host.name}: {error.message}"
        raise


def drop_state(host: HostSession, vm: Vm) -> None:
    """Overwrite and remove the files of a VM from a host where its domain is off; those that are gone are passed over.

    libvirt alone would leave their blocks as they are, and its versions before 8.9 a TPM as a whole.
    """
    if has_state(vm) and not vm.is_adopted:
        _ask(host, StateAction.REMOVE, vm)


def drop_left_state(services: Services, host: HostSession, vm: Vm) -> None:
    """Remove the files of a VM from a host where it is not; `gc` finds what cannot be removed now.

    Files on a network file system stay: they are the VM's own where its host has the same one.
    """
    if not has_state(vm) or vm.is_adopted:
        return
    try:
        found = _ask(host, StateAction.READ, vm)
        if found.files and found.remote:
            services.say(
                f"{vm.printed_name}: its files in {' and '.join(found.remote)} on {host.name} stay: {MAY_BE_SHARED}"
            )
            return
        drop_state(host, vm)
    except VgpuctlError as error:
        services.say(
            f"{vm.printed_name}: its TPM and UEFI variables are left on {host.name}, for `gc`: {error.message}"
        )


def refuse_losing_tpm(host: HostSession, vm: Vm) -> None:
    """Raise StateError for a VM of a dead host whose TPM is not on storage that this host has too."""
    if not has_tpm(vm):
        return
    found = _ask(host, StateAction.READ, vm)
    if _has_tpm_files(found) and TPM_FOLDER in found.remote:
        return
    raise StateError(
        f"its TPM is on {vm.host} itself: {host.name} has no network file system with {TPM_FOLDER}/{vm.uuid};"
        f" {RECOVERY}",
        hint=f"bring {vm.host} back; its disk and its TPM belong together",
    )


def find_variables(services: Services, host: HostSession, vm: Vm) -> Variables | None:
    """The UEFI variables of a VM that starts again. Warns of each file that is gone, since libvirt makes a new one."""
    if not has_state(vm) or vm.is_adopted:
        return None
    found = _ask(host, StateAction.READ, vm)
    if has_tpm(vm) and not _has_tpm_files(found):
        services.say(
            f"warning: {vm.printed_name}: its TPM is not on {vm.host} any more, libvirt makes a new one; {RECOVERY}"
        )
    variables = _variables(found, vm)
    if variables is None and vm.request.firmware is Firmware.UEFI:
        services.say(
            f"warning: {vm.printed_name}: its UEFI variables are not on {vm.host} any more, libvirt makes new ones;"
            " the firmware looks for a boot loader by itself"
        )
    return variables


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
            left = MAY_BE_SHARED if folder in there.remote else None
            yield vm, Garbage(GarbageKind.STATE, path, name, f"of VM {vm.printed_name}, which is on {vm.host}", left)


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
