# SPDX-License-Identifier: Apache-2.0
"""The examples of commands for VMs."""

import pytest

from tests.e2e.examples.scene import Run, Scene, Stage, commands_of, file, play, scene
from tests.e2e.examples.stage import SMALL, named_fleet, stage, variables

__all__ = ["named_fleet", "stage", "variables"]
pytestmark = pytest.mark.long(
    "tests/unit/cli/test_examples.py::test_a_command_has_two_examples_that_it_takes",
    "tests/e2e/vm/test_move_vm.py::test_a_running_vm_moves_with_everything_and_leaves_nothing_behind",
    "tests/e2e/vm/test_restart_vm.py::test_a_restart_keeps_the_shares_and_the_end",
    "tests/e2e/vm/test_suspend_vm.py::test_a_suspended_vm_goes_on_with_devices_of_its_types",
    "tests/e2e/vm/test_attach_nic.py::test_a_stopped_vm_is_changed_at_once",
    "tests/e2e/vm/test_several_vms.py::test_several_vms_are_changed_at_once_and_summed_up",
)

WEB_1, WEB_2, DB_1 = (f"create-vm acme/{name} {SMALL} --host gpu1 --gpu A40-8Q" for name in ("web-1", "web-2", "db-1"))
ON_FRONT = "create-vm --memory 96MiB --vcpus 1 --network front "
BACK = "create-network acme/back --cidr 10.0.1.0/24 --host gpu1"
STOP_1, STOP_2 = "stop-vm acme/web-1 --timeout 0", "stop-vm acme/web-2 --timeout 0"
STATES = "list-vms -t acme --columns vm,state -o csv"
WEB_FILE = """
name: web-4
gpus: [A40-8Q]
memory: 1GiB
network: none
---
name: web-5
memory: 1GiB
network: none
"""

SCENES: dict[str, Scene] = {
    "create-vm": scene(
        Run("acme/web-3: running", then={"list-vms -t acme -o name": "acme/web-3"}),
        Run("web-4", first=(file("web.yml", WEB_FILE),), then={"list-vms -t acme -o name": "!web-4"}),
    ),
    "list-vms": scene(
        Run("web-2"),
        Run("web-1", first=("label-vm acme/web-1 app=web",)),
        Run("web-1", then={STATES: "stopped"}),
        first=(WEB_1, WEB_2, STOP_2),
    ),
    "show-vm": scene(Run("A40-8Q"), Run('"web-1"'), first=(WEB_1,)),
    "start-vm": scene(
        Run("acme/web-1: running", then={STATES: "running"}),
        Run("acme/web-2: running", then={STATES: "!stopped"}),
        first=(WEB_1, WEB_2, STOP_1, STOP_2),
    ),
    "stop-vm": scene(
        Run("acme/web-1: stopped", then={STATES: "stopped"}),
        Run(
            "acme/web-1: stopped, shares released",
            first=("start-vm acme/web-1",),
            then={"list-gpus -l gpu1": "48 GiB 100%"},
        ),
        Run("acme/web-1: stopped", first=("start-vm acme/web-1",), then={"list-events acme/web-1": "forced off"}),
        first=(WEB_1,),
    ),
    "restart-vm": scene(
        Run("acme/web-1: running", then={"list-events acme/web-1": "vm-started"}),
        Run("acme/web-2: running", then={STATES: "!stopped"}),
        Run("acme/web-1", then={"list-events acme/web-1": "vm-reset"}),
        first=(WEB_1, WEB_2),
    ),
    "wait": scene(Run("acme/web-1"), Run("acme/web-1"), first=(WEB_1,)),
    "label-vm": scene(
        Run("acme/web-1: labels app=web, env=prod", then={"show-vm acme/web-1": "labels    app=web, env=prod"}),
        Run("acme/web-1: labels app=web", then={"list-vms -t acme --selector env": "!web-1"}),
        first=(WEB_1,),
    ),
    "rename-vm": scene(
        Run("web-9", then={"list-vms -t acme -o name": "acme/web-9"}),
        Run("web-2", then={"list-vms -t acme -o name": "!web-9"}),
        first=(WEB_2, STOP_2),
    ),
    "attach-nic": scene(
        Run("back", then={"show-vm acme/web-1": "back"}),
        Run("back", then={"show-vm acme/web-2 -o json": "e1000e"}),
        first=(BACK, WEB_1, WEB_2),
    ),
    "detach-nic": scene(
        Run("back", then={"show-vm acme/web-1": "!back"}),
        Run("back", then={"show-vm acme/web-2": "!back"}),
        first=(
            BACK,
            "create-network acme/front --cidr 10.0.2.0/24 --host gpu1",
            f"{ON_FRONT}acme/web-1",
            f"{ON_FRONT}acme/web-2",
            "attach-nic acme/web-1 back",
            "attach-nic acme/web-2 back",
        ),
    ),
    "suspend-vm": scene(
        Run("acme/web-1: suspended, shares kept", then={"show-vm acme/web-1": "suspended"}),
        Run("acme/web-2: suspended, shares released", then={"show-vm acme/web-2": "suspended"}),
        first=(WEB_1, WEB_2),
    ),
    "resume-vm": scene(
        Run("acme/web-1: running", then={STATES: "running"}),
        Run("acme/web-2: running", then={STATES: "!stopped"}),
        first=(WEB_1, WEB_2, "suspend-vm acme/web-1", "suspend-vm acme/web-2 --hold release"),
    ),
    "move-vm": scene(
        Run("gpu2"),
        Run("gpu", then={"list-vms -t acme --columns vm,host -o csv": "gpu1"}),
        Run("gpu2", then={"list-vms -t acme --columns vm,host -o csv": "gpu2"}),
        first=(f"create-vm acme/web-1 {SMALL} --gpu A40-8Q",),
    ),
    "resize-vm": scene(
        Run("memory: 96MiB", then={"show-vm acme/web-2": "6 GiB", STATES: "running"}),
        Run("vcpus", then={"show-vm acme/web-2": "1 vCPU"}),
        first=(WEB_2,),
    ),
    "attach-gpu": scene(
        Run("A40-8Q", then={"list-vms -t acme": "db-1"}),
        Run("A40-8Q", then={"show-vm acme/db-1": "A40-8Q"}),
        first=(DB_1, "stop-vm acme/db-1 --timeout 0"),
    ),
    "detach-gpu": scene(
        Run("GPU 0 would be detached", then={"show-vm acme/db-1": "share  "}),
        Run("GPU 0", then={"show-vm acme/db-1": "!share  "}),
        first=(DB_1, "stop-vm acme/db-1 --timeout 0"),
    ),
    "delete-vm": scene(
        Run("web-9"),
        Run("acme/web-2: deleted", then={"list-vms -t acme -o name": "!web-2", "list-disks -A": "web-2"}),
        first=(WEB_2,),
    ),
    "restore-vm": scene(
        Run("web-2", then={"list-vms -t acme -o name": "!web-2"}),
        Run("acme/web-2: running", then={STATES: "running"}),
        first=(WEB_2, "delete-vm acme/web-2 --keep-disk --yes --timeout 0"),
    ),
    "check-vm": scene(Run("kept"), Run('"verdict": "kept"'), first=(WEB_1,)),
    "render-vm": scene(
        Run("<name>acme.web-1</name>"),
        Run("<name>acme.new</name>", then={"list-vms -t acme -o name": "!new"}),
        first=(WEB_1,),
    ),
}


@pytest.mark.parametrize("name", commands_of("vm"))
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, name: str) -> None:
    play(stage, name, SCENES[name])
