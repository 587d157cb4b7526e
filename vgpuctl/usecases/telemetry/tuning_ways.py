# SPDX-License-Identifier: Apache-2.0
"""The two ways in which a controller applies advice: the power limit of a GPU, and the live move of a VM.

Each is found on its host, made, and rolled back. The state that is found decides, not the order that was given.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.tuning import KeepPowerLimit, SetPowerLimit, watts
from vgpuctl.agent.wire.vf_health import DRIVER
from vgpuctl.errors import ConcurrentChange, StateError
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import without_leaving
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.scheduler.advice.power_limit import refuse_tuning
from vgpuctl.sharing.declared import UNDECLARED, declared_of
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.usecases.observed.capacities import declared_on
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.observed.tuning_record import MoveChange, PowerChange, Trial, TrialState
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.balance import moving_alone
from vgpuctl.usecases.vm.move_vm import MoveOptions, MoveWay, move_vm

UNREAD_S = 3600.0
"""A host that the inventory does not list and that nobody has read for so long is in no inventory."""


class WhereFound(StrEnum):
    """Where a change is found: as before it, as after it, or elsewhere, because somebody else changed the same."""

    BEFORE = "before"
    AFTER = "after"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class FoundChange:
    """The state now. words: for the event. leave: why the controller leaves it as it is, where it is elsewhere.

    is_booted: the host was booted, which says nothing of the change. withdrawn: why the change is not allowed any more
    and is rolled back. back_mw: the power limit that is set then. is_at_boot: a boot sets the limit after the change.
    """

    place: WhereFound
    words: str
    leave: str = ""
    is_booted: bool = False
    withdrawn: str = ""
    back_mw: int | None = None
    is_at_boot: bool = False


def find(services: Services, trial: Trial) -> FoundChange:
    """Look at what a trial changes. Raises StateError where that cannot be told, and what reading a host raises."""
    if isinstance(trial.change, MoveChange):
        return _find_vm(services, trial.change)
    facts = read_facts(services, trial.host)
    goes_back = trial.state is TrialState.ROLLING_BACK
    return find_limit(trial.host, trial.change, facts, declared_on(services, trial.host), goes_back=goes_back)


def missing_hosts(services: Services, trial: Trial) -> list[str]:
    """The hosts of a trial that this controller does not serve."""
    served = set(services.hosts())
    return [host for host in dict.fromkeys(hosts_of(trial)) if host not in served]


def find_without(services: Services, trial: Trial, missing: Sequence[str]) -> FoundChange | str:
    """Find a change without asking its hosts; else say what the trial waits for, without a subject.

    missing: hosts that this controller does not serve. A host that no inventory lists is gone; another inventory
    beside this one may list it, whose controller then has read the host lately.
    """
    if isinstance(trial.change, MoveChange):
        try:
            found = _find_vm(services, trial.change)
        except ConcurrentChange as error:
            return f"waits: {error.message}"
        if found.place is WhereFound.ELSEWHERE:
            return found
    listed = set(services.inventory.hosts())
    unlisted = [host for host in missing if host not in listed]
    if not unlisted:
        return f"waits for a controller that serves {', '.join(missing)}, which --limit leaves out here"
    with services.store.reading() as session:
        now, read_at = session.now(), session.recorded_hosts()
    names = ", ".join(unlisted)
    if any(now - max(read_at.get(host, 0.0), trial.begun_at) < UNREAD_S for host in unlisted):
        return f"waits: the inventory does not list {names} any more; it ends once nobody has read that for an hour"
    words = f"what {names} has is not known"
    return FoundChange(WhereFound.ELSEWHERE, words, leave=f"no inventory lists {names} any more")


def make(services: Services, trial: Trial) -> None:
    """Make the change. Raises what the host and a move raise."""
    if isinstance(trial.change, MoveChange):
        _move(services, trial, trial.change, is_back=False)
    else:
        _set_limit(services, trial.host, trial.change.gpu, trial.change.after_mw)


def roll_back(services: Services, trial: Trial, found: FoundChange) -> None:
    """Bring what was changed back. Raises what the host and a move raise."""
    if isinstance(trial.change, MoveChange):
        _move(services, trial, trial.change, is_back=True)
    else:
        back_mw = trial.change.before_mw if found.back_mw is None else found.back_mw
        _set_limit(services, trial.host, trial.change.gpu, back_mw)
        if found.is_at_boot:  # a controller was killed right before it kept the change
            _keep_limit(services, trial.host, trial.change.gpu, back_mw)


def keep(services: Services, trial: Trial) -> str:
    """Have a boot of the host bring back what is kept. Returns what does not last, to be added to a sentence.

    Raises what the host raises.
    """
    if isinstance(trial.change, MoveChange):
        return ""
    if _keep_limit(services, trial.host, trial.change.gpu, trial.change.after_mw):
        return ""
    return f"; a reboot ends it, since no unit restores {trial.host}: `vgpuctl apply-hosts` installs it"


def present_limit(services: Services, host: str, gpu: str) -> tuple[int, HostFacts]:
    """The power limit of a GPU in milliwatts, just read. Raises StateError where it cannot be told."""
    facts = read_facts(services, host)
    return _limit_of(host, gpu, gpu_at(facts, gpu)), facts


def _limit_of(host: str, address: str, gpu: Gpu | None) -> int:
    if gpu is None or gpu.tuning is None or gpu.tuning.power_limit_mw is None:
        raise StateError(f"{host}: the power limit of {address} is not known", hint=f"`vgpuctl inspect-host {host}`")
    if (problem := gpu.tuning.why_unread("power_limit_mw")) is not None:
        raise StateError(f"{host}: the power limit of {address} could not be read: {problem}")
    return gpu.tuning.power_limit_mw


def refuse_limit(services: Services, facts: HostFacts, host: str, gpu: str, limit_mw: int) -> str | None:
    """Say why no controller may have the GPU at this power limit. Raises InventoryError."""
    found = gpu_at(facts, gpu)
    declared = UNDECLARED if found is None else declared_of(found, facts, declared_on(services, host))
    return refuse_tuning(declared, limit_mw)


def find_limit(
    host: str, change: PowerChange, facts: HostFacts, entries: Sequence[GpuLayout], *, goes_back: bool = False
) -> FoundChange:
    """Look at a power limit in what was just read. entries: of the host's layout. Raises StateError.

    goes_back: it is rolled back, and as before with the limit nearest to that which the layout allows now.

    The boot comes first: the driver of a host that was just booted may not tell its GPUs' limits yet.
    """
    if facts.boot_id != change.boot_id:
        why = "the host was booted, which ends every limit that is neither declared nor kept"
        words = f"the controller's power limit of {host} {change.gpu} is gone"
        return FoundChange(WhereFound.ELSEWHERE, words, leave=why, is_booted=True)
    gpu = gpu_at(facts, change.gpu)
    if gpu is None or (gpu.tuning is None and gpu.driver != DRIVER):
        why = "the host does not show the GPU any more" if gpu is None else f"{gpu.driver or 'no driver'} has the GPU"
        return FoundChange(WhereFound.ELSEWHERE, f"the power limit of {host} {change.gpu} is gone", leave=why)
    limit_mw = _limit_of(host, change.gpu, gpu)
    words = f"the power limit of {host} {change.gpu} is {watts(limit_mw)}"
    declared = declared_of(gpu, facts, entries)
    if declared.doubt is not None:
        raise StateError(
            f"{host}: nobody knows what the layout says of {change.gpu}, since it {declared.doubt}",
            hint=f"correct its layout; `vgpuctl plan-hosts --limit {host}` checks it",
        )
    entry = declared.entry
    if entry is not None and entry.tuning.power_limit_mw is not None:
        return FoundChange(WhereFound.ELSEWHERE, words, leave=f"the layout declares it now ({entry.origin})")
    back_mw = change.before_mw if entry is None else entry.bounds.nearest(change.before_mw)
    if limit_mw == change.before_mw or (goes_back and limit_mw == back_mw):
        if limit_mw != change.before_mw:
            words += f", since the layout does not allow {watts(change.before_mw)} any more"
        return FoundChange(WhereFound.BEFORE, words, back_mw=limit_mw)
    if limit_mw != change.after_mw:
        return FoundChange(
            WhereFound.ELSEWHERE, words, leave=f"somebody else, or the driver, set it to {watts(limit_mw)}"
        )
    kept = None if facts.boot is None else facts.boot.kept_limit(change.gpu)
    return FoundChange(
        WhereFound.AFTER,
        words,
        withdrawn=refuse_tuning(declared, limit_mw) or "",
        back_mw=back_mw,
        is_at_boot=kept is not None and kept.limit_mw == change.after_mw,
    )


def _find_vm(services: Services, change: MoveChange) -> FoundChange:
    vm, gpus = _vm_of(services, change)
    if vm is None:
        return FoundChange(WhereFound.ELSEWHERE, f"{change.vm} was deleted", leave="it was deleted")
    if vm.live_target is not None:
        raise ConcurrentChange(f"{vm.printed_name}: its move has not ended", hint="`vgpuctl repair` finishes it")
    words = f"{vm.printed_name} is on {' '.join((vm.host, *gpus))}"
    if vm.state is not VmState.RUNNING:
        return FoundChange(WhereFound.ELSEWHERE, f"{vm.printed_name} is {vm.state}", leave=f"it is {vm.state}")
    place = (vm.host, gpus)
    if place == (change.to_host, (change.to_gpu,)):
        return FoundChange(WhereFound.AFTER, words)
    if place == (change.from_host, (change.from_gpu,)):
        return FoundChange(WhereFound.BEFORE, words)
    return FoundChange(WhereFound.ELSEWHERE, words, leave="somebody else moved it or changed its GPUs")


def _vm_of(services: Services, change: MoveChange) -> tuple[Vm | None, tuple[str, ...]]:
    with services.store.reading() as session:
        vm = next((one for one in session.vms() if one.uuid == change.vm_uuid), None)
        leases = without_leaving(session.leases(vm_uuid=change.vm_uuid))
    return vm, tuple(one.share.gpu for one in sorted(leases, key=lambda one: one.index))


def _set_limit(services: Services, host: str, gpu: str, limit_mw: int) -> None:
    # As apply-hosts does, so that only one of them is at work on the host.
    with services.store.operation("tune", f"host/{host}", host, exclusive=True):
        services.host(host).agent.apply([SetPowerLimit(gpu, limit_mw)])


def _keep_limit(services: Services, host: str, gpu: str, limit_mw: int) -> bool:
    """Have the host's boot unit set a power limit. Returns False where the host has no such unit."""
    with services.store.operation("tune", f"host/{host}", host, exclusive=True):
        (change,) = services.host(host).agent.apply([KeepPowerLimit(gpu, limit_mw)])
    return change.after == watts(limit_mw)


def _move(services: Services, trial: Trial, change: MoveChange, *, is_back: bool) -> None:
    vm, _gpus = _vm_of(services, change)
    if vm is None:
        raise StateError(f"{change.vm} was deleted")
    host, gpu = (change.from_host, change.from_gpu) if is_back else (change.to_host, change.to_gpu)
    reason = f"controller: {'rolls back' if is_back else 'tries'} {trial.advice}"
    with moving_alone(services, "tune", "the move of a trial"):
        move_vm(services, vm, MoveOptions(MoveWay.LIVE, reason=reason), to=host, gpus=[gpu])


def hosts_of(trial: Trial) -> Iterator[str]:
    """The hosts that a trial needs."""
    yield trial.host
    if isinstance(trial.change, MoveChange):
        yield trial.change.to_host
