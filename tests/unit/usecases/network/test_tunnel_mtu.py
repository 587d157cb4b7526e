# SPDX-License-Identifier: Apache-2.0
"""The MTU of guests follows from the layouts of all chassis."""

from pathlib import Path

from vgpuctl.model.layout import Encapsulation, NetworkLayout
from vgpuctl.store.store import open_store
from vgpuctl.usecases.network.tunnel_mtu import note_guest_mtu, tunnel_mtu
from vgpuctl.usecases.network.vpc import read_vpc

REMOTE = ("ssl:192.0.2.1:6642",)


def test_the_narrowest_host_decides_and_one_that_is_no_chassis_does_not_count(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.bring_up_to_date()
        seen = []
        for host, network in (
            ("gpu1", NetworkLayout(REMOTE, "10.0.0.0/24", "gpu1", mtu=9000)),
            ("gpu2", NetworkLayout(REMOTE, "10.0.0.0/24", "gpu2", Encapsulation.VXLAN, 1500)),
            ("gpu2", None),
        ):
            with store.transaction() as session:
                note_guest_mtu(session, host, network)
            with store.reading() as session:
                seen.append((tunnel_mtu(session), read_vpc(session, "acme").mtu))
        assert seen == [(8942, 8942), (1450, 1450), (8942, 8942)]


def test_without_any_chassis_it_is_what_geneve_leaves_of_1500(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.bring_up_to_date()
        with store.reading() as session:
            assert tunnel_mtu(session) == 1442
