# SPDX-License-Identifier: Apache-2.0
"""The search over hosts: one pass, the policy chooses among all that is allowed, ties go by host name."""

from collections.abc import Mapping, Sequence

from vgpuctl import catalog
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Placement, Rejection
from vgpuctl.model.policy import DEFAULT_POLICY, Policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.codes import Code
from vgpuctl.scheduler.fit import Fit, ask, by_conditions, fit, given_for_conditions
from vgpuctl.scheduler.gpu_state import GpuState, read_state
from vgpuctl.scheduler.host_rules import refuse_host
from vgpuctl.scheduler.judge import NOTHING_MORE, Candidate, FleetView, Judge
from vgpuctl.scheduler.offer import Offer, Refusal, Wanted


def explain(
    request: VmRequest,
    capacities: Sequence[HostCapacity],
    leases: Sequence[Lease],
    policy: Policy = DEFAULT_POLICY,
    view: FleetView = NOTHING_MORE,
) -> Placement | list[Rejection]:
    """Choose host and GPUs for one VM, or say for every GPU (or whole host) why it cannot.

    capacities: hosts as last read, names unique. leases: every live lease on them; others are not harmful.
    The policy orders what is allowed and refuses nothing; equal hosts go by least waste, then by name.
    A placement carries the rejections too.
    """
    judge = Judge(policy, view)
    wants = wants_of(request)
    by_gpu: dict[tuple[str, str], list[Lease]] = {}
    for lease in leases:
        if lease.state.holds_device():
            by_gpu.setdefault((lease.host, lease.slice.gpu), []).append(lease)
    candidates: list[Candidate] = []
    rejections: list[Rejection] = []
    for capacity in sorted(capacities, key=lambda one: one.name):
        refusal = refuse_host(request, capacity)
        if refusal is not None:
            rejections.append(_rejection(capacity.name, None, refusal))
            continue
        states = [
            read_state(capacity.name, capacity.facts, gpu, by_gpu.get((capacity.name, gpu.address), ()))
            for gpu in sorted(capacity.facts.gpus, key=lambda one: one.address)
        ]
        refused, offers = _ask_all(wants, states)
        rejections.extend(refused)
        usable = [state for state in states if state.gpu.address in offers]
        fitting = _fit(wants, usable, offers, judge)
        if fitting is None:
            if usable:
                rejections.append(_rejection(capacity.name, None, _not_together(wants, usable)))
            continue
        waste = fitting.waste if wants else (len(capacity.facts.gpus),)
        size = given_for_conditions(wants, fitting)
        candidates.append(Candidate(capacity.name, fitting.slices, waste, tuple(states), size))
    best = judge.best(candidates)
    if best is not None:
        return Placement(best.host, best.slices, tuple(rejections))
    if request.host is not None and all(capacity.name != request.host for capacity in capacities):
        unknown = Refusal(
            Code.HOST_UNKNOWN, "no host of this name was read", "run `vgpuctl list-hosts` to see the hosts"
        )
        rejections.append(_rejection(request.host, None, unknown))
    return rejections


def wants_of(request: VmRequest) -> list[Wanted]:
    """One Wanted per slice, in the request's order."""
    wants: list[Wanted] = []
    for gpu in request.gpus:
        boards = None
        if gpu.board is not None:
            boards = frozenset(board.key for board in catalog.boards_named(gpu.board))
        wants.extend([Wanted(gpu, boards)] * gpu.count)
    return wants


def _ask_all(wants: Sequence[Wanted], states: Sequence[GpuState]) -> tuple[list[Rejection], dict[str, list[Offer]]]:
    """Ask every GPU of a host for every want: the offers by GPU, and the first reason of those that offer nothing."""
    different = list(dict.fromkeys(wants))
    rejections: list[Rejection] = []
    offers: dict[str, list[Offer]] = {}
    for state in states:
        refusals: list[Refusal] = []
        for wanted in different:
            answer = ask(wanted, state)
            if isinstance(answer, Refusal):
                refusals.append(answer)
            else:
                offers.setdefault(state.gpu.address, []).extend(answer)
        if state.gpu.address not in offers and refusals:
            rejections.append(_rejection(state.host, state.gpu.address, refusals[0]))
    return rejections, offers


def _fit(
    wants: Sequence[Wanted], usable: Sequence[GpuState], offers: Mapping[str, list[Offer]], judge: Judge
) -> Fit | None:
    """All slices on this host; a single one needs no search, the offers are there."""
    if wants and not usable:
        return None
    if len(wants) != 1:
        return fit(wants, usable, judge)
    found = [offer for one in offers.values() for offer in one]
    best = judge.in_order(found, {state.gpu.address: state for state in usable}, by_size=by_conditions(wants[0]))[0]
    return Fit((best.slice,), best.waste)


def _not_together(wants: Sequence[Wanted], states: Sequence[GpuState]) -> Refusal:
    """Say how many of the wanted slices the host's GPUs take together."""
    most = next((count for count in range(len(wants) - 1, 0, -1) if fit(wants[:count], states)), 0)
    missing = wants[most].what
    return Refusal(
        Code.NOT_TOGETHER,
        f"its GPUs take {most} of the {len(wants)} wanted together; no place is left for {missing}",
        "ask for fewer GPUs, or delete a VM on this host",
    )


def _rejection(host: str, gpu: str | None, refusal: Refusal) -> Rejection:
    return Rejection(host, gpu, str(refusal.code), refusal.reason, refusal.remedy)
