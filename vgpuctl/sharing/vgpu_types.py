# SPDX-License-Identifier: Apache-2.0
"""The vGPU types that a GPU can still take: the resource manager's rules (reference 2.2) over facts and leases."""

from collections.abc import Sequence

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import VgpuType
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.units import format_mib
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.gpu_state import GpuState, HeldVgpu, framebuffer_of, max_instances_of
from vgpuctl.sharing.mig_remedy import remedy_without_instance
from vgpuctl.sharing.mixed_size import count_left, starts_left
from vgpuctl.sharing.offer import Refusal, ShareRequest
from vgpuctl.sharing.types_together import refuse_beside

SERIES_ORDER = {"Q": 0, "C": 1, "B": 2, "A": 3}
"""The most able series first."""


def usable_types(share_request: ShareRequest, fitting: Sequence[VgpuType], state: GpuState) -> list[VgpuType] | Refusal:
    """Of the types that fit the request, those that can be created once more, one per framebuffer size.

    Without any: why the smallest that fits cannot.
    """
    usable: dict[tuple[int | None, int | None], VgpuType] = {}
    first: Refusal | None = None
    for offered in fitting:
        refusal = refuse_type(offered, state)
        if refusal is None:
            usable.setdefault((framebuffer_of(offered, state.board), gpu_instance_slices(offered.name)), offered)
        elif first is None:
            first = refusal
    return list(usable.values()) or first or refuse_missing_type(share_request, state)


def fitting_types(request: GpuRequest, state: GpuState) -> list[VgpuType]:
    """The types of the GPU that the request means, whether or not they can be created now: the smallest first, of
    equal sizes the most able series first (Q, C, B, A)."""
    if request.profile is not None:
        # Some boards print their own name before the type's (catalog.short_name).
        named, ending = request.profile, f" {request.profile}"
        return [one for one in state.gpu.types if one.name == named or one.name.endswith(ending)]
    fitting = []
    for offered in state.gpu.types:
        size = framebuffer_of(offered, state.board)
        series = catalog.series_of(offered.name)
        if _fits(request, size, series) and _shows(request, _known_type(offered.name, state)):
            fitting.append((size or 0, SERIES_ORDER.get(series or "", 4), offered.name, offered))
    return [offered for *_, offered in sorted(fitting, key=lambda one: one[:3])]


def remaining(offered: VgpuType, state: GpuState) -> int:
    """How many more of a type the GPU takes, as far as counting goes: what the host says less what it has not seen."""
    starts = starts_left(offered, state)
    if starts is not None:
        return count_left(starts, offered.placement_size)
    size = framebuffer_of(offered, state.board)
    slices = gpu_instance_slices(offered.name)
    left = offered.creatable
    for held in state.vgpus:
        if not held.seen:
            left -= _cost_of(held, offered, size, slices, state.board)
    limit = max_instances_of(offered, state.board)
    if limit is not None and slices is None and not _mixes_sizes(state):
        left = min(left, limit - len(_time_sliced(state)))
    return left


def refuse_type(offered: VgpuType, state: GpuState) -> Refusal | None:
    """Say why no more of this type can be created on the GPU; None when it can."""
    if gpu_instance_slices(offered.name) is None:
        refusal = _refuse_time_sliced(offered, state)
        if refusal is not None:
            return refusal
    if remaining(offered, state) > 0:
        return None
    if gpu_instance_slices(offered.name) is not None:
        return Refusal(
            Code.NO_MIG_INSTANCE,
            f"no MIG instance is left that takes {offered.name}",
            remedy_without_instance(profile_of(offered, state), state) or "delete a VM that uses one",
        )
    if offered.creatable_starts is not None:
        size = framebuffer_of(offered, state.board) or 0
        return Refusal(
            Code.NO_PLACE_LEFT,
            f"none of the places where {offered.name} can begin has {format_mib(size)} free in a row",
            "ask for a smaller type, or delete a VM on this GPU",
        )
    used = len(_time_sliced(state))
    if used:
        return _gpu_full(used, max_instances_of(offered, state.board), framebuffer_of(offered, state.board))
    return Refusal(
        Code.REFUSED_BY_HOST,
        f"the host says that no {offered.name} can be created, though the GPU carries no vGPU",
        f"look at `vgpuctl inspect-host {state.host}`",
    )


def refuse_missing_type(share_request: ShareRequest, state: GpuState) -> Refusal:
    """Say why the GPU offers no type that the request means."""
    known = _catalog_type(share_request.request, state)
    if known is not None and known.is_mig_backed:
        return Refusal(
            Code.NO_MIG_INSTANCE,
            f"{known.name} needs a MIG instance {known.gi_profile}, and the GPU has none",
            remedy_without_instance(known.gi_profile, state),
        )
    if known is not None:
        blocking = _blocking_sizes(known.fb_mib, state)
        if blocking:
            return _equal_size(known.name, known.fb_mib, blocking, state)
        if 0 < known.max_instances <= len(_time_sliced(state)):
            return _gpu_full(len(_time_sliced(state)), known.max_instances, known.fb_mib)
        return Refusal(
            Code.REFUSED_BY_HOST,
            f"a {state.title} can have {known.name}, but the host's driver does not offer it",
            f"compare with `vgpuctl list-profiles --limit {state.host}`",
        )
    offered = sorted({catalog.short_name(one.name) for one in state.gpu.types})
    if not offered:
        return Refusal(Code.NO_SUCH_TYPE, f"{state.title} has no vGPU type that fits {share_request.what}")
    shown = ", ".join(offered[:4]) + (f" and {len(offered) - 4} more" if len(offered) > 4 else "")
    return Refusal(Code.NO_SUCH_TYPE, f"no type of it fits {share_request.what}; it has {shown}")


def profile_of(offered: VgpuType, state: GpuState) -> str | None:
    """The GPU-instance profile that a MIG-backed type sits in, as the catalogue knows it."""
    known = catalog.type_by_name(state.board, catalog.short_name(offered.name)) if state.board else None
    return known.gi_profile if known else None


def left_after(offered: VgpuType, state: GpuState) -> int:
    """Framebuffer in MiB that is still free after one more of this type."""
    size = framebuffer_of(offered, state.board) or 0
    if gpu_instance_slices(offered.name) is not None:
        return (remaining(offered, state) - 1) * size
    limit = max_instances_of(offered, state.board)
    total = size * limit if limit else memory_budget(state)
    return total - sum(held.framebuffer_mib or 0 for held in state.vgpus) - size


def memory_budget(state: GpuState) -> int:
    """The GPU's memory in MiB as the sizes of types count it: the nominal one."""
    return state.board.memory_mib if state.board else state.gpu.memory_mib or 0


def _fits(request: GpuRequest, size: int | None, series: str | None) -> bool:
    if request.series is not None and series != request.series:
        return False
    if request.minimum_memory_mib is not None and (size is None or size < request.minimum_memory_mib):
        return False
    return request.exact_memory_mib is None or size == request.exact_memory_mib


def _known_type(name: str, state: GpuState) -> catalog.CatalogType | None:
    return None if state.board is None else catalog.type_by_name(state.board, catalog.short_name(name))


def _shows(request: GpuRequest, known: catalog.CatalogType | None) -> bool:
    """True if a type drives the monitors that are asked for: their number, each one's size, and all pixels together.

    A type that the catalogue does not know drives none for certain.
    """
    wanted = request.monitors
    if wanted is None:
        return True
    if known is None or wanted.count > known.max_displays:
        return False
    width, height = known.max_resolution
    if wanted.width > width or wanted.height > height:
        return False
    return known.max_pixels is None or wanted.count * wanted.width * wanted.height <= known.max_pixels


def _catalog_type(request: GpuRequest, state: GpuState) -> catalog.CatalogType | None:
    """The smallest type of the model that the request means, as the catalogue knows it."""
    if state.board is None:
        return None
    if request.profile is not None:
        return catalog.type_by_name(state.board, request.profile)
    fitting = [
        one for one in catalog.types_of(state.board) if _fits(request, one.fb_mib, one.series) and _shows(request, one)
    ]
    return min(fitting, key=lambda one: (one.is_mig_backed, one.fb_mib, one.name), default=None)


def _refuse_time_sliced(offered: VgpuType, state: GpuState) -> Refusal | None:
    if state.gpu.mig_mode == "enabled":
        return Refusal(
            Code.MIG_ON,
            f"MIG is on, so only MIG-backed types can be created, not {offered.name}",
            "switch MIG off on this GPU, or ask for a MIG-backed type",
        )
    size = framebuffer_of(offered, state.board)
    blocking = _blocking_sizes(size, state)
    if blocking:
        return _equal_size(offered.name, size, blocking, state)
    return refuse_beside(catalog.short_name(offered.name), size, _time_sliced(state), state)


def _blocking_sizes(size: int | None, state: GpuState) -> list[HeldVgpu]:
    """The vGPUs whose other size keeps this size away (reference 2.2, rule 2); none in mixed-size mode."""
    if size is None or _mixes_sizes(state):
        return []
    return [held for held in _time_sliced(state) if held.framebuffer_mib not in (None, size)]


def _gpu_full(used: int, limit: int | None, size: int | None) -> Refusal:
    of_limit = f" of {limit}" if limit is not None else ""
    of_size = f" of {format_mib(size)}" if size is not None else ""
    return Refusal(
        Code.GPU_FULL,
        f"{used}{of_limit} vGPUs{of_size} exist or are promised",
        "delete a VM on this GPU, or ask for another GPU",
    )


def _equal_size(name: str, size: int | None, blocking: list[HeldVgpu], state: GpuState) -> Refusal:
    names = ", ".join(sorted({held.name or "an unknown type" for held in blocking}))
    blocking_mib, helps = blocking[0].framebuffer_mib or 0, "delete the VMs that use it"
    has_room = any(
        framebuffer_of(one, state.board) == blocking_mib and remaining(one, state) > 0
        for one in state.gpu.types
        if gpu_instance_slices(one.name) is None
    )
    return Refusal(
        Code.EQUAL_SIZE,
        f"it carries vGPUs of {format_mib(blocking_mib)} ({names}), and all must be of one size;"
        f" {name} has {format_mib(size or 0)}",
        f"ask for a type of {format_mib(blocking_mib)}, or {helps}" if has_room else helps,
    )


def _time_sliced(state: GpuState) -> list[HeldVgpu]:
    return [held for held in state.vgpus if held.name is None or gpu_instance_slices(held.name) is None]


def _mixes_sizes(state: GpuState) -> bool:
    """True if sizes may differ on this GPU: mixed-size mode, or where the host shows it otherwise, as Intel GVT-g."""
    if state.gpu.heterogeneous is not None:
        return state.gpu.heterogeneous
    sizes = {held.framebuffer_mib for held in state.vgpus if held.seen and held.framebuffer_mib is not None}
    if not sizes:
        return False
    return len(sizes) > 1 or any(
        offered.creatable > 0 and framebuffer_of(offered, state.board) not in (None, *sizes)
        for offered in state.gpu.types
        if gpu_instance_slices(offered.name) is None
    )


def _cost_of(
    held: HeldVgpu, offered: VgpuType, size: int | None, slices: int | None, board: catalog.Board | None
) -> int:
    """How many fewer of a type can be created because of a vGPU that the host's count has not seen."""
    if slices is None:
        return max(1, -(-(held.framebuffer_mib or 0) // size)) if size else 1
    if held.name is None or gpu_instance_slices(held.name) != slices:
        return 0
    known = catalog.type_by_name(board, catalog.short_name(offered.name)) if board else None
    other = catalog.type_by_name(board, held.name) if board else None
    if known is not None and other is not None and known.gi_profile != other.gi_profile:
        return 0
    if held.framebuffer_mib == size or known is None:
        return 1
    return known.max_per_gi or 1
