# SPDX-License-Identifier: Apache-2.0
"""Labels in the store: what a command wrote that began before them does not undo them."""

from dataclasses import replace

import pytest

from tests.integration.store.samples import vm
from vgpuctl.errors import NotFound
from vgpuctl.model.queue import QueueKind
from vgpuctl.store.store import Store

LABELS = (("app", "web"), ("env", "prod"))


def test_a_command_that_began_before_does_not_undo_labels(store: Store) -> None:
    before = vm()
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(before)
        session.set_vm_labels(before.uuid, LABELS)
        session.set_vm_request(before.uuid, replace(before.request, vcpus=7))
    with store.reading() as session:
        (now,) = session.vms()
        assert (now.request.vcpus, now.request.labels) == (7, LABELS)
    with store.transaction() as session:
        session.rename_vm(before, "shop", domain="acme.shop")
        assert session.vms()[0].request.labels == LABELS
        session.set_vm_labels(before.uuid, ())
        assert session.vms()[0].request.labels == ()
        with pytest.raises(NotFound, match="no VM with uuid nobody"):
            session.set_vm_labels("nobody", LABELS)


def test_a_gang_in_the_queue_has_labels_for_each_vm(store: Store) -> None:
    requests = [replace(vm(name).request, labels=labels) for name, labels in (("a", ()), ("b", LABELS))]
    with store.transaction() as session:
        session.add_tenant("acme")
        session.join_queue(QueueKind.GANG, requests[0], others=requests[1:])
        entry = session.queued("acme", "b")
        assert entry is not None and [one.labels for one in entry.requests] == [(), LABELS]
        session.set_queued_requests(entry, [replace(one, labels=()) for one in entry.requests])
        entry = session.queued("acme", "b")
        assert entry is not None and [one.labels for one in entry.requests] == [(), ()]


def test_vms_tenants_and_pools_are_in_natural_order(store: Store) -> None:
    with store.transaction() as session:
        for tenant in ("t-10", "t-2"):
            session.add_tenant(tenant)
            for name in ("web-10", "web-2"):
                session.add_vm(replace(vm(name, tenant), uuid=f"{tenant}-{name}"))
        assert [one.name for one in session.tenants()] == ["t-2", "t-10"]
        assert [one.printed_name for one in session.vms()] == ["t-2/web-2", "t-2/web-10", "t-10/web-2", "t-10/web-10"]
