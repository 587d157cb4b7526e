# SPDX-License-Identifier: Apache-2.0
"""Reading an onboarding file, schema version 1 (docs/onboarding.md); every refusal names file and line."""

import base64
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.guest_driver import GuestDriver
from vgpuctl.model.network import Backend, NetworkRequest
from vgpuctl.model.node_pool import NodePool
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import VmRequest, check_name
from vgpuctl.model.vpc import VpcSpec
from vgpuctl.quota.resources import parse_amount, parse_resource
from vgpuctl.specs.bounded_reader import shown_name
from vgpuctl.specs.document import read_documents
from vgpuctl.specs.field import Field, Table, Text, Truth, Whole
from vgpuctl.specs.file_kinds import FileKind, refuse_other_kind
from vgpuctl.specs.flags import read_text
from vgpuctl.specs.guest_rules import fits_system
from vgpuctl.specs.http_balancing import ReadFile
from vgpuctl.specs.network import NETWORK, build_network
from vgpuctl.specs.node_pool import read_pool_entry
from vgpuctl.specs.origin import malformed
from vgpuctl.specs.reading import check_version, read_field, read_file_entry
from vgpuctl.specs.secret_file import SecretFiles
from vgpuctl.specs.value import Value
from vgpuctl.specs.vm import TENANT_VM, VM, check_request
from vgpuctl.specs.vpc_objects import KINDS, ObjectKind, Written
from vgpuctl.trusted_files import NAMED

VERSION = 1


@dataclass(frozen=True)
class Head:
    """The keys of a tenant's file that hold one value or one list. priority, ssh_keys, max_downtime_s: of VMs that name
    none.

    guest_driver: of VMs with a GPU that name none, and whose system it is for.
    """

    version: int
    tenant: str
    host_pools: tuple[str, ...] = ()
    priority: int | None = None
    ssh_keys: tuple[str, ...] = ()
    guest_probe: bool = False
    guest_driver: GuestDriver | None = None
    max_downtime_s: float | None = None


HEAD = Table(
    "this file",
    Head,
    (
        Field("version", Whole(VERSION, VERSION), "Version of this schema", is_required=True),
        Field("tenant", Text(check_name), "Name of the tenant", is_required=True),
        Field("host_pools", Text(check_name), "HostPool of hosts that the tenant may use", is_list=True),
        Field("priority", VM.field("priority").type, "Priority of VMs that name none"),
        Field("ssh_keys", Text(), "SSH public key of VMs that name none", is_list=True),
        Field("guest_probe", Truth(), "Allow `check-vm` to run its probe in the tenant's guests"),
        *(field for field in VM.fields if field.key.startswith("guest_driver.")),
        Field(
            "max_downtime",
            VM.field("max_downtime").type,
            "The longest that a live move may halt a VM that names no such time",
            "max_downtime_s",
        ),
    ),
    (next(section for section in VM.sections if section.key == "guest_driver"),),
)
IN_FILE = tuple(kind for kind in KINDS if kind.written is not Written.IN_NETWORKS)
IN_NETWORKS = tuple(kind for kind in KINDS if kind.written is Written.IN_NETWORKS)
AMOUNTS = ("quotas", "guaranteed")
_BESIDE = (*AMOUNTS, "networks", "secrets", "vms", "node_pools", *(kind.section for kind in IN_FILE))
_KEYS = (*HEAD.keys, *_BESIDE)


def read_tenant_files(path: Path, *, default_backend: Backend, secrets_from: Sequence[Path] = ()) -> list[TenantFile]:
    """Read the tenants of one file, one in each YAML document; `-` is standard input.

    default_backend: of networks that name none. secrets_from: folders of the operator in which it may name secrets,
    beside its own folder. Raises InventoryError with file and line for unknown keys, wrong values, a tenant that is
    there twice, and secrets that may not be read.
    """
    documents = read_documents(str(path), NAMED)
    files = SecretFiles(path, secrets_from)
    found: dict[str, Value] = {}
    tenants: list[TenantFile] = []
    for document in documents:
        if document.warnings:
            raise InventoryError(document.warnings[0], hint="write each key once")
        if document.data is None and (tenants or len(documents) > 1):
            continue
        root = Value(document.data, document.origin(), "", name="file", subject="this file")
        tenant = _read_tenant(root, files, default_backend=default_backend)
        first = found.setdefault(tenant.tenant, root)
        if first is not root:
            raise malformed(root.origin, f"tenant {tenant.tenant} is in this file twice, first at {first.origin}")
        tenants.append(tenant)
    if not tenants:
        raise InventoryError(f"{shown_name(path)} holds no tenant", hint="write one tenant in each document")
    return tenants


def _read_tenant(root: Value, files: SecretFiles, *, default_backend: Backend) -> TenantFile:
    refuse_other_kind(root, FileKind.TENANT)
    entries = root.named(_KEYS)
    check_version(root, VERSION)
    head = HEAD.build(read_file_entry(HEAD, root, beside=_BESIDE))
    vms = tuple(_vms(entries, head, files))
    return TenantFile(
        head.tenant,
        _amounts(entries.get("quotas")),
        _amounts(entries.get("guaranteed")),
        head.host_pools,
        tuple(
            _network(value, name, head.tenant, default_backend=default_backend)
            for name, value in _mapping(entries.get("networks"))
        ),
        tuple(_objects(entries, files)),
        vms,
        head.guest_probe,
        tuple(_node_pools(entries, head, files, vms)),
    )


def _network(value: Value, name: str, tenant: str, *, default_backend: Backend) -> NetworkRequest:
    values = read_file_entry(NETWORK, value, beside=[kind.section for kind in IN_NETWORKS])
    with value.located():
        return build_network(name, tenant, values, default_backend=default_backend)


def _objects(entries: dict[str, Value], files: SecretFiles) -> Iterator[VpcSpec]:
    for kind in KINDS:
        for name, value in _written(kind, entries):
            yield _object(kind, name, value, files)


def _object(kind: ObjectKind, name: str | None, value: Value, files: SecretFiles) -> VpcSpec:
    """One object: a mapping of its fields, or the value itself of a single one. name: of an object that is a key."""
    table, given = kind.table, dict[str, Any]()
    if name is not None:
        table = replace(table, fields=table.fields[1:])
        with value.located():
            given = {kind.fields[0].path: read_text(kind.fields[0], name)}
    if len(table.fields) > 1:
        given |= read_file_entry(table, value)
    else:
        (only,) = table.fields
        given[only.path] = read_field(table, only, value)
    with value.located():
        return kind.build(kind.with_files(given, ReadFile(files.read, files.read)))


def _written(kind: ObjectKind, entries: dict[str, Value]) -> Iterator[tuple[str | None, Value]]:
    """The objects of a kind in the file, with their names where these are keys of a mapping."""
    if kind.written is Written.IN_NETWORKS:
        for name, network in _mapping(entries.get("networks")):
            inside = network.named([kind.section])
            if kind.section in inside:
                yield name, inside[kind.section]
        return
    value = entries.get(kind.section)
    if kind.written is Written.BY_NAME:
        yield from _mapping(value)
    elif value is not None:
        yield from ((None, one) for one in (value.items() if kind.written is Written.AS_LIST else [value]))


def _vms(entries: dict[str, Value], head: Head, files: SecretFiles) -> Iterator[VmRequest]:
    token = _licence_token(entries, files)
    seen: dict[str, Value] = {}
    for item in _items(entries.get("vms")):
        values = {"tenant": head.tenant, **read_file_entry(TENANT_VM, item)}
        wanted = values.pop("secrets", ())
        if wanted and token is None:
            raise item.refuse("lists a secret that the file does not have", hint="add `secrets: {licence_token: …}`")
        with item.located():
            request = _build_vm(head, values)
        if request.name in seen:
            raise item.refuse(f"has the name {request.name!r}, as at {seen[request.name].origin}")
        seen[request.name] = item
        yield replace(request, cloud_init=replace(request.cloud_init, licence_token=token if wanted else None))


def _build_vm(head: Head, values: Mapping[str, Any]) -> VmRequest:
    """A VM, with what the file says for those that name none. Raises UsageError."""
    of_all = {"priority": head.priority, "max_downtime_s": head.max_downtime_s}
    common = {key: value for key, value in of_all.items() if value is not None}
    request = VM.build({**common, **values})
    if head.guest_driver is not None and "guest_driver" not in values and fits_system(head.guest_driver, request):
        request = replace(request, guest_driver=head.guest_driver)
    request = check_request(request)
    keys = request.cloud_init.ssh_authorized_keys or head.ssh_keys
    return replace(request, cloud_init=replace(request.cloud_init, ssh_authorized_keys=keys))


def _node_pools(
    entries: dict[str, Value], head: Head, files: SecretFiles, vms: Sequence[VmRequest]
) -> Iterator[NodePool]:
    seen: dict[str, Value] = {}
    for item in _items(entries.get("node_pools")):
        pool = read_pool_entry(head.tenant, item, files, functools.partial(_build_vm, head))
        if pool.name in seen:
            raise item.refuse(f"has the name {pool.name!r}, as at {seen[pool.name].origin}")
        seen[pool.name] = item
        for vm in vms:
            if pool.number_of(vm.name) is not None:
                raise item.refuse(
                    f"would have a node named as the VM {vm.name!r} of this file",
                    hint="choose another name for one of them",
                )
        yield pool


def _licence_token(entries: dict[str, Value], files: SecretFiles) -> SecretText | None:
    if "secrets" not in entries:
        return None
    value = entries["secrets"].fields(("licence_token",)).get("licence_token")
    if value is None:
        return None
    file = value.fields(("file",), required=("file",))["file"]
    with file.located():
        return SecretText.of(base64.b64encode(files.read(file.text())).decode())


def _amounts(value: Value | None) -> dict[str, int | None]:
    amounts: dict[str, int | None] = {}
    for name, amount in _mapping(value):
        written = str(amount.content) if isinstance(amount.content, int | float) else amount.text()
        with amount.located():
            resource = parse_resource(name)
            if resource in amounts:
                raise UsageError(f"{resource} is given twice", hint="write each resource once")
            amounts[resource] = parse_amount(resource, written)
    return amounts


def _items(value: Value | None) -> list[Value]:
    return [] if value is None else value.items()


def _mapping(value: Value | None) -> list[tuple[str, Value]]:
    return [] if value is None else list(value.mapping().items())
