# SPDX-License-Identifier: Apache-2.0
"""The lines of show-vm about what a VM was declared with, each that JSON has, and about its restarts."""

from dataclasses import replace

import pytest

from vgpuctl.cli.vm.show_vm import _declared_beside, _last_restart, _restart_policy
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.mps import GuestRequest, Mps
from vgpuctl.model.vm import RestartPolicy, Vm, VmRequest, VmState
from vgpuctl.usecases.vm.show_vm import LastRestart

PLAIN = VmRequest("web", "acme")
MPS = GuestRequest(Mps(4))


@pytest.mark.parametrize(
    ("request_", "lines"),
    [
        (PLAIN, []),
        (
            replace(PLAIN, guest=MPS),
            ["MPS       in the guest: 4 clients of each GPU, 25% of the threads and its part of the memory each"],
        ),
        (
            replace(PLAIN, guest=GuestRequest(Mps(1, 50, 2048))),
            ["MPS       in the guest: 1 client of each GPU, 50% of the threads and 2 GiB each"],
        ),
        (
            replace(PLAIN, guest_driver=GuestDriver(DriverSource.IMAGE, "580")),
            ["driver    in the guest: image, 580"],
        ),
        (
            replace(PLAIN, disk=DiskRequest(1024, iops=900), data_disks=(DataDisk("data", 2048, mbps=7, keep=True),)),
            ["disk      1 GiB, at most 900 IOPS", "disk      data, 2 GiB, at most 7 MB/s, outlives the VM"],
        ),
        (
            replace(PLAIN, cpu_limit=50, cpu_weight=30, bandwidth_mbps=100),
            [
                "CPU       at most 50% of a CPU for each vCPU, weight 30",
                "bandwidth at most 100 Mbit/s of its first interface",
            ],
        ),
    ],
)
def test_what_was_declared_is_shown(request_: VmRequest, lines: list[str]) -> None:
    assert list(_declared_beside(request_)) == lines


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (replace(PLAIN, autostart=True), "never, autostart after a boot of its host, priority normal"),
        (replace(PLAIN, restart=RestartPolicy.ALWAYS, priority=501), "always, priority 501"),
    ],
)
def test_the_restart_policy_is_shown(request_: VmRequest, words: str) -> None:
    assert _restart_policy(Vm("uuid-of-web", request_, "gpu1", VmState.STOPPED)) == words


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (LastRestart(1, 7.0, None, None), "1970-01-01T00:00:07Z"),
        (
            LastRestart(3, 7.0, None, 47.0),
            "1970-01-01T00:00:07Z, 3 times in a row; not again before 1970-01-01T00:00:47Z",
        ),
        (LastRestart(1, 7.0, "no room", None), "1970-01-01T00:00:07Z, failed: no room"),
    ],
)
def test_the_last_restart_is_shown_with_the_end_of_its_pause(last: LastRestart, words: str) -> None:
    assert _last_restart(last) == f"last by the controller at {words}"
