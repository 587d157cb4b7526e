# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of the NVSwitch fabric of a host."""

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from vgpuctl.agent.fabric_manager import FabricManager
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

FLEET = (1, "h100-sxm5~fabric-shared*8")
HOST = "sim-001"


def test_inspect_host_tells_partitions_and_why_they_are_not_known(
    fleet_operator: Operator, fleet: lab.LabFolder
) -> None:
    with FabricManager(SimulatedHost(str(simulated_folder(fleet).host(HOST)))) as manager:
        manager.activate(3)
    shown = fleet_operator.does("inspect-host", HOST).out
    assert "fabric    4 NVSwitches of NVLink 4, FABRIC_MODE 1 (shared)" in shown
    assert "Fabric Manager is running at 127.0.0.1:6666: 15 partitions, 1 active" in shown
    assert "partition 3: modules 1, 3, active" in shown and "partition 4: modules 2, 4, not active" in shown
    manager_of = fleet_operator.json("inspect-host", HOST)["fabric_manager"]
    assert [one["number"] for one in manager_of["partitions"] if one["is_active"]] == [3]
    lab.faults.begin(HOST, "fabric-dead", folder=fleet)
    assert "Fabric Manager is silent: connecting to Fabric Manager" in fleet_operator.does("inspect-host", HOST).out
    assert fleet_operator.json("inspect-host", HOST)["fabric_manager"]["partitions"] is None
