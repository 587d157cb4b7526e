# SPDX-License-Identifier: Apache-2.0
"""The schemas accept the examples of the docs and refuse what the readers refuse."""

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.inventory.layouts import host_layouts
from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory
from vgpuctl.inventory.layout_text import layout_variable
from vgpuctl.model.layout import HostLayout
from vgpuctl.specs.bounded_reader import read_documents
from vgpuctl.specs.schema import SCHEMAS
from vgpuctl.specs.vm import VM, read_vm_file

DOCS = Path(__file__).parents[3] / "docs"
TENANT = {"version": 1, "tenant": "acme"}
POOL = {"name": "gpu", "role": "k3s", "max": 8}
GPU = {"match": "all", "kind": "vgpu"}
PLACING = {"vgpu_placing": {"gpus": [{"match": {"board": "A40"}, "speed": 0.5}]}}


def _example(page: str, mark: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = [block.partition("```")[0] for block in text.split("```yaml\n")[1:] if mark in block]
    return found


def _accepts(kind: str, content: Any) -> bool:
    jsonschema = importlib.import_module("jsonschema")
    return bool(jsonschema.Draft202012Validator(SCHEMAS[kind]()).is_valid(content))


def test_the_schemas_are_schemas() -> None:
    validator = importlib.import_module("jsonschema").Draft202012Validator
    for schema in SCHEMAS.values():
        validator.check_schema(schema())


def test_the_examples_of_the_docs_fit(tmp_path: Path) -> None:
    example = _example("vm-file.md", "name: web-1")
    documents = read_documents(example)
    assert all(_accepts("vm", document) for document in documents)
    assert set(VM.keys) == set(documents[0]), "the example shows every key"
    file = tmp_path / "vm.yml"
    file.write_text(example)
    assert [request.name for request in read_vm_file(file, tenant=None)] == ["web-1", "web-2"]
    (tenant,) = read_documents(_example("onboarding.md", "version: 1"))
    assert _accepts("tenant", tenant)
    (pools,) = read_documents(_example("onboarding.md", "node_pools:"))
    assert _accepts("tenant", tenant | pools)


VARIABLES = [
    block
    for page in ("layout", "networks", "placement", "health")
    for block in (DOCS / f"{page}.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    if block.startswith(("vgpu:", "vgpu_placing:", "vgpu_health:"))
]


def test_every_page_about_host_variables_has_examples() -> None:
    assert len(VARIABLES) == 13


@pytest.mark.parametrize("block", VARIABLES)
def test_the_examples_of_host_variables_fit(block: str, tmp_path: Path) -> None:
    text = block.partition("```")[0]
    (document,) = read_documents(text)
    assert _accepts("layout", document)
    (tmp_path / "hosts.ini").write_text("gpu1 vgpu_unknown=1\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "gpu1.yml").write_text(text)
    inventory = load_inventory([tmp_path / "hosts.ini"])
    assert (inventory.layout("gpu1") is None) == ("vgpu" not in document)
    assert inventory.constraints("gpu1")


@settings(max_examples=40, deadline=None)
@given(host_layouts())
def test_every_layout_fits(layout: HostLayout) -> None:
    assert _accepts("layout", {"vgpu": layout_variable(layout)})


@pytest.mark.parametrize(
    ("gpu", "accepted"),
    [
        (GPU, True),
        ({"match": "all", "kind": False}, True),
        (GPU | {"match": "A40"}, False),
        (GPU | {"match": {"address": "0000:41:00.0", "board": "A40"}}, False),
        (GPU | {"match": {"address": None}}, False),
        (GPU | {"kind": "mdev"}, False),
        (GPU | {"geometry": {}}, False),
        (GPU | {"cuont": 1}, False),
        (GPU | {"types": []}, False),
        (GPU | {"types": ["A40-8Q", "A40-8Q"]}, False),
        (GPU | {"shares": {"A40-8Q": 0}}, False),
        (GPU | {"shares": {"A40-8Q": 256}}, True),
        (GPU | {"scheduler": {"policy": "equal-share", "time_slice_ms": 30.5}}, False),
        (GPU | {"scheduler": {"policy": "equal-share", "time_slice_ms": 1.5}}, True),
        (GPU | {"scheduler": {"time_slice_ms": 2}}, False),
        (GPU | {"kind": "mig"}, False),
        (GPU | {"kind": "mig", "geometry": {"2g.10gb": 2}, "placements": {"2g.10gb": [0, 64]}}, False),
        (GPU | {"kind": "vf"}, False),
        (GPU | {"kind": "vf", "count": 4}, True),
        (GPU | {"kind": "passthrough", "driver": "nouveau"}, False),
        ({"kind": "off"}, False),
        ({"match": "all"}, False),
    ],
)
def test_a_gpu_of_a_layout_is_refused_by_schema_and_reader_alike(
    gpu: dict[str, Any], accepted: bool, tmp_path: Path
) -> None:
    content = {"vgpu": {"version": 1, "gpus": [gpu]}}
    assert _accepts("layout", content) is accepted
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu1": content}}}))
    with contextlib.nullcontext() if accepted else pytest.raises(InventoryError):
        load_inventory([tmp_path / "hosts.json"]).layout("gpu1")


@pytest.mark.parametrize(
    ("kind", "content", "accepted"),
    [
        ("vm", {"name": "a", "memroy": "1GiB"}, False),
        ("vm", {"name": "a", "vcpus": 0}, False),
        ("vm", {"name": "a", "disk": {"siez": "1GiB"}}, False),
        ("vm", {"memory": "1GiB"}, False),
        ("vm", {"vms": [{"name": "a", "disk": None, "memory": "2GiB", "network": None}]}, True),
        ("vm", {"name": "a", "memory": 2048}, False),
        ("vm", {"vms": [{"name": "a"}], "vm": []}, False),
        ("tenant", TENANT, True),
        ("tenant", TENANT | {"version": 2}, False),
        ("tenant", TENANT | {"networks": {"a": {"cidr": "10.0.0.0/24", "mtu": 5}}}, False),
        ("tenant", TENANT | {"networks": {"a": {"cidr": "10.0.0.0/24", "direct_connect": {"vlan": 5}}}}, False),
        ("tenant", TENANT | {"security_groups": {"web": [{"protocol": "tcp", "ports": 80}, "icmp"]}}, True),
        ("tenant", TENANT | {"security_groups": {"web": [{"port": 80}]}}, False),
        ("tenant", TENANT | {"security_groups": {"web": [{"action": "deny", "to": "group:a", "log": True}]}}, True),
        ("tenant", TENANT | {"security_groups": {"web": [{"action": "drop"}]}}, False),
        ("tenant", TENANT | {"security_groups": {"web": [{"priority": 1001}]}}, False),
        ("tenant", TENANT | {"address_groups": {"a": ["192.0.2.0/24"], "b": []}, "egress_policy": "deny"}, True),
        ("tenant", TENANT | {"egress_policy": "maybe"}, False),
        ("tenant", TENANT | {"gateway": "internet", "floating_ips": ["web-1"], "peerings": ["umbrella"]}, True),
        ("tenant", TENANT | {"vms": [{"name": "a", "secrets": ["licence_token"]}]}, True),
        ("tenant", TENANT | {"vms": [{"name": "a", "tenant": "other"}]}, False),
        ("tenant", TENANT | {"node_pools": [POOL | {"vm": {"gpus": ["A40-8Q"]}, "join": {"token": "t"}}]}, True),
        ("tenant", TENANT | {"node_pools": [{"name": "gpu", "role": "k3s"}]}, False),
        ("tenant", TENANT | {"node_pools": [POOL | {"role": "nomad"}]}, False),
        ("tenant", TENANT | {"node_pools": [POOL | {"vm": {"name": "a"}}]}, False),
        ("layout", {"ansible_user": "root", "vgpu": None, **PLACING}, True),
        ("layout", {"vgpu": {"gpus": []}}, False),
        ("layout", {"vgpu": {"version": 2}}, False),
        ("layout", {"vgpu": {"version": 1, "hugepages": {"1GiB": -1}}}, False),
        ("layout", {"vgpu": {"version": 1, "kernel_arguments": ["iommu=pt quiet"]}}, False),
        ("layout", {"vgpu": {"version": 1, "network": {"southbound": [], "tunnels": "10.0.0.0/8"}}}, False),
        ("layout", {"vgpu": {"version": 1, "network": {"southbound": "unix:/x"}}}, False),
        ("vm", {"name": "web-1", "tpm": True, "secure_boot": False, "display": {"vgpu": True}}, True),
        ("vm", {"name": "web-1", "firmware": True}, False),
        ("layout", {"vgpu_placing": {"labels": {"a b": "c"}}}, False),
        ("layout", {"vgpu_placing": {"maintenance": 3}}, False),
        ("layout", {"vgpu_placing": {"maintenance": False, "cpus": {"pinned": False}}}, True),
        ("layout", {"vgpu_placing": {"cpus": {"pinned": True}}}, False),
        ("layout", {"vgpu_placing": {"gpus": [{"speed": 0.5}]}}, False),
        ("layout", {"vgpu_placing": {"gpus": [{"match": "all", "speed": 2}]}}, False),
        ("layout", {"vgpu_health": {"tolerate": [], "memory_test": "/usr/bin/memtest"}}, True),
        ("layout", {"vgpu_health": {"tolerate": ["xid-79"]}}, False),
        ("layout", {"vgpu_health": {"memory_test": "memtest"}}, False),
        ("layout", {"vgpu_health": {"memory_test_timeout": 0}}, False),
    ],
)
def test_a_schema_refuses_what_the_reader_refuses(kind: str, content: Any, accepted: bool) -> None:
    assert _accepts(kind, content) is accepted
