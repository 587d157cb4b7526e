# SPDX-License-Identifier: Apache-2.0
"""The table of rows with their comparisons, and the findings of one VM."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from vgpuctl.model.promise import DOMAIN_NOT_RUNNING, Moment, PromiseFinding, PromiseRow, PromiseVerdict
from vgpuctl.promises import domain, inside, ports, shares
from vgpuctl.promises.answer import RowAnswer, RowAnswers
from vgpuctl.promises.witnessed import NotLookedAt, NotRunning, Promised, SeenDomain, Witnessed

_Comparison = Callable[[Promised, Witnessed], RowAnswers]
COMPARISONS: Mapping[PromiseRow, _Comparison] = {
    PromiseRow.RUNS_ONCE: domain.runs_once,
    PromiseRow.GPU_TYPE: shares.gpu_type,
    PromiseRow.GPU_HELD: shares.gpu_held,
    PromiseRow.GPU_STATE: shares.gpu_state,
    PromiseRow.PARTITION: shares.partition,
    PromiseRow.VF_PARAMS: shares.vf_params,
    PromiseRow.FRAMEBUFFER: shares.framebuffer,
    PromiseRow.COMPUTE: shares.compute,
    PromiseRow.COMPUTE_PROMISE: shares.compute_promise,
    PromiseRow.GUEST_DRIVER: shares.guest_driver,
    PromiseRow.LICENCE: shares.licence,
    PromiseRow.LICENCE_EDITION: shares.licence_edition,
    PromiseRow.GUEST_GPUS: shares.guest_gpus,
    PromiseRow.GPU_PEERS: shares.gpu_peers,
    PromiseRow.MPS: inside.mps,
    PromiseRow.VCPUS: domain.vcpus,
    PromiseRow.MEMORY: domain.memory,
    PromiseRow.DISKS: domain.disks,
    PromiseRow.INTERFACES: domain.interfaces,
    PromiseRow.PORTS: ports.ports,
    PromiseRow.GATEWAY: ports.gateway,
    PromiseRow.BALANCERS: ports.balancers,
    PromiseRow.DISPLAY: domain.display,
    PromiseRow.TPM: domain.tpm,
    PromiseRow.RESTART: ports.restart,
}
_VERDICTS = {True: PromiseVerdict.KEPT, False: PromiseVerdict.BROKEN, None: PromiseVerdict.NOT_LOOKED_AT}


def compare(promised: Promised, seen: Witnessed, moment: Moment) -> tuple[PromiseFinding, ...]:
    """The findings of every row that is looked at in this moment, in the order of the table."""
    return tuple(_findings(promised, seen, moment))


_AT_NEXT_START = (PromiseRow.DISKS, PromiseRow.INTERFACES, PromiseRow.DISPLAY)
"""Rows of what can be given to a VM that runs, for its next start."""


def may_wait(findings: Sequence[PromiseFinding]) -> bool:
    """True if something that is broken may only wait for the VM's next start: the domain's definition tells."""
    return any(one.is_broken and one.row in _AT_NEXT_START for one in findings)


def with_waiting(
    findings: Sequence[PromiseFinding],
    promised: Promised,
    definition: SeenDomain,
    known: Collection[tuple[PromiseRow, str, str]],
) -> tuple[PromiseFinding, ...]:
    """The findings, where what the VM gets at its next start is not broken.

    definition: the domain as it starts next. known: row, subject and promise of what was kept since the last start;
    that does not wait, it was taken from the running domain.
    """
    seen = Witnessed(domain=definition, active_networks=NotLookedAt("only the definition was asked"))
    then = {
        (row, one.subject, one.promised)
        for row in _AT_NEXT_START
        for one in COMPARISONS[row](promised, seen)
        if one.is_kept
    }
    waiting = then - set(known)
    return tuple(
        replace(one, verdict=PromiseVerdict.NOT_LOOKED_AT, why="it waits for the VM's next start", remedy="")
        if one.is_broken and (one.row, one.subject, one.promised) in waiting
        else one
        for one in findings
    )


def _findings(promised: Promised, seen: Witnessed, moment: Moment) -> Iterator[PromiseFinding]:
    for row, comparison in COMPARISONS.items():
        if moment in row.moments:
            for answer in comparison(promised, seen):
                yield _finding(row, _of_running(answer, seen))


def _of_running(answer: RowAnswer, seen: Witnessed) -> RowAnswer:
    """The answer; broken if it was not given because the domain does not run."""
    domain = seen.domain
    if isinstance(domain, NotRunning) and answer.is_kept is None and answer.why == domain.why:
        return replace(answer, is_kept=False, seen=domain.why, why="", remedy=DOMAIN_NOT_RUNNING)
    return answer


def _finding(row: PromiseRow, answer: RowAnswer) -> PromiseFinding:
    return PromiseFinding(
        row,
        answer.subject,
        answer.witness or row.witness,
        _VERDICTS[answer.is_kept],
        answer.promised,
        answer.seen,
        answer.why,
        answer.remedy if answer.is_kept is False else "",
    )
