# SPDX-License-Identifier: Apache-2.0
"""The file of the fitted model of throughput, beside the store: written by fit-performance, read by placing."""

import dataclasses
import json
from pathlib import Path

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import NotFound, UsageError
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.scheduler.performance.model import PerformanceModel
from vgpuctl.trusted_files import NAMED, opened
from vgpuctl.usecases.running.history import beside_store

_LAYOUT = 1
_MOST_BYTES = 16 << 20
_MOST_NUMBER, _MOST_LOG, _LEAST_REACH = 1e30, 1e3, 1e-18
"""Of a model: squares of larger numbers are none. Of the logarithms of sizes, and of how far they lie apart."""


class DamagedModel(UsageError):
    """A file that has no model, or a damaged one."""


@dataclasses.dataclass(frozen=True)
class _Layout:
    layout: int


@dataclasses.dataclass(frozen=True)
class _ModelFile:
    layout: int
    model: PerformanceModel


def performance_path(named: Path | None, database: str | None) -> Path:
    """The file of the model: the named one, else beside the store. Raises UsageError for a store's bad URL."""
    return named.absolute() if named is not None else beside_store(database, ".performance")


def write_model(path: Path, model: PerformanceModel) -> None:
    """Write the model, whole or not at all. Raises FileNotWritten."""
    make_folder(path.parent, "the model of throughput")
    content = json.dumps(dataclasses.asdict(_ModelFile(_LAYOUT, model)), sort_keys=True)
    write_file(path, content.encode(), "the model of throughput")


def read_model(path: Path) -> PerformanceModel:
    """Read the model. Raises NotFound when there is none, DamagedModel for a file that is none.

    UsageError for one that cannot be opened, or of a vgpuctl with another layout.
    """
    try:
        with opened(path, NAMED) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(
            f"no model of throughput: {path} is not there", hint="`vgpuctl fit-performance` makes it"
        ) from None
    except OSError as error:
        raise UsageError(f"the model of throughput {path} cannot be read: {error.strerror}") from error
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too large")
        _refuse_layout(path, content)
        read: _ModelFile = typed_json.decode(content, _ModelFile)
        _check(read)
    except (msgspec.MsgspecError, ValueError) as error:
        raise DamagedModel(
            f"{path} is no model of throughput: {error}", hint="make it again with `vgpuctl fit-performance`"
        ) from error
    return read.model


def _refuse_layout(path: Path, content: bytes) -> None:
    """Raise UsageError for a file of another layout: it may be whole, for the vgpuctl that wrote it."""
    try:
        found: _Layout = typed_json.decode(content, _Layout)
    except msgspec.MsgspecError:
        return
    if found.layout != _LAYOUT:
        raise UsageError(
            f"{path} is a model of throughput with layout {found.layout}, and this vgpuctl knows layout {_LAYOUT}",
            hint="use the vgpuctl that wrote it, or move the file away and run `vgpuctl fit-performance`",
        )


def _check(read: _ModelFile) -> None:
    """Refuse what predictions would stumble over. Raises ValueError."""
    for one in read.model.classes:
        size = len(one.terms)
        numbers = [*one.mean, *(value for row in one.covariance for value in row), one.noise, one.vm_noise, one.freedom]
        is_square = len(one.mean) == len(one.covariance) == size and all(len(row) == size for row in one.covariance)
        if not is_square or not all(map(_is_plain, numbers)) or one.freedom < 1:
            raise ValueError(f"{one.workload} under {one.isolation} is damaged")
    for timed in read.model.times.classes:
        size = (4 if timed.reach else 1) * (1 + len(timed.boards))
        values = [value for row in timed.covariance for value in row]
        numbers = [*timed.mean, *values, timed.noise, timed.freedom, timed.middle, timed.reach]
        is_square = len(timed.mean) == len(timed.covariance) == size and all(
            len(row) == size for row in timed.covariance
        )
        has_sizes = set(timed.sizes) == set(timed.boards) if timed.sizes or timed.reach else True
        are_sizes = all(one and list(one) == sorted(one) and one[0] > 0 for one in timed.sizes.values())
        numbers += [size for one in timed.sizes.values() for size in one]
        numbers += [value for one in timed.misfits.values() for value in one]
        are_sizes = are_sizes and all(freedom >= 1 for _noise, freedom in timed.misfits.values())
        are_logs = abs(timed.middle) <= _MOST_LOG and (timed.reach == 0 or _LEAST_REACH <= timed.reach <= _MOST_LOG)
        is_whole = is_square and has_sizes and are_sizes and are_logs and timed.freedom >= 1
        if not is_whole or not all(map(_is_plain, numbers)):
            raise ValueError(f"the times of {timed.workload} are damaged")


def _is_plain(number: float) -> bool:
    """True for a number that can be reckoned with; NaN is none."""
    return abs(number) <= _MOST_NUMBER
