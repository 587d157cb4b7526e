# SPDX-License-Identifier: Apache-2.0
"""The dataclasses of the agent's values. On a host `light_values.py` stands in this place (hosts/bundle.py)."""

from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace

__all__ = ["MISSING", "dataclass", "field", "fields", "is_dataclass", "replace"]
