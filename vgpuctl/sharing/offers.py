# SPDX-License-Identifier: Apache-2.0
"""One GPU's answer to one wanted share: the kind that the request names is asked, or the vGPU kind that the GPU has."""

from vgpuctl.sharing.compute import refuse_compute
from vgpuctl.sharing.declared import refuse_use
from vgpuctl.sharing.gpu_state import GpuState
from vgpuctl.sharing.kind import SharingKind
from vgpuctl.sharing.kinds import VGPU_LAYOUTS, kind_of, vgpu_kind_on
from vgpuctl.sharing.offer import Answer, Offer, Refusal, ShareRequest
from vgpuctl.sharing.partition_rules import refuse_partition
from vgpuctl.sharing.refusals import declared_otherwise, refuse_labels
from vgpuctl.sharing.types_in_vm import refuse_in_vm
from vgpuctl.sharing.vgpu import refuse_without_vgpu


def ask(share_request: ShareRequest, state: GpuState) -> Answer:
    """Offer shares or refuse: every path that places, counts or explains asks here.

    A model that cannot serve the request refuses it; any other GPU serves it only if its layout does.
    """
    refusal = refuse_labels(share_request, state)
    if refusal is not None:
        return refusal
    sharing = share_request.request.sharing
    kind = vgpu_kind_on(state.gpu) if sharing is None else kind_of(sharing)
    answer = refuse_without_vgpu(share_request, state) if kind is None else kind.offers(share_request, state)
    if isinstance(answer, Refusal) and answer.code.is_of_the_model():
        return answer
    if kind is not None and share_request.display is not None and not isinstance(answer, Refusal):
        refusal = kind.refuse_console(share_request.display, state.facts.libvirt_version)
        if refusal is not None:
            return refusal
    if kind is not None and not isinstance(answer, Refusal):
        answer = _on_terms(kind, share_request, answer, state)
    if not isinstance(answer, Refusal) and sharing is None and len(share_request.vgpus) > 1:
        answer = _in_vm(share_request, answer, state)
    if not isinstance(answer, Refusal) and share_request.request.wants_compute:
        answer = _with_compute(share_request, answer, state)
    if (state.fabric is not None or share_request.partition is not None) and not isinstance(answer, Refusal):
        answer = _in_partitions(share_request, answer, state)
    reason = refuse_use(state.declared, VGPU_LAYOUTS if sharing is None else kind_of(sharing).layouts)
    return answer if reason is None else declared_otherwise(reason, state)


def _with_compute(share_request: ShareRequest, offers: list[Offer], state: GpuState) -> Answer:
    """The offers that are promised the compute time that is asked for; without any, why the largest is not."""
    beside = {one.name for one in state.vgpus if one.name is not None}
    refusals = [
        refuse_compute(share_request.request, one.share, state.gpu, state.declared, state.host, beside)
        for one in offers
    ]
    kept = [one for one, refusal in zip(offers, refusals, strict=True) if refusal is None]
    return kept or next((one for one in reversed(refusals) if one is not None), offers)


def _in_vm(share_request: ShareRequest, offers: list[Offer], state: GpuState) -> Answer:
    """The offers that may be beside the VM's other vGPUs; without any, why the first may not."""
    refusals = [refuse_in_vm(share_request, one.share, state) for one in offers]
    kept = [one for one, refusal in zip(offers, refusals, strict=True) if refusal is None]
    return kept or next((one for one in refusals if one is not None), offers)


def _in_partitions(share_request: ShareRequest, offers: list[Offer], state: GpuState) -> Answer:
    """The offers that a partition of the NVSwitch fabric may serve; without any, why none serves the first."""
    refusals = [refuse_partition(share_request, one.share, state) for one in offers]
    kept = [one for one, refusal in zip(offers, refusals, strict=True) if refusal is None]
    return kept or next((one for one in refusals if one is not None), offers)


def _on_terms(kind: SharingKind, share_request: ShareRequest, offers: list[Offer], state: GpuState) -> Answer:
    """The offers that keep the VM's terms; without any, why the first does not."""
    found = [
        kind.refuse_terms(one.share, state.gpu, state.facts, state.declared, share_request.terms) for one in offers
    ]
    kept = [one for one, refusal in zip(offers, found, strict=True) if refusal is None]
    return kept or next((one for one in found if one is not None), offers)
