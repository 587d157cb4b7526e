# SPDX-License-Identifier: Apache-2.0
"""The host's own GPUs for its containers: the file by which container engines know them, and no others."""

from collections.abc import Sequence

from vgpuctl.agent.wire.cdi import FILE, STATE, SetContainerGpus
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.layout import HostLayout, LayoutKind
from vgpuctl.planner.layout.result import Difference, HostPlan, Phase, PlannedStep
from vgpuctl.planner.layout.work import GpuWork
from vgpuctl.sharing.declared import containers_unknown
from vgpuctl.sharing.matching import entries_for

_OTHERS = (
    "containers can take all GPUs by it: `systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service`,"
    " then remove the file; or take out its devices"
)
_FOREIGN = "look whose it is, and move it away; remove it where vgpuctl was taken off the host and came back"


def block_unsure(work: GpuWork, facts: HostFacts) -> None:
    """Block a GPU that containers may have unseen, and one that they cannot be given since the file is another's."""
    why = containers_unknown(facts) if work.is_nvidia else None
    if why is not None:
        reason = f"nobody knows whether containers have {work.address}: {why}"
        work.block("containers-unknown", reason, remedy=f"look whose {FILE} is; remove it and {STATE}")
    elif work.entry.layout.kind is LayoutKind.HOST and facts.cdi is not None and FILE in facts.cdi.others:
        work.block("foreign-file", f"{FILE} is there, and vgpuctl has not written it", remedy=_FOREIGN)


def gpus_for_containers(layout: HostLayout, facts: HostFacts) -> tuple[str, ...]:
    """The addresses of the GPUs that containers have now, and that are declared so."""
    there = () if facts.cdi is None else facts.cdi.gpus
    found = ((gpu.address, entries_for(gpu, layout.gpus)) for gpu in facts.gpus if gpu.address in there)
    return tuple(
        sorted(address for address, entries in found if len(entries) == 1 and entries[0].layout.kind is LayoutKind.HOST)
    )


def plan_containers(facts: HostFacts, gpus: Sequence[GpuWork]) -> HostPlan:
    """The file's steps: GPUs that are the host's no more leave it before anything else is done to them.

    gpus: with their plans; one with an obstacle, or with a part that comes later, is in no file yet.
    """
    declared = [one for one in gpus if one.entry.layout.kind is LayoutKind.HOST]
    if facts.cdi is None or facts.cdi.unknown is not None:
        note = "the files of container engines were not read: the agent did not look"
        return HostPlan(notes=(note,) if declared and containers_unknown(facts) is None else ())
    found = facts.cdi.gpus
    ready = tuple(sorted(one.address for one in declared if not one.obstacles and not one.later))
    steps: list[PlannedStep] = []
    differences: list[Difference] = []
    stay = tuple(one for one in found if one in ready)
    if stay != found:
        steps.append(_step(Phase.HOST, stay, found))
    has_steps = any(one.steps for one in declared if one.address in ready)
    if ready and (ready != found or not facts.cdi.is_current or has_steps):
        steps.append(_step(Phase.CONTAINERS, ready, stay))
    wanted = tuple(sorted(one.address for one in declared))
    if wanted != found:
        differences.append(Difference(None, "containers", _words(wanted), _words(found)))
    elif found and not facts.cdi.is_current:
        differences.append(Difference(None, "containers", f"{_words(wanted)} in {FILE}", "an older file"))
    if wanted:
        differences += [
            Difference(None, "container-devices", f"{FILE} alone", f"{path} too", _OTHERS)
            for path in facts.cdi.others
            if path != FILE
        ]
    notes = tuple(f"a file of container engines was not read: {text}" for text in facts.cdi.unread if wanted)
    return HostPlan(tuple(steps), tuple(differences), notes=notes)


def _step(phase: Phase, gpus: tuple[str, ...], before: tuple[str, ...]) -> PlannedStep:
    summary = f"give containers of the host {_words(gpus)} by {FILE}" if gpus else f"remove {FILE}"
    return PlannedStep(phase, SetContainerGpus(gpus), summary, undo=(SetContainerGpus(before),))


def _words(gpus: Sequence[str]) -> str:
    return ", ".join(gpus) or "no GPU"
