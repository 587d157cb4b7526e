# SPDX-License-Identifier: Apache-2.0
"""What drain-host costs beside the transfers: `python -m tests.bench.live_drains [--vms 20] [--seconds 10]`.

Two simulated hosts. All VMs of the first move live to the second, one at a time over its one link, and the transfer of
each takes so many seconds. Told is the time of the command against the sum of the transfers.
"""

import argparse
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

import vgpuctl_lab as lab
from tests.bench.own_lab import simulated_hosts
from tests.e2e.operator import Operator
from vgpuctl_lab.simulated.layout import simulated_folder

SIZE = ("--vcpus", "1", "--memory", "96MiB", "--network", "none", "--gpu", "A40-8Q")


def main() -> None:
    """Bring hosts and VMs up, drain the first host, and say how long that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vms", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=10)
    given = parser.parse_args()
    cards = -(-given.vms // 6)
    with simulated_hosts(2, mix=f"a40*{cards}") as folder:
        home = folder.path.parent
        source = simulated_folder(folder).inventory
        inventory = home / "hosts.yml"
        inventory.write_text(source.read_text())
        (home / "group_vars").mkdir()
        (home / "group_vars" / "all.yml").write_text(
            yaml.safe_dump({"vgpu_moves": {"network": "trusted", "bandwidth_mbps": 200}})
        )
        operator = Operator(home, inventory, f"sqlite:///{home}/store.db")
        operator.does("create-tenant", "acme")
        for number in range(given.vms):
            operator.does("create-vm", f"vm-{number:02}", "--tenant", "acme", "--limit", "sim-001", *SIZE)
        lab.faults.begin("sim-001", "move-seconds", given.seconds, folder=folder)
        began = time.monotonic()
        operator.does("drain-host", "sim-001", "--reason", "bench", "--live-only", "--yes", timeout_s=3600)
        taken = time.monotonic() - began
        moved = [one for one in operator.json("list-vms", "--refresh") if one["vm"]["host"] == "sim-002"]
    transfers = given.vms * given.seconds
    print(f"{len(moved)} of {given.vms} VMs moved live in {taken:.0f} s, {taken / transfers:.2f} of their transfers")


if __name__ == "__main__":
    main()
