# SPDX-License-Identifier: Apache-2.0
"""The shapes of the catalogue's entries. `None` means not found in any source, never zero."""

import msgspec


class VfPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A number of VFs that the vendor's driver supports, and the modes of the GPU for it.

    compute: the compute partition, SPX, DPX or CPX. memory: the memory partition, NPS1, NPS2 or NPS4. None: not told.
    needs_firmware: if the GPU's firmware must be of the matching release too.
    """

    vfs: int
    compute: str | None = None
    memory: str | None = None
    needs_firmware: bool = False


class Sriov(msgspec.Struct, frozen=True, omit_defaults=True):
    """SR-IOV as far as it is known. min_vfs: lower bound from the vGPU types. presets: published VF counts.

    partitions: every number of VFs that the vendor's releases name as supported; empty: they name none.
    """

    totalvfs: int | None = None
    vf_offset: int | None = None
    vf_stride: int | None = None
    min_vfs: int | None = None
    vf_pci: str | None = None
    presets: tuple[int, ...] = ()
    partitions: tuple[VfPartition, ...] = ()


class BoardMig(msgspec.Struct, frozen=True, omit_defaults=True):
    """True if the GPU can be partitioned by MIG, and which table of profiles applies."""

    capable: bool
    max_instances: int
    table: str | None = None


class NvLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """NVLink of one GPU. topology: direct, bridge (optional), nvswitch or c2c."""

    generation: int
    links: int
    topology: str


class Engines(msgspec.Struct, frozen=True, omit_defaults=True):
    """Media engines per GPU."""

    nvenc: int | None = None
    nvdec: int | None = None
    nvjpg: int | None = None
    ofa: int | None = None


class BoardCompanion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another PCI function of the board that goes with it in passthrough. pci: `vendor:device`."""

    function: int
    pci: str
    kind: str


class Board(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU model. pci and subsystems are `vendor:device` in lower case; other figures are per GPU.

    interface: mdev-pf, sriov-vf (NVIDIA: mdev on VF or vendor-specific VFIO; AMD, Intel: plain VFs) or none.
    types_key: whose vGPU types apply (A30X uses A30's). unverified: fields that are hints only.
    """

    key: str
    name: str
    vendor: str
    pci: str
    architecture: str
    chip: str
    form_factor: str
    memory_mib: int
    interface: str
    mig: BoardMig
    subsystems: tuple[str, ...] = ()
    also_pci: tuple[str, ...] = ()
    gpus_per_board: int = 1
    memory_reported_mib: int | None = None
    types_key: str | None = None
    mixed_size: bool | None = None
    sriov: Sriov | None = None
    nvlink: NvLink | None = None
    engines: Engines | None = None
    bar1_mib: int | None = None
    tdp_w: int | None = None
    companions: tuple[BoardCompanion, ...] = ()
    host_driver: str | None = None
    unverified: tuple[str, ...] = ()
    note: str | None = None


class CatalogType(msgspec.Struct, frozen=True, omit_defaults=True):
    """One vGPU type of one GPU model.

    type_id: decimal, as some public text prints it for this name; inferred_type_id fills a gap and is good for
    simulation only. On a live host the id is looked up by full_name. fb_mib: the profile's size.
    max_instances: per GPU in equal-size mode. gi_profile, max_per_gi: MIG-backed types only.
    """

    name: str
    series: str
    kind: str
    fb_mib: int
    max_instances: int
    max_displays: int
    max_resolution: tuple[int, int]
    license: tuple[str, ...]
    full_name: str | None = None
    type_id: int | None = None
    guest_fb_mib: int | None = None
    inferred_type_id: int | None = None
    max_mixed: int | None = None
    placement_size: int | None = None
    max_pixels: int | None = None
    vdev: str | None = None
    p2p_nvlink: bool = False
    nvswitch_fabric: bool = False
    ecc: bool | None = None
    cuda: bool | None = None
    gi_profile: str | None = None
    gi_profile_id: int | None = None
    max_per_gi: int | None = None

    @property
    def is_mig_backed(self) -> bool:
        """True if the type sits in a MIG GPU instance."""
        return self.kind == "mig-backed"


class MigProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU-instance profile. placement_starts and placement_size count the table's memory slots.

    also_named: what other driver branches call it.
    """

    name: str
    compute_slices: int
    memory_slices: int
    max_count: int
    id: int | None = None
    also_named: tuple[str, ...] = ()
    placement_starts: tuple[int, ...] | None = None
    placement_size: int | None = None
    gi_id_base: int | None = None
    attributes: tuple[str, ...] = ()
    memory_mib: int | None = None
    memory_mib_vgpu_host: int | None = None
    sm: int | None = None
    nvml_profile: int | None = None
    ce: int | None = None
    dec: int | None = None
    enc: int | None = None
    jpeg: int | None = None
    ofa: int | None = None


class ComputeInstanceProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One compute-instance profile of GPU instances of some number of compute slices. Starts count those slices.

    id: as `nvidia-smi mig -lcip` prints it, which is NVML's constant too. default: it spans the whole instance.
    """

    id: int
    slices: int
    max_count: int
    placement_starts: tuple[int, ...]
    default: bool = False


class MigTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The MIG profiles of some GPU models. A set of instances fits when slots do not overlap, compute slices add
    up to at most compute_slices, each profile stays within max_count, and at most one has `me` or `me.all`."""

    key: str
    profiles: tuple[MigProfile, ...]
    memory_slots: int | None = None
    compute_slices: int | None = None


class PlacementTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Mixed-size mode: start positions by vGPU size, in units of about 1 GiB."""

    region_size: int
    sizes: dict[int, tuple[int, ...]]


class TypeList(msgspec.Struct, frozen=True, omit_defaults=True):
    """The vGPU types of one GPU model. placement_table: key of the mixed-size table, None when not found."""

    types: tuple[CatalogType, ...]
    placement_table: str | None = None


class CatalogFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole catalogue as it lies in data/catalog.json."""

    boards: tuple[Board, ...]
    types: dict[str, TypeList]
    placement_tables: dict[str, PlacementTable]
    mig_tables: dict[str, MigTable]
    ci_profiles: dict[int, tuple[ComputeInstanceProfile, ...]]
