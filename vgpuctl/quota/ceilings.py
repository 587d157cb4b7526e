# SPDX-License-Identifier: Apache-2.0
"""The most that one VM of a tenant may have of what others share, and what it gets when it asks for nothing.

CPU time, disk and network rates. Quotas add up over a tenant's VMs (quota/limits.py); a ceiling holds for each disk,
interface or vCPU by itself, and is a quota named `each:…`; a default is one named `default:…`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpuctl.errors import QuotaExceeded, UsageError
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.limits import Quota
from vgpuctl.quota.resources import EACH, OVER_PROMISE, USUAL, Limited, adds_up, format_amount
from vgpuctl.quota.vm_limits import Part, limits_of, resize_words, with_limit


@dataclass(frozen=True)
class Ceiling:
    """The ceiling of one VM's part. most: None for no end. usual: for one that asks for nothing; None for `most`."""

    name: Limited
    most: int | None = None
    usual: int | None = None

    @property
    def given(self) -> int | None:
        """The limit of a part that asks for none; None for no limit."""
        return self.most if self.usual is None else self.usual


def ceilings_of(quotas: Iterable[Quota]) -> tuple[Ceiling, ...]:
    """The ceilings and defaults among a tenant's quotas, by name."""
    limits = {one.resource: one.limit for one in quotas}
    found = (Ceiling(name, limits.get(EACH + name), limits.get(USUAL + name)) for name in Limited)
    return tuple(one for one in found if one.given is not None)


def refuse_contradiction(quotas: Iterable[Quota]) -> None:
    """Raise UsageError for a default above its ceiling, and for a guarantee of what does not add up."""
    found = list(quotas)
    for one in found:
        if one.guaranteed is not None and not adds_up(one.resource):
            raise _no_guarantee(one.resource)
    for ceiling in ceilings_of(found):
        if ceiling.most is not None and ceiling.usual is not None and ceiling.usual > ceiling.most:
            usual, most = (format_amount(EACH + ceiling.name, one) for one in (ceiling.usual, ceiling.most))
            raise UsageError(
                f"{USUAL}{ceiling.name}={usual} is more than the ceiling of {most}",
                hint=f"raise {EACH}{ceiling.name} too, or give less by default",
            )


def _no_guarantee(resource: str) -> UsageError:
    if resource == OVER_PROMISE:
        return UsageError(
            f"{resource} cannot be guaranteed: it is a policy, and no amount",
            hint=f"set it without --guaranteed, for example {resource}=limit",
        )
    return UsageError(
        f"{resource} cannot be guaranteed: nothing of it adds up",
        hint="a guarantee is of an amount that the tenant's VMs use together, such as framebuffer",
    )


def with_usual(request: VmRequest, ceilings: Sequence[Ceiling], there: VmRequest | None = None) -> VmRequest:
    """The request with a limit for each part that asks for none: the tenant's.

    there: the VM as it is, of which each part keeps what it has.
    """
    has = {} if there is None else {(name, part): value for name, part, value in limits_of(there)}
    for ceiling in ceilings:
        for name, part, value in list(limits_of(request)):
            if name is ceiling.name and value is None:
                request = with_limit(request, name, part, has.get((name, part), ceiling.given))
    return request


def as_there(request: VmRequest, there: VmRequest) -> VmRequest:
    """The request with what the VM has of each limit that the request asks nothing of.

    A default or a ceiling gave it, and may be another by now, or gone.
    """
    return with_usual(request, [Ceiling(name) for name in Limited], there)


@dataclass(frozen=True)
class AboveCeiling:
    """A part of a VM that is above its tenant's ceiling. asked: None for no limit at all."""

    name: Limited
    part: str
    asked: int | None
    most: int

    def __str__(self) -> str:
        """`disk-iops of disk data: 9000 asked, 5000 is the most`."""
        resource = EACH + self.name
        asked = "no limit" if self.asked is None else format_amount(resource, self.asked)
        return f"{self.name} of {self.part}: {asked} asked, {format_amount(resource, self.most)} is the most"


def above(request: VmRequest, ceilings: Sequence[Ceiling], before: VmRequest | None = None) -> list[AboveCeiling]:
    """The parts of a VM that are above a ceiling. before: the VM as it is; of that, what does not grow may stay."""
    return parts_above(limits_of(request), ceilings, () if before is None else limits_of(before))


def parts_above(parts: Iterable[Part], ceilings: Sequence[Ceiling], before: Iterable[Part] = ()) -> list[AboveCeiling]:
    """The same of parts that somebody else has read, as of a domain that is adopted."""
    most = {one.name: one.most for one in ceilings if one.most is not None}
    has = {(name, part): value for name, part, value in before}
    found = []
    for name, part, value in parts:
        if name not in most or (value is not None and value <= most[name]):
            continue
        is_kept = (name, part) in has and _is_at_most(value, has[name, part])
        if not is_kept:
            found.append(AboveCeiling(name, part, value, most[name]))
    return found


def refusal(request: VmRequest, found: Sequence[AboveCeiling], *, is_kept: bool = False) -> QuotaExceeded:
    """The error for a VM that is above ceilings of its tenant. is_kept: it comes back as it was, and asks nothing."""
    names = ", ".join(sorted({one.name for one in found}))
    instead = "it comes back with the limits that it had, so " if is_kept else "ask for less, or "
    return QuotaExceeded(
        f"VM {request.name} is above a ceiling of tenant {request.tenant}: {names}",
        context=list(map(str, found)),
        hint=instead + _raising(request, found),
        short=f"above a ceiling of tenant {request.tenant}",
    )


def describe_above(label: str, request: VmRequest, found: Sequence[AboveCeiling], *, is_there: bool) -> str:
    """Something that was there before its tenant's ceiling, in words, and what to do about it.

    label: a VM, or what VMs are to come from, such as a node pool (is_there False), and does not come then.
    """
    parts = "; ".join(map(str, found))
    if is_there:
        below = request
        for one in found:
            below = with_limit(below, one.name, one.part, one.most)
        lower = f"vgpuctl resize-vm {request.tenant}/{request.name} {' '.join(resize_words(request, below))}"
        return (
            f"{label} stays above it: {parts.replace(' asked', ' now')}: to bring it below: {lower}; to allow it, "
            f"{_raising(request, found)}"
        )
    return f"{label} asks for more and is refused from now on: {parts}: ask for less, or {_raising(request, found)}"


def _raising(request: VmRequest, found: Sequence[AboveCeiling]) -> str:
    """The command that raises every ceiling to what is asked."""
    amounts = []
    for name in dict.fromkeys(one.name for one in found):
        asked = [one.asked for one in found if one.name is name]
        known = [one for one in asked if one is not None]
        most = "none" if len(known) < len(asked) else format_amount(EACH + name, max(known))
        amounts.append(f"{EACH}{name}={most}")
    return f"raise it: vgpuctl set-quota {request.tenant} {' '.join(amounts)}"


def _is_at_most(value: int | None, other: int | None) -> bool:
    return other is None or (value is not None and value <= other)
