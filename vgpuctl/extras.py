# SPDX-License-Identifier: Apache-2.0
"""The extras of the package vgpuctl: libraries that only some commands need, and the error where one is missing."""

import sys
from collections.abc import Sequence
from types import ModuleType

from vgpuctl.errors import MissingExtra

EXTRAS = {
    "clusters": ("google", "google.protobuf", "grpc", "lightkube"),
    "monitoring": ("cheroot", "flask", "prometheus_client", "werkzeug", "wsproto"),
    "ovn": ("ovs", "ovsdbapp"),
    "postgresql": ("psycopg",),
}
"""The modules that vgpuctl imports of each extra of pyproject.toml. bcrypt is always there: paramiko requires it."""
_EXTRA_OF = {module: extra for extra, modules in EXTRAS.items() for module in modules}


class _LastFinder:
    """The last of `sys.meta_path`: it is asked for a module that no other finder has found."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        """Raises MissingExtra for a module of an extra, which is also an error for `except ImportError`."""
        if (extra := _EXTRA_OF.get(name)) is None:
            return None
        hint = f"install vgpuctl with its extra {extra}: pip install 'vgpuctl[{extra}]'"
        raise MissingExtra(f"this command needs the Python library {name}, which is not installed here", hint=hint)


def name_missing_extras() -> None:
    """From now on, an import of a library that is not installed names the extra that has it. Once per process."""
    if _LastFinder not in sys.meta_path:
        sys.meta_path.append(_LastFinder)
