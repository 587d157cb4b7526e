# SPDX-License-Identifier: Apache-2.0
"""list-contexts: the contexts of all configuration files that count."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.configuration import Configuration
from vgpuctl.usecases.operate.show_config import shown_value


@dataclass(frozen=True)
class ListedContext:
    """One context. is_chosen: the following commands use it. settings: by key, without passwords."""

    name: str
    is_chosen: bool
    file: str
    settings: dict[str, str | int | float | Sequence[str] | None]


def list_contexts(found: Configuration) -> Sequence[ListedContext]:
    """All contexts by name."""
    return [
        ListedContext(
            name, name == found.context, one.path, {key: shown_value(kept.value) for key, kept in one.settings.items()}
        )
        for name, one in sorted(found.contexts.items())
    ]
