# SPDX-License-Identifier: Apache-2.0
"""Reading an onboarding file, schema version 1 (docs/onboarding.md); every refusal names file and line."""

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory.layout_value import Value
from vgpuctl.inventory.yaml_document import read_document
from vgpuctl.model.network import Backend, NetworkRequest, parse_address, parse_cidr
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import VmRequest, check_name
from vgpuctl.model.vpc import VpcSpec
from vgpuctl.quota.resources import parse_amount, parse_resource
from vgpuctl.specs.field import Choice, Field, Table, Text, Whole
from vgpuctl.specs.flags import read_text
from vgpuctl.specs.vpc_objects import KINDS, ObjectKind, Written
from vgpuctl.usecases.support.secret_file import SecretFiles
from vgpuctl.usecases.vm.vm_file import VmFile, read_entry

VERSION = 1
_KEYS = (
    *("version", "tenant", "pools", "quotas", "guaranteed", "priority", "networks", "ssh_keys", "secrets", "vms"),
    *(kind.section for kind in KINDS if kind.written is not Written.IN_NETWORKS),
)
_NETWORK_KEYS = (
    *("cidr", "dns", "isolated", "backend", "host"),
    *(kind.section for kind in KINDS if kind.written is Written.IN_NETWORKS),
)


def read_tenant_file(path: Path, *, default_backend: Backend, secrets_from: Sequence[Path] = ()) -> TenantFile:
    """Read one tenant's file. default_backend: of networks that name none.

    secrets_from: folders of the operator in which it may name secrets, beside its own folder.
    Raises InventoryError with file and line for unknown keys, wrong values and secrets that may not be read.
    """
    document = read_document(str(path))
    if document.warnings:
        raise InventoryError(document.warnings[0], hint="write each key once")
    root = Value(document.data, document.origin(), "", name="file", subject="this file")
    entries = root.mapping()
    if "version" not in entries:
        raise root.refuse("has no 'version'", hint=f"begin it with `version: {VERSION}`")
    version = entries["version"].whole(0, 1 << 31)
    if version != VERSION:
        raise entries["version"].refuse(f"is {version}", hint=f"this vgpuctl reads version {VERSION}")
    entries = root.fields(_KEYS, required=("tenant",))
    tenant = _name(entries["tenant"])
    return TenantFile(
        tenant,
        _amounts(entries.get("quotas")),
        _amounts(entries.get("guaranteed")),
        tuple(_name(item) for item in _items(entries.get("pools"))),
        tuple(
            _network(value, name, tenant, default_backend=default_backend)
            for name, value in _mapping(entries.get("networks"))
        ),
        tuple(_objects(entries)),
        tuple(_vms(entries, tenant, SecretFiles(path, secrets_from))),
    )


def _network(value: Value, name: str, tenant: str, *, default_backend: Backend) -> NetworkRequest:
    keys = value.fields(_NETWORK_KEYS, required=("cidr",))
    backend = keys["backend"].choice(Backend) if "backend" in keys else None
    host = keys["host"].text() if "host" in keys else None
    with _at(value):
        check_name(name, what="network name")
        cidr = str(parse_cidr(keys["cidr"].text(), what="cidr"))
        dns = tuple(parse_address(item.text(), what="dns") for item in _items(keys.get("dns")))
    return NetworkRequest(
        name,
        tenant,
        cidr,
        dns,
        isolated=keys["isolated"].truth() if "isolated" in keys else False,
        backend=backend or (Backend.LIBVIRT if host else default_backend),
        host=host,
    )


def _objects(entries: dict[str, Value]) -> Iterator[VpcSpec]:
    for kind in KINDS:
        for name, value in _written(kind, entries):
            yield kind.build(_values(kind.fields, value, name=name, item=kind.item))


def _written(kind: ObjectKind, entries: dict[str, Value]) -> Iterator[tuple[str | None, Value]]:
    """The objects of a kind in the file, with their names where these are keys of a mapping."""
    if kind.written is Written.IN_NETWORKS:
        for name, network in _mapping(entries.get("networks")):
            inside = network.mapping()
            if kind.section in inside:
                yield name, inside[kind.section]
        return
    value = entries.get(kind.section)
    if kind.written is Written.BY_NAME:
        yield from _mapping(value)
    elif value is not None:
        yield from ((None, one) for one in (value.items() if kind.written is Written.AS_LIST else [value]))


def _values(
    fields: Sequence[Field], value: Value, *, name: str | None = None, item: Table[Any] | None = None
) -> dict[str, object]:
    """The values of fields, by attribute.

    name: the value of the first field, where the file has it as a key. item: fields of a list's items.
    """
    if name is not None:
        with _at(value):
            own = {fields[0].path: read_text(fields[0], name)}
        return own | _values(fields[1:], value, item=item)
    if len(fields) == 1:
        return {fields[0].path: _value(fields[0], value, item)}
    required = [one.key for one in fields if one.is_required]
    keys = value.fields([one.key for one in fields], required=required)
    return {one.path: _value(one, keys[one.key], item) for one in fields if one.key in keys}


def _value(field: Field, value: Value, item: Table[Any] | None) -> object:
    if field.is_list:
        return tuple(_value(replace(field, is_list=False), one, item) for one in value.items())
    if item is not None and isinstance(value.content, dict):
        with _at(value):
            return item.build(_values(item.fields, value))
    if isinstance(field.type, Whole):
        return value.whole(field.type.lowest, field.type.highest)
    if isinstance(field.type, Choice):
        return value.choice(field.type.members)
    assert isinstance(field.type, Text)
    is_number = field.type.takes_numbers and type(value.content) is int
    with _at(value):
        return field.type.parse(str(value.content) if is_number else value.text(), what=value.name)


def _vms(entries: dict[str, Value], tenant: str, files: SecretFiles) -> Iterator[VmRequest]:
    token = _licence_token(entries, files)
    keys = tuple(item.text() for item in _items(entries.get("ssh_keys")))
    known = (*(name for name in VmFile.__struct_fields__ if name != "tenant"), "secrets")
    seen: dict[str, Value] = {}
    for item in _items(entries.get("vms")):
        fields = item.fields(known, required=("name",))
        content = {name: value.content for name, value in fields.items() if name != "secrets"}
        if "priority" in entries:
            content.setdefault("priority", entries["priority"].content)
        with _at(item):
            request = read_entry(content, "this VM", tenant)
        if request.name in seen:
            raise fields["name"].refuse(f"is {request.name!r}, as at {seen[request.name].origin}")
        seen[request.name] = item
        wanted = [one.text() for one in _items(fields.get("secrets"))]
        if wanted not in ([], ["licence_token"]) or (wanted and token is None):
            raise fields["secrets"].refuse(f"is {wanted}", hint="the file's `secrets` can have licence_token")
        cloud_init = replace(
            request.cloud_init,
            ssh_authorized_keys=request.cloud_init.ssh_authorized_keys or keys,
            licence_token=token if wanted else None,
        )
        yield replace(request, cloud_init=cloud_init)


def _licence_token(entries: dict[str, Value], files: SecretFiles) -> SecretText | None:
    if "secrets" not in entries:
        return None
    value = entries["secrets"].fields(("licence_token",)).get("licence_token")
    if value is None:
        return None
    file = value.fields(("file",), required=("file",))["file"]
    with _at(file):
        return SecretText.of(base64.b64encode(files.read(file.text())).decode())


def _amounts(value: Value | None) -> dict[str, int | None]:
    amounts: dict[str, int | None] = {}
    for name, amount in _mapping(value):
        written = str(amount.content) if isinstance(amount.content, int | float) else amount.text()
        with _at(amount):
            amounts[parse_resource(name)] = parse_amount(name, written)
    return amounts


def _name(value: Value) -> str:
    with _at(value):
        return check_name(value.text(), what=value.name)


def _items(value: Value | None) -> list[Value]:
    return [] if value is None else value.items()


def _mapping(value: Value | None) -> list[tuple[str, Value]]:
    return [] if value is None else list(value.mapping().items())


@contextlib.contextmanager
def _at(value: Value) -> Iterator[None]:
    """Tell file and line of a UsageError that a check raised without knowing them."""
    try:
        yield
    except UsageError as error:
        raise InventoryError(f"{value.origin}: {error.message}", hint=error.hint) from error
