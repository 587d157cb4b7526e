# SPDX-License-Identifier: Apache-2.0
"""Files of NVIDIA's tools as they are published: shared PCI ids, names with attributes, ConfigMaps, other hosts."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import a40_host
from vgpuctl import catalog
from vgpuctl.errors import InventoryError
from vgpuctl.inventory.exchange import import_mig_parted, import_vgpu_device_manager
from vgpuctl.inventory.exchange.kubernetes import read_tool_file
from vgpuctl.model.layout import GpuLayout, GpuMatch, HostLayout, MigLayout, MigVgpuLayout, VgpuLayout, WantedInstance
from vgpuctl.planner.mig_geometry import name_in, table_of_board
from vgpuctl.sharing.matching import fits
from vgpuctl.specs.document import parse_document
from vgpuctl.usecases.layout.import_layout import list_missing, list_remarks

PAIRS = (
    ("1E78", "RTX8000P-24Q", 2),
    ("1E78", "RTX6000P-12Q", 2),
    ("1EB8", "T4-8Q", 2),
    ("20B0", "A100X-20C", 2),
    ("25B6", "A16-8Q", 2),
    ("25B6", "A2-8Q", 2),
    ("2BB5", "DC-48Q", 2),
)
DEFAULT = "version: v1\nvgpu-configs:\n  default:\n" + "".join(
    f'  - {{device-filter: "0x{device}10DE", devices: all, vgpu-devices: {{{name}: {count}}}}}\n'
    for device, name, count in PAIRS
)


def board(key: str) -> EmulatedGpu:
    return EmulatedGpu(catalog.board(key), "0000:41:00.0", "mdev")


def read(text: str) -> HostLayout:
    return import_vgpu_device_manager(parse_document("f.yml", text), None, None)


def test_boards_that_share_a_pci_id_are_told_apart_by_their_types() -> None:
    layout = read(DEFAULT)
    for key, name in (
        ("nvidia-quadro-rtx-8000-passive", "RTX8000P-24Q"),
        ("nvidia-quadro-rtx-6000-passive", "RTX6000P-12Q"),
        ("nvidia-a16", "A16-8Q"),
        ("nvidia-a2", "A2-8Q"),
        ("nvidia-t4", "T4-8Q"),
    ):
        known = catalog.board(key)
        gpu = replace(board(key).facts(), subsystem_id=known.subsystems[0])
        (entry,) = [one for one in layout.gpus if fits(one.match, gpu)]
        assert entry.layout == VgpuLayout(shares=((name, 2),))


def test_boards_with_one_pci_id_and_the_same_types_still_contradict() -> None:
    text = DEFAULT.replace("RTX6000P-12Q: 2", "RTX8000P-12Q: 2")
    with pytest.raises(InventoryError, match="otherwise than the entry at"):
        read(text)


@pytest.mark.parametrize(
    ("written", "name", "count", "profile"),
    [
        ("DC-1-24QGFX", "DC-1-24Q", 4, "1g.24gb+gfx"),
        ("DC-4-96CGFX", "DC-4-96C", 1, "4g.96gb+gfx"),
        ("6000D-1-42QGFX", "6000D-1-42Q", 2, "1g.42gb+gfx"),
    ],
)
def test_a_key_with_the_attribute_of_its_instance_means_the_type(
    written: str, name: str, count: int, profile: str
) -> None:
    text = f"version: v1\nvgpu-configs: {{a: [{{devices: all, vgpu-devices: {{{written}: {count}}}}}]}}\n"
    wanted = MigVgpuLayout(tuple([WantedInstance(profile)] * count), shares=((name, count),))
    assert read(text).gpus[0].layout == wanted
    with pytest.raises(InventoryError, match=f"means {name}, which another key gives too"):
        read(text.replace(f"{written}: {count}", f"{name}: 1, {written}: {count}"))


def test_the_text_of_a_config_map_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    inner = "".join(f"    {line}\n" for line in DEFAULT.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: vgpu}\ndata:\n  config.yaml: |\n"
    path.write_text(head + inner)
    assert import_vgpu_device_manager(read_tool_file(path), None, None) == read(DEFAULT)
    path.write_text(head + inner.replace("vgpu-configs", "vgpu-config"))
    with pytest.raises(InventoryError, match=r"config\.yaml under data:2: "):
        import_vgpu_device_manager(read_tool_file(path), None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: DaemonSet\n", "Kubernetes object, DaemonSet"),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: x, b: y}\n", "with 2 texts under data"),
        ("# first\n---\nversion: v1\n---\nversion: v1\n", ":4: the file has several YAML documents"),
    ],
)
def test_other_objects_and_several_documents_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InventoryError) as refused:
        read_tool_file(path)
    assert said in refused.value.message
    assert "under `data`" in (refused.value.hint or "")


def test_what_a_host_does_not_have_is_remarked() -> None:
    gpu = board("nvidia-t4").facts()
    layout = read(DEFAULT)
    remarks = list_missing(layout, [gpu], "gpu1")
    assert len(remarks) == len(PAIRS) - 1
    assert "gpu1 has no GPU for the entry of board 10de:20b0" in remarks
    foreign = HostLayout(gpus=(GpuLayout(GpuMatch(), VgpuLayout(shares=(("A40-8Q", 1),))),))
    assert list_missing(foreign, [gpu], "gpu1") == [
        f"no GPU of gpu1 for the entry of all GPUs offers A40-8Q: it has {gpu.name or gpu.address}"
    ]


@pytest.mark.parametrize(
    ("device", "key"),
    [
        ("20b1", "nvidia-a100-pcie-40gb"),
        ("20b6", "nvidia-pg506-232"),
        ("233d", "nvidia-h100-96gb"),
        ("1b39", "nvidia-tesla-p10"),
    ],
)
def test_device_ids_of_published_files_are_known(device: str, key: str) -> None:
    found = catalog.board_by_pci("10de", device)
    assert found is not None and found.key == key


def test_profiles_have_the_names_of_other_drivers_too() -> None:
    gb200 = catalog.board("nvidia-gb200")
    table = table_of_board(gb200)
    assert table is not None
    old = replace(table, profiles=tuple(replace(one, name=one.name.replace("95", "93")) for one in table.profiles))
    for before, now in (("1g.23gb", "1g.24gb"), ("3g.93gb", "3g.95gb"), ("7g.186gb", "7g.189gb"), ("9g.9gb", "9g.9gb")):
        assert name_in(table, gb200, before) == now
    assert name_in(old, gb200, "4g.95gb") == "4g.93gb"
    assert name_in(old, None, "4g.95gb") == "4g.95gb"


def test_the_id_of_a_type_that_a_later_driver_added_is_known() -> None:
    found = catalog.type_by_id(catalog.board("nvidia-l40s"), "2164")
    assert found is not None and found.name == "L40S-3B"


def test_what_several_gpus_would_refuse_is_one_remark() -> None:
    first = board("nvidia-t4").facts()
    gpus = tuple(replace(first, address=f"0000:{number}:00.0") for number in (41, 42, 43))
    facts = replace(a40_host("gpu1").facts, gpus=gpus)
    remarks = list_remarks(HostLayout(gpus=(GpuLayout(GpuMatch(), MigLayout(())),)), facts, "gpu1")
    assert len(remarks) == len(set(remarks)) == 1
    assert all(gpu.address in remarks[0] for gpu in gpus) or not any(gpu.address in remarks[0] for gpu in gpus)


@pytest.mark.parametrize(("word", "hint"), [("off", "`off`"), ("no", "`no`"), ("on", "`on`"), ("7", "quote it")])
def test_a_name_that_yaml_takes_for_another_kind_is_named_as_such(word: str, hint: str) -> None:
    text = f"version: v1\nmig-configs:\n  {word}:\n  - {{devices: all, mig-enabled: false}}\n"
    with pytest.raises(InventoryError, match="mig-configs has a key that is") as refused:
        import_mig_parted(parse_document("a.yml", text), None, None)
    assert hint in str(refused.value.hint) and "False" not in refused.value.message
