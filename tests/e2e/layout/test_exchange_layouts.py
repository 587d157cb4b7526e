# SPDX-License-Identifier: Apache-2.0
"""Layouts from and for other tools on simulated hosts, and exports for tools that hand out the GPUs themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated

T4, H100 = "0000:41:00.0", "0000:43:00.0"


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host with a T4 and an H100."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("exchange")
    fleet = layout_fleet(home, 1, "t4+h100-pcie")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def test_a_mig_parted_file_shapes_a_host_and_is_written_back(layouts: LayoutFleet, tmp_path: Path) -> None:
    file = tmp_path / "mig.yml"
    file.write_text(
        "version: v1\nmig-configs:\n  mixed:\n  - {devices: [1], mig-enabled: true, mig-devices: {3g.40gb: 1}}\n"
    )
    operator = layouts.operator
    before = layouts.states()
    imported = operator.json("import-layout", "--from-mig-parted", str(file), "--host", "sim-001")
    assert imported["vgpu"]["gpus"] == [{"match": {"address": H100}, "kind": "mig", "geometry": {"3g.40gb": 1}}]
    assert layouts.states() == before
    layouts.declare(sim_001={"gpus": imported["vgpu"]["gpus"]})
    operator.does("apply-hosts", "--no-boot")
    written = operator.json("export", "layout", "sim-001", "--for", "mig-parted", "--config", "mixed")["content"]
    wanted = {"devices": [1], "mig-enabled": True, "mig-devices": {"3g.40gb": 1}}
    assert written == {"version": "v1", "mig-configs": {"mixed": [wanted]}}
    file.write_text(operator.does("export", "layout", "sim-001", "--for", "mig-parted").out)
    again = operator.json("import-layout", "--from-mig-parted", str(file), "--host", "sim-001")
    assert again["vgpu"] == imported["vgpu"]
    assert again["remarks"] == []
    file.write_text(file.read_text().replace("3g.40gb: 1", "3g.40gb: 3"))
    (remark,) = operator.json("import-layout", "--from-mig-parted", str(file), "--host", "sim-001")["remarks"]
    assert remark.startswith("sim-001 would refuse it: ") and "can have 2 x 3g.40gb, not 3" in remark
    refused = operator.is_refused("import-layout", "--from-mig-parted", str(file))
    assert refused["exit_code"] == 3 and "counts GPUs, which needs a host" in refused["message"]


def test_mdevctl_definitions_name_the_shares_that_exist(layouts: LayoutFleet, tmp_path: Path) -> None:
    operator = layouts.operator
    layouts.declare(sim_001={"gpus": [{"match": {"address": T4}, "kind": "vgpu", "shares": {"T4-4Q": 2}}]})
    planned = operator.json("export", "layout", "sim-001", "--for", "mdevctl", "--refresh")["content"]
    operator.does("apply-hosts", "--no-boot")
    folder = tmp_path / "mdevctl.d"
    export = ("export", "layout", "sim-001", "--for", "mdevctl", "--refresh", "--to", str(folder))
    written = operator.does(*export).out.split()
    made = {vgpu.uuid for vgpu in layouts.machine("sim-001").state().vgpus}
    assert {Path(path).name for path in written} == made == {name for one in planned[0][T4] for name in one}
    imported = operator.json("import-layout", "--from-mdevctl", str(folder), "--host", "sim-001")
    assert imported["vgpu"]["gpus"] == [{"match": {"address": T4}, "kind": "vgpu", "shares": {"T4-4Q": 2}}]
    Path(written[0]).write_text(json.dumps({"mdev_type": "nvidia-1", "start": "auto"}))
    assert "is there and says otherwise" in operator.is_refused(*export)["message"]
    refused = operator.is_refused("export", "layout", "sim-001", "--for", "mig-parted")
    assert refused["exit_code"] == 2 and refused["context"][0] == f"{T4}: kind vgpu is more than MIG on or off"


def test_other_tools_are_told_of_the_same_gpus(layouts: LayoutFleet, tmp_path: Path) -> None:
    """A T4 with mdevs and a whole H100: files to stdout and to a folder, remarks on stderr, and nothing on the host."""
    operator = layouts.operator
    gpus = [
        {"match": {"address": T4}, "kind": "vgpu", "types": ["T4-4Q"]},
        {"match": {"address": H100}, "kind": "passthrough"},
    ]
    layouts.declare(sim_001={"gpus": gpus})
    operator.does("apply-hosts", "--no-boot")
    before = layouts.states()
    found = operator.json("export", "nova", "sim-001", "--refresh")
    assert (found["hosts"], found["remarks"], found["written"]) == (["sim-001"], [], [])
    texts = {one["path"]: one["text"] for one in found["files"]}
    assert f"device_addresses = {T4}" in texts["nova/sim-001.conf"]
    assert f'"address": "{H100}"' in texts["nova/sim-001.conf"]
    printed = operator.does("export", "proxmox").out
    assert f"path={T4}" in printed and "hostpci0: mapping=vgpu-tesla-t4,mdev=nvidia-" in printed
    written = operator.does("export", "kubevirt", "--to", str(tmp_path / "out"))
    assert written.out.split() == [str(tmp_path / "out" / "kubevirt" / name) for name in ("kubevirt.yaml", "gpus.yaml")]
    assert "mdevNameSelector: GRID T4-4Q" in (tmp_path / "out" / "kubevirt" / "kubevirt.yaml").read_text()
    assert "it does not offer A40-8Q" in operator.does("export", "nova", "--profile", "A40-8Q").err
    assert operator.is_refused("export", "nova", "sim-009")["exit_code"] == 3
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "off"}]})
    refused = operator.is_refused("export", "kubevirt")
    assert "no GPU of these hosts can be exported" in refused["message"]
    assert refused["context"] == ["2 GPUs of sim-001: its layout off gives nothing to VMs; it is left out"]
    assert layouts.states() == before
