# SPDX-License-Identifier: Apache-2.0
"""VM specifications from a YAML file: one or several documents, each a VM or a list under `vms:`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from vgpuctl.errors import UsageError
from vgpuctl.model.constraints import read_constraints
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_memory import format_page_size, parse_page_size
from vgpuctl.model.priority import parse_priority
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.texts import texts_of
from vgpuctl.model.times import parse_duration
from vgpuctl.model.units import format_mib, parse_mib
from vgpuctl.model.vm import (
    CloudInit,
    DirectKernel,
    DiskRequest,
    Firmware,
    Preemption,
    VmRequest,
    check_name,
    named_network,
)
from vgpuctl.specs.bounded_reader import Malformed, decode, read_bounded, read_documents
from vgpuctl.specs.lines import line_of

_FIELD = re.compile(r"at `\$([^`]*)`")
_DOCUMENTS = ("user_data", "network_config")
_NOT_IN_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NOT_IN_DOCUMENT = re.compile(r"[\x00\ud800-\udfff]")
_KEY = re.compile(r"\.(\w+)|\[([0-9]+)\]")


class DiskFile(msgspec.Struct, forbid_unknown_fields=True):
    """`disk:` of a VM file."""

    size: str | int = "10GiB"
    base_image: str | None = None
    pool: str = "default"


class CloudInitFile(msgspec.Struct, forbid_unknown_fields=True):
    """`cloud_init:` of a VM file; user_data and network_config are texts."""

    ssh_authorized_keys: list[str] = []
    user_data: str | None = None
    network_config: str | None = None
    hostname: str | None = None


class KernelFile(msgspec.Struct, forbid_unknown_fields=True):
    """`kernel:` of a VM file: images of the catalogue."""

    image: str
    initrd: str | None = None
    command_line: str = ""


class VmFile(msgspec.Struct, forbid_unknown_fields=True):
    """One VM of a VM file (docs/vm-file.md)."""

    name: str
    tenant: str | None = None
    gpus: list[str] = []
    vcpus: int = 2
    memory: str | int = "2GiB"
    hugepages: str | None = None
    disk: DiskFile | None = None
    network: str | None = "default"
    firmware: Firmware = Firmware.BIOS
    cloud_init: CloudInitFile | None = None
    kernel: KernelFile | None = None
    host: str | None = None
    autostart: bool = False
    priority: str | int = "normal"
    preemptible: Preemption | None = None
    policy: str | None = None
    require_labels: list[str] = []
    prefer_labels: list[str] = []
    group: str | None = None
    security_groups: list[str] = []
    bandwidth_mbps: int | None = None
    duration: str | None = None


def read_vm_file(path: Path, *, tenant: str | None) -> list[VmRequest]:
    """Read every VM of a file. tenant: used where the file names none.

    Raises UsageError with file and field.
    """
    try:
        text = decode(read_bounded(path))
        documents = read_documents(text)
    except Malformed as error:
        place = path if error.line is None else f"{path}:{error.line}"
        raise UsageError(f"{place}: {error.what}", hint=error.hint) from error
    entries: list[tuple[Any, _Place]] = []
    for number, document in enumerate(documents):
        if isinstance(document, dict) and set(document) == {"vms"} and isinstance(document["vms"], list):
            places = (_Place(path, text, number, ("vms", index)) for index in range(len(document["vms"])))
            entries.extend(zip(document["vms"], places, strict=True))
        elif document is not None:
            entries.append((document, _Place(path, text, number)))
    if not entries:
        raise UsageError(f"{path} holds no VM", hint="write one VM per document, or a list under `vms:`")
    requests = [_read_at(entry, place, number, tenant) for number, (entry, place) in enumerate(entries, 1)]
    seen: set[tuple[str, str]] = set()
    for request in requests:
        key = (request.tenant, request.name)
        if key in seen:
            raise UsageError(f"{path} holds VM {request.name} of tenant {request.tenant} twice")
        seen.add(key)
    return requests


@dataclass(frozen=True)
class _Place:
    """Where one VM stands in a file."""

    path: Path
    text: str
    document: int
    keys: tuple[object, ...] = ()

    def within(self, keys: Sequence[object]) -> str:
        line = line_of(self.text, (*self.keys, *keys), document=self.document)
        return str(self.path) if line is None else f"{self.path}:{line}"


def _read_at(entry: Any, place: _Place, number: int, tenant: str | None) -> VmRequest:
    try:
        return read_entry(entry, f"VM {number}", tenant)
    except UsageError as error:
        keys = _keys_of(error.__cause__) if isinstance(error.__cause__, msgspec.ValidationError) else ()
        raise UsageError(f"{place.within(keys)}: {error.message}", hint=error.hint) from error


def _keys_of(error: msgspec.ValidationError) -> list[object]:
    """The key path of a refusal such as "Expected `str`, got `int` - at `$.disk.size`"."""
    path = _FIELD.search(str(error))
    parts = _KEY.findall(path[1]) if path else []
    return [name or int(index) for name, index in parts]


def read_entry(entry: Any, where: str, tenant: str | None) -> VmRequest:
    """Read one VM. where: the place, for errors. tenant: used where the entry names none. Raises UsageError."""
    try:
        vm = msgspec.convert(entry, VmFile)
    except msgspec.ValidationError as error:
        fields = ", ".join(VmFile.__struct_fields__)
        raise UsageError(f"{where}: {error}", hint=f"the fields of a VM are {fields}") from error
    owner = vm.tenant or tenant
    if owner is None:
        raise UsageError(f"{where}: no tenant", hint="write `tenant:` in the file or give --tenant")
    cloud_init = vm.cloud_init or CloudInitFile()
    return check_request(
        VmRequest(
            name=vm.name,
            tenant=owner,
            gpus=tuple(parse_gpu_request(text) for text in vm.gpus),
            vcpus=vm.vcpus,
            memory_mib=parse_mib(str(vm.memory), what=f"{where}: memory"),
            hugepages_kib=None if vm.hugepages is None else parse_page_size(vm.hugepages, what=f"{where}: hugepages"),
            disk=None
            if vm.disk is None
            else DiskRequest(
                parse_mib(str(vm.disk.size), what=f"{where}: disk.size"), vm.disk.base_image, vm.disk.pool
            ),
            network=named_network(vm.network),
            firmware=vm.firmware,
            cloud_init=CloudInit(
                tuple(cloud_init.ssh_authorized_keys),
                None if cloud_init.user_data is None else SecretText.of(cloud_init.user_data),
                None if cloud_init.network_config is None else SecretText.of(cloud_init.network_config),
                cloud_init.hostname,
            ),
            direct_kernel=None
            if vm.kernel is None
            else DirectKernel(vm.kernel.image, vm.kernel.initrd, vm.kernel.command_line),
            host=vm.host,
            autostart=vm.autostart,
            priority=parse_priority(str(vm.priority), what=f"{where}: priority"),
            preemptible=vm.preemptible,
            constraints=read_constraints(
                policy=vm.policy, required=vm.require_labels, preferred=vm.prefer_labels, group=vm.group
            ),
            security_groups=tuple(vm.security_groups),
            bandwidth_mbps=vm.bandwidth_mbps,
            duration_s=None if vm.duration is None else parse_duration(vm.duration, what=f"{where}: duration"),
        )
    )


def check_request(request: VmRequest) -> VmRequest:
    """Accept a request whose numbers, names and texts can be used at all. Raises UsageError."""
    check_name(request.name, what="VM name")
    check_name(request.tenant, what="tenant")
    for field, text in texts_of(request):
        _check_text(field, text)
    if len(request.tenant) + len(request.name) > 100:
        raise UsageError("tenant and VM name have more than 100 characters together")
    if not 1 <= request.vcpus <= 512:
        raise UsageError(f"{request.vcpus} vCPUs cannot be given", hint="1 to 512")
    if request.memory_mib < 64:
        raise UsageError(f"{request.memory_mib} MiB of memory are too few", hint="at least 64MiB")
    if request.hugepages_kib is not None and request.memory_mib * 1024 % request.hugepages_kib:
        size = format_page_size(request.hugepages_kib)
        raise UsageError(
            f"{format_mib(request.memory_mib)} of memory are not a whole number of huge pages of {size}",
            hint=f"ask for a multiple of {size}",
        )
    if sum(gpu.count for gpu in request.gpus) > 16:
        raise UsageError("more than 16 GPUs for one VM")
    if request.bandwidth_mbps is not None and not 1 <= request.bandwidth_mbps <= 400_000:
        raise UsageError(f"a bandwidth of {request.bandwidth_mbps} Mbit/s cannot be given", hint="1 to 400000")
    return request


def _check_text(field: str, text: str) -> None:
    """Refuse what neither a domain, a path nor a database can hold; documents have lines, other texts have not."""
    found = (_NOT_IN_DOCUMENT if field.endswith(_DOCUMENTS) else _NOT_IN_TEXT).search(text)
    if found is not None:
        raise UsageError(
            f"{field} contains the character {ascii(found[0])[1:-1]}, which cannot be used there",
            hint="remove control characters" + ("" if field.endswith(_DOCUMENTS) else " and line ends"),
        )
