# SPDX-License-Identifier: Apache-2.0
"""The schemas accept the examples of the docs and refuse what the readers refuse."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.specs.bounded_reader import read_documents
from vgpuctl.specs.schema import SCHEMAS
from vgpuctl.specs.vm import VM, read_vm_file

DOCS = Path(__file__).parents[3] / "docs"
TENANT = {"version": 1, "tenant": "acme"}


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


@pytest.mark.parametrize(
    ("kind", "content", "accepted"),
    [
        ("vm", {"name": "a", "memroy": "1GiB"}, False),
        ("vm", {"name": "a", "vcpus": 0}, False),
        ("vm", {"name": "a", "disk": {"siez": "1GiB"}}, False),
        ("vm", {"memory": "1GiB"}, False),
        ("vm", {"vms": [{"name": "a", "disk": None, "memory": 2048, "network": None}]}, True),
        ("vm", {"vms": [{"name": "a"}], "vm": []}, False),
        ("tenant", TENANT, True),
        ("tenant", TENANT | {"version": 2}, False),
        ("tenant", TENANT | {"networks": {"a": {"cidr": "10.0.0.0/24", "mtu": 5}}}, False),
        ("tenant", TENANT | {"networks": {"a": {"cidr": "10.0.0.0/24", "direct_connect": {"vlan": 5}}}}, False),
        ("tenant", TENANT | {"security_groups": {"web": [{"protocol": "tcp", "ports": 80}, "icmp"]}}, True),
        ("tenant", TENANT | {"security_groups": {"web": [{"port": 80}]}}, False),
        ("tenant", TENANT | {"gateway": "internet", "floating_ips": ["web-1"], "peerings": ["umbrella"]}, True),
        ("tenant", TENANT | {"vms": [{"name": "a", "secrets": ["licence_token"]}]}, True),
        ("tenant", TENANT | {"vms": [{"name": "a", "tenant": "other"}]}, False),
    ],
)
def test_a_schema_refuses_what_the_reader_refuses(kind: str, content: Any, accepted: bool) -> None:
    assert _accepts(kind, content) is accepted
