# SPDX-License-Identifier: Apache-2.0
"""show-config: every setting with its value and what set it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.model.configuration import VARIABLES, Configuration
from vgpuctl.model.masking import shown_url, without_passwords
from vgpuctl.specs.configuration import CONTEXT


@dataclass(frozen=True)
class ShownSetting:
    """One setting. value: None where nobody sets it, without passwords; origin: what set it."""

    setting: str
    value: str | int | float | Sequence[str] | None
    origin: str
    variable: str
    meaning: str


def show_config(found: Configuration, environment: Mapping[str, str]) -> Sequence[ShownSetting]:
    """Every setting, in the order of the table. A variable of the environment counts more than a file."""
    shown = []
    for field in CONTEXT.fields:
        variable = VARIABLES[field.key]
        value: str | int | float | Sequence[str] | None = environment.get(variable)
        origin = f"environment {variable}"
        if value is None:
            given = found.settings.get(field.key)
            value, origin = (None, "default") if given is None else (given.value, given.origin)
        shown.append(ShownSetting(field.key, shown_value(value), origin, variable, field.help))
    return shown


def shown_value(value: str | int | float | Sequence[str] | None) -> str | int | float | Sequence[str] | None:
    """A value as it may be shown: without passwords."""
    if not isinstance(value, str):
        return value
    return shown_url(value) if "://" in value else without_passwords(value)
