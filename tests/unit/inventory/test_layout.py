# SPDX-License-Identifier: Apache-2.0
"""The variable `vgpu` becomes a host's layout, or an error that names file, line, host and key."""

from pathlib import Path

import pytest

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
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)


def _read(folder: Path, text: str) -> HostLayout:
    (folder / "hosts.yml").write_text("g: {hosts: {h1: }}\n")
    (folder / "host_vars").mkdir(exist_ok=True)
    lines = "".join(f"  {line}\n" for line in text.splitlines())
    (folder / "host_vars" / "h1.yml").write_text(f"vgpu:\n{lines}")
    layout = load_inventory([folder / "hosts.yml"]).layout("h1")
    assert layout is not None
    return layout


def _gpu(folder: Path, entry: str) -> Layout:
    return _read(folder, f"version: 1\ngpus:\n- {{match: all, {entry}}}").gpus[0].layout


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
    layout = _read(
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
    layout = _read(tmp_path, f"version: 1\ngpus:\n- match: {match}\n  kind: passthrough")
    assert layout.gpus == (GpuLayout(read, PassthroughLayout()),)
    assert layout.gpus[0].origin == f"{tmp_path}/host_vars/h1.yml:4"


@pytest.mark.parametrize(
    ("text", "line", "words", "hint"),
    [
        ("gpus: []", 1, "vgpu of host 'h1' has no 'version'", "version: 1"),
        ("version: 2", 2, "vgpu.version of host 'h1' is 2", "reads version 1"),
        ("version: '1'", 2, "is '1', text, not a whole number", None),
        ("version: 1\ngpu: []", 3, "vgpu.gpu of host 'h1' is not a key of the layout", "did you mean gpus?"),
        ("version: 1\n1: x", 3, "a key that is a number, not text", "quote it"),
        ("version: 1\ngpus: {}", 3, "vgpu.gpus of host 'h1' is a mapping, not a list", None),
        ("version: 1\ngpus:\n- kind: off", 4, "vgpu.gpus[0] of host 'h1' has no 'match'", None),
        ("version: 1\ngpus:\n- match: all", 4, "has no 'kind'", None),
        ("version: 1\ngpus:\n- match: all\n  kindd: vgpu", 5, "gpus[0].kindd of host 'h1'", "did you mean kind?"),
        ("version: 1\ngpus:\n- kind: off\n  match: {board: A4O}", 5, "which no board", "did you mean A40"),
        ("version: 1\ngpus:\n- match: all\n  kind: mdev", 5, "vgpu.gpus[0].kind of host 'h1' is 'mdev'", "it can be"),
        ("version: 1\ngpus:\n- match: all\n  kind: vgpus", 5, "is 'vgpus'", "did you mean vgpu?"),
        ("version: 1\ngpus:\n- match: A40\n  kind: off", 4, "gpus[0].match of host 'h1' is 'A40'", "write `all`"),
        ("version: 1\ngpus:\n- kind: off\n  match: {}", 5, "match of host 'h1' has no key", "give one of"),
        (
            "version: 1\ngpus:\n- kind: off\n  match:\n    board: A40\n    address: '41:00.0'",
            5,
            "has board and address",
            "give one of",
        ),
        (
            "version: 1\ngpus:\n- kind: off\n  match: {address: 0000:41:00.0}",
            5,
            "match.address of host 'h1' is 2460.0, a number, not text",
            'quote it: "0000:41:00.0"',
        ),
        ("version: 1\ngpus:\n- kind: off\n  match: {address: '41'}", 5, "is '41', not a PCI address", None),
        ("version: 1\ngpus:\n- kind: off\n  match: {uuid: x}", 5, "is 'x', not a GPU's UUID", None),
        ("version: 1\ngpus:\n- kind: off\n  match: {board: A41}", 5, "is 'A41', which no board", "did you mean A40"),
        (
            "version: 1\ngpus:\n- {match: all, kind: off}\n- match: all\n  kind: vgpu",
            5,
            "gpus[1].match of host 'h1' is for all GPUs, as is the entry at",
            "one entry per match",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  geometry: {}",
            6,
            "gpus[0].geometry of host 'h1' contradicts kind vgpu: 'geometry' belongs to mig and mig-vgpu",
            "vgpu can have virtual_functions",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: off\n  cuont: 1",
            6,
            "gpus[0].cuont of host 'h1' is not a key",
            None,
        ),
        ("version: 1\ngpus:\n- match: all\n  kind: mig", 4, "is of kind mig and has no 'geometry'", None),
        ("version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 0", 6, "count of host 'h1' is 0", "1 to 256"),
        ("version: 1\ngpus:\n- match: all\n  kind: vf\n  count: true", 6, "is True, true or false, not a whole", None),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {3c.4g.20gb: 1}",
            6,
            "geometry.3c.4g.20gb of host 'h1' is no part of 4g.20gb, which can have 1c, 2c, 4c",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig-vgpu\n  geometry: {1c.2g.10gb: 1}",
            6,
            "geometry.1c.2g.10gb of host 'h1' is a part of a GPU instance",
            "vGPUs sit in whole instances",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {1g.5gb: 1}\n  placements:\n    2g.10gb: [0]",
            8,
            "placements.2g.10gb of host 'h1' is for a profile that the geometry does not have",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {1g.5gb: 1}\n  placements: {1g.5gb: [0, 1]}",
            7,
            "has 2 slots, but the geometry has 1 of 1g.5gb",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {1g.5gb: 2}\n"
            "  placements:\n    1g.5gb:\n    - 0\n    - 0",
            10,
            "placements.1g.5gb[1] of host 'h1' is 0 a second time",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  size_mode: mixed-size\n"
            "  scheduler:\n    policy: fixed-share",
            8,
            "policy of host 'h1' is fixed-share, which contradicts size_mode mixed-size",
            "equal-share",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  scheduler:\n"
            "    policy: best-effort\n    time_slice_ms: 2",
            8,
            "contradicts policy best-effort, which has no time slice",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [exec_quantum_ms=nan]",
            7,
            "'exec_quantum_ms=nan' is no parameter",
            "0 for no limit",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [exec_quantum_ms=30 %]",
            7,
            "'exec_quantum_ms=30 %' is no parameter",
            "whole number",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [exec_quantum_ms=0.3]",
            7,
            "'exec_quantum_ms=0.3' is no parameter",
            "whole number",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [preempt_timeout_us=4294967296]",
            7,
            "is no parameter",
            "up to 4294967295",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [sched_priority=urgent]",
            7,
            "is no parameter",
            "low, normal, high",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [vram_quota=4]",
            7,
            "a size without a unit",
            "4GiB",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [stop=1]",
            7,
            "'stop=1' is no parameter",
            "exec_quantum_ms",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n"
            "  vf_params: [sched_priority=low, sched_priority=high]",
            7,
            "has sched_priority twice",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  pf_params: [vram_quota=1GiB]",
            7,
            "which a VF has and no PF",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  vgpu_params: [frame_limiter=0]",
            6,
            "vgpu_params[0] of host 'h1': 'frame_limiter=0' is no parameter of a vGPU",
            "frame_rate_limiter",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  vgpu_params: [enable_uvm=0, enable_uvm=1]",
            6,
            "vgpu_params of host 'h1' has enable_uvm twice",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: [A40-8Q]\n  vgpu_params: [enable_uvm=1]",
            7,
            "contradicts the types: enable_uvm=1 needs a type that takes the whole GPU",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  scheduler: {policy: equal-share, time_slice_ms: 31}",
            6,
            "time_slice_ms of host 'h1' is 31",
            "1 to 30",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  scheduler: {time_slice_ms: 2}",
            6,
            "scheduler of host 'h1' has no 'policy'",
            None,
        ),
        ("version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: []", 6, "is an empty list", "leave it out"),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: [A100-1-5C]",
            6,
            "types[0] of host 'h1' contradicts the kind: type A100-1-5C sits in a MIG instance",
            "mig-vgpu",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: [A40-8Q]\n  shares: {A40-4Q: 1}",
            7,
            "shares.A40-4Q of host 'h1' contradicts types: A40-4Q is not one of A40-8Q",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  shares: {A40-8Q: 1, A40-4Q: 1}",
            6,
            "shares of host 'h1' has types of different sizes, which contradicts equal sizes",
            "size_mode: mixed-size",
        ),
        ("version: 1\nkernel_arguments: iommu=pt", 3, "is 'iommu=pt', text, not a list", None),
        (
            "version: 1\nkernel_arguments:\n- iommu=pt quiet",
            4,
            "kernel_arguments[0] of host 'h1'",
            "one kernel argument",
        ),
        ("version: 1\nkernel_arguments:\n- a\n- a", 5, "kernel_arguments[1] of host 'h1' is 'a' a second time", None),
        ("version: 1\nstop_services:\n- '; rm'", 4, "not the name of a systemd unit", None),
        ("version: 1\nstop_services: [dcgm, dcgm.service]", 3, "is 'dcgm.service' a second time", None),
        ("version: 1\nhugepages:\n  3MiB: 1", 4, "3MiB of host 'h1' is '3MiB'", "a power of two"),
        ("version: 1\nhugepages:\n  big: 1", 4, "is 'big', which is not a size", None),
        ("version: 1\nhugepages:\n  1GiB: 1\n  1024MiB: 1", 5, "1024MiB of host 'h1' means the same as another", None),
        ("version: 1\nhugepages:\n  2MiB: -1", 4, "hugepages.2MiB of host 'h1' is -1", "0 to"),
        ("version: 1\nuplinks:\n  a: 'ens1 f0'", 4, "not the name of a network interface", None),
        ("version: 1\nfabric: {mode: shard}", 3, "fabric.mode of host 'h1' is 'shard'", "shared"),
        ("version: 1\nfabric: {mode: 1}", 3, "fabric.mode of host 'h1' is 1", None),
        (
            "version: 1\nfabric:\n  mode: vgpu\n  partitions: 4",
            5,
            "fabric.partitions of host 'h1' is not a key",
            "mode",
        ),
        ("version: 1\nfabric: {}", 3, "fabric of host 'h1' has no 'mode'", None),
        ("version: 1\nfabric: shared", 3, "fabric of host 'h1' is 'shared'", None),
        ("version: 1\nuplinks:\n  a: '{{ uplink }}'", 4, "is a jinja template", "!unsafe"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_line(
    tmp_path: Path, text: str, line: int, words: str, hint: str | None
) -> None:
    with pytest.raises(InventoryError) as refused:
        _read(tmp_path, text)
    assert refused.value.message.startswith(f"{tmp_path}/host_vars/h1.yml:{line}: vgpu"), refused.value.message
    assert words in refused.value.message
    assert hint is None or hint in (refused.value.hint or "")


def test_the_variable_comes_whole_from_the_place_that_counts_most(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "g.yml").write_text("vgpu: {version: 1, kernel_arguments: [iommu=pt]}\n")
    assert _read(tmp_path, "version: 1") == HostLayout()
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
