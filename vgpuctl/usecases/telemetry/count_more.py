# SPDX-License-Identifier: Apache-2.0
"""The question of the capacity page: how many more VMs of one kind fit, from the store alone.

Its form has a field for each field of the VM's table (specs/vm.py) that a rule of placing may look at.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpuctl.catalog import boards_with_type, profile_name
from vgpuctl.errors import UsageError
from vgpuctl.model.vm import VmRequest
from vgpuctl.specs.field import Choice, Field, Truth, Whole
from vgpuctl.specs.vm import VM, read_hypothetical_vm
from vgpuctl.usecases.placement.capacity import Capacity, capacity
from vgpuctl.usecases.running.services import Services

_FIRST = {"gpus": "GPU", "vcpus": "vCPUs", "memory": "Memory", "duration": "For", "tenant": "Tenant"}
"""The fields that are always shown, with their labels; the others are called as the options of create-vm."""
_TYPE_AFTER_MODEL = re.compile(r"[A-Za-z0-9 ._+-]{1,120}")
_DIGITS = 9
_NO_GPU = "none"
"""The value for a VM without a GPU, as of --gpu."""


@dataclass(frozen=True)
class FormField:
    """One field of the form. name: in the query. choices: the values there are; empty for a text.

    is_first: it is always shown. is_truth: it is ticked or not. default: what counts where it is left empty.
    """

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()
    is_first: bool = False
    is_truth: bool = False
    default: str = ""


def asked_fields() -> list[Field]:
    """The fields of a VM that a question about placement may name, in the order of the form."""
    asked = [field for field in VM.fields if field.flag is not None and not field.without_placement]
    return sorted(asked, key=lambda one: list(_FIRST).index(one.key) if one.key in _FIRST else len(_FIRST))


def form_fields() -> list[FormField]:
    """The form, the fields that are always shown first."""
    return [
        FormField(
            _name(field),
            _label(field),
            field.help,
            tuple(str(one) for one in field.type.members) if isinstance(field.type, Choice) else (),
            is_first=field.key in _FIRST,
            is_truth=isinstance(field.type, Truth),
            default=VM.written_default(field) or "",
        )
        for field in asked_fields()
    ]


def read_request(given: Mapping[str, str]) -> VmRequest | None:
    """The VM that a form describes; None while no GPU is named. Values of a list have spaces between them.

    Raises UsageError.
    """
    has = {name: value.strip() for name, value in given.items() if value.strip()}
    if "gpu" not in has:
        return None
    if unknown := sorted(has.keys() - {_name(field) for field in asked_fields()}):
        raise UsageError(f"{unknown[0][:40]!a} is no field of this form", hint="see the form for what it asks")
    values = {field.parameter: _value(field, has[_name(field)]) for field in asked_fields() if _name(field) in has}
    return read_hypothetical_vm(values, _no_file)


def _name(field: Field) -> str:
    return str(field.flag).removeprefix("--")


def _label(field: Field) -> str:
    return _FIRST.get(field.key, _name(field))


def _value(field: Field, text: str) -> Any:
    """The value as the command line would hand it on. Raises UsageError."""
    if isinstance(field.type, Whole):
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            raise _refused(field, text, f"give a number from {field.type.lowest} to {field.type.highest}")
        number = int(text)
        if not field.type.lowest <= number <= field.type.highest:
            raise _refused(field, text, f"give a number from {field.type.lowest} to {field.type.highest}")
        return number
    if isinstance(field.type, Choice):
        known = [str(one) for one in field.type.members]
        if text.lower() not in known:
            raise _refused(field, text, f"there are {', '.join(known)}")
        return text.lower()
    if isinstance(field.type, Truth):
        return True
    if not field.is_list:
        return text
    return _gpus(text) if field.key == "gpus" else tuple(text.split())


def _refused(field: Field, text: str, hint: str) -> UsageError:
    return UsageError(f"{_label(field)} {text[:20]!r} cannot be used", hint=hint)


def _gpus(text: str) -> tuple[str, ...]:
    """Several requests have a space between them. A type's name with its model before it has spaces too."""
    if text.lower() == _NO_GPU:
        return ()
    whole = profile_name(text) if _TYPE_AFTER_MODEL.fullmatch(text) else None
    return (str(whole),) if whole is not None and boards_with_type(whole.name) else tuple(text.split())


def _no_file(path: str) -> str:
    raise UsageError(f"a form names no file, as {path[:80]!r}")


def count_more(services: Services, request: VmRequest) -> Capacity:
    """Count from the store. Raises NotFound, InventoryError and UsageError as capacity does."""
    return capacity(services, request, may_contact=False)
