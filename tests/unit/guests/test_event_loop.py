# SPDX-License-Identifier: Apache-2.0
"""libvirt's event loop in its thread."""

import threading
from concurrent.futures import ThreadPoolExecutor

from vgpuctl.guests.libvirtd.event_loop import ensure_event_loop


def test_many_hosts_at_once_start_one_event_loop() -> None:
    barrier = threading.Barrier(16)

    def ask(_number: int) -> None:
        barrier.wait()
        ensure_event_loop()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(16)))
    assert [one.name for one in threading.enumerate()].count("libvirt-events") == 1
