# SPDX-License-Identifier: Apache-2.0
"""The variable `vgpu` becomes a host's layout, or an error that names file, line, host and key."""

from pathlib import Path

import pytest

from tests.unit.inventory.written_layout import read_layout
from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.model.layout import (
    FabricLayout,
    FabricMode,
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    OwnLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)


def _gpu(folder: Path, entry: str) -> Layout:
    return read_layout(folder, f"version: 1\ngpus:\n- {{match: all, {entry}}}").gpus[0].layout


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("kind: vgpu, types: [a40-8q, NVIDIA A40-4Q]", "kind: vgpu, types: [A40-8Q, A40-4Q]"),
        ("kind: vgpu, shares: {nvidia a40-8q: 2}", "kind: vgpu, shares: {A40-8Q: 2}"),
        ("kind: vgpu, shares: {RTX Pro 6000 Blackwell DC-24Q: 2}", "kind: vgpu, shares: {DC-24Q: 2}"),
        ("kind: mig, geometry: {MIG 3G.20GB: 2}", "kind: mig, geometry: {3g.20gb: 2}"),
        (
            "kind: mig, geometry: {3g.20gb: 2}, placements: {MIG 3g.20gb: [0, 4]}",
            "kind: mig, geometry: {3g.20gb: 2}, placements: {3g.20gb: [0, 4]}",
        ),
        (
            "kind: mig-vgpu, geometry: {MIG 1g.5gb: 2}, shares: {a100-1-5c: 2}",
            "kind: mig-vgpu, geometry: {1g.5gb: 2}, shares: {A100-1-5C: 2}",
        ),
    ],
)
def test_a_type_or_mig_profile_in_another_form_is_the_same_layout(tmp_path: Path, written: str, normal: str) -> None:
    assert _gpu(tmp_path, written) == _gpu(tmp_path, normal)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("kind: vgpu, types: [A40-8Q, nvidia a40-8q]", "a second time"),
        ("kind: vgpu, shares: {A40-8Q: 1, a40-8q: 2}", "means the same as another key"),
        ("kind: mig, geometry: {3g.20gb: 1, MIG 3g.20gb: 1}", "means the same as another key"),
        ("kind: vgpu, shares: {a100-1-5c: 1}", "A100-1-5C sits in a MIG instance"),
        ("kind: mig-vgpu, geometry: {1g.5gb: 1}, types: [a40-8q]", "A40-8Q does not sit in a MIG instance"),
        ("kind: vgpu, types: [A40-8Q], shares: {a40-4q: 1}", "A40-4Q is not one of A40-8Q"),
    ],
)
def test_two_forms_of_one_name_are_one_name_in_every_check(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(InventoryError, match=said):
        _gpu(tmp_path, entry)


def test_a_host_without_the_variable_has_no_layout(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("g: {hosts: {h1: }}\n")
    assert load_inventory([tmp_path / "hosts.yml"]).layout("h1") is None


def test_everything_about_the_host_is_read(tmp_path: Path) -> None:
    layout = read_layout(
        tmp_path,
        "version: 1\n"
        "kernel_arguments: [intel_iommu=on, iommu=pt]\n"
        "stop_services: [dcgm, nvidia-dcgm.service]\n"
        "hugepages: {1GiB: 64, 2MiB: 0, 64KiB: 8}\n"
        "uplinks: {tenants: ens1f0}\n"
        "fabric: {mode: shared}\n",
    )
    assert layout == HostLayout(
        kernel_arguments=("intel_iommu=on", "iommu=pt"),
        stop_services=("dcgm.service", "nvidia-dcgm.service"),
        hugepages=((64, 8), (2048, 0), (1 << 20, 64)),
        uplinks=(("tenants", "ens1f0"),),
        fabric=FabricLayout(FabricMode.SHARED),
    )
    assert layout.origin == f"{tmp_path}/host_vars/h1.yml:1"
    assert layout.place_of("fabric.mode") == f"{tmp_path}/host_vars/h1.yml:7"


@pytest.mark.parametrize(
    ("entry", "layout"),
    [
        ("kind: passthrough", PassthroughLayout()),
        ("kind: passthrough, driver: vfio-pci", PassthroughLayout("vfio-pci")),
        ("kind: off", OffLayout()),
        ("kind: host", OwnLayout()),
        (
            "kind: host, geometry: {2g.10gb: 1}, placements: {2g.10gb: [4]}",
            OwnLayout((WantedInstance("2g.10gb", 4),)),
        ),
        ("kind: 'off'", OffLayout()),
        ("kind: vf, count: 4", VfLayout(4)),
        ("kind: vgpu", VgpuLayout()),
        (
            "kind: vgpu, virtual_functions: true, size_mode: mixed-size, types: [A40-8Q, A40-4Q], "
            "scheduler: {policy: equal-share, time_slice_ms: 1.5}, shares: {A40-8Q: 2, A40-4Q: 1}",
            VgpuLayout(
                True,
                SizeMode.MIXED,
                SchedulerLayout(SchedulerPolicy.EQUAL_SHARE, 1500),
                ("A40-8Q", "A40-4Q"),
                (("A40-4Q", 1), ("A40-8Q", 2)),
            ),
        ),
        (
            "kind: vgpu, types: [A40-48Q], vgpu_params: [frame_rate_limiter=0, enable_uvm=1]",
            VgpuLayout(types=("A40-48Q",), vgpu_params=(("enable_uvm", "1"), ("frame_rate_limiter", "0"))),
        ),
        (
            "kind: vf, count: 2, vf_params: [vram_quota=3GiB, exec_quantum_ms=20], pf_params: [sched_priority=normal]",
            VfLayout(2, (("exec_quantum_ms", "20"), ("vram_quota", "3221225472")), (("sched_priority", "normal"),)),
        ),
        ("kind: mig, geometry: {}", MigLayout()),
        (
            "kind: mig, geometry: {2g.10gb: 2, 1g.5gb+me: 1}, placements: {2g.10gb: [4]}",
            MigLayout((WantedInstance("1g.5gb+me"), WantedInstance("2g.10gb", 4), WantedInstance("2g.10gb"))),
        ),
        (
            "kind: mig, geometry: {1c.2g.10gb: 3, 2c.2g.10gb: 1}, placements: {2g.10gb: [2, 0]}",
            MigLayout(
                (
                    WantedInstance("2g.10gb", 0),
                    WantedInstance("2g.10gb", 2, (1, 1)),
                    WantedInstance("2g.10gb", None, (1,)),
                )
            ),
        ),
        (
            "kind: mig-vgpu, geometry: {2g.10gb: 1}, types: [A100-2-10C], shares: {A100-2-10C: 1}",
            MigVgpuLayout((WantedInstance("2g.10gb"),), types=("A100-2-10C",), shares=(("A100-2-10C", 1),)),
        ),
    ],
)
def test_every_kind_is_read(tmp_path: Path, entry: str, layout: Layout) -> None:
    assert _gpu(tmp_path, entry) == layout


@pytest.mark.parametrize(
    ("match", "read"),
    [
        ("all", GpuMatch()),
        ("{address: '0000:41:00.0'}", GpuMatch(address="0000:41:00.0")),
        ("{address: '00000000:C1:00.0'}", GpuMatch(address="0000:c1:00.0")),
        ("{address: '41:00.0'}", GpuMatch(address="0000:41:00.0")),
        (
            "{uuid: GPU-1111AAAA-2222-3333-4444-555555555555}",
            GpuMatch(uuid="GPU-1111aaaa-2222-3333-4444-555555555555"),
        ),
        ("{board: A40}", GpuMatch(board="A40")),
        ("{board: '10de:ffff'}", GpuMatch(board="10de:ffff")),
    ],
)
def test_every_match_is_read(tmp_path: Path, match: str, read: GpuMatch) -> None:
    layout = read_layout(tmp_path, f"version: 1\ngpus:\n- match: {match}\n  kind: passthrough")
    assert layout.gpus == (GpuLayout(read, PassthroughLayout()),)
    assert layout.gpus[0].origin == f"{tmp_path}/host_vars/h1.yml:4"


def test_the_variable_comes_whole_from_the_place_that_counts_most(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "g.yml").write_text("vgpu: {version: 1, kernel_arguments: [iommu=pt]}\n")
    assert read_layout(tmp_path, "version: 1") == HostLayout()
    (tmp_path / "host_vars" / "h1.yml").unlink()
    layout = load_inventory([tmp_path / "hosts.yml"]).layout("h1")
    assert layout == HostLayout(kernel_arguments=("iommu=pt",))


def test_a_group_s_file_is_named_where_it_set_the_layout(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("g: {hosts: {h1: }}\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "g.yml").write_text(
        "---\nx: 1\nvgpu:\n  version: 1\n  gpus:\n  - kind: off\n    match: al\n"
    )
    with pytest.raises(InventoryError) as refused:
        load_inventory([tmp_path / "hosts.yml"]).layout("h1")
    assert refused.value.message.startswith(f"{tmp_path}/group_vars/g.yml:7: vgpu.gpus[0].match of host 'h1'")


def test_a_group_s_layout_is_read_once_for_all_its_hosts_and_a_chassis_for_each(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("g: {hosts: {h1: , h2: }}\nn: {hosts: {h3: , h4: }}\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "g.yml").write_text("vgpu: {version: 1, kernel_arguments: [iommu=pt]}\n")
    network = "{southbound: 'unix:/run/ovnsb.sock', tunnels: 10.0.0.0/24}"
    (tmp_path / "group_vars" / "n.yml").write_text(f"vgpu: {{version: 1, network: {network}}}\n")
    inventory = load_inventory([tmp_path / "hosts.yml"])
    first, second, *others = (inventory.layout(host) for host in ("h1", "h2", "h3", "h4"))
    assert first is not None and first is second
    assert [one.network.chassis for one in others if one and one.network] == ["h3", "h4"]


def test_a_layout_behind_an_anchor_is_named_by_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "all:\n  vars:\n    base: &base\n      version: 1\n      gpu: []\n"
        "  hosts:\n    h1:\n      vgpu:\n        <<: *base\n"
    )
    with pytest.raises(InventoryError) as refused:
        load_inventory([tmp_path / "hosts.yml"]).layout("h1")
    assert refused.value.message.startswith(f"{tmp_path}/hosts.yml:5: vgpu.gpu of host 'h1'")


def test_a_layout_in_an_ini_inventory_is_read_and_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(
        "[g]\nh1 vgpu=\"{'version': 1, 'gpus': [{'match': 'all', 'kind': 'off'}]}\"\nh2 vgpu=1\n"
    )
    inventory = load_inventory([tmp_path / "hosts.ini"])
    assert inventory.layout("h1") == HostLayout((GpuLayout(GpuMatch(), OffLayout()),))
    with pytest.raises(InventoryError) as refused:
        inventory.layout("h2")
    assert refused.value.message == f"{tmp_path}/hosts.ini:3: vgpu of host 'h2' is 1, a number, not a mapping"


def test_a_variable_that_is_nearly_one_of_ours_is_warned_of(tmp_path: Path) -> None:
    """Another name does nothing, so a misspelt one would be ignored in silence."""
    (tmp_path / "hosts.ini").write_text("[g]\nh1 vgpu_url=x\nh2\n[g:vars]\nvgpu_placng={}\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "h1.yml").write_text("a: 1\nvgpus: {version: 1}\nvgpu-health: {}\n")
    inventory = load_inventory([tmp_path / "hosts.ini"])
    assert list(inventory.warnings) == []
    for host in inventory.hosts():
        inventory.verify(host)
    assert inventory.warnings == (
        f"{tmp_path}/hosts.ini:5: variable 'vgpu_placng' is not read; did you mean vgpu_placing?",
        f"{tmp_path}/host_vars/h1.yml:2: variable 'vgpus' is not read; did you mean vgpu?",
        f"{tmp_path}/host_vars/h1.yml:3: variable 'vgpu-health' is not read; did you mean vgpu_health?",
    )
