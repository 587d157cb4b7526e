# SPDX-License-Identifier: Apache-2.0
"""The examples of commands for disks, displays, images and licences."""

import subprocess

import pytest

from tests.e2e.examples.scene import Run, Scene, Stage, play, scene
from tests.e2e.examples.stage import SMALL, named_fleet, stage, variables
from tests.lab.simulated_fixtures import machine

__all__ = ["named_fleet", "stage", "variables"]
pytestmark = pytest.mark.long(
    "tests/unit/cli/test_examples.py::test_a_command_has_two_examples_that_it_takes",
    "tests/e2e/disk/test_attach_disk.py::test_a_disk_goes_from_vm_to_vm_and_is_deleted_when_none_has_it",
    "tests/e2e/disk/test_snapshots.py::test_a_stopped_vm_gets_snapshots_and_is_reverted_to_the_newest",
    "tests/e2e/disk/test_snapshots.py::test_sizes_and_media_are_changed_only_where_there_are_some",
    "tests/e2e/display/test_view.py::test_a_viewer_sees_it_on_a_local_port",
    "tests/e2e/display/test_set_console.py::test_the_vgpu_becomes_the_primary_adapter_at_the_next_start",
    "tests/e2e/image/test_images.py::test_a_vm_names_an_image_whose_copy_is_verified_once",
    "tests/e2e/licence/test_licence_pools.py::test_a_pool_is_deleted",
)

CARD = "a40/mdev-vf"  # for set-console: libvirt 10.0 shows the picture of no other vGPU
WEB_1 = f"create-vm acme/web-1 {SMALL}"
STOP = "stop-vm acme/web-1 --timeout 0"
DATA, LOGS = "attach-disk acme/web-1 data,size=10GiB", "attach-disk acme/web-1 logs,size=5GiB,keep"
DISKS = "list-disks -t acme -o name"
SHOW = "show-vm acme/web-1"
DESK = f"{WEB_1} --display vnc"
VWS = "create-licence-pool vws --edition vws --seats 20"


def put_image(stage: Stage) -> None:
    """Put a file onto gpu1's disk."""
    assert stage.lab_folder is not None
    folder = machine(stage.lab_folder, "sim-001").root / "var/lib/libvirt/images"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "debian-13.qcow2").unlink(missing_ok=True)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(folder / "debian-13.qcow2"), "4M"], check=True)


IMAGE = f"register-image debian-13 --path /images/debian-13.qcow2 --format qcow2 --checksum sha256:{'0' * 64}"


SCENES: dict[str, Scene] = {
    "attach-disk": scene(Run("data", then={DISKS: "data"}), Run("logs", then={DISKS: "logs"}), first=(WEB_1, STOP)),
    "detach-disk": scene(
        Run("logs", then={SHOW: "!disk      logs"}),
        Run("data", then={SHOW: "!disk      data"}),
        first=(WEB_1, STOP, LOGS, DATA),
    ),
    "list-disks": scene(Run("data"), Run('"data"'), first=(WEB_1, STOP, DATA)),
    "delete-disk": scene(
        Run("logs", then={DISKS: "logs"}),
        Run("logs", then={DISKS: "!logs"}),
        first=(WEB_1, STOP, LOGS, "detach-disk acme/web-1 logs"),
    ),
    "create-snapshot": scene(
        Run("before", then={"list-snapshots acme/web-1": "before"}),
        Run("quiet", then={"list-snapshots acme/web-1": "quiet"}),
        first=(WEB_1, STOP),
    ),
    "list-snapshots": scene(Run("before"), Run('"before"'), first=(WEB_1, STOP, "create-snapshot acme/web-1 before")),
    "revert-snapshot": scene(
        Run("before", first=("create-snapshot acme/web-1 before",), then={"list-snapshots acme/web-1": "!before"}),
        Run("before", first=("create-snapshot acme/web-1 before",), then={"list-snapshots acme/web-1": "!before"}),
        first=(WEB_1, STOP),
    ),
    "eject-iso": scene(Run(""), Run('"changed": false'), first=(WEB_1,)),
    "view": scene(Run("vnc://127.0.0.1:", is_stopped=True), Run("http://127.0.0.1:", is_stopped=True), first=(DESK,)),
    "screenshot": scene(Run("web-1.png: "), Run("web-1.png: "), first=(DESK,)),
    "set-console": scene(
        Run("vgpu"),
        Run("emulated", first=("set-console acme/web-1 none",), then={SHOW: "adapter vga"}),
        first=(f"{DESK} --gpu A40-8Q", STOP),
    ),
    "register-image": scene(
        Run("debian-13", first=(put_image,), then={"list-images": "debian-13"}),
        Run("debian-13"),
    ),
    "list-images": scene(
        Run("debian-13"),
        Run("debian-13"),
        first=(IMAGE,),
    ),
    "delete-image": scene(
        Run("debian-13", then={"list-images -o name": "debian-13"}),
        Run("debian-13", then={"list-images -o name": "!debian-13"}),
        first=(IMAGE,),
    ),
    "create-licence-pool": scene(
        Run("vws", then={"list-licence-pools -o name": "vws"}), Run("vcs", then={"list-licence-pools -o name": "!vcs"})
    ),
    "set-licence-pool": scene(
        Run("vws", then={"list-licence-pools": "30"}),
        Run("vws", then={"list-licence-pools -o json": "43200"}),
        first=(VWS,),
    ),
    "list-licence-pools": scene(Run("20"), Run("20"), first=(VWS,)),
    "delete-licence-pool": scene(
        Run("vws", then={"list-licence-pools -o name": "vws"}),
        Run("vws", then={"list-licence-pools -o name": "!vws"}),
        first=(VWS,),
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, name: str) -> None:
    play(stage, name, SCENES[name])
