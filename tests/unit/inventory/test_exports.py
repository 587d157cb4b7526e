# SPDX-License-Identifier: Apache-2.0
"""Exports for Nova, Proxmox and KubeVirt fit the published grammar of each tool (tests/data/published)."""

import importlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.emulated_gpu import EmulatedGpu, with_audio
from tests.unit.fleet_factory import emulated_a40, emulated_t4, host_facts
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.inventory.exchange import (
    HandedOut,
    ToolFile,
    export_kubevirt,
    export_nova,
    export_proxmox,
    handed_out,
)
from vgpuctl.model.layout import GpuLayout, GpuMatch, OffLayout, PassthroughLayout, VfLayout, VgpuLayout
from vgpuctl.sharing.kind import HandedAs
from vgpuctl.sharing.kinds import KINDS
from vgpuctl.specs.bounded_reader import read_documents

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
Export = Callable[[Sequence[HandedOut], list[str]], list[ToolFile]]
WHOLE = GpuLayout(GpuMatch(), PassthroughLayout())


def _grammar(tool: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / f"{tool}.json").read_text(encoding="utf-8"))
    assert found["sources"]
    assert found["version"]
    return found


def _check_schema(content: Any, schema: dict[str, Any]) -> None:
    importlib.import_module("jsonschema").validate(content, schema)


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _carrying(*names: str) -> Gpu:
    """An A40 whose first VFs carry these types."""
    card = emulated_a40()
    for name, function in zip(names, card.functions, strict=False):
        card.create(name, function)
    return card.facts()


def _whole(key: str, address: str) -> Gpu:
    return EmulatedGpu(catalog.board(key), address, "passthrough").facts()


def _vgpu_types(*types: str) -> GpuLayout:
    return GpuLayout(GpuMatch(), VgpuLayout(types=types))


FORMS: dict[str, tuple[Gpu, GpuLayout]] = {
    "T4 with mdevs": (emulated_t4().facts(), _vgpu_types("T4-8Q")),
    "A40 with mdevs on VFs": (emulated_a40(sharing="mdev-vf").facts(), _vgpu_types("A40-8Q")),
    "A40 with types on VFs": (_carrying("A40-8Q", "A40-8Q"), _vgpu_types("A40-8Q")),
    "A40 as a whole": (_whole("nvidia-a40", "0000:81:00.0"), WHOLE),
    "A40 of several functions": (with_audio(_whole("nvidia-a40", "0000:81:00.0")), WHOLE),
    "MI300X as a whole": (_whole("amd-mi300x", "0001:c1:00.0"), WHOLE),
    "Flex 170 with VFs": (
        EmulatedGpu(catalog.board("intel-flex-170"), "0000:a1:00.0", "vf", vf_count=4).facts(),
        GpuLayout(GpuMatch(), VfLayout(4)),
    ),
    "V710 with VFs": (
        EmulatedGpu(catalog.board("amd-v710"), "0000:a1:00.0", "vf", vf_count=2).facts(),
        GpuLayout(GpuMatch(), VfLayout(2)),
    ),
}
EVERY_BOARD = {key: (_whole(key, "0000:81:00.0"), WHOLE) for key in catalog.boards()}


def _export(
    export: Export, gpu: Gpu, *layout: GpuLayout, host: str = "gpu1.example", profile: str | None = None
) -> tuple[dict[str, str], list[str]]:
    """The files by path, and the remarks."""
    remarks: list[str] = []
    devices = handed_out(host, host_facts([gpu], hostname="gpu1.example"), layout, profile, remarks)
    return {one.path: one.text("export-it", remarks) for one in export(devices, remarks)}, remarks


def _options(text: str) -> dict[str, list[tuple[str, str]]]:
    """Sections of a file of oslo.config: a multi-valued option is written several times."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            name, _, value = line.partition(" = ")
            section.append((name, value))
    return sections


def _check_nova(files: dict[str, str]) -> None:
    grammar = _grammar("nova")
    types = {"boolean": "True|False", "integer": "[0-9]+", "string": ".*"}
    for path, text in files.items():
        if not path.endswith(".conf"):
            continue
        for section, options in _options(text).items():
            known = grammar["options"]["mdev_TYPE" if section.startswith("mdev_") else section]
            for name, value in options:
                rule = known[name]
                if rule["type"] == "multi":
                    _check_schema(json.loads(value), grammar["schemas"][rule["schema"]])
                elif rule["type"] == "list":
                    assert all(_fits(rule.get("items", ".+"), one) for one in value.split(","))
                else:
                    assert _fits(rule.get("pattern", types[rule["type"]]), value), f"{path}: {name} = {value}"
            single = [name for name, _ in options if known[name]["type"] != "multi"]
            assert len(set(single)) == len(single)
    properties = re.findall(r'--property "([^"]+)"', files["nova/flavors.txt"])
    assert properties
    assert all(any(_fits(one, wanted) for one in grammar["flavor_properties"]) for wanted in properties)


def _check_properties(text: str, grammar: dict[str, Any]) -> dict[str, str]:
    """A property string of Proxmox: KEY=VALUE with commas between."""
    values = dict(one.split("=", 1) for one in text.split(","))
    assert set(values) <= set(grammar)
    assert all(_fits(grammar[key]["pattern"], value) for key, value in values.items()), text
    assert all(key in values for key, one in grammar.items() if one.get("required"))
    return values


def _check_proxmox(files: dict[str, str]) -> None:
    grammar = _grammar("proxmox")
    sections = [line for line in files["proxmox/pci.cfg"].splitlines() if line and not line.startswith("#")]
    names = set()
    for line in sections:
        if not line.startswith("\t"):
            assert _fits(grammar["section"], line)
            names.add(line)
            continue
        key, value = line.strip().split(" ", 1)
        assert key in grammar["options"]
        if key == "map":
            _check_properties(value, grammar["map"])
    lines = [line for line in files["proxmox/hostpci.txt"].splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert line.startswith("hostpci0: ")
        values = _check_properties(line.removeprefix("hostpci0: "), grammar["hostpci"])
        assert len(set(values) & set(grammar["hostpci_exactly_one"])) == 1
        assert values["mapping"] in names


def _check_kubevirt(files: dict[str, str]) -> None:
    grammar = _grammar("kubevirt")
    (resource,) = read_documents(files["kubevirt/kubevirt.yaml"])
    _check_schema(resource, grammar["schema"])
    (gpus,) = read_documents(files["kubevirt/gpus.yaml"])
    _check_schema(gpus, grammar["gpus"])
    allowed = resource["spec"]["configuration"]["permittedHostDevices"]
    names = {one["resourceName"] for devices in allowed.values() for one in devices}
    assert {one["deviceName"] for one in gpus["gpus"]} == names


CHECKS: dict[str, tuple[Export, Callable[[dict[str, str]], None]]] = {
    "nova": (export_nova, _check_nova),
    "proxmox": (export_proxmox, _check_proxmox),
    "kubevirt": (export_kubevirt, _check_kubevirt),
}


@pytest.mark.parametrize("tool", CHECKS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_fits_the_grammar_of_every_tool(tool: str, form: str) -> None:
    export, check = CHECKS[tool]
    files, _ = _export(export, *FORMS[form])
    check(files)


@pytest.mark.parametrize("tool", CHECKS)
def test_every_board_of_the_catalogue_has_names_that_the_tools_take(tool: str) -> None:
    export, check = CHECKS[tool]
    for gpu, layout in EVERY_BOARD.values():
        files, _ = _export(export, gpu, layout)
        check(files)


def test_the_checks_refuse_what_the_grammars_forbid() -> None:
    for tool, (before, after) in {
        "nova": ('"managed": "no"', '"managed": "maybe"'),
        "proxmox": ("path=0000:41:00.4", "path=41:00.4"),
        "kubevirt": ("10DE:2235", "10DE-2235"),
    }.items():
        export, check = CHECKS[tool]
        files, _ = _export(export, *FORMS["A40 with types on VFs"])
        wrong = {path: text.replace(before, after) for path, text in files.items()}
        assert wrong != files
        with pytest.raises((AssertionError, importlib.import_module("jsonschema").ValidationError)):
            check(wrong)


def test_vfs_with_types_stay_on_their_driver_in_nova_and_others_do_not() -> None:
    files, _ = _export(export_nova, *FORMS["A40 with types on VFs"])
    (path,) = [one for one in files if one.endswith("example.conf")]
    specs = [json.loads(value) for name, value in _options(files[path])["pci"] if name == "device_spec"]
    assert [(one["address"], one["managed"]) for one in specs] == [("0000:41:00.4", "no"), ("0000:41:00.5", "no")]
    assert {one["resource_class"] for one in specs} == {"CUSTOM_VGPU_A40_8Q"}
    files, _ = _export(export_nova, *FORMS["A40 as a whole"])
    assert '"managed": "yes"' in files[path]
    assert '"device_type": "type-PF"' in files["nova/aliases.conf"]


def test_nova_gets_as_many_vfs_as_the_card_takes_vgpus() -> None:
    """Every VF shows one instance of each type, and the card ends before the VFs do."""
    files, _ = _export(export_nova, *FORMS["A40 with mdevs on VFs"])
    options = dict(_options(files["nova/gpu1.example.conf"])["mdev_nvidia-562"])
    assert len(options["device_addresses"].split(",")) == 6
    assert options["mdev_class"] == "CUSTOM_VGPU_A40_8Q"


def test_a_type_that_nobody_named_is_asked_for() -> None:
    gpu = emulated_t4().facts()
    for export in (export_nova, export_kubevirt):
        files, remarks = _export(export, gpu)
        assert not files
        assert any("give --profile" in one for one in remarks)
        files, _ = _export(export, gpu, profile="T4-8Q")
        assert files
    files, _ = _export(export_proxmox, gpu)
    assert "mdev=nvidia-233" in files["proxmox/hostpci.txt"]


def test_a_declared_type_is_found_by_its_short_name_though_the_host_prints_the_model() -> None:
    card = EmulatedGpu(catalog.board("nvidia-rtx-pro-6000-blackwell-server"), "0000:c1:00.0", "vf-profile", vf_count=48)
    gpu = card.facts()
    long = replace(gpu, types=tuple(replace(one, name=str(one.full_name)[len("NVIDIA ") :]) for one in gpu.types))
    files, remarks = _export(export_proxmox, long, _vgpu_types("DC-24Q"))
    assert not any("does not offer" in one for one in remarks)
    assert files["proxmox/hostpci.txt"].count("mdev=") == 1


def test_vfs_without_types_are_for_proxmox_alone() -> None:
    gpu = emulated_a40().facts()
    for export in (export_nova, export_kubevirt):
        files, remarks = _export(export, gpu, _vgpu_types("A40-8Q"))
        assert not files
        assert any("sets no vGPU type and no VF carries one" in one for one in remarks)
    files, _ = _export(export_proxmox, gpu, _vgpu_types("A40-8Q"))
    assert files["proxmox/pci.cfg"].count("\tmap ") == 32
    assert "hostpci0: mapping=vgpu-a40,mdev=nvidia-562,pcie=1" in files["proxmox/hostpci.txt"]


def test_proxmox_is_told_that_it_sets_the_types() -> None:
    _, remarks = _export(export_proxmox, *FORMS["A40 with types on VFs"])
    assert any("take `shares` out of the layout" in one for one in remarks)


def test_a_card_of_several_functions_goes_as_a_whole_where_the_tool_can() -> None:
    files, remarks = _export(export_proxmox, *FORMS["A40 of several functions"])
    assert "path=0000:81:00,subsystem-id=10de:145a" in files["proxmox/pci.cfg"]
    assert not remarks
    for export in (export_nova, export_kubevirt):
        files, remarks = _export(export, *FORMS["A40 of several functions"])
        assert any("stay behind" in one for one in remarks)
        assert all("LIMIT: GPU 0000:81:00.0" in text for text in files.values())


def test_kubevirt_cannot_tell_two_types_of_one_card_apart() -> None:
    files, remarks = _export(export_kubevirt, _carrying("A40-8Q", "A40-8A"))
    (resource,) = read_documents(files["kubevirt/kubevirt.yaml"])
    allowed = resource["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]
    assert allowed == [{"pciVendorSelector": "10DE:2235", "resourceName": "nvidia.com/A40-8Q"}]
    assert any("A40-8A would be handed out under that name" in one for one in remarks)


def test_kubevirt_makes_the_types_on_the_node() -> None:
    files, _ = _export(export_kubevirt, *FORMS["T4 with mdevs"])
    (resource,) = read_documents(files["kubevirt/kubevirt.yaml"])
    configuration = resource["spec"]["configuration"]
    assert configuration["permittedHostDevices"] == {
        "mediatedDevices": [{"mdevNameSelector": "GRID T4-8Q", "resourceName": "nvidia.com/T4-8Q"}]
    }
    (node,) = configuration["mediatedDevicesConfiguration"]["nodeMediatedDeviceTypes"]
    assert node == {"nodeSelector": {"kubernetes.io/hostname": "gpu1.example"}, "mediatedDeviceTypes": ["nvidia-233"]}


@pytest.mark.parametrize("export", [export_nova, export_proxmox, export_kubevirt])
def test_what_cannot_be_exported_is_said(export: Export) -> None:
    for gpu, layout, said in (
        (emulated_t4().facts(), GpuLayout(GpuMatch(), OffLayout()), "its layout off gives nothing to VMs"),
        (emulated_t4().facts(), GpuLayout(GpuMatch(), VfLayout(2)), "it is not in its layout vf"),
        (replace(emulated_t4().facts(), sharing=()), None, "it offers nothing to VMs"),
    ):
        files, remarks = _export(export, gpu, *([layout] if layout else []))
        assert not files
        assert any(said in one for one in remarks), remarks
    files, remarks = _export(export, FORMS["A40 as a whole"][0])
    assert any("no layout is declared; it is exported as it stands" in one for one in remarks)
    unread = replace(FORMS["Flex 170 with VFs"][0], vf_device_id=None)
    files, remarks = _export(export, unread, FORMS["Flex 170 with VFs"][1])
    assert not files
    assert any("the PCI id of its VFs was not read" in one for one in remarks)


def test_a_pci_domain_beyond_novas_is_left_out() -> None:
    gpu = replace(FORMS["A40 as a whole"][0], address="10000:81:00.0")
    files, remarks = _export(export_nova, gpu, WHOLE)
    assert not files
    assert any("PCI domains up to FFFF" in one for one in remarks)
    files, _ = _export(export_proxmox, gpu, WHOLE)
    _check_proxmox(files)


def test_every_kind_says_what_it_is_handed_as() -> None:
    assert {kind.handed_as for kind in KINDS} == set(HandedAs)
