# SPDX-License-Identifier: Apache-2.0
"""The file by which container engines of a host know its own GPUs: with and without NVIDIA's toolkit, and with MIG."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.kernel import FakeKernel, add_program, make, problem, take
from tests.agent.machine import Tree
from tests.agent.simulated import PF, Machine
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.cdi import FILE, STATE, CdiFacts, SetContainerGpus
from vgpuctl_lab.simulated.machine import shape as shapes

ONE, TWO = "0000:41:00.0", "0000:81:00.0"
UUIDS = {ONE: "GPU-11111111-2222-3333-4444-555555555555", TWO: "GPU-99999999-2222-3333-4444-555555555555"}
CAPS = "/proc/driver/nvidia/capabilities/gpu1/mig"
GPUS: Tree = {
    **{
        f"/proc/driver/nvidia/gpus/{address}/information": f"GPU UUID: \t {uuid}\nDevice Minor: \t {number}\n"
        for number, (address, uuid) in enumerate(UUIDS.items())
    },
    "/sys/module/nvidia/version": "580.95.05\n",
    "/dev/nvidiactl": "",
    "/dev/nvidia-uvm": "",
}
MIG: Tree = {
    f"{CAPS}/gi1/access": "DeviceFileMinor: 147\nDeviceFileMode: 292\n",
    f"{CAPS}/gi1/ci0/access": "DeviceFileMinor: 148\nDeviceFileMode: 292\n",
    f"{CAPS}/gi2/access": "DeviceFileMinor: 156\n",
    f"{CAPS}/gi2/ci0/access": "DeviceFileMinor: 157\n",
    f"{CAPS}/gi2/ci1/access": "DeviceFileMinor: 158\n",
}
TOOLKIT = """
import json, pathlib, sys
assert sys.argv[1:] == ["cdi", "generate", "--format=json", "--device-name-strategy=uuid"], sys.argv
print("level=info msg=Generated", file=sys.stderr)
def device(name, *nodes):
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": one} for one in nodes]}}
made = [
    device("GPU-11111111-2222-3333-4444-555555555555", "/dev/nvidia0", "/dev/dri/card1"),
    device("GPU-99999999-2222-3333-4444-555555555555", "/dev/nvidia1", "/dev/dri/card2"),
    device("all", "/dev/nvidia0", "/dev/nvidia1"),
]
broken = pathlib.Path(__file__).with_name("ctk-says")
if broken.exists():
    sys.exit(broken.read_text()) if not broken.read_text().startswith("{") else print(broken.read_text())
    sys.exit(0)
print(json.dumps({"cdiVersion": "0.7.0", "kind": "nvidia.com/gpu", "devices": made, "containerEdits": {
    "mounts": [{"hostPath": "/lib/libcuda.so.580.95.05", "containerPath": "/lib/libcuda.so.580.95.05"}]}}))
"""


def written(host: FakeKernel) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(host.read(FILE))
    return made


def nodes(made: dict[str, Any]) -> dict[str, list[str]]:
    return {one["name"]: [node["path"] for node in one["containerEdits"]["deviceNodes"]] for one in made["devices"]}


def test_the_file_has_the_declared_gpus_and_is_written_once(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS)
    assert read_facts(host).cdi == CdiFacts()
    dry, first, second = (take(host, SetContainerGpus((ONE,)), dry_run=dry) for dry in (True, False, False))
    assert dry.changes == first.changes and not first.problem
    assert [reply.changes[0].changed for reply in (first, second)] == [True, False]
    made = written(host)
    assert (made["cdiVersion"], made["kind"]) == ("0.5.0", "nvidia.com/gpu")
    assert nodes(made) == {UUIDS[ONE]: ["/dev/nvidia0"], "all": ["/dev/nvidia0"]}
    assert made["containerEdits"] == {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}
    assert read_facts(host).cdi == CdiFacts((ONE,))


def test_more_and_fewer_gpus_and_none(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS)
    take(host, SetContainerGpus((TWO, ONE)))
    assert nodes(written(host))["all"] == ["/dev/nvidia0", "/dev/nvidia1"]
    (change,) = take(host, SetContainerGpus((TWO,))).changes
    assert (change.before, change.after) == (f"{ONE}, {TWO}", TWO)
    assert nodes(written(host)) == {UUIDS[TWO]: ["/dev/nvidia1"], "all": ["/dev/nvidia1"]}
    assert [take(host, SetContainerGpus(())).changes[0].changed for _ in range(2)] == [True, False]
    assert host.read_optional(FILE) is None and host.read_optional(STATE) is None
    assert read_facts(host).cdi == CdiFacts()


MODPROBE = """
import os, pathlib, sys
root = pathlib.Path(os.environ["VGPUCTL_ROOT"])
if sys.argv[1:] == ["-u", "-c", "0"]:
    sys.exit(1) if (root / "dev/no-uvm").exists() else (root / "dev/nvidia-uvm").touch()
else:
    with (root / "dev/asked").open("a") as asked:
        print(*sys.argv[1:], file=asked)
"""


def test_nodes_that_nothing_has_used_yet_are_made_before_the_file_is_written(tmp_path: Path) -> None:
    """As at a boot: nothing has computed yet, so the driver has no such node."""
    host = make(tmp_path, GPUS)
    take(host, SetContainerGpus((ONE,)))
    host.place("/dev/nvidia-uvm").unlink()
    add_program(host, "/usr/bin/nvidia-modprobe", MODPROBE)
    assert take(host, SetContainerGpus((ONE,)), dry_run=True).changes[0].changed
    assert not host.exists("/dev/nvidia-uvm"), "a dry run loads nothing"
    (change,) = take(host, SetContainerGpus((ONE,))).changes
    assert not change.changed and host.exists("/dev/nvidia-uvm"), "it is as before the boot"
    assert host.read("/dev/asked") == "-c 0", "the GPU's own node is missing too"
    host.place("/dev/nvidia0").touch()
    assert written(host)["containerEdits"]["deviceNodes"][1] == {"path": "/dev/nvidia-uvm"}
    host.place("/dev/nvidia-uvm").unlink()
    host.place("/dev/no-uvm").touch()
    assert take(host, SetContainerGpus((ONE,))).changes[0].changed, "a driver without that module"
    assert written(host)["containerEdits"] == {"deviceNodes": [{"path": "/dev/nvidiactl"}]}
    assert host.read("/dev/asked") == "-c 0", "nothing else is missing"
    assert read_facts(host).cdi == CdiFacts((ONE,), missing_nodes=("/dev/nvidia-uvm",))
    host.place("/usr/bin/nvidia-modprobe").unlink()
    assert read_facts(host).cdi == CdiFacts((ONE,), missing_nodes=("/dev/nvidia-uvm",), has_modprobe=False)
    host.place("/dev/nvidia-uvm").touch()
    assert read_facts(host).cdi == CdiFacts((ONE,), is_current=False), "somebody has made it since"


def test_the_nodes_of_instances_are_made_too(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS, MIG)
    add_program(host, "/usr/bin/nvidia-modprobe", MODPROBE)
    host.place("/dev/nvidiactl").unlink()
    host.place("/dev/nvidia1").touch()
    host.place("/dev/nvidia-caps").mkdir()
    for number in (147, 148, 156, 157):
        host.place(f"/dev/nvidia-caps/nvidia-cap{number}").touch()
    take(host, SetContainerGpus((TWO,)))
    assert host.read("/dev/asked") == f"-c 255 -f {CAPS}/gi2/ci1/access"


@pytest.mark.parametrize("version", ["580.95.05", "590.44.01"])
def test_a_gpu_that_nobody_has_opened_yet_is_asked_for_its_uuid(tmp_path: Path, version: str) -> None:
    machine = Machine(tmp_path, "a40")
    shapes.write(replace(machine.files.shape, nvidia_driver=version), machine.files.folder / "machine.json")
    machine.reboot()
    information = f"/proc/driver/nvidia/gpus/{PF}/information"
    assert machine.card.uuid not in machine.host.read(information)
    assert machine.done(SetContainerGpus((PF,)))
    assert nodes(json.loads(machine.host.read(FILE)))[machine.card.uuid] == ["/dev/nvidia0"]
    assert not machine.done(SetContainerGpus((PF,)))


def test_instances_of_mig_are_devices_of_their_own(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS, MIG)
    take(host, SetContainerGpus((TWO,)))
    caps = "/dev/nvidia-caps/nvidia-cap"
    assert nodes(written(host)) == {
        f"MIG-{UUIDS[TWO]}:1:0": ["/dev/nvidia1", f"{caps}147", f"{caps}148"],
        f"MIG-{UUIDS[TWO]}:2:0": ["/dev/nvidia1", f"{caps}156", f"{caps}157"],
        f"MIG-{UUIDS[TWO]}:2:1": ["/dev/nvidia1", f"{caps}156", f"{caps}158"],
        "all": ["/dev/nvidia1", *(f"{caps}{number}" for number in (147, 148, 156, 157, 158))],
    }
    host.place(f"{CAPS}/gi2/ci1/access").unlink()
    host.place(f"{CAPS}/gi2/ci1").rmdir()
    assert read_facts(host).cdi == CdiFacts((TWO,), is_current=False)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/sys/module/nvidia/version", "590.44.01\n"),
        ("/dev/nvidia-uvm-tools", ""),
        ("/dev/nvidia-modeset", ""),
        (FILE, "{}"),
        (f"/proc/driver/nvidia/gpus/{ONE}/information", f"GPU UUID: {UUIDS[ONE]}\nDevice Minor: 5\n"),
        (f"/proc/driver/nvidia/gpus/{ONE}/information", ""),
    ],
)
def test_a_file_that_would_be_another_now_is_not_current(tmp_path: Path, path: str, text: str) -> None:
    host = make(tmp_path, GPUS)
    take(host, SetContainerGpus((ONE,)))
    host.place(path).write_text(text)
    found = read_facts(host).cdi
    assert found is not None and not found.is_current


def test_the_toolkit_says_what_a_container_needs(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS)
    take(host, SetContainerGpus((ONE,)))
    add_program(host, "/usr/bin/nvidia-ctk", TOOLKIT)
    found = read_facts(host).cdi
    assert found is not None and not found.is_current, "the toolkit came later"
    assert not take(host, SetContainerGpus((ONE,))).problem
    made = written(host)
    assert made["cdiVersion"] == "0.7.0"
    assert nodes(made) == {UUIDS[ONE]: ["/dev/nvidia0", "/dev/dri/card1"], "all": ["/dev/nvidia0", "/dev/dri/card1"]}
    assert made["containerEdits"]["mounts"][0]["hostPath"] == "/lib/libcuda.so.580.95.05"
    assert read_facts(host).cdi == CdiFacts((ONE,))


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("no driver", "ended with 1: level=info msg=Generated\nno driver"),
        ('{"kind": "nvidia.com/gpu"}', "cannot be used: 'devices'"),
        ('{"kind": "intel.com/gpu", "devices": []}', "its kind is 'intel.com/gpu'"),
        ('{"kind": "nvidia.com/gpu", "devices": []}', "describes 0 devices of GPUs that have 1"),
        ('{"kind": "nvidia.com/gpu", "devices": [5]}', "cannot be used"),
    ],
)
def test_what_the_toolkit_says_is_checked_and_nothing_is_written(tmp_path: Path, says: str, why: str) -> None:
    host = make(tmp_path, GPUS)
    add_program(host, "/usr/bin/nvidia-ctk", TOOLKIT)
    host.place("/usr/bin/ctk-says").write_text(says)
    refused = problem(take(host, SetContainerGpus((ONE,))))
    assert refused.code == "unexpected-value" and why in refused.message
    assert host.read_optional(FILE) is None and host.read_optional(STATE) is None


def test_a_gpu_that_the_driver_does_not_have_and_a_strangers_file_are_refused(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS, {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"})
    assert read_facts(host).cdi == CdiFacts(others=("/etc/cdi/nvidia.yaml",))
    assert problem(take(host, SetContainerGpus(("0000:99:00.0",)))).code == "not-found"
    host.place(FILE).write_text("{}")
    for gpus in ((ONE,), ()):
        refused = problem(take(host, SetContainerGpus(gpus)))
        assert (refused.code, refused.path) == ("write-refused", FILE)
    assert host.read(FILE) == "{}"


@pytest.mark.parametrize("text", ["{}", "", "[1]", "not JSON", '{"gpus": 5, "basis": "", "sha256": ""}'])
def test_a_record_that_cannot_be_used_is_no_leave_to_write(tmp_path: Path, text: str) -> None:
    host = make(tmp_path, GPUS, {FILE: "{}", STATE: text})
    found = read_facts(host).cdi
    assert found is not None and (found.gpus, found.others) == ((), ())
    assert f"{STATE} does not say which GPUs {FILE} gives to containers" in (found.unknown or "")
    for gpus in ((ONE,), ()):
        assert problem(take(host, SetContainerGpus(gpus))).path == STATE
    assert host.read(FILE) == "{}"
    host.place(FILE).unlink()
    assert read_facts(host).cdi == CdiFacts(), "there is nothing to lose"
    assert not take(host, SetContainerGpus((ONE,))).problem
    assert read_facts(host).cdi == CdiFacts((ONE,))


def test_a_file_without_its_record_is_another_s(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS)
    take(host, SetContainerGpus((ONE,)))
    host.place(STATE).unlink()
    assert read_facts(host).cdi == CdiFacts(others=(FILE,))


@pytest.mark.parametrize("entry", ["/etc/cdi/dir.json", "/run/cdi/dir.yaml"])
def test_what_cannot_be_read_beside_the_file_hides_nothing_else(tmp_path: Path, entry: str) -> None:
    host = make(tmp_path, GPUS, {"/run/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n"})
    take(host, SetContainerGpus((ONE,)))
    host.place(entry).mkdir(parents=True)
    found = read_facts(host).cdi
    assert found is not None and (found.gpus, found.is_current, found.unknown) == ((ONE,), True, None)
    assert found.others == ("/run/cdi/nvidia.yaml",)
    (told,) = found.unread
    assert told.startswith(f"{entry} cannot be read: ")


def test_a_record_that_cannot_be_read_leaves_the_other_files_known(tmp_path: Path) -> None:
    host = make(tmp_path, GPUS, {"/run/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n"})
    host.place(STATE).mkdir(parents=True)
    found = read_facts(host).cdi
    assert found is not None and found.unknown is not None and STATE in found.unknown
    assert found.others == ("/run/cdi/nvidia.yaml",)
    assert problem(take(host, SetContainerGpus((ONE,)))).path == STATE


@pytest.mark.parametrize(
    ("name", "text", "is_told"),
    [
        ("a.json", '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}', True),
        ("a.yaml", 'kind: "nvidia.com/gpu"', True),
        ("a.yml", "devices: []\nkind: nvidia.com/gpu\n", True),
        ("a.yaml", "kind: nvidia.com/gpu-other\n", False),
        ("a.yaml", "kind: intel.com/gpu\n", False),
        ("a.txt", "kind: nvidia.com/gpu\n", False),
    ],
)
def test_other_files_about_gpus_are_told(tmp_path: Path, name: str, text: str, is_told: bool) -> None:
    host = make(tmp_path, GPUS, {f"/run/cdi/{name}": text})
    assert read_facts(host).cdi == CdiFacts(others=(f"/run/cdi/{name}",) if is_told else ())
