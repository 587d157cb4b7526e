# SPDX-License-Identifier: Apache-2.0
"""The health gate: a GPU returns to the pool after its reset and its health were proven, and is given out healthy.

A device that is not proven goes into quarantine; the lease ends nevertheless. Every release leaves its evidence.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.health import GpuHealth, HostHealth
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import HashRom, ResetFunction, Step
from vgpuctl.errors import AgentProblem, CommandTimedOut, ConcurrentChange
from vgpuctl.model.event import Value
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.health import HealthCode, HealthFinding, HealthPolicy
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.printable import printable
from vgpuctl.model.restriction import Restriction, RestrictionKind, restrictions_on
from vgpuctl.model.secret import ProgramLine
from vgpuctl.planner.plan import find_unreturned, plan_release
from vgpuctl.sharing.health import finding, findings_of, gpu_of, has_whole_log, news, tells_not_yet
from vgpuctl.sharing.kinds import kind_of
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.gpu_health import (
    describe_findings,
    last_health,
    note_finding,
    note_health,
    note_rom,
    policy_of,
    quarantine_device,
)
from vgpuctl.usecases.running.services import HostSession, Services

_SAID_AT_MOST = 200
BY_THE_DRIVER = "by the driver"
"""The reset of a vGPU: NVIDIA's driver clears framebuffer that is freed, unless `scrub-off` says otherwise."""

_NOT_RESET = {
    ProblemCode.NO_RESET: HealthCode.NO_RESET,
    ProblemCode.RESET_REFUSED: HealthCode.RESET_FAILED,
    ProblemCode.WRITE_BLOCKED: HealthCode.RESET_FAILED,
}
# A driver keeps the function, or does not bind it again; the share itself is free.
_NOT_TAKEN = (
    ProblemCode.HELD,
    ProblemCode.DRIVER_DID_NOT_BIND,
    ProblemCode.DRIVER_MISSING,
    ProblemCode.MIG_INSTANCES_ACTIVE,
    ProblemCode.MIG_UNREADABLE,
    ProblemCode.MDEVS_ACTIVE,
    ProblemCode.UNBIND_LOCK,
    ProblemCode.VFS_ACTIVE,
    ProblemCode.WRITE_REFUSED,
)


@dataclass(frozen=True)
class Released:
    """A share whose device is free. lease: that it was of, None for one that the store did not know.

    reset: how it was reset, None if it was not. found: what is wrong with it. tested: True after the operator's memory
    test, None without one. rom: SHA-256 of a whole card's ROM, None where the kernel does not show it.
    """

    share: Share
    reset: str | None
    found: tuple[HealthFinding, ...] = ()
    tested: bool | None = None
    rom: str | None = None
    lease: Lease | None = None

    def subject(self, host: str) -> str:
        """The VM that had it, or its host and device."""
        lease = self.lease
        return f"{host} {self.share.device}" if lease is None else f"{lease.tenant}/{lease.vm_name}"


def release_device(host: HostSession, share: Share, facts: HostFacts) -> Released:
    """Take the steps that give a share back. A reset that fails is a finding, and so is a driver that stays away.

    Raises HostError when the device itself cannot be released.
    """
    steps = plan_release(share, facts).steps
    resets = [number for number, step in enumerate(steps) if isinstance(step, ResetFunction)]
    if not resets:
        if steps:
            host.agent.apply(steps)
        return Released(share, *_without_reset(share))
    try:
        changes = host.agent.apply(steps)
    except AgentProblem as problem:
        at = len(problem.done)
        if at > resets[0] and problem.code in _NOT_TAKEN:
            return Released(share, problem.done[resets[0]].after)
        code = _NOT_RESET.get(problem.code) if at == resets[0] else None
        if at < resets[0] and problem.code in _NOT_TAKEN:
            code = HealthCode.RESET_FAILED
        if code is None:
            raise
        _bind_back(host, steps[resets[0] + 1 :])
        return Released(share, None, (finding(code, share.function, problem.message),))
    return Released(share, changes[resets[0]].after)


def _bind_back(host: HostSession, steps: Sequence[Step]) -> None:
    """Bind functions to their first drivers. A failure shows in the facts, where prove() finds it."""
    try:
        if steps:
            host.agent.apply(steps)
    except AgentProblem as problem:
        if problem.code not in _NOT_TAKEN:
            raise


def prove(services: Services, host: HostSession, released: Sequence[Released], facts: HostFacts) -> None:
    """Read the health of what was released, run the operator's test, and end the leases with evidence or quarantine.

    facts: of the host, read after the devices were released. Raises HostError for a host that no longer answers. A dry
    run ends here.
    """
    host.before("read the health of the GPUs that are released")
    policy = policy_of(services, host.name)
    released = [_with_rom(host, _with_driver(one, facts)) for one in _tested(services, host, released, policy)]
    health = _read(host)
    with services.store.transaction() as session:
        before = last_health(session, host.name)
        if health is not None:
            note_health(session, host.name, health, policy)
        for one in released:
            closed = _end(session, host.name, one, health, before, policy)
            services.say(f"{one.subject(host.name)}: {one.share.profile} on {one.share.function} released")
            if closed:
                services.say(f"{host.name}: in quarantine: {describe_findings(closed)}")


def refuse_sick(services: Services, host: HostSession, leases: Sequence[Lease], health: HostHealth) -> None:
    """Look at the health of the GPUs of `leases` right before they are handed out.

    health: read just now. One that says nothing new is not written. Raises ConcurrentChange for a GPU that goes into
    quarantine now, and for one whose health a host that is just starting does not tell yet.
    """
    if not leases:
        return
    policy = policy_of(services, host.name)
    wanted = {lease.share.gpu for lease in leases}
    untold = next((one for one in tells_not_yet(health) if one.device in wanted and policy.forbids(one)), None)
    if untold is not None:
        raise ConcurrentChange(
            f"{host.name} was booted a moment ago, and the health of its GPU {untold.device} cannot be read yet:"
            f" {untold.text}",
            hint="try again in a minute",
        )
    with services.store.reading() as session:
        before = last_health(session, host.name)
    if before is not None and not news(health, before):
        return
    with services.store.transaction() as session:
        found = note_health(session, host.name, health, policy)
    sick = [one for one in found if one.device in wanted and policy.forbids(one)]
    if sick:
        raise ConcurrentChange(f"{describe_findings(sick)}: the GPU is in quarantine now: {sick[0].text}")


def _without_reset(share: Share) -> tuple[str | None, tuple[HealthFinding, ...]]:
    if not kind_of(share.sharing).is_bound_by_libvirt:
        return BY_THE_DRIVER, ()
    return None, (finding(HealthCode.NO_RESET, share.function, "the kernel knows no way to reset it"),)


def _tested(
    services: Services, host: HostSession, released: Sequence[Released], policy: HealthPolicy
) -> list[Released]:
    """Run the operator's memory test on every GPU that nobody else has a share of."""
    if policy.memory_test is None:
        return list(released)
    own = {one.lease.id for one in released if one.lease is not None}
    with services.store.reading() as session:
        used = {lease.share.gpu for lease in session.leases(host=host.name) if lease.id not in own}
    results: dict[str, HealthFinding | None] = {}
    for one in released:
        gpu = one.share.gpu
        if gpu not in used and gpu not in results:
            services.say(f"{host.name}: testing the memory of {gpu}")
            results[gpu] = _test_memory(host, gpu, policy.memory_test, policy.memory_test_timeout_s)
    return [_with_result(one, results) for one in released]


def _with_result(one: Released, results: Mapping[str, HealthFinding | None]) -> Released:
    gpu = one.share.gpu
    if gpu not in results:
        return one
    failed = results[gpu]
    return replace(one, tested=failed is None, found=one.found if failed is None else (*one.found, failed))


def _test_memory(host: HostSession, gpu: str, command: ProgramLine, timeout_s: float) -> HealthFinding | None:
    try:
        done = host.connection.run([*shlex.split(command.reveal()), gpu], timeout_s=timeout_s)
    except CommandTimedOut as error:
        return finding(HealthCode.MEMORY_TEST_FAILED, gpu, error.message)
    if done.exit_status == 0:
        return None
    said = command.clean((done.stdout + done.stderr).decode(errors="replace"), known=(gpu, host.name))
    said = printable(" ".join(said.split())[-_SAID_AT_MOST:])
    text = f"`{command}` ended with {done.exit_status}: {said or 'nothing'}"
    return finding(HealthCode.MEMORY_TEST_FAILED, gpu, text)


def _with_driver(one: Released, facts: HostFacts) -> Released:
    """The drivers of a released share's functions, read back."""
    reason = find_unreturned(one.share, facts)
    if reason is None:
        return one
    return replace(one, found=(*one.found, finding(HealthCode.DRIVER_DIFFERS, one.share.gpu, reason)))


def _with_rom(host: HostSession, one: Released) -> Released:
    """The hash of the ROM that a tenant with a whole card could have flashed."""
    share = one.share
    if share.function != share.gpu or not kind_of(share.sharing).is_bound_by_libvirt:
        return one
    try:
        [change] = host.agent.apply([HashRom(share.function)])
    except AgentProblem as problem:
        return replace(one, found=(*one.found, finding(HealthCode.ROM_UNREAD, share.gpu, problem.message)))
    return replace(one, rom=change.after)


def _read(host: HostSession) -> HostHealth | None:
    try:
        return host.agent.health()
    except AgentProblem:
        return None


def _end(
    session: Session,
    host: str,
    released: Released,
    health: HostHealth | None,
    before: HostHealth | None,
    policy: HealthPolicy,
) -> list[HealthFinding]:
    """Quarantine what is not proven, leave the evidence and end the lease. Returns the findings that forbid the GPU."""
    lease, share = released.lease, released.share
    gpu = None if health is None else gpu_of(health, share.gpu)
    uuid = None if gpu is None else gpu.uuid
    if health is None:
        unread = finding(HealthCode.UNREAD, share.gpu, "the agent could not read the health of the GPUs")
        released = replace(released, found=(*released.found, unread))
    if released.rom is not None and note_rom(session, host, uuid or share.gpu, released.rom):
        flashed = finding(HealthCode.VBIOS_CHANGED, share.gpu, "its ROM has another SHA-256 than before")
        released = replace(released, found=(*released.found, flashed))
    for one in released.found:
        note_finding(session, host, one, policy, uuid=uuid if one.device == share.gpu else None)
    of_the_card = [] if health is None else findings_of(health, share.gpu, before)
    for one in of_the_card:
        if policy.forbids(one):
            quarantine_device(session, host, one, uuid)
    found = [*released.found, *of_the_card]
    closed = [one for one in found if policy.forbids(one)]
    reset = f"reset {released.reset}" if released.reset == BY_THE_DRIVER else f"reset by {released.reset}"
    reset = "not reset" if released.reset is None else reset
    standing = _standing(session, host, share, uuid)
    result = f"in quarantine: {describe_findings(closed)}" if closed else "healthy"
    if not closed and standing is not None:
        result = f"still in quarantine: {standing.reason}"
    evidence: dict[str, Value] = {
        "lease": None if lease is None else lease.id,
        "device": share.device,
        "gpu": share.gpu,
        "sharing": str(share.sharing),
        "profile": share.profile,
        "reset": released.reset,
        "memory_test": released.tested,
        "rom_sha256": released.rom,
        "findings": [str(one.code) for one in found],
        "quarantined": standing is not None,
        "log_is_complete": None if health is None else has_whole_log(health, before),
        **_read_of(gpu, None if before is None else gpu_of(before, share.gpu, uuid)),
    }
    session.add_event(
        EventKind.SHARE_CHECKED,
        released.subject(host),
        f"{share.profile} on {share.function}: {reset}, {result}",
        tenant=None if lease is None else lease.tenant,
        host=host,
        evidence=evidence,
    )
    if lease is not None:
        session.set_lease_state(lease.id, LeaseState.GONE)
    return closed


def _standing(session: Session, host: str, share: Share, uuid: str | None) -> Restriction | None:
    """The quarantine of the card or VF of a share, whenever it was set."""
    every = [one for one in session.restrictions() if one.kind is RestrictionKind.QUARANTINE]
    found = restrictions_on(every, host, share.gpu, uuid)
    if share.function != share.gpu:
        found += restrictions_on(every, host, share.function, None)
    return next(iter(found), None)


def _read_of(gpu: GpuHealth | None, before: GpuHealth | None) -> dict[str, Value]:
    """The values of a reading that prove the health of a card."""
    if gpu is None:
        return {"gpu_uuid": None}
    known = set() if before is None else {(xid.code, xid.at_s) for xid in before.xids}
    return {
        "gpu_uuid": gpu.uuid,
        "driver": gpu.driver,
        "config_space": gpu.config_ids,
        "bars_assigned": all(bar.is_assigned for bar in gpu.bars),
        "vbios": gpu.vbios,
        "vbios_before": None if before is None else before.vbios,
        "ecc_uncorrected": None if gpu.volatile is None else gpu.volatile.uncorrected,
        "ecc_uncorrected_in_life": None if gpu.aggregate is None else gpu.aggregate.uncorrected,
        "rows_remap_pending": None if gpu.remapped is None else gpu.remapped.is_pending,
        "rows_remap_failed": None if gpu.remapped is None else gpu.remapped.has_failed,
        "pages_retired": None if gpu.retired is None else gpu.retired.single_bit + gpu.retired.double_bit,
        "new_xids": [str(xid.code) for xid in gpu.xids if (xid.code, xid.at_s) not in known],
        "unread": list(gpu.unread),
    }
