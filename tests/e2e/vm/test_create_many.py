# SPDX-License-Identifier: Apache-2.0
"""create-vm --count on a simulated host: what one VM of many costs, and that none skips a proof."""

from pathlib import Path

from tests.e2e.operator import Operator

VMS = 3
SMALL = ("--tenant", "many", "--memory", "96MiB", "--vcpus", "1", "--network", "none", "--limit", "sim-001")


def test_each_vm_of_one_command_is_checked_on_the_live_host_and_committed_three_times(
    fleet_operator: Operator, tmp_path: Path
) -> None:
    fleet_operator.does("create-tenant", "many")
    fleet_operator.does("list-gpus", "--refresh", "--limit", "sim-001")
    log = tmp_path / "log"
    fleet_operator.does("--log-file", str(log), "create-vm", "web", "--count", str(VMS), "--gpu", "A40-4Q", *SMALL)
    lines = log.read_text().splitlines()
    count = {
        event: sum(f" event={event} " in line for line in lines)
        for event in ("ssh-login", "store-transaction", "agent-call")
    }
    # The rows before anything is touched, the share when it is built, the VM when it runs.
    assert count == {"ssh-login": 1, "store-transaction": 3 * VMS, "agent-call": 3 * VMS}
    calls = [line.partition(" call=")[2].split()[0] for line in lines if " event=agent-call " in line]
    assert calls == ["facts-and-health", "apply", "facts"] * VMS
    for number in range(1, VMS + 1):
        fleet_operator.does("delete-vm", f"web-{number}", "--tenant", "many", "--yes", "--timeout", "0")
