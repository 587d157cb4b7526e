# SPDX-License-Identifier: Apache-2.0
"""Makes data/catalog.json from the three YAML files in its folder: `python -m vgpuctl.catalog.build`.

The YAML files are the source, with their comments and references; reading them takes a hundred times as long.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from vgpuctl.catalog.entries import CatalogFile

DATA = Path(__file__).parent / "data"


def build() -> bytes:
    """Read the YAML files and return the content of catalog.json. Raises msgspec.ValidationError naming the field."""
    gpus = _load("gpus")["gpus"]
    types = _load("vgpu_types")
    mig_file = _load("mig_profiles")
    mig = mig_file["tables"]
    raw = {
        "boards": [_board(key, entry) for key, entry in gpus.items()],
        "types": {
            key: {
                "placement_table": entry["mixed_size"].get("placement_table"),
                "types": [_type(one) for one in entry["types"]],
            }
            for key, entry in types["gpus"].items()
        },
        "placement_tables": types["placement_tables"],
        "mig_tables": {
            key: {
                "key": key,
                "memory_slots": entry["geometry"]["memory_slots"],
                "compute_slices": entry["geometry"]["compute_slices"],
                "profiles": entry["profiles"],
            }
            for key, entry in mig.items()
        },
        "ci_profiles": {key: entry for key, entry in mig_file["ci_profiles"].items() if isinstance(key, int)},
    }
    return _one_line_each(msgspec.convert(raw, CatalogFile, str_keys=True))


def _one_line_each(catalog: CatalogFile) -> bytes:
    """Write one board, type list or table a line, so that a change shows as a change of lines."""
    boards = b",\n".join(msgspec.json.encode(board) for board in catalog.boards)
    parts = [b'{"boards":[\n' + boards + b"\n]"]
    for name in ("types", "placement_tables", "mig_tables", "ci_profiles"):
        entries = getattr(catalog, name).items()
        lines = b",\n".join(msgspec.json.encode(str(key)) + b":" + msgspec.json.encode(entry) for key, entry in entries)
        parts.append(b'"' + name.encode() + b'":{\n' + lines + b"\n}")
    return b",\n".join(parts) + b"}\n"


def _load(name: str) -> Any:
    with (DATA / f"{name}.yaml").open("rb") as file:
        return yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _board(key: str, entry: dict[str, Any]) -> dict[str, Any]:
    vgpu = entry["vgpu"]
    return {
        **entry,
        "key": key,
        "interface": vgpu["interface"],
        "types_key": vgpu["types"],
        "mixed_size": vgpu["mixed_size"],
        "bar1_mib": (entry.get("bars") or {}).get("bar1_mib"),
        "companions": entry.get("companion_functions", []),
    }


def _type(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "inferred_type_id": entry.get("type_id_inferred")}


if __name__ == "__main__":
    (DATA / "catalog.json").write_bytes(build())
