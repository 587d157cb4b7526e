# SPDX-License-Identifier: Apache-2.0
"""The part of a GPU's compute time that a share is promised, and why a GPU cannot promise what is asked for.

Sources: NVIDIA vGPU software user guide, "Scheduling Policies" (best effort, equal share, fixed share; reference host
interfaces, 3.4): fixed share gives each vGPU the part of its type, used or not; equal share divides the GPU between the
vGPUs that run, so that a full GPU gives each the least; best effort promises nothing. NVIDIA MIG user guide: a GPU
instance has its compute slices alone. Intel's driver documents time slices of functions (sharing/function_time.py);
nobody documents what VFs of AMD's get.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.model.compute import ComputeKind, percent_text
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.layout import SchedulerPolicy, VgpuLayout
from vgpuctl.model.lease import Share
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.declared import Declared
from vgpuctl.sharing.function_time import PROMISED_BY, part_of_vf
from vgpuctl.sharing.gpu_state import max_instances_of
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import existing_vgpus, kind_of
from vgpuctl.sharing.offer import Refusal

_ASK_TYPE = "ask for less, or for a larger type"
_ASK_VF = "ask for less, or declare fewer VFs, longer slices (`vf_params`) or shorter ones of the PF (`pf_params`)"
_ALL_SLICES = 7
"""Compute slices of a GPU that MIG can divide, where the catalogue has no table of the model (MIG user guide)."""


@dataclass(frozen=True)
class Compute:
    """The compute time of its GPU that a share has.

    kind: how it is promised. part: of the GPU, 0 to 1, that its type or instance stands for; None where nobody knows.
    promised: the part that is promised, 0 to 1, 0 for the kind best-effort. why: in words. is_read: False where the
    scheduler was not told, so that the share may have more.
    """

    kind: ComputeKind
    part: Fraction | None
    promised: Fraction
    why: str
    is_read: bool = True

    def __str__(self) -> str:
        if not self.promised:
            return f"no part of the GPU's time ({self.why})"
        least = "at least " if self.kind is ComputeKind.AT_LEAST else ""
        return f"{least}{percent_text(float(self.promised * 100))} of the GPU's time ({self.why})"


def _unpromised(part: Fraction | None, why: str) -> Compute:
    return Compute(ComputeKind.BEST_EFFORT, part, Fraction(0), why)


def _guaranteed(part: Fraction, why: str) -> Compute:
    return Compute(ComputeKind.GUARANTEED, part, part, why)


def compute_of(share: Share, gpu: Gpu, declared: Declared, beside: Collection[str] = ()) -> Compute:
    """The compute time of a share on a GPU in the state that its host shows, whoever comes beside it.

    declared: by the host's layout, which limits the types that may come beside it. beside: types of vGPUs that are
    promised there already, by their short names; those that the host shows are counted in any case.
    """
    takes = kind_of(share.sharing).takes
    if takes is Takes.CARD:
        return _guaranteed(Fraction(1), "it has the whole GPU")
    if takes is Takes.FUNCTION:
        part, why = part_of_vf(share.function, gpu, declared)
        if part is not None:
            return Compute(ComputeKind.AT_LEAST, part, part, why)
        return _unpromised(None, why)
    board = catalog.board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
    if catalog.is_mig_backed(share.profile):
        return _in_instance(share.profile, board)
    return _time_sliced(share, gpu, board, declared, beside)


def _in_instance(profile: str, board: catalog.Board | None) -> Compute:
    table = None if board is None else catalog.mig_table(board)
    slices = gpu_instance_slices(profile) or 0
    whole = (table.compute_slices if table is not None else None) or _ALL_SLICES
    known = None if board is None else catalog.type_by_name(board, profile)
    part = min(Fraction(1), Fraction(slices, whole))
    beside = None if known is None else known.max_per_gi
    if beside != 1:
        why = f"{beside or 'perhaps several'} vGPUs of its type share a GPU instance, and nothing tells how"
        return _unpromised(part / beside if beside else None, why)
    return _guaranteed(part, f"a GPU instance with {slices} of {whole} compute slices")


def _time_sliced(
    share: Share, gpu: Gpu, board: catalog.Board | None, declared: Declared, beside: Collection[str]
) -> Compute:
    offered = next((one for one in gpu.types if catalog.short_name(one.name) == share.profile), None)
    known = None if board is None else catalog.type_by_name(board, share.profile)
    most = max_instances_of(offered, board) if offered is not None else None if known is None else known.max_instances
    if not most:
        return _unpromised(None, "nobody knows how many vGPUs of its type the GPU takes")
    part, policy = Fraction(1, most), None if gpu.scheduler is None else gpu.scheduler.policy
    if most == 1:
        return _guaranteed(part, "no other vGPU goes beside it")
    if policy is None:
        why = "its driver does not tell the scheduler of its vGPUs"
        return replace(_unpromised(part, why), is_read=False)
    if policy == SchedulerPolicy.FIXED_SHARE:
        return _guaranteed(part, f"scheduler {policy}, up to {most} vGPUs")
    if policy != SchedulerPolicy.EQUAL_SHARE:
        return _unpromised(part, f"its vGPUs have the scheduler {policy}")
    if not gpu.heterogeneous:
        return Compute(ComputeKind.AT_LEAST, part, part, f"scheduler {policy}, up to {most} vGPUs")
    in_all = _most_in_all(gpu, board, declared, beside)
    if in_all is None:
        return _unpromised(part, "nobody knows how many vGPUs of mixed sizes it takes")
    why = f"scheduler {policy}, up to {in_all} vGPUs of mixed sizes"
    return Compute(ComputeKind.AT_LEAST, part, Fraction(1, in_all), why)


def _most_in_all(gpu: Gpu, board: catalog.Board | None, declared: Declared, beside: Collection[str]) -> int | None:
    """How many vGPUs at most run on a GPU of mixed sizes: as many as of the smallest type that may be there.

    Those are the types that its layout allows, and those of vGPUs that are there already; all of them while a VF could
    not be read, which may carry any.
    """
    layout = None if declared.entry is None else declared.entry.layout
    is_unread = any(one.problem is not None for one in gpu.vfs)
    allowed = layout.types if isinstance(layout, VgpuLayout) and not is_unread else ()
    there = {one.type_id for one in existing_vgpus(gpu)}
    counts = [
        max_instances_of(one, board)
        for one in gpu.types
        if not allowed or catalog.short_name(one.name) in {*allowed, *beside} or one.type_id in there
    ]
    known = [one for one in counts if one]
    return max(known) if known and len(known) == len(counts) else None


def refuse_compute(
    request: GpuRequest, share: Share, gpu: Gpu, declared: Declared, host: str, beside: Collection[str] = ()
) -> Refusal | None:
    """Say why a share on this GPU has not the compute time that is asked for; None when it has."""
    if not request.wants_compute:
        return None
    kind, wanted = request.compute or ComputeKind.AT_LEAST, request.minimum_compute_percent
    found = compute_of(share, gpu, declared, beside)
    least = Fraction(str(wanted or 0)) / 100
    if found.kind.covers(kind) and found.promised >= least:
        return None
    is_small = found.part is not None and found.part < least
    is_of_size = wanted is not None and (is_small or found.kind.covers(kind))
    asked = f"{percent_text(wanted or 0)} are" if is_of_size else f"{kind} is"
    remedy = _remedy(share, gpu, declared, host, found, kind)
    return Refusal(
        Code.COMPUTE_PROMISE,
        f"it promises {share.profile} {found}, and {asked} asked for",
        (_ASK_VF if kind_of(share.sharing).takes is Takes.FUNCTION else _ASK_TYPE) if is_small else remedy,
    )


def _remedy(share: Share, gpu: Gpu, declared: Declared, host: str, found: Compute, kind: ComputeKind) -> str:
    where = host if declared.entry is None else f"{host} ({declared.entry.origin})"
    if found.kind.covers(kind):  # a GPU of mixed sizes, which smaller vGPUs may share
        return f"allow larger types alone for it (`types`) in the layout of {where}, or ask for less"
    if kind_of(share.sharing).takes is Takes.FUNCTION and gpu.pf_params is not None and kind is ComputeKind.AT_LEAST:
        return f"declare `vf_params` and `pf_params` with {PROMISED_BY} above 0 for it in the layout of {where}"
    if kind_of(share.sharing).takes is not Takes.VGPU or catalog.is_mig_backed(share.profile):
        return "ask for a whole card, a vGPU with a GPU instance of its own, or no compute time"
    policy = SchedulerPolicy.EQUAL_SHARE
    if kind is ComputeKind.GUARANTEED:
        if gpu.heterogeneous:
            return "fixed-share goes with equal sizes alone: ask for `compute=at-least`, or for a MIG-backed type"
        policy = SchedulerPolicy.FIXED_SHARE
    return f"declare `scheduler: {{policy: {policy}}}` for it in the layout of {where} and run `vgpuctl apply-hosts`"
