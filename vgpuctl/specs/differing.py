# SPDX-License-Identifier: Apache-2.0
"""A value of the model as plain JSON values, without what equals its default."""

import dataclasses
from typing import Any

from vgpuctl.model.secret_text import SecretText


def differing_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, through nested values; of a secret its digest alone.

    A new field with a default changes nothing that was written before.
    """
    return {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != _default(field)
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _plain(value: Any) -> Any:
    if isinstance(value, SecretText):
        return value.digest
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return differing_fields(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
