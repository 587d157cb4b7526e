# SPDX-License-Identifier: Apache-2.0
"""Restrictions of hosts and GPUs, and the names that events carry."""

from vgpuctl.model.event import Actor
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.store.store import Store, open_store

GPU = "0000:41:00.0"
OTHER = "0000:81:00.0"
QUARANTINE = RestrictionKind.QUARANTINE


def test_a_restriction_is_set_once_and_lifted_once(store: Store, url: str) -> None:
    ann = Actor("cordon-host", "ann", "desk")
    with open_store(url, actor=ann, clock=lambda: 5.0) as opened, opened.transaction() as session:
        assert session.restrict("gpu1", WHOLE_HOST, RestrictionKind.CORDON, "new disks")
        assert not session.restrict("gpu1", WHOLE_HOST, RestrictionKind.CORDON, "another reason")
        assert session.restrict("gpu1", GPU, QUARANTINE, "Xid 79", finding="XID_FATAL", gpu_uuid="GPU-1")
    with store.transaction() as session:
        assert session.restrictions() == [
            Restriction("gpu1", "", RestrictionKind.CORDON, "new disks", set_by="ann@desk", set_at=5.0),
            Restriction("gpu1", GPU, QUARANTINE, "Xid 79", "XID_FATAL", "GPU-1", "ann@desk", 5.0),
        ]
        assert session.lift_restriction("gpu1", GPU, QUARANTINE)
        assert not session.lift_restriction("gpu1", GPU, QUARANTINE)
        assert [one.kind for one in session.restrictions()] == [RestrictionKind.CORDON]


def test_a_quarantine_stays_with_its_card_and_not_with_the_slot() -> None:
    known = Restriction("gpu1", GPU, QUARANTINE, "Xid 79", gpu_uuid="GPU-1")
    unknown = Restriction("gpu1", OTHER, QUARANTINE, "no answer")
    host = Restriction("gpu1", WHOLE_HOST, RestrictionKind.CORDON, "new disks")
    every = [known, unknown, host]
    assert restrictions_on(every, "gpu1", GPU, "GPU-1") == [known]
    assert restrictions_on(every, "gpu2", OTHER, "GPU-1") == [known], "the card moved"
    assert restrictions_on(every, "gpu1", GPU, "GPU-2") == [], "another card is in the slot"
    assert restrictions_on(every, "gpu1", GPU, None) == [known], "a card without a UUID is taken for the same"
    assert restrictions_on(every, "gpu1", OTHER, "GPU-3") == [unknown]


def test_two_cards_that_were_in_one_slot_are_both_restricted(store: Store) -> None:
    with store.transaction() as session:
        for uuid in ("GPU-1", "GPU-2"):
            assert session.restrict("gpu1", GPU, QUARANTINE, f"{uuid} smells", gpu_uuid=uuid)
        for host, device in (("gpu1", GPU), ("gpu2", OTHER)):
            assert not session.restrict(host, device, QUARANTINE, "again", gpu_uuid="GPU-1")
        assert not session.restrict("gpu1", GPU, QUARANTINE, "its UUID is not known now")
    with store.transaction() as session:
        every = session.restrictions()
        for uuid in ("GPU-1", "GPU-2"):
            (found,) = restrictions_on(every, "gpu2", OTHER, uuid)
            assert found.reason == f"{uuid} smells"
        assert restrictions_on(every, "gpu1", GPU, "GPU-3") == []
        for one in every:
            assert session.lift_restriction(one.host, one.device, one.kind)
        assert session.restrictions() == []


def test_an_event_names_who_did_it_and_what_changed(store: Store, url: str) -> None:
    ann = Actor("create-vm", "ann", "desk")
    with open_store(url, actor=ann) as opened, opened.transaction() as session:
        session.add_event(
            EventKind.VM_CREATED,
            "acme/web",
            "on gpu1",
            tenant="acme",
            host="gpu1",
            before={"state": None},
            after={"state": "running", "shares": ["a", "b"]},
            evidence={"reset": "flr", "xids": 0},
            at=7.0,
        )
        session.add_event(EventKind.QUEUE_SET, "queue")
    with store.reading() as session:
        first, second = session.events(10)
    assert (first.at, first.tenant, first.host, first.actor) == (7.0, "acme", "gpu1", ann)
    assert (first.before, first.after) == ({"state": None}, {"state": "running", "shares": ["a", "b"]})
    assert first.evidence == {"reset": "flr", "xids": 0}
    assert (second.tenant, second.before, second.evidence) == (None, {}, {})
