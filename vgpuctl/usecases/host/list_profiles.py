# SPDX-License-Identifier: Apache-2.0
"""list-profiles: the vGPU types of every GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import VgpuType
from vgpuctl.usecases.host.list_gpus import list_gpus
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import Survey


@dataclass(frozen=True)
class ListedProfile:
    """One vGPU type of one GPU. seen: when the host last showed the GPU, in words."""

    host: str
    gpu: str
    board: str
    profile: VgpuType
    seen: str


def list_profiles(services: Services, *, refresh: bool) -> tuple[Sequence[ListedProfile], Survey]:
    """The vGPU types of every GPU and how many more can be created now."""
    gpus, seen = list_gpus(services, refresh=refresh)
    return [
        ListedProfile(listed.host, listed.gpu.address, listed.board, profile, listed.seen)
        for listed in gpus
        for profile in sorted(listed.gpu.types, key=lambda type_: (type_.framebuffer_mib or 0, type_.name))
    ], seen
