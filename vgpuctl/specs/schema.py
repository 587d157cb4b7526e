# SPDX-License-Identifier: Apache-2.0
"""JSON schema of what users write, made from the tables of fields, for editors."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any

from vgpuctl.specs.fencing import FENCING, FENCING_VARIABLE
from vgpuctl.specs.field import (
    Choice,
    Document,
    Field,
    Named,
    Number,
    Repeated,
    Table,
    Truth,
    Type,
    Whole,
    default_at,
)
from vgpuctl.specs.health import HEALTH, HEALTH_VARIABLE
from vgpuctl.specs.layout import LAYOUT, LAYOUT_VARIABLE
from vgpuctl.specs.moves import MOVES, MOVES_VARIABLE
from vgpuctl.specs.network import NETWORK
from vgpuctl.specs.node_pool import NODE_POOL, POOL_VM, VM_KEY
from vgpuctl.specs.placing import PLACING, PLACING_VARIABLE
from vgpuctl.specs.tenant import AMOUNTS, HEAD, IN_FILE, IN_NETWORKS
from vgpuctl.specs.vm import TENANT_VM, VM, VmSecret
from vgpuctl.specs.vpc_objects import ObjectKind, Written

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def vm_file_schema() -> dict[str, Any]:
    """The schema of one document of a VM file: a VM, or a list of them."""
    return {
        "$schema": DIALECT,
        "title": "VM file of vgpuctl",
        "if": {"required": ["vms"]},
        "then": {
            "type": "object",
            "properties": {"vms": {"type": "array", "items": {"$ref": "#/$defs/vm"}}},
            "additionalProperties": False,
        },
        "else": {"$ref": "#/$defs/vm"},
        "$defs": {"vm": schema_of(VM)},
    }


def tenant_file_schema() -> dict[str, Any]:
    """The schema of a tenant's file."""
    schema = schema_of(HEAD)
    network = schema_of(NETWORK)
    network["properties"] |= {kind.section: _schema_of_object(kind, kind.fields[1:]) for kind in IN_NETWORKS}
    node_pool = schema_of(NODE_POOL)
    node_pool["properties"][VM_KEY] = {"description": "The VM that each node is made from"} | schema_of(POOL_VM)
    amounts = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
    file = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
    schema["properties"] |= {
        **dict.fromkeys(AMOUNTS, amounts),
        "networks": {"type": "object", "additionalProperties": network},
        **{kind.section: _schema_of_section(kind) for kind in IN_FILE},
        "secrets": {
            "type": "object",
            "properties": {secret.value: file for secret in VmSecret},
            "additionalProperties": False,
        },
        "vms": {"type": "array", "items": schema_of(TENANT_VM)},
        "node_pools": {"type": "array", "items": node_pool},
    }
    return {"$schema": DIALECT, "title": "Tenant's file of vgpuctl"} | schema


def layout_file_schema() -> dict[str, Any]:
    """The schema of a file of host_vars or group_vars, which may hold other variables too."""
    return {
        "$schema": DIALECT,
        "title": "Variables of hosts and groups of vgpuctl",
        "type": "object",
        "properties": {
            LAYOUT_VARIABLE: _or_empty(schema_of(LAYOUT)),
            PLACING_VARIABLE: _or_empty(schema_of(PLACING)),
            HEALTH_VARIABLE: _or_empty(schema_of(HEALTH)),
            FENCING_VARIABLE: _or_empty(schema_of(FENCING)),
            MOVES_VARIABLE: _or_empty(schema_of(MOVES)),
        },
    }


def _schema_of_section(kind: ObjectKind) -> dict[str, Any]:
    """The schema of the key that holds the objects of one kind."""
    if kind.written is Written.BY_NAME:
        return {"type": "object", "additionalProperties": _schema_of_object(kind, kind.fields[1:])}
    one = _schema_of_object(kind, kind.fields)
    return {"type": "array", "items": one} if kind.written is Written.AS_LIST else one


def _schema_of_object(kind: ObjectKind, fields: tuple[Field, ...]) -> dict[str, Any]:
    """One object: a mapping of its fields, or the value itself of a single one."""
    if len(fields) > 1:
        return _mapping(kind.table, "", fields)
    return schema_of_field(fields[0], kind.table)


def schema_of(table: Table[Any]) -> dict[str, Any]:
    """The schema of one entry of a file."""
    schema = _mapping(table, "", table.fields)
    for section in table.sections:
        inside = _mapping(table, f"{section.key}.", table.inside(section))
        schema["properties"][section.key] = {"description": section.help} | _or_empty(inside)
    schema["properties"] = {key: schema["properties"][key] for key in table.keys}
    if table.exactly_one:
        schema |= {"minProperties": 1, "maxProperties": 1}
    if table.kinds_by is not None:
        schema["required"] = [key for key in schema["required"] if not table.kinds_of(key)]
        schema["allOf"] = list(_conditions(table, table.field(table.kinds_by)))
    return schema


def _conditions(table: Table[Any], by: Field) -> Iterator[dict[str, Any]]:
    """For each kind of entry: the keys that it must have, and those that it cannot have."""
    for kind, own in table.by_kind.items():
        then: dict[str, Any] = {"properties": {key: False for key in table.keys if key not in own.keys}}
        required = [field.key for field in own.fields if field.kinds and field.is_required and "." not in field.key]
        if required:
            then["required"] = required
        yield {"if": {"properties": {by.key: _one_of([kind])}, "required": [by.key]}, "then": then}


def _mapping(table: Table[Any], prefix: str, fields: tuple[Field, ...]) -> dict[str, Any]:
    own = {field.key.removeprefix(prefix): field for field in fields if "." not in field.key.removeprefix(prefix)}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema_of_field(field, table) for name, field in own.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in own.items() if field.is_required]
    return schema | ({"required": required} if required else {})


def schema_of_field(field: Field, table: Table[Any]) -> dict[str, Any]:
    """The schema of one field's value."""
    schema = schema_of_value(field.type)
    if field.is_list:
        items: dict[str, Any] = {"type": "array", "items": schema}
        items |= {"minItems": 1} if field.at_least_one else {}
        items |= {"uniqueItems": True} if field.repeated is Repeated.REFUSED else {}
        schema = {"anyOf": [schema, items]} if field.may_stand_alone else items
    elif field.words:
        schema = {"anyOf": [{"enum": list(field.words)}, schema]}
    elif table.may_be_empty(field):
        schema = _or_empty(schema)
    default = _default(field, table)
    return {"description": field.help} | ({} if default is None else {"default": default}) | schema


def schema_of_value(kind: Type) -> dict[str, Any]:
    """The schema of one value, or of one item of a list."""
    if isinstance(kind, Whole | Number):
        name = "integer" if isinstance(kind, Whole) else "number"
        return {"type": name, "minimum": kind.lowest, "maximum": kind.highest}
    if isinstance(kind, Truth):
        return {"type": "boolean"}
    if isinstance(kind, Choice):
        return _one_of(kind.members)
    if isinstance(kind, Document):
        return {"type": "string"}
    if isinstance(kind, Table):
        return schema_of(kind)
    if isinstance(kind, Named):
        values = schema_of_value(kind.values)
        names = {"propertyNames": {"pattern": kind.names.pattern}} if kind.names.pattern else {}
        values = {"type": "array", "items": values} if kind.are_lists else values
        return {"type": "object"} | names | {"additionalProperties": values}
    schema: dict[str, Any] = {"type": ["string", "number"] if kind.takes_numbers else "string"}
    schema |= {"pattern": kind.pattern} if kind.pattern else {}
    return schema if kind.table is None else {"anyOf": [schema, schema_of(kind.table)]}


def _one_of(members: Iterable[StrEnum]) -> dict[str, Any]:
    """Members of a closed set; a bare `off` is false for an editor with YAML 1.1, and `on` is true."""
    names: list[Any] = [member.value for member in members]
    return {"enum": [*names, *(truth for truth, word in ((False, "off"), (True, "on")) if word in names)]}


def _default(field: Field, table: Table[Any]) -> Any:
    """The default as JSON: a number or a truth value itself, anything else as a user would write it."""
    if field.default is not None or field.is_required:
        return None
    if isinstance(field.type, Whole | Number | Truth):
        return default_at(table.model, field.path.split("."))
    return table.written_default(field)


def _or_empty(schema: dict[str, Any]) -> dict[str, Any]:
    """Accept null as well: a key without a value means none."""
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    kinds = schema["type"]
    return schema | {"type": [*(kinds if isinstance(kinds, list) else [kinds]), "null"]}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "vm": vm_file_schema,
    "tenant": tenant_file_schema,
    "layout": layout_file_schema,
}
"""The kinds of files with a schema."""
