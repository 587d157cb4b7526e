# SPDX-License-Identifier: Apache-2.0
"""Readings of health in the store: events of what is new, once, whichever of two runs writes first."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.agent.wire.health import EccErrors, GpuHealth, HostHealth, Xid
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode, HealthPolicy
from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.sharing.health import START_S
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.observed.gpu_health import last_health, note_health, note_rom

GPU = GpuHealth("0000:41:00.0", "10de:2235", "10de:2235", "nvidia", uuid="GPU-1")
HEALTHY = HostHealth("boot-1", (GPU,), read_at_s=10.0)
SICK = replace(HEALTHY, gpus=(replace(GPU, xids=(Xid(95, 15.0, "Uncontained"),)),), read_at_s=20.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def note(store: Store, reading: HostHealth, policy: HealthPolicy = DEFAULT_HEALTH_POLICY) -> list[str]:
    with store.transaction() as session:
        return [str(one.code) for one in note_health(session, "gpu1", reading, policy)]


def kinds(store: Store) -> list[str]:
    with store.reading() as session:
        return [str(one.kind) for one in session.events(None)]


def test_what_is_new_is_noted_once_and_quarantines_by_uuid(store: Store) -> None:
    assert note(store, HEALTHY) == []
    assert note(store, SICK) == ["xid-reset-gpu"]
    assert note(store, SICK) == []
    assert kinds(store) == ["gpu-health", "gpu-quarantined"]
    with store.reading() as session:
        (quarantine,) = session.restrictions()
        assert last_health(session, "gpu1") == SICK
    assert (quarantine.gpu_uuid, quarantine.finding) == ("GPU-1", "xid-reset-gpu")
    assert quarantine.reason == "Xid 95: Uncontained"


def test_an_older_reading_that_comes_later_changes_nothing_unless_the_host_was_rebooted(store: Store) -> None:
    assert note(store, SICK) == ["xid-reset-gpu"]
    assert note(store, HEALTHY) == []
    assert note(store, replace(SICK, read_at_s=21.0)) == []
    assert note(store, replace(SICK, boot_id="boot-2", read_at_s=1.0)) == ["xid-reset-gpu"]


def test_what_a_starting_host_does_not_tell_is_a_finding_once_it_has_started(store: Store) -> None:
    """NVIDIA's driver knows its GPUs one after the other; a controller that reads early must not close them all."""
    assert note(store, HEALTHY) == []
    early = replace(HEALTHY, boot_id="boot-2", gpus=(replace(GPU, unread=("NVML does not show it",)),))
    assert note(store, early) == []
    assert note(store, replace(early, gpus=(replace(early.gpus[0], nvml_state="lost"),), read_at_s=20.0)) == [
        "off-the-bus"
    ]
    assert note(store, replace(early, read_at_s=30.0)) == []
    assert note(store, replace(early, read_at_s=START_S + 1)) == ["health-unread"]
    assert note(store, replace(early, read_at_s=START_S + 11)) == []


UNREAD = replace(
    HEALTHY, gpus=(replace(GPU, uuid=None, unread=(f"{GPU.address}: NVML does not tell the UUID",)),), read_at_s=START_S
)
GOOD = replace(HEALTHY, read_at_s=START_S + 60)


def quarantines(store: Store) -> list[str | None]:
    with store.reading() as session:
        return [one.finding for one in session.restrictions()]


def test_a_quarantine_for_what_could_not_be_read_ends_when_it_is_read_and_good(store: Store) -> None:
    """One failing call of NVML closed all cards of a host, each to be released by hand."""
    assert note(store, HEALTHY) == []
    assert note(store, UNREAD) == ["health-unread"] and quarantines(store) == ["health-unread"]
    assert note(store, replace(UNREAD, read_at_s=START_S + 10)) == [] and quarantines(store) == ["health-unread"]
    assert note(store, GOOD) == [] and quarantines(store) == []
    assert kinds(store) == ["gpu-health", "gpu-quarantined", "gpu-released"]
    assert note(store, replace(UNREAD, read_at_s=START_S + 90)) == ["health-unread"]
    assert quarantines(store) == ["health-unread"]


@pytest.mark.parametrize(
    "values",
    [
        {"config_ids": "ffff:ffff"},
        {"nvml_state": "reset-required"},
        {"unread": ("the config space ends after 4 bytes",)},
        {"xids": (Xid(95, START_S + 30, "Uncontained"),)},
        # On vfio-pci nobody asks NVML, so nothing was read again.
        {"driver": "vfio-pci", "uuid": None},
    ],
    ids=lambda values: next(iter(values)),
)
def test_a_card_that_is_read_and_not_good_stays_in_quarantine(store: Store, values: dict[str, Any]) -> None:
    assert note(store, HEALTHY) == []
    note(store, UNREAD)
    note(store, replace(GOOD, gpus=(replace(GPU, **values),)))
    assert len(quarantines(store)) == 1


def test_what_is_found_of_a_card_that_was_unread_stays_when_it_can_be_read(store: Store) -> None:
    note(store, HEALTHY)
    note(store, replace(UNREAD, gpus=(replace(UNREAD.gpus[0], xids=(Xid(95, START_S - 5, "Uncontained"),)),)))
    assert quarantines(store) == ["xid-reset-gpu"]
    note(store, GOOD)
    assert quarantines(store) == ["xid-reset-gpu"]


def test_an_unread_log_closes_every_card_until_it_is_read(store: Store) -> None:
    whole = replace(GPU, address="0000:81:00.0", driver="vfio-pci", uuid=None)
    good = replace(GOOD, gpus=(GPU, whole))
    note(store, replace(good, read_at_s=10.0))
    note(store, replace(good, read_at_s=START_S, unread=("the kernel's log /dev/kmsg cannot be read",)))
    assert quarantines(store) == ["health-unread"] * 2
    note(store, good)
    assert quarantines(store) == []


def test_an_operators_quarantine_stays(store: Store) -> None:
    with store.transaction() as session:
        session.restrict("gpu1", GPU.address, RestrictionKind.QUARANTINE, "smells", gpu_uuid="GPU-1")
    note(store, UNREAD)
    note(store, GOOD)
    assert quarantines(store) == [None]


def test_errors_that_were_known_before_a_value_was_unread_are_no_news_after_it(store: Store) -> None:
    known = replace(GPU, volatile=EccErrors(0, 3))
    assert note(store, replace(HEALTHY, gpus=(known,))) == ["ecc-uncorrected"]
    note(store, UNREAD)
    assert note(store, replace(GOOD, gpus=(known,))) == [] and quarantines(store) == ["ecc-uncorrected"]
    assert note(store, replace(GOOD, gpus=(replace(known, volatile=EccErrors(0, 4)),), read_at_s=999.0)) == [
        "ecc-uncorrected"
    ]


def test_a_tolerated_finding_is_an_event_alone(store: Store) -> None:
    tolerant = HealthPolicy(tolerate=(*DEFAULT_HEALTH_POLICY.tolerate, HealthCode.XID_RESET_GPU))
    assert note(store, SICK, tolerant) == ["xid-reset-gpu"]
    assert kinds(store) == ["gpu-health"]


def test_a_reading_that_an_older_version_kept_is_none(store: Store) -> None:
    with store.transaction() as session:
        session.save_host_record("gpu1", "health", '{"gpus": 3}')
        assert last_health(session, "gpu1") is None


def test_another_hash_of_a_rom_is_told_once(store: Store) -> None:
    with store.transaction() as session:
        told = [note_rom(session, "gpu1", "GPU-1", sha256) for sha256 in ("a", "a", "b", "b")]
        assert told == [False, False, True, False]
        assert not note_rom(session, "gpu1", "GPU-2", "c")
