# SPDX-License-Identifier: Apache-2.0
"""Layouts go into the files of mig-parted, the vGPU device manager and mdevctl and come back, or are refused."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import emulated_a40, emulated_t4, host_facts
from tests.unit.inventory.layouts import ADDRESSES, MIG_TYPES, TYPES, gpu_layouts, instances, layouts, shares
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory.exchange import (
    Left,
    config_text,
    definition_paths,
    dumped,
    export_mdevctl,
    export_mig_parted,
    export_vgpu_device_manager,
    import_mdevctl,
    import_mig_parted,
    import_vgpu_device_manager,
)
from vgpuctl.inventory.exchange.vgpu_device_manager import time_sliced_layout
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    TuningLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.sharing.matching import entries_for
from vgpuctl.specs.document import parse_document

many = settings(max_examples=80, deadline=None)
FORMATS = {
    "mig-parted": (export_mig_parted, import_mig_parted),
    "vgpu-device-manager": (export_vgpu_device_manager, import_vgpu_device_manager),
}
GPUS: Sequence[Gpu] = [
    EmulatedGpu(catalog.board(board), address, "vf-profile", vf_count=32).facts()
    for board, address in zip(("nvidia-a100-sxm4-40gb", "nvidia-a40", "nvidia-a40"), ADDRESSES, strict=True)
]


def there_and_back(name: str, layout: HostLayout, gpus: Sequence[Gpu] | None = GPUS) -> HostLayout:
    """Export and import. Raises UsageError when the format cannot carry the layout."""
    export, read = FORMATS[name]
    left = Left(partial=False)
    content = export(layout, "one", gpus, left)
    left.settle(name)
    return read(parse_document("file.yml", config_text(content)), "one", gpus)


def wanted_of(layout: HostLayout) -> dict[str, Layout]:
    """The wanted layout of each GPU."""
    return {gpu.address: entry.layout for gpu in GPUS for entry in entries_for(gpu, layout.gpus)}


def exact_kinds(name: str) -> st.SearchStrategy[Layout]:
    """Layouts that a format can carry."""
    if name == "mig-parted":
        return st.one_of(st.just(OffLayout()), instances(placed=False, parted=True).map(MigLayout))
    return st.one_of(shares(TYPES).map(lambda some: time_sliced_layout(dict(some))), shares(MIG_TYPES).map(_in_mig))


def _in_mig(some: Sequence[tuple[str, int]]) -> Layout:
    profiles = {"A100-1-5C": "1g.5gb", "A100-2-10C": "2g.10gb", "A100-3-20C": "3g.20gb"}
    wanted = [WantedInstance(profiles[name]) for name, count in some for _ in range(count)]
    return (
        MigVgpuLayout(tuple(sorted(wanted, key=lambda one: one.profile)), shares=tuple(some)) if some else VgpuLayout()
    )


@pytest.mark.parametrize("name", FORMATS)
@many
@given(data=st.data())
def test_what_a_format_can_carry_comes_back(name: str, data: st.DataObject) -> None:
    layout = HostLayout(gpus=data.draw(gpu_layouts(exact_kinds(name)).filter(bool)))
    meant = wanted_of(layout)
    addressed = [entry.match.rank == 2 for entry in layout.gpus]
    try:
        back = there_and_back(name, layout)
    except UsageError as refused:
        # An entry that no GPU of the host fits has no index.
        assert all("no GPU of NVIDIA on the host fits" in one or "no entry is left" in one for one in refused.context)
        return
    assert wanted_of(back) == meant
    if all(addressed) or len(layout.gpus) == 1:
        assert sorted(back.gpus, key=lambda one: str(one.match)) == sorted(layout.gpus, key=lambda one: str(one.match))


@pytest.mark.parametrize("name", FORMATS)
@many
@given(data=st.data())
def test_what_does_not_come_back_the_same_is_refused(name: str, data: st.DataObject) -> None:
    layout = HostLayout(gpus=data.draw(gpu_layouts(layouts())))
    try:
        back = there_and_back(name, layout)
    except UsageError as refused:
        assert refused.context and all(": " in reason or "no entry" in reason for reason in refused.context)
    else:
        assert wanted_of(back) == wanted_of(layout)


@many
@given(data=st.data())
def test_shares_become_definitions_of_mdevctl_and_come_back(data: st.DataObject) -> None:
    on_vfs = data.draw(st.booleans())
    gpu = emulated_a40(sharing="mdev-vf") if on_vfs else emulated_t4()
    name = "A40-8Q" if on_vfs else "T4-4Q"
    for number in range(data.draw(st.integers(0, 2))):
        identity = f"00000000-0000-4000-8000-{number:012d}"
        gpu.create(name, gpu.functions[number] if on_vfs else identity, identity)
    facts = host_facts([gpu.facts()])
    wanted = time_sliced_layout({name: data.draw(st.integers(1, 4))})
    layout = HostLayout(gpus=(GpuLayout(GpuMatch(address=gpu.address), wanted),))
    left = Left(partial=False)
    definitions = export_mdevctl(layout, facts, left)
    with tempfile.TemporaryDirectory() as folder:
        for path, content in definition_paths(definitions):
            (Path(folder) / "d" / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / "d" / path).write_text(json.dumps(content))
        (Path(folder) / "dump.json").write_text(json.dumps(dumped(definitions)))
        assert import_mdevctl(Path(folder) / "d", facts, left) == layout
        assert import_mdevctl(Path(folder) / "dump.json", facts, left) == layout
    assert left.reasons == ()
    if not on_vfs:
        kept = set(list(gpu.vgpus)[: dict(wanted.shares)[name]])
        assert kept <= set(definitions[gpu.address])


@pytest.mark.parametrize(
    ("name", "layout", "reason"),
    [
        ("mig-parted", MigLayout((WantedInstance("3g.20gb", 4),)), "placements: mig-parted chooses them itself"),
        ("mig-parted", VgpuLayout(), "kind vgpu is more than MIG on or off"),
        ("vgpu-device-manager", OffLayout(), "kind off has no vGPUs"),
        (
            "vgpu-device-manager",
            VgpuLayout(scheduler=SchedulerLayout(SchedulerPolicy.EQUAL_SHARE), shares=(("A40-8Q", 1),)),
            "scheduler: the vGPU device manager has no place for it",
        ),
        (
            "vgpu-device-manager",
            VgpuLayout(size_mode=SizeMode.MIXED, shares=(("A40-8Q", 1),)),
            "virtual_functions or size_mode: the vGPU device manager takes them from the types",
        ),
        (
            "vgpu-device-manager",
            MigVgpuLayout((WantedInstance("3g.20gb"),), shares=(("A100-1-5C", 1),)),
            "geometry: the vGPU device manager takes it, and the size mode, from the shares, which say otherwise",
        ),
    ],
)
def test_what_a_format_cannot_carry_is_refused_with_the_reason(name: str, layout: Layout, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        there_and_back(name, HostLayout(gpus=(GpuLayout(GpuMatch(), layout),)))
    assert f"all GPUs: {reason}" in refused.value.context


@pytest.mark.parametrize("name", ["mig-parted", "vgpu-device-manager"])
def test_settings_of_cards_are_left_out_and_the_rest_of_the_entry_is_not(name: str) -> None:
    kind = MigLayout((WantedInstance("3g.20gb"),)) if name == "mig-parted" else VgpuLayout(shares=(("A40-8Q", 1),))
    tuning = TuningLayout(power_limit_mw=250_000, ecc=True)
    layout = HostLayout(gpus=(GpuLayout(GpuMatch(), kind, tuning=tuning),))
    left = Left(partial=True)
    write = export_mig_parted if name == "mig-parted" else export_vgpu_device_manager
    assert write(layout, "default", None, left) == write(
        HostLayout(gpus=(GpuLayout(GpuMatch(), kind),)), "default", None, Left(partial=False)
    )
    assert [reason.partition(":")[0] for reason in left.reasons] == ["power_limit_w", "ecc"]


def test_partial_leaves_out_and_tells() -> None:
    left = Left(partial=True)
    gpus = (GpuLayout(GpuMatch(address=ADDRESSES[0]), OffLayout()), GpuLayout(GpuMatch(), VgpuLayout()))
    content = export_mig_parted(HostLayout(gpus=gpus, hugepages=((2048, 1),)), "one", GPUS, left)
    left.settle("mig-parted")
    assert content == {"version": "v1", "mig-configs": {"one": [{"devices": [0], "mig-enabled": False}]}}
    assert len(left.reasons) == 3


FILE = """version: v1
mig-configs:
  a:
    - devices: all
      mig-enabled: true
      mig-devices: {1g.5gb: 2, 3g.20gb: 0}
  b:
    - devices: [0]
      device-filter: "0x20B010DE"
      mig-enabled: true
      mig-devices: {}
    - {devices: [1, 2], mig-enabled: false}
"""


def read(text: str, config: str | None, gpus: Sequence[Gpu] | None = GPUS) -> dict[str, Any]:
    found = import_mig_parted(parse_document("f.yml", text), config, gpus)
    return {str(entry.match): entry.layout for entry in found.gpus}


def test_filters_and_indexes_mean_the_gpus_that_fit_both() -> None:
    assert read(FILE, "a", None) == {"all GPUs": MigLayout((WantedInstance("1g.5gb"),) * 2)}
    wanted = {f"address {ADDRESSES[0]}": MigLayout(), **{f"address {one}": OffLayout() for one in ADDRESSES[1:]}}
    assert read(FILE, "b") == wanted
    assert read(FILE.replace("20B010DE", "223510de"), "b").keys() == {f"address {one}" for one in ADDRESSES[1:]}
    other = replace(GPUS[0], vendor_id="8086", address="0000:01:00.0")
    assert read(FILE, "b", [other, *GPUS]) == wanted
    assert read(FILE.replace("mig-devices: {}", "mig-devices:"), "b") == wanted
    assert read(FILE.replace('device-filter: "0x20B010DE"', "device-filter:"), "b") == wanted


@pytest.mark.parametrize(
    ("config", "before", "after", "said"),
    [
        ("a", "mig-enabled: true", "mig-enable: true", "f.yml:5: file.mig-configs.a[0].mig-enable is not a key"),
        ("a", "devices: all", "devices: some", "f.yml:4: file.mig-configs.a[0].devices is 'some'"),
        ("a", "version: v1", "version: v2", "f.yml:1: file.version is 'v2'"),
        ("a", "1g.5gb: 2", "3c.4g.20gb: 2", "mig-devices.3c.4g.20gb is no part of 4g.20gb, which can have 1c, 2c, 4c"),
        ("a", "1g.5gb: 2", "1c.2x: 2", "f.yml:6: file.mig-configs.a[0].mig-devices.1c.2x is not a MIG profile"),
        ("a", "1g.5gb: 2", "1g.5gb: 0", "f.yml:6: file.mig-configs.a[0].mig-devices has no device at all"),
        ("a", "mig-enabled: true", "mig-enabled: false", "names MIG devices, while mig-enabled is false"),
        ("b", "[1, 2]", "[1, 3]", "f.yml:12: file.mig-configs.b[1] is for GPU 3"),
        ("b", "[1, 2]", "[0, 2]", "otherwise than the entry at f.yml:8"),
        ("b", "0x20B010DE", "0x20B08086", "f.yml:9: file.mig-configs.b[0].device-filter is '0x20B08086', not a PCI id"),
        ("c", "", "", "f.yml:2: file.mig-configs has no configuration 'c'"),
        (None, "", "", "f.yml:2: file.mig-configs has 2 configurations"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(config: str | None, before: str, after: str, said: str) -> None:
    with pytest.raises(InventoryError) as refused:
        read(FILE.replace(before, after, 1), config)
    assert said in refused.value.message


def test_a_compute_instance_over_the_whole_gpu_instance_is_the_profile_itself() -> None:
    both = read(FILE.replace("{1g.5gb: 2, 3g.20gb: 0}", "{3c.3g.20gb: 1, 1g.5gb: 1}"), "a", None)
    assert both == {"all GPUs": MigLayout((WantedInstance("1g.5gb"), WantedInstance("3g.20gb")))}


def test_parts_share_gpu_instances_as_far_as_they_fit() -> None:
    text = FILE.replace("{1g.5gb: 2, 3g.20gb: 0}", "{1c.3g.20gb: 2, 2c.3g.20gb: 1, 1c.2g.10gb: 1, 1g.5gb: 1}")
    wanted = [("1g.5gb", ()), ("2g.10gb", (1,)), ("3g.20gb", (2, 1)), ("3g.20gb", (1,))]
    (layout,) = read(text, "a", None).values()
    assert [(one.profile, one.compute) for one in layout.instances] == wanted
    assert there_and_back("mig-parted", HostLayout(gpus=(GpuLayout(GpuMatch(), layout),))).gpus[0].layout == layout


def test_vgpus_that_fit_one_mig_instance_share_it() -> None:
    text = "version: v1\nvgpu-configs: {a: [{devices: all, vgpu-devices: {DC-1-4Q: 7, DC-2-24Q: 2}}]}\n"
    layout = import_vgpu_device_manager(parse_document("f.yml", text), "a", None)
    wanted = tuple(WantedInstance(name) for name in ("1g.24gb+gfx", "1g.24gb+gfx", "2g.48gb+gfx"))
    assert layout.gpus[0].layout == MigVgpuLayout(wanted, shares=(("DC-1-4Q", 7), ("DC-2-24Q", 2)))
    assert there_and_back("vgpu-device-manager", layout) == layout


def test_indexes_need_a_host() -> None:
    with pytest.raises(InventoryError, match="counts GPUs, which needs a host"):
        read(FILE, "b", None)


def test_definitions_that_a_layout_cannot_say_are_left_out(tmp_path: Path) -> None:
    gpu = emulated_t4()
    type_id = next(one.type_id for one in gpu.facts().types if one.name == "T4-4Q")
    auto = {"mdev_type": type_id, "start": "auto"}
    files = {
        f"{gpu.address}/00000000-0000-4000-8000-000000000001": auto,
        f"{gpu.address}/00000000-0000-4000-8000-000000000002": {**auto, "start": "manual"},
        f"{gpu.address}/00000000-0000-4000-8000-000000000003": {**auto, "attrs": [{"nvidia/vgpu_params": "x=0"}]},
        "0000:00:02.0/00000000-0000-4000-8000-000000000004": auto,
        "scripts.d/callouts": {},
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content))
    left = Left(partial=False)
    layout = import_mdevctl(tmp_path, host_facts([gpu.facts()]), left)
    assert layout.gpus == (GpuLayout(GpuMatch(address=gpu.address), VgpuLayout(shares=(("T4-4Q", 1),))),)
    assert [reason.split(" ", 2)[2] for reason in left.reasons] == [
        "is no GPU of the host",
        "is started by hand; a layout's shares exist always",
        "has attributes, which a layout cannot say",
    ]
    with pytest.raises(UsageError, match="cannot carry all of it"):
        left.settle("a declared layout")
    (tmp_path / gpu.address / "00000000-0000-4000-8000-000000000005").write_text('{"mdev_type": 1}')
    with pytest.raises(InventoryError, match="has no 'start'"):
        import_mdevctl(tmp_path, host_facts([gpu.facts()]), left)
