# SPDX-License-Identifier: Apache-2.0
"""Records of a host that are not facts."""

from tests.integration.store.conftest import Clock
from vgpuctl.store.store import Store


def test_a_record_is_kept_replaced_and_dropped(store: Store, clock: Clock) -> None:
    with store.transaction() as session:
        session.save_host_record("gpu1", "snapshot", '{"a": 1}')
        session.save_host_record("gpu1", "layout-shares", "{}")
    clock.now += 5
    with store.transaction() as session:
        session.save_host_record("gpu1", "snapshot", '{"a": 2}')
    with store.reading() as session:
        record = session.host_record("gpu1", "snapshot")
        assert record is not None and (record.content, record.at) == ('{"a": 2}', clock.now)
        assert session.host_record("gpu2", "snapshot") is None
    with store.transaction() as session:
        session.drop_host_record("gpu1", "snapshot")
        session.drop_host_record("gpu1", "snapshot")
        assert session.host_record("gpu1", "snapshot") is None
        assert session.host_record("gpu1", "layout-shares") is not None
