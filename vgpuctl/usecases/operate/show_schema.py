# SPDX-License-Identifier: Apache-2.0
"""show-schema: the JSON schema of a kind of file that users write."""

from typing import Any

from vgpuctl.specs.schema import SCHEMAS


def show_schema(kind: str) -> dict[str, Any]:
    """The schema of one of SCHEMAS."""
    return SCHEMAS[kind]()
