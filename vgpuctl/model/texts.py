# SPDX-License-Identifier: Apache-2.0
"""Every text inside a frozen value, for checks that hold for all of them."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from vgpuctl.model.secret_text import SecretText


def texts_of(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path (`disk.base_image`) and text of every text in a dataclass, its tuples and its dataclasses."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, tuple):
        for item in value:
            yield from texts_of(item, path)
    elif isinstance(value, SecretText):
        if value.has_content():
            yield path, value.reveal()
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts_of(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
