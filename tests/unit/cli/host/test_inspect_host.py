# SPDX-License-Identifier: Apache-2.0
"""The text of inspect-host says what the JSON says."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import whole_card
from vgpuctl.agent.wire.facts import GpuInstance, Holder, MigFacts, SchedulerFacts
from vgpuctl.cli.host.inspect_host import print_gpu


def test_mig_uuid_scheduler_and_memory_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    holder = Holder(pid=71, command="python3", vm_uuid=None)
    instances = (
        GpuInstance(1, "3g.20gb", 0, 4, in_use=True, compute_instances=1, holders=(holder,)),
        GpuInstance(9, "1g.5gb", 6, 1, in_use=False),
    )
    gpu = replace(
        whole_card(),
        uuid="GPU-0f",
        memory_mib=40960,
        mig=MigFacts(current=True, pending=False, instances=instances),
        scheduler=SchedulerFacts("fixed-share", 2000),
    )
    print_gpu(gpu)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "memory 40 GiB, UUID GPU-0f" in lines
    assert "MIG enabled, disabled after a reset or reboot, 2 instances" in lines
    assert "instance 1 3g.20gb at 0, size 4, 1 compute instances, in use, held by python3 (pid 71)" in lines
    assert "instance 9 1g.5gb at 6, size 1, 0 compute instances, free" in lines
    assert "scheduler fixed-share, time slice 2000 µs" in lines
