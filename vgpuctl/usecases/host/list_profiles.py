# SPDX-License-Identifier: Apache-2.0
"""list-profiles: the vGPU types of every GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import DisplayLimits, Gpu, VgpuType
from vgpuctl.usecases.host.list_gpus import list_gpus
from vgpuctl.usecases.observed.survey import Survey
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class ListedProfile:
    """One vGPU type of one GPU. name: as every command takes it. seen: when the host last showed the GPU, in words.

    seen_at: the same in seconds since the epoch, UTC. display: what it can show, as the host tells it, else as the
    catalogue has it. max_pixels: over all heads, of the catalogue. display_source: `host` or `catalogue`, None where
    neither knows it.
    """

    host: str
    gpu: str
    board: str
    name: str
    profile: VgpuType
    seen: str
    seen_at: float | None = None
    display: DisplayLimits | None = None
    max_pixels: int | None = None
    display_source: str | None = None


def list_profiles(services: Services, *, refresh: bool) -> tuple[Sequence[ListedProfile], Survey]:
    """The vGPU types of every GPU and how many more can be created now."""
    gpus, seen = list_gpus(services, refresh=refresh)
    return [
        _with_display(
            ListedProfile(
                listed.host,
                listed.gpu.address,
                listed.board,
                catalog.short_name(profile.name),
                profile,
                listed.seen,
                listed.observation.at,
            ),
            listed.gpu,
        )
        for listed in gpus
        for profile in sorted(listed.gpu.types, key=lambda type_: (type_.framebuffer_mib or 0, type_.name))
    ], seen


def _with_display(listed: ListedProfile, gpu: Gpu) -> ListedProfile:
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    known = None if board is None else catalog.type_by_name(board, catalog.short_name(listed.profile.name))
    pixels = None if known is None else known.max_pixels
    told = listed.profile.display
    if told is not None:
        return replace(listed, display=told, max_pixels=pixels, display_source="host")
    if known is None:
        return listed
    limits = DisplayLimits(known.max_displays, known.max_resolution, catalog.frame_rate_limit(known))
    return replace(listed, display=limits, max_pixels=pixels, display_source="catalogue")
