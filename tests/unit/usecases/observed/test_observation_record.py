# SPDX-License-Identifier: Apache-2.0
"""The record of a host's observations: GPUs that vanish, come back or move, and hosts that give no answer."""

from dataclasses import replace

import msgspec
import pytest

from tests.integration.store import samples
from tests.unit.fleet_factory import a40_host
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import (
    AgentBroken,
    AuthenticationFailed,
    BecomeFailed,
    CommandTimedOut,
    FileNotTrusted,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
    InventoryError,
    LibvirtMissing,
    PythonMissing,
    Unexpected,
    VgpuctlError,
    WayFailed,
    WrongHost,
)
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.way import Way
from vgpuctl.usecases.observed.observation_record import (
    MISSING_KEPT_S,
    NEVER_LOOKED,
    Record,
    StoredRows,
    with_domains,
    with_facts,
    with_way,
    without_answer,
)

NOTHING = StoredRows((), ())
VM = samples.vm()
FACTS = a40_host("gpu1").facts
ADDRESS = FACTS.gpus[0].address


WAY = Way("root@10.0.0.1 port 22; python auto", ("ssh-ed25519", "SHA256:of-gpu1"))
ELSEWHERE = Way("root@10.0.0.99 port 22; python auto")


def seen(facts: HostFacts = FACTS, record: Record = NEVER_LOOKED, *, now: float = 1000.0) -> Record:
    return with_way(with_facts(record, facts, NOTHING, now, before=FACTS), WAY)


def test_a_gpu_that_vanishes_is_missing_with_its_last_reading_until_it_was_away_for_a_week() -> None:
    empty = replace(FACTS, gpus=())
    gone = seen(empty, seen(), now=1010.0)
    assert gone.gpus[ADDRESS].state == "missing"
    assert gone.gpus[ADDRESS].at == 1000.0
    assert gone.gpus[ADDRESS].last == FACTS.gpus[0]
    later = with_facts(gone, empty, NOTHING, 2000.0, before=empty)
    assert later.gpus[ADDRESS].last == FACTS.gpus[0]
    assert seen(FACTS, later).gpus[ADDRESS].state == "present"
    assert with_facts(gone, empty, NOTHING, 1001.0 + MISSING_KEPT_S, before=empty).gpus == {}


def test_a_card_in_another_slot_is_not_missing() -> None:
    known = replace(FACTS.gpus[0], uuid="GPU-1")
    before = seen(replace(FACTS, gpus=(known,)))
    after = seen(replace(FACTS, gpus=(replace(known, address="0000:99:00.0"),)), before)
    assert list(after.gpus) == ["0000:99:00.0"]


@pytest.mark.parametrize(
    ("error", "state", "is_libvirt_asked"),
    [
        (HostUnreachable("no route"), "unreachable", False),
        (HostKeyChanged("another key", shown=("ssh-ed25519", "SHA256:of-another")), "host-key-changed", False),
        (AgentBroken("it talks nonsense"), "unusable", True),
        (LibvirtMissing("no socket"), "up", False),
    ],
)
def test_a_host_that_does_not_answer_says_how(error: VgpuctlError, state: str, is_libvirt_asked: bool) -> None:
    silent = without_answer(seen(), error, 1020.0, way=WAY)
    assert silent.state == state
    assert (silent.libvirt_silence is None) is is_libvirt_asked
    again = without_answer(silent, error, 1030.0, way=WAY)
    assert again.silence == silent.silence, "the time is that of the first attempt"
    assert again.gpus == seen().gpus, "what was observed stays, with its time"
    back = seen(FACTS, with_domains(again, {}, NOTHING, 1040.0), now=1040.0)
    assert (back.silence, back.libvirt_silence) == (None, None)


def test_a_new_boot_has_its_time() -> None:
    before = seen()
    assert seen(FACTS, before, now=1010.0).booted_at == 1000.0
    after = seen(replace(FACTS, boot_id="another"), before, now=1020.0)
    assert (after.boot_id, after.booted_at) == ("another", 1020.0)
    assert after.first_boot_id == before.first_boot_id == FACTS.boot_id
    older = msgspec.structs.replace(before, first_boot_id=None)
    assert seen(replace(FACTS, boot_id="another"), older).first_boot_id == FACTS.boot_id, "a record that had none"


def listed(record: Record, state: DomainState, *, now: float, asked_at: float | None = None) -> Record:
    domains = {VM.uuid: NamedState(VM.domain_name, state)}
    return with_domains(record, domains, StoredRows((VM,), ()), now, asked_at=asked_at)


def test_an_answer_to_an_older_question_replaces_none_of_what_was_seen_since() -> None:
    started = listed(seen(), DomainState.RUNNING, now=1010.0)
    late = listed(started, DomainState.SHUT_OFF, now=1012.0, asked_at=1009.0)
    assert late.vms[VM.uuid] == started.vms[VM.uuid]
    assert listed(late, DomainState.SHUT_OFF, now=1015.0, asked_at=1014.0).vms[VM.uuid].state == "shut-off"

    empty = replace(FACTS, gpus=())
    assert with_facts(seen(), empty, NOTHING, 1005.0, before=FACTS, asked_at=999.0) == seen()
    assert with_facts(seen(), empty, NOTHING, 1005.0, before=FACTS, asked_at=1001.0).gpus[ADDRESS].state == "missing"

    error = HostUnreachable("no answer for 15 s")
    assert without_answer(started, error, 1016.0, way=WAY, asked_at=999.0) == started
    assert without_answer(started, error, 1016.0, way=WAY, asked_at=1011.0).state == "unreachable"


def test_what_was_seen_in_a_time_to_come_stays_no_longer_than_till_the_next_answer() -> None:
    """The store's clock was set back by an hour."""
    before = listed(seen(now=5000.0), DomainState.RUNNING, now=5000.0)
    after = listed(before, DomainState.SHUT_OFF, now=1400.0, asked_at=1399.0)
    assert after.vms[VM.uuid].state == "shut-off"
    assert without_answer(before, HostUnreachable("no route"), 1400.0, way=WAY, asked_at=1399.0).state == "unreachable"


OWN_FAILURES: list[tuple[VgpuctlError, Way | None]] = [
    (InventoryError("no such group"), None),
    (InventoryError("there is no ssh_config file"), None),
    (HostUnreachable("no answer within 10 s"), ELSEWHERE),
    (HostUnreachable("connection refused"), replace(ELSEWHERE, words="root@10.0.0.1 port 2222; python auto")),
    (WayFailed("the name gpu1 cannot be resolved"), WAY),
    (WayFailed("Network is unreachable"), WAY),
    (HostUnreachable("ProxyCommand ended with exit status 1"), ELSEWHERE),
    (HostKeyUnknown("not in known_hosts"), WAY),
    (HostKeyChanged("another than in known_hosts:3", shown=("ssh-ed25519", "SHA256:of-gpu1")), WAY),
    (HostKeyChanged("of a jump host"), WAY),
    (AuthenticationFailed("refused to log in root"), WAY),
    (BecomeFailed("sudo wants a password"), WAY),
    (PythonMissing("no /opt/pyton"), replace(WAY, words="root@10.0.0.1 port 22; python /opt/pyton")),
    (LibvirtMissing("permission denied"), replace(WAY, words="operator@10.0.0.1 port 22; python auto")),
    (WrongHost("the machine that answers is gpu2"), ELSEWHERE),
    (CommandTimedOut("no answer for 15 s"), ELSEWHERE),
    (FileNotTrusted("others may read the key"), WAY),
    (Unexpected("unexpected KeyError"), WAY),
]


@pytest.mark.parametrize(("error", "way"), OWN_FAILURES, ids=lambda one: getattr(one, "message", None))
def test_an_own_failure_changes_nothing_that_is_known_of_a_host(error: VgpuctlError, way: Way | None) -> None:
    assert without_answer(seen(), error, 1020.0, way=way) == seen()


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (HostKeyChanged("another key", shown=("ssh-ed25519", "SHA256:of-somebody")), "host-key-changed"),
        (HostKeyChanged("another key", shown=("ssh-rsa", "SHA256:never-seen")), "host-key-changed"),
        (HostUnreachable("ProxyCommand ended with exit status 1"), "unreachable"),
    ],
)
def test_a_failure_on_a_way_that_has_worked_is_the_hosts(error: HostError, state: str) -> None:
    assert without_answer(seen(), error, 1020.0, way=WAY).state == state


def test_a_host_that_was_read_before_ways_were_kept_can_die() -> None:
    before = msgspec.structs.replace(seen(), ways=(), host_keys={})
    assert without_answer(before, HostUnreachable("no answer"), 1020.0, way=ELSEWHERE).state == "unreachable"


def test_a_host_that_nobody_has_reached_yet_is_not_unreachable_but_never_observed() -> None:
    assert without_answer(NEVER_LOOKED, HostUnreachable("no route"), 1020.0, way=ELSEWHERE) == NEVER_LOOKED
    without_libvirt = without_answer(NEVER_LOOKED, LibvirtMissing("no socket"), 1020.0, way=WAY)
    assert without_libvirt.libvirt_silence is not None, "a login worked, and saw it"


def test_an_answer_by_a_new_way_makes_that_way_known() -> None:
    moved = with_way(seen(), ELSEWHERE)
    assert without_answer(moved, HostUnreachable("no route"), 1020.0, way=ELSEWHERE).state == "unreachable"
    assert without_answer(moved, HostUnreachable("no route"), 1020.0, way=WAY).state == "unreachable"
    many = moved
    for number in range(20):
        many = with_way(many, Way(f"root@10.0.1.{number} port 22"))
    assert len(many.ways) == 8


def test_an_answer_older_than_a_share_says_nothing_of_it() -> None:
    """Another command built the share after the host was asked, and before the answer is noted."""
    lease = samples.lease(vm_uuid=VM.uuid, state=LeaseState.RUNNING)
    stored = StoredRows((VM,), (lease,), changed_at={lease.id: 1003.0})
    early = with_facts(NEVER_LOOKED, FACTS, stored, 1005.0, before=None, asked_at=1001.0)
    assert early.shares == {}
    late = with_facts(early, FACTS, stored, 1008.0, before=None, asked_at=1006.0)
    assert late.shares[lease.id].state == "lost", "a host that was asked later does not have it"
    known = with_facts(
        late, FACTS, replace(stored, changed_at={lease.id: 1009.0}), 1010.0, before=None, asked_at=1008.5
    )
    assert known.shares == late.shares
