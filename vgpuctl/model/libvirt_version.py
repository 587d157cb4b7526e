# SPDX-License-Identifier: Apache-2.0
"""Version of a host's libvirt, which decides what it can do."""


def version_of(text: str | None) -> tuple[int, ...]:
    """Read `9.0.0` as (9, 0, 0); return () for any other text."""
    parts = (text or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
