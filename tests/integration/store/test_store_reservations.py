# SPDX-License-Identifier: Apache-2.0
"""Reservations in the store."""

import pytest

from tests.integration.store.samples import host_facts, mdev_share, some_uuid, vf_share
from vgpuctl.errors import ConcurrentChange, NotFound
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.reservation import Reservation
from vgpuctl.store.store import Store


def test_a_reservation_comes_back_as_made_and_counts_in_its_hosts_generation(store: Store) -> None:
    shares = (vf_share(), mdev_share(some_uuid()))
    made = Reservation("acme", "nightly", (parse_gpu_request("2*A40-8Q"),), "gpu1", shares, 10.5, 20.25, 86400.0)
    with store.transaction() as session:
        session.add_tenant("acme")
        session.save_facts("gpu1", host_facts(), 1.0)
        session.add_reservation(made, 0)
        assert session.reservation("acme", "nightly") == made
        assert session.reservation("acme", "daily") is None
        assert session.generation("gpu1") == 1
        session.use_reservation(made, "some-vm")
        assert session.reservations()[0].vm_uuid == "some-vm"
    with pytest.raises(ConcurrentChange, match="gpu1 since they were read"), store.transaction() as session:
        session.add_reservation(made, 0)
    with pytest.raises(ConcurrentChange, match="has a reservation nightly already"), store.transaction() as session:
        session.add_reservation(made, 1)
    with pytest.raises(NotFound), store.transaction() as session:
        session.add_reservation(Reservation("nobody", "x", (), "gpu1", (), 1.0, 2.0), 1)
    with store.transaction() as session:
        assert session.cancel_reservation(made)
        assert not session.cancel_reservation(made)
        assert session.reservations() == []
