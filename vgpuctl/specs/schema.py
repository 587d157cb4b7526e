# SPDX-License-Identifier: Apache-2.0
"""JSON schema of what users write, made from the tables of fields, for editors."""

from collections.abc import Callable
from typing import Any

from vgpuctl.specs.field import Choice, Document, Field, Table, Truth, Whole, default_at, is_optional
from vgpuctl.specs.network import NETWORK
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
    }
    return {"$schema": DIALECT, "title": "Tenant's file of vgpuctl"} | schema


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
    schema = schema_of_field(fields[0], kind.table)
    if kind.item is not None:
        schema["items"] = {"anyOf": [schema["items"], schema_of(kind.item)]}
    return schema


def schema_of(table: Table[Any]) -> dict[str, Any]:
    """The schema of one entry of a file."""
    schema = _mapping(table, "", table.fields)
    for section in table.sections:
        inside = _mapping(table, f"{section.key}.", table.inside(section))
        schema["properties"][section.key] = {"description": section.help} | _or_empty(inside)
    schema["properties"] = {key: schema["properties"][key] for key in table.keys}
    return schema


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
    schema = schema_of_value(field)
    if field.is_list:
        schema = {"type": "array", "items": schema}
    elif not field.is_required and is_optional(table.model, field.path.split(".")):
        schema = _or_empty(schema)
    default = _default(field, table)
    return {"description": field.help} | ({} if default is None else {"default": default}) | schema


def schema_of_value(field: Field) -> dict[str, Any]:
    """The schema of one value of a field, or of one item of its list."""
    kind = field.type
    if isinstance(kind, Whole):
        return {"type": "integer", "minimum": kind.lowest, "maximum": kind.highest}
    if isinstance(kind, Truth):
        return {"type": "boolean"}
    if isinstance(kind, Choice):
        return {"enum": [member.value for member in kind.members]}
    if isinstance(kind, Document):
        return {"type": "string"}
    schema: dict[str, Any] = {"type": ["string", "number"] if kind.takes_numbers else "string"}
    return schema | ({"pattern": kind.pattern} if kind.pattern else {})


def _default(field: Field, table: Table[Any]) -> Any:
    """The default as JSON: a number or a truth value itself, anything else as a user would write it."""
    if field.default is not None:
        return None
    if isinstance(field.type, Whole | Truth):
        return default_at(table.model, field.path.split("."))
    return table.written_default(field)


def _or_empty(schema: dict[str, Any]) -> dict[str, Any]:
    """Accept null as well: a key without a value means none."""
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    kinds = schema["type"]
    return schema | {"type": [*(kinds if isinstance(kinds, list) else [kinds]), "null"]}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {"vm": vm_file_schema, "tenant": tenant_file_schema}
"""The kinds of files with a schema."""
