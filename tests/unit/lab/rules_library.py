# SPDX-License-Identifier: Apache-2.0
"""mig_rules.c, placement_rules.c and vgpu_rules.c as a shared library of this machine, with their structures."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from vgpuctl import catalog
from vgpuctl_lab.builds import MODULE_SOURCES

_SOURCES = ("mig_rules.c", "placement_rules.c", "vgpu_rules.c")
_MAX_STARTS, _MAX_INSTANCES, _MAX_VGPUS, _MAX_REGION = 16, 14, 32, 512
_LAYOUTS = {"Ada": 1, "Hopper": 1, "Blackwell": 2}
_uint = ctypes.c_uint


class _Profile(ctypes.Structure):
    _fields_ = (
        ("id", _uint), ("slices", _uint), ("size", _uint), ("max", _uint), ("base", _uint), ("start_count", _uint),
        ("starts", _uint * _MAX_STARTS), ("takes_media", ctypes.c_bool),
    )  # fmt: skip


class _Placed(ctypes.Structure):
    _fields_ = (("profile", ctypes.POINTER(_Profile)), ("start", _uint))


class _Space(ctypes.Structure):
    _fields_ = (
        ("slices", _uint), ("profiles", ctypes.POINTER(_Profile)), ("profile_count", _uint), ("count", _uint),
        ("placed", _Placed * _MAX_INSTANCES),
    )  # fmt: skip


class _Placements(ctypes.Structure):
    _fields_ = (("bits", ctypes.c_ubyte * (_MAX_REGION // 8)),)


class _Type(ctypes.Structure):
    _fields_ = (
        ("framebuffer_mib", _uint), ("max_instances", _uint), ("placement_size", _uint), ("gi_profile", ctypes.c_int),
        ("per_gi", _uint),
    )  # fmt: skip


class _Vgpu(ctypes.Structure):
    _fields_ = (("framebuffer_mib", _uint), ("placement", _uint), ("size", _uint))


class _Pool(ctypes.Structure):
    _fields_ = (
        ("layout", ctypes.c_int), ("region", _uint), ("is_heterogeneous", ctypes.c_bool), ("count", _uint),
        ("vgpus", _Vgpu * _MAX_VGPUS),
    )  # fmt: skip


class _Instance(ctypes.Structure):
    _fields_ = (("id", _uint), ("profile", _uint), ("pool", _Pool))


class _Gpu(ctypes.Structure):
    _fields_ = (
        ("has_mig", ctypes.c_bool), ("pool", _Pool), ("instance_count", _uint),
        ("instances", _Instance * _MAX_INSTANCES),
    )  # fmt: skip


@dataclass
class Space:
    """A GPU with some instances; names are profiles'."""

    library: ctypes.CDLL
    space: _Space
    profiles: dict[str, _Profile]

    def possible(self) -> list[tuple[str, int]]:
        """Every profile and start that one more instance could have."""
        return [
            (name, start)
            for name, profile in self.profiles.items()
            for start in profile.starts[: profile.start_count]
            if self.library.mig_fits_at(ctypes.byref(self.space), ctypes.byref(profile), start)
        ]

    def fits_at(self, name: str, start: int) -> bool:
        """True if one more instance can begin there."""
        profile = self.profiles[name]
        fits = self.library.mig_fits_at(ctypes.byref(self.space), ctypes.byref(profile), start)
        return start in profile.starts[: profile.start_count] and bool(fits)

    def remaining(self, name: str) -> int:
        """How many more of a profile fit together."""
        return int(self.library.mig_remaining(ctypes.byref(self.space), ctypes.byref(self.profiles[name])))

    def best_start(self, name: str) -> int:
        """Where the driver puts one, -1 for nowhere."""
        return int(self.library.mig_best_start(ctypes.byref(self.space), ctypes.byref(self.profiles[name])))


@dataclass
class Gpu:
    """A GPU that takes vGPUs, as the module keeps it."""

    library: ctypes.CDLL
    gpu: _Gpu
    used: list[int] = field(default_factory=list)

    @property
    def layout(self) -> int:
        """Of its placements."""
        return int(self.gpu.pool.layout)

    @property
    def region(self) -> int:
        """In GiB."""
        return int(self.gpu.pool.region)

    def status(self, wanted: catalog.CatalogType) -> int:
        """RM's answer to one more vGPU."""
        return self._ask(wanted)[0]

    def create(self, wanted: catalog.CatalogType) -> int:
        """Create where the rules say, or answer RM's code."""
        status, instance = self._ask(wanted)
        if status == 0:
            pool = instance.contents.pool if instance else self.gpu.pool
            one = _type(wanted)
            placement = self.library.pool_choose(ctypes.byref(pool), ctypes.byref(one))
            pool.vgpus[pool.count] = _Vgpu(one.framebuffer_mib, placement, one.placement_size)
            pool.count += 1
            if instance:
                self.used.append(instance.contents.id)
        return status

    def remove(self, index: int, instance: int | None = None) -> None:
        """Delete the vGPU of this place in the order of creation, on the GPU itself or in a GPU instance."""
        pool = self._pool(instance)
        for later in range(index, pool.count - 1):
            pool.vgpus[later] = pool.vgpus[later + 1]
        pool.count -= 1

    def placed(self, instance: int | None = None) -> list[tuple[int, int]]:
        """Placement and size of every vGPU, in the order of creation."""
        pool = self._pool(instance)
        return [(one.placement, one.size) for one in pool.vgpus[: pool.count]]

    def instances_used(self) -> list[int]:
        """The instance that each vGPU got, in the order of creation."""
        return self.used

    def _pool(self, instance: int | None) -> _Pool:
        pools: dict[int, _Pool] = {one.id: one.pool for one in self.gpu.instances[: self.gpu.instance_count]}
        found: _Pool = self.gpu.pool if instance is None else pools[instance]
        return found

    def _ask(self, wanted: catalog.CatalogType) -> tuple[int, Any]:
        instance = ctypes.POINTER(_Instance)()
        one = _type(wanted)
        status = self.library.gpu_status(ctypes.byref(self.gpu), ctypes.byref(one), ctypes.byref(instance))
        return int(status), instance


@dataclass(frozen=True)
class Rules:
    """The library."""

    library: ctypes.CDLL

    def placements(self, layout: int, region: int, size: int | None, most: int) -> tuple[int, ...]:
        """The placement ids of a type."""
        found = _Placements()
        self.library.placement_supported(layout, region, size, most, ctypes.byref(found))
        return tuple(index for index in range(_MAX_REGION) if self.library.placement_in(ctypes.byref(found), index))

    def space(self, table: catalog.MigTable | None, placed: Sequence[tuple[str, int]]) -> Space:
        """A GPU of this table with instances of these profiles at these starts."""
        assert table is not None
        array = (_Profile * len(table.profiles))(*(_profile(one, table) for one in table.profiles))
        profiles = {one.name: array[index] for index, one in enumerate(table.profiles)}
        slices = table.compute_slices or max(one.compute_slices for one in table.profiles)
        space = _Space(slices, array, len(table.profiles), len(placed))
        for index, (name, start) in enumerate(placed):
            space.placed[index] = _Placed(ctypes.pointer(profiles[name]), start)
        return Space(self.library, space, profiles)

    def gpu(
        self,
        board: catalog.Board,
        *,
        is_heterogeneous: bool = False,
        instances: Sequence[tuple[int, str]] | None = None,
    ) -> Gpu:
        """An empty GPU. instances: ids and profiles, None without MIG; is_heterogeneous: of them, or of the GPU."""
        layout, region = layout_of(board), board.memory_mib // 1024
        gpu = _Gpu(instances is not None, _Pool(layout, region, is_heterogeneous and instances is None))
        table = catalog.mig_table(board)
        for number, name in sorted(instances or ()):
            assert table is not None
            profile = next(one for one in table.profiles if one.name == name)
            share = region * (profile.placement_size or 0) // (table.memory_slots or 1)
            pool = _Pool(layout, share, is_heterogeneous)
            gpu.instances[gpu.instance_count] = _Instance(number, profile.id or 0, pool)
            gpu.instance_count += 1
        return Gpu(self.library, gpu)


def layout_of(board: catalog.Board) -> int:
    """How mixed-size placements lie, by the architecture's first word, as table_lines.c has it."""
    return _LAYOUTS.get(board.architecture.split()[0], 0)


@cache
def rules() -> Rules:
    """Compile the module's rules for this machine, once. Skips the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler builds the kernel module's rules: apt-get install gcc")
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/rules.so"
        sources = [str(MODULE_SOURCES / name) for name in _SOURCES]
        warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-sign-compare"]
        subprocess.run([compiler, "-O1", *warnings, "-shared", "-fPIC", "-o", output, *sources], check=True)
        library = ctypes.CDLL(output)
    library.mig_fits_at.restype = ctypes.c_bool
    library.placement_in.restype = ctypes.c_bool
    return Rules(library)


def _profile(entry: catalog.MigProfile, table: catalog.MigTable) -> _Profile:
    """Where no public text has the places of a board's profiles, they are taken as aligned to their size."""
    slots = table.memory_slots or max(one.memory_slices for one in table.profiles)
    size = entry.placement_size or entry.memory_slices
    starts = entry.placement_starts or tuple(range(0, slots - size + 1, size))
    return _Profile(
        entry.id or 0,
        entry.compute_slices,
        size,
        entry.max_count,
        entry.gi_id_base or 0,
        len(starts),
        (_uint * _MAX_STARTS)(*starts),
        any(one in ("me", "me.all") for one in entry.attributes),
    )


def _type(entry: catalog.CatalogType) -> _Type:
    gi_profile = -1 if entry.gi_profile_id is None else entry.gi_profile_id
    size = entry.placement_size or max(entry.fb_mib // 1024, 1)
    return _Type(entry.fb_mib, entry.max_instances, size, gi_profile, entry.max_per_gi or 0)
