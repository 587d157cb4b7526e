# SPDX-License-Identifier: Apache-2.0
"""Evidence of the promise of a VM's GPU shares, from inside its guest and from its host."""

from dataclasses import dataclass
from enum import StrEnum


class PromiseVerdict(StrEnum):
    """The fate of a promise; `unknown` while too little could be read to say."""

    KEPT = "kept"
    NOT_KEPT = "not-kept"
    UNKNOWN = "unknown"


class AskedOf(StrEnum):
    """Who was asked."""

    GUEST = "guest"
    HOST = "host"


@dataclass(frozen=True)
class PartProof:
    """One part of the promise. verdict: of this part. seen: what was read. look: where to look, when it is not kept."""

    part: str
    source: AskedOf
    verdict: PromiseVerdict
    promised: str
    seen: str
    look: str = ""


@dataclass(frozen=True)
class Proof:
    """The evidence of one check. at: seconds since the epoch, UTC. leases: ids of those that it is about.

    unasked: why the guest was not asked, None when it was. notes: what the guest told beside, for people.
    """

    vm_uuid: str
    at: float
    verdict: PromiseVerdict
    leases: tuple[str, ...]
    findings: tuple[PartProof, ...]
    unasked: str | None = None
    notes: tuple[str, ...] = ()


def verdict_of(findings: tuple[PartProof, ...]) -> PromiseVerdict:
    """The verdict of all: one part that is not kept breaks the promise; without any part that is kept nothing is
    known."""
    verdicts = {one.verdict for one in findings}
    if PromiseVerdict.NOT_KEPT in verdicts:
        return PromiseVerdict.NOT_KEPT
    return PromiseVerdict.UNKNOWN if PromiseVerdict.UNKNOWN in verdicts or not verdicts else PromiseVerdict.KEPT
