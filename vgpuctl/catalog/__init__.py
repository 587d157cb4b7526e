# SPDX-License-Identifier: Apache-2.0
"""GPU models, vGPU types and MIG profiles as data. The catalogue plans and simulates; the live host overrides it."""

from vgpuctl.catalog.entries import (
    Board,
    BoardCompanion,
    BoardMig,
    CatalogType,
    ComputeInstanceProfile,
    MigProfile,
    MigTable,
    NvLink,
    PlacementTable,
    Sriov,
)
from vgpuctl.catalog.lookup import (
    board,
    board_by_pci,
    boards,
    boards_named,
    boards_with_type,
    compute_instance_profiles,
    mig_table,
    mixed_size_table,
    type_by_id,
    type_by_name,
    type_names,
    types_of,
)
from vgpuctl.catalog.names import frame_rate_limit, is_mig_backed, series_of, short_name

__all__ = [
    "Board",
    "BoardCompanion",
    "BoardMig",
    "CatalogType",
    "ComputeInstanceProfile",
    "MigProfile",
    "MigTable",
    "NvLink",
    "PlacementTable",
    "Sriov",
    "board",
    "board_by_pci",
    "boards",
    "boards_named",
    "boards_with_type",
    "compute_instance_profiles",
    "frame_rate_limit",
    "is_mig_backed",
    "mig_table",
    "mixed_size_table",
    "series_of",
    "short_name",
    "type_by_id",
    "type_by_name",
    "type_names",
    "types_of",
]
