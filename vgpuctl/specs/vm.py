# SPDX-License-Identifier: Apache-2.0
"""The fields of a VM, and what is read with them: the flags of create-vm, and VM files (docs/vm-file.md).

A new field is a row here, an attribute with a default of `VmRequest`, and the place that uses it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from vgpuctl.catalog import read_gpu_request
from vgpuctl.catalog.guest_os import refuse_too_small, with_os_defaults
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.constraints import Together, parse_group, parse_label
from vgpuctl.model.cpu_time import LEAST_WEIGHT, MOST_WEIGHT, parse_cpu_limit, show_cpu_limit
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.guest_memory import exact_page_size, format_page_size, parse_page_size
from vgpuctl.model.labels import check_labels, parse_label_key, parse_label_value
from vgpuctl.model.metrics_address import parse_metrics_address
from vgpuctl.model.policy import parse_policy
from vgpuctl.model.priority import format_priority, parse_priority
from vgpuctl.model.texts import texts_of
from vgpuctl.model.times import format_duration, parse_duration
from vgpuctl.model.units import format_mib
from vgpuctl.model.vm import Preemption, RestartPolicy, VmRequest, check_name, parse_workload
from vgpuctl.specs import comparison
from vgpuctl.specs.bounded_reader import shown_name
from vgpuctl.specs.document import YamlDocument, read_documents
from vgpuctl.specs.field import Choice, Compared, Document, Field, Named, Repeated, Table, Text, Truth, Whole
from vgpuctl.specs.file_kinds import FileKind, refuse_other_kind
from vgpuctl.specs.flags import read_flags, refuse_lone_flags
from vgpuctl.specs.guest_rules import refuse_impossible_guest
from vgpuctl.specs.reading import read_file_entry
from vgpuctl.specs.value import Value
from vgpuctl.specs.vm_devices import DEVICE_FIELDS, DEVICE_SECTIONS, SIZE, check_devices
from vgpuctl.specs.vm_guest import GUEST_FIELDS, GUEST_SECTIONS, LICENCE_TOKEN
from vgpuctl.trusted_files import NAMED

_NOT_IN_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NOT_IN_DOCUMENT = re.compile(r"[\x00\ud800-\udfff]")


def _show_gpu(gpu: GpuRequest) -> str:
    return gpu.text


def _parse_policy(text: str, /, *, what: str) -> str:
    return str(parse_policy(text, what=what))


def _parse_label(text: str, /, *, what: str) -> tuple[str, str]:
    return parse_label(text)


def _parse_group(text: str, /, *, what: str) -> tuple[str, Together]:
    return parse_group(text)


_ANY = "any"
_NAME = Text(check_name)
_PAGE_SIZE = Text(parse_page_size, exact_page_size)
_LABEL = Text(_parse_label, "=".join)
VM = Table(
    "a VM",
    VmRequest,
    (
        Field(
            "name",
            _NAME,
            "Name of the VM: 1 to 63 letters, digits, '.', '-' or '_'",
            is_required=True,
            without_placement="it tells VMs apart",
        ),
        Field("tenant", Text(), "Tenant that owns the VM", flag="--tenant", metavar="NAME"),
        Field(
            "gpus",
            Text(read_gpu_request, _show_gpu),
            "GPU shares: A40-8Q, 2*L40S-48Q, passthrough, passthrough:H100*4, vf:BOARD, '2*memory>=16GiB'",
            flag="--gpu",
            metavar="WHAT",
            is_list=True,
            repeated=Repeated.COUNTED,
            example="[A40-8Q]",
        ),
        Field("vcpus", Whole(1, 512), "Number of virtual CPUs", flag="--vcpus", metavar="NUMBER", example="4"),
        Field(
            "memory",
            SIZE,
            "Memory: 512MiB, 8GiB",
            "memory_mib",
            "--memory",
            metavar="SIZE",
            example="8GiB",
        ),
        Field(
            "cpu_limit",
            Text(parse_cpu_limit, show_cpu_limit),
            "Most time of one CPU that each vCPU may use, 1% to 100%; no limit without it",
            flag="--cpu-limit",
            metavar="PERCENT",
            example="50%",
            without_placement="the host keeps it, whichever it is",
        ),
        Field(
            "cpu_weight",
            Whole(LEAST_WEIGHT, MOST_WEIGHT),
            "Weight against other VMs where CPUs are short; without it the host's, usually 100 (cgroup 2) or 1024",
            flag="--cpu-weight",
            metavar="NUMBER",
            example="200",
            without_placement="the host keeps it, whichever it is",
        ),
        *DEVICE_FIELDS,
        *GUEST_FIELDS,
        Field(
            "hugepages",
            _PAGE_SIZE,
            "Back the memory with huge pages of this size, 2MiB or 1GiB; the host must reserve them",
            "hugepages_kib",
            "--hugepages",
            metavar="SIZE",
            example="1GiB",
        ),
        Field("host", Text(), "Use only this host", flag="--host", metavar="NAME", compared=Compared.IF_GIVEN),
        Field(
            "policy",
            Text(_parse_policy),
            "How to choose among hosts and GPUs, for example spread or least-utilised@80",
            "constraints.policy",
            "--policy",
            metavar="POLICY",
            compared=Compared.NEVER,
            example="spread",
        ),
        Field(
            "require_labels",
            _LABEL,
            "Use only GPUs with this label",
            "constraints.required",
            "--require-label",
            metavar="KEY=VALUE",
            is_list=True,
            is_set=True,
            compared=Compared.NEVER,
            example="[rack=r1]",
        ),
        Field(
            "prefer_labels",
            _LABEL,
            "Use GPUs with this label first",
            "constraints.preferred",
            "--prefer-label",
            metavar="KEY=VALUE",
            is_list=True,
            is_set=True,
            compared=Compared.NEVER,
            example="[tier=gold]",
        ),
        Field(
            "partition",
            Whole(0, 63),
            "Use this partition of the host's NVSwitch fabric, by its number in `list-partitions`",
            "constraints.partition",
            "--partition",
            metavar="NUMBER",
            compared=Compared.NEVER,
            example="3",
        ),
        Field(
            "group",
            Text(_parse_group),
            "Group of the tenant's VMs: apart, together, prefer-apart (the default) or prefer-together",
            "constraints.group",
            "--group",
            metavar="NAME[:RULE]",
            parts=("together",),
            compared=Compared.NEVER,
            example="web:apart",
        ),
        Field(
            "labels",
            Named(Text(parse_label_key), Text(parse_label_value, may_be_empty=True)),
            "Label of the VM, by which `--selector` finds it",
            flag="--label",
            metavar="KEY=VALUE",
            compared=Compared.IF_GIVEN,
            example="{app: web, env: prod}",
            without_placement="only searches read it",
        ),
        Field(
            "workload",
            Text(parse_workload),
            "Class of its work, such as training or inference, for `explain-vm --predict` and `policy: predicted`",
            flag="--workload",
            metavar="CLASS",
            compared=Compared.NEVER,
            example="training",
        ),
        Field(
            "guest_metrics",
            Text(parse_metrics_address),
            "Address of the guest's dcgm-exporter that Prometheus may scrape",
            flag="--guest-metrics",
            metavar="ADDRESS:PORT",
            compared=Compared.IF_GIVEN,
            example="10.0.0.5:9400",
            without_placement="only Prometheus uses it",
        ),
        Field(
            "autostart",
            Truth(),
            "Start the VM after a boot of its host (by the controller)",
            flag="--autostart",
            without_placement="it counts when the VM is placed",
        ),
        Field(
            "restart",
            Choice(RestartPolicy),
            "When `vgpuctl controller` starts a VM again that ended by itself or with its host",
            flag="--restart",
            example="on-failure",
            without_placement="it counts when the VM is placed",
        ),
        Field(
            "priority",
            Text(parse_priority, format_priority, takes_numbers=True),
            "Priority: low (100), normal (500), high (700), critical (900) or a number from 0 to 1000",
            flag="--priority",
            metavar="CLASS",
            without_placement="only the queue and preemption read it",
        ),
        Field(
            "preemptible",
            Choice(Preemption),
            "Let a VM of a higher priority take the shares; this VM is then stopped, queued again, or suspended",
            flag="--preemptible",
            example="stop",
            without_placement="only preemption by others reads it",
        ),
        Field(
            "duration",
            Text(parse_duration, format_duration),
            "How long the VM is needed: 90m, 2h, 1d12h; `vgpuctl controller` then stops it; no end without it",
            "duration_s",
            "--for",
            metavar="DURATION",
            example="2h",
        ),
        Field(
            "max_downtime",
            Text(parse_duration, format_duration),
            "The longest that a live move may halt the VM; one that would take longer is refused, or ended",
            "max_downtime_s",
            "--max-downtime",
            metavar="DURATION",
            compared=Compared.IF_GIVEN,
            example="30s",
            without_placement="only moves read it",
        ),
    ),
    (*DEVICE_SECTIONS, *GUEST_SECTIONS),
)
ALL_FIELDS = replace(VM, fields=(*VM.fields, LICENCE_TOKEN))
"""Also what only a tenant's file can give."""


class VmSecret(StrEnum):
    """A secret of a tenant's file that goes into a VM's seed."""

    LICENCE_TOKEN = "licence_token"


TENANT_VM = replace(
    VM,
    fields=(
        *(field for field in VM.fields if field.key != "tenant"),
        Field("secrets", Choice(VmSecret), "Secret of this file to put into the VM's seed", is_list=True),
    ),
)
"""A VM inside a tenant's file."""


def read_vm_flags(given: Mapping[str, Any], read_file: Callable[[str], str]) -> VmRequest:
    """Make the VM of a command line. given: by `Field.parameter`, and `name`. Raises UsageError."""
    if given.get("name") is None:
        raise UsageError("no VM named", hint="vgpuctl create-vm TENANT/NAME --gpu A40-8Q, or -f FILE")
    if given.get("tenant") is None:
        raise UsageError("no tenant named", hint="give --tenant NAME")
    refuse_lone_flags(VM, given)
    return check_request(VM.build(read_flags(VM.fields, given, read_file)))


def read_hypothetical_vm(given: Mapping[str, Any], read_file: Callable[[str], str]) -> VmRequest:
    """Make the VM of a command line that only asks: with the name `any` and of no tenant, where none is given.

    Raises UsageError, also where no field but the tenant is given.
    """
    if all(given.get(field.parameter) in (None, ()) for field in VM.fields if field.key != "tenant"):
        raise UsageError("no VM is described", hint="describe one, for example with --gpu A40-8Q, or name one")
    named = {**given, "name": given.get("name") or _ANY, "tenant": given.get("tenant") or _ANY}
    return replace(read_vm_flags(named, read_file), tenant=given.get("tenant") or "")


def read_vm_file(path: Path, *, tenant: str | None) -> list[VmRequest]:
    """Read every VM of a file. tenant: used where the file names none.

    Raises UsageError with file, line and key.
    """
    try:
        documents = read_documents(str(path), NAMED)
        for document in documents:
            if document.warnings:
                raise InventoryError(document.warnings[0], hint="write each key once")
        found = [(entry, _read_one(entry, tenant)) for document in documents for entry in _entries(document)]
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint) from error
    if not found:
        raise UsageError(f"{shown_name(path)} holds no VM", hint="write one VM per document, or a list under `vms:`")
    seen: dict[tuple[str, str], Value] = {}
    for entry, request in found:
        first = seen.setdefault((request.tenant, request.name), entry)
        if first is not entry:
            raise UsageError(
                f"{entry.origin}: VM {request.name} of tenant {request.tenant} is in this file twice,"
                f" first at {first.origin}"
            )
    return [request for _, request in found]


def _entries(document: YamlDocument) -> Iterator[Value]:
    data = document.data
    if isinstance(data, dict) and set(data) == {"vms"}:
        yield from Value(data["vms"], document.origin("vms"), "", name="vms", subject="a VM").items()
    elif data is not None:
        entry = Value(data, document.origin(), "", name="vm", subject="a VM")
        refuse_other_kind(entry, FileKind.VM)
        yield entry


def _read_one(entry: Value, tenant: str | None) -> VmRequest:
    values = {"tenant": tenant} | read_file_entry(VM, entry)
    if values["tenant"] is None:
        raise entry.refuse("has no tenant", hint="write `tenant:` in the file or give --tenant")
    with entry.located():
        return check_request(VM.build(values))


def list_differences(there: VmRequest, wanted: VmRequest) -> list[str]:
    """One line per field that differs: `memory: 2GiB there, 4GiB wanted`."""
    there = replace(there, cloud_init=there.cloud_init.with_known_digests(wanted.cloud_init))
    return comparison.list_differences(ALL_FIELDS, there, wanted)


def check_name_length(tenant: str, name: str) -> None:
    """Refuse a VM whose domain would have a longer name than files of it can have. Raises UsageError."""
    if len(tenant) + len(name) > 100:
        raise UsageError("tenant and VM name have more than 100 characters together", hint="choose a shorter VM name")


def check_request(request: VmRequest) -> VmRequest:
    """Accept a request whose numbers, names and texts can be used at all. Raises UsageError."""
    check_name(request.name, what="VM name")
    check_name(request.tenant, what="tenant")
    documents = {field.path for field in ALL_FIELDS.fields if isinstance(field.type, Document)}
    for path, text in texts_of(request):
        _check_text(path, text, is_document=path in documents)
    check_name_length(request.tenant, request.name)
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
    if request.constraints.partition is not None and not request.gpus:
        raise UsageError("a partition is of GPUs, and the VM has none", hint="leave --partition out, or name a --gpu")
    check_labels(request.labels, what=f"VM {request.name}")
    check_devices(request)
    request = with_os_defaults(request)
    refuse_impossible_guest(request)
    refuse_too_small(request)
    return request


def _check_text(path: str, text: str, *, is_document: bool) -> None:
    """Refuse what neither a domain, a path nor a database can hold; documents have lines, other texts have not."""
    found = (_NOT_IN_DOCUMENT if is_document else _NOT_IN_TEXT).search(text)
    if found is not None:
        raise UsageError(
            f"{path} contains the character {ascii(found[0])[1:-1]}, which cannot be used there",
            hint="remove control characters" + ("" if is_document else " and line ends"),
        )
