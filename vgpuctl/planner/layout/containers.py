# SPDX-License-Identifier: Apache-2.0
"""The host's own GPUs for its containers: the file by which container engines know them, and no others."""

from collections.abc import Sequence

from vgpuctl.agent.wire.cdi import FILE, STATE, SetContainerGpus
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.vf_health import DRIVER
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

    gpus: with their plans. One with an obstacle, or with a part that comes later, comes into no file yet. One that
    containers have and that stays the host's own is left to them, whatever else stands in its way, unless a VM has it.
    """
    declared = [one for one in gpus if one.entry.layout.kind is LayoutKind.HOST]
    if facts.cdi is None or facts.cdi.unknown is not None:
        note = "the files of container engines were not read: the agent did not look"
        return HostPlan(notes=(note,) if declared and containers_unknown(facts) is None else ())
    found = facts.cdi.gpus
    able = {one.address for one in declared if not one.obstacles and not one.later}
    on_driver = {one.address for one in declared if one.gpu.driver == DRIVER}
    kept = {one.address for one in declared if one.address in found and not one.users} & on_driver
    given = tuple(sorted(able | kept))
    steps: list[PlannedStep] = []
    differences: list[Difference] = []
    stay = tuple(one for one in found if one in given and one in on_driver)
    if stay != found:
        left = f"take {_words([one for one in found if one not in stay])} from containers of the host in {FILE}"
        steps.append(PlannedStep(Phase.HOST, SetContainerGpus(stay), left, undo=(SetContainerGpus(found),)))
    is_written = stay != found or facts.cdi.is_current
    has_steps = any(one.steps for one in declared if one.address in able)
    if given and (given != stay or not is_written or has_steps):
        summary = f"give containers of the host {_words(given)} by {FILE}"
        steps.append(PlannedStep(Phase.CONTAINERS, SetContainerGpus(given), summary, undo=(SetContainerGpus(stay),)))
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


def _words(gpus: Sequence[str]) -> str:
    return ", ".join(gpus) or "no GPU"
