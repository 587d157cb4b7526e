# SPDX-License-Identifier: Apache-2.0
"""Consent to preempt VMs: of the command, its user or the tenant's policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgpuctl.errors import PreemptionNeeded
from vgpuctl.model.preemption import PreemptMode
from vgpuctl.model.times import format_duration
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.candidates import Candidate
from vgpuctl.usecases.placement.preemption import done_by
from vgpuctl.usecases.running.services import Services

SHUTDOWN_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Consent:
    """Permission of a command to preempt VMs, and the times that it gives them.

    is_given: with --preempt. ask: puts the question to the user; None without a terminal. grace_s: instead of the grace
    periods of the victims' tenants. shutdown_timeout_s: for each guest to shut down before it is forced off.
    """

    is_given: bool = False
    ask: Callable[[Sequence[Candidate]], bool] | None = None
    grace_s: float | None = None
    shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S


NO_CONSENT = Consent()


def refuse_without_consent(
    services: Services, requests: Sequence[VmRequest], victims: Sequence[Candidate], consent: Consent
) -> None:
    """Raise PreemptionNeeded, which names the victims, unless the command, its user or the tenant's policy agreed."""
    with services.store.reading() as session:
        policy = session.tenant(requests[0].tenant).policy
    if consent.is_given or policy.preempt is PreemptMode.AUTO or (consent.ask is not None and consent.ask(victims)):
        return
    count = f"{len(victims)} VM{'s are' if len(victims) != 1 else ' is'}"
    fits = "fits" if len(requests) == 1 else "fit together"
    raise PreemptionNeeded(
        f"{names_of(requests)} {fits} only if {count} preempted: {', '.join(one.name for one in victims)}",
        context=[describe_victim(one, consent.grace_s) for one in victims],
        hint="give --preempt to preempt them; with --dry-run too it shows where the new VM would be",
    )


def describe_victim(victim: Candidate, grace_s: float | None = None) -> str:
    """One line: why the VM may be preempted and what becomes of it. grace_s: instead of its tenant's."""
    reason = "on borrowed quota" if victim.on_borrowed_quota else "preemptible"
    grace = format_duration(victim.grace_s if grace_s is None else grace_s)
    return (
        f"{victim.name} on {victim.host}: priority {victim.priority}, {reason}, has run for "
        f"{format_duration(victim.work_s)}, is {done_by(victim.action)} {grace} after the notice"
    )


def names_of(requests: Sequence[VmRequest]) -> str:
    """The VMs of one tenant, for messages."""
    return f"{requests[0].tenant}/{', '.join(one.name for one in requests)}"
