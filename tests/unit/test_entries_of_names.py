# SPDX-License-Identifier: Apache-2.0
"""Every entry of a profile's name or of an amount, and its reader. A new one fails here until it has a row.

The gates (gates_of_names.py) say who may call the readers; this says that no entry goes without one.
"""

import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.unit.uses_of_names import uses
from vgpuctl.catalog import read_gpu_request
from vgpuctl.cli.main import command as command_line
from vgpuctl.errors import UsageError
from vgpuctl.inventory.exchange import mig_parted, vgpu_device_manager
from vgpuctl.model.guest_memory import parse_page_size
from vgpuctl.model.units import parse_mib
from vgpuctl.quota.resources import parse_amount, parse_assignment, parse_resource
from vgpuctl.specs.field import Field, Named, Table, Text
from vgpuctl.specs.layout import LAYOUT, parse_mig_device, parse_type
from vgpuctl.specs.node_pool import NODE_POOL, POOL_VM
from vgpuctl.specs.tenant import HEAD
from vgpuctl.specs.vm import VM
from vgpuctl.specs.vm_devices import DATA_DISK
from vgpuctl.usecases.telemetry.count_more import read_request

_LIKE = re.compile(r"gpus?|profiles?|sizes?|memory|what|limits|guaranteed|hugepages|disk_size|types?|shares|geometry")
"""Names of parameters and fields that hold a profile's name, a size or a quota."""

_OF_TABLE = "specs/vm.py"
_VM_COMMANDS = ("create-vm", "capacity", "explain-vm", "render-vm", "create-node-pool")
OPTIONS = {
    **{(name, key): _OF_TABLE for name in _VM_COMMANDS for key in ("gpus", "memory", "hugepages", "disk_size")},
    ("attach-gpu", "what"): "read_gpu_request in cli/vm/attach_gpu.py:command",
    ("create-tenant", "guaranteed"): "read_amounts in cli/tenant/tenants.py:create_tenant",
    ("create-tenant", "limits"): "read_amounts in cli/tenant/tenants.py:create_tenant",
    **{
        (f"export {tool}", "profile"): "profile_name in usecases/layout/tool_exports.py:export_for"
        for tool in ("kubevirt", "nova", "proxmox")
    },
    ("defrag", "profile"): _OF_TABLE,
    ("lab up", "memory"): "lab/vgpuctl_lab/cli/lab.py",
    ("reserve", "gpus"): "read_gpu_request in cli/placement/reservations.py:reserve",
    ("resize-disk", "size"): "parse_mib in cli/disk/resize_disk.py:command",
    ("resize-vm", "gpus"): "read_gpu_request in cli/vm/resize_vm.py:_size",
    ("resize-vm", "memory"): "parse_mib in cli/vm/resize_vm.py:_size",
    ("set-quota", "guaranteed"): "read_amounts in cli/tenant/set_quota.py:command",
    ("set-quota", "limits"): "read_amounts in cli/tenant/set_quota.py:command",
    ("show-usage", "profiles"): "profile_name in usecases/tenant/show_usage.py:show_usage",
}
"""Option by command and parameter: the reader and its place; of options that are fields, the table."""

NO_NAMES = {
    ("cordon-host", "gpu"): "a PCI address",
    ("uncordon-host", "gpu"): "a PCI address",
    ("show-gpu", "gpu"): "a PCI address",
    ("scale-node-pool", "size"): "a number of nodes",
    ("predict", "size"): "a size of a job, without a unit",
}


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_every_option_of_a_name_or_an_amount_has_its_reader() -> None:
    found = {
        (name, str(one.name))
        for name, command in _commands(command_line)
        for one in command.params
        if _LIKE.fullmatch(str(one.name)) and not isinstance(one.type, click.Choice | click.Path)
    }
    assert found - OPTIONS.keys() == NO_NAMES.keys()
    assert OPTIONS.keys() <= found
    places = {f"{use.name} in {use.place}" for use in uses()}
    readers = {reader for reader in OPTIONS.values() if " in " in reader}
    assert readers <= places, f"{readers - places} is gone"


def _fields(table: Table[Any], way: str = "") -> Iterator[tuple[str, Field]]:
    for field in table.fields:
        yield f"{way}{field.key}", field
        inner = field.type.values if isinstance(field.type, Named) else field.type
        of_entry = inner.table if isinstance(inner, Text) else inner
        if isinstance(of_entry, Table):
            yield from _fields(of_entry, f"{way}{field.key}.")


FIELDS = {
    "a VM": {
        "gpus": read_gpu_request,
        "memory": parse_mib,
        "hugepages": parse_page_size,
        "disk.size": parse_mib,
        "data_disks.size": parse_mib,
        "guest.mps.memory": parse_mib,
    },
    "vgpu": {
        "gpus.types": parse_type,
        "gpus.shares": parse_type,
        "gpus.geometry": parse_mig_device,
        "gpus.placements": parse_mig_device,
        "hugepages": parse_page_size,
    },
    "a node pool": {},
    "this file": {},
}
"""Fields of names and amounts by table, with their readers. Quotas and guarantees are no fields: `specs.tenant`."""


@pytest.mark.parametrize("table", [VM, LAYOUT, NODE_POOL, HEAD], ids=lambda one: one.name)
def test_every_field_of_a_name_or_an_amount_has_its_reader(table: Table[Any]) -> None:
    found = {}
    for way, field in _fields(table):
        kind = field.type.names if isinstance(field.type, Named) else field.type
        is_like = _LIKE.fullmatch(field.key.rpartition(".")[2]) or field.key == "placements"
        if isinstance(kind, Text) and is_like:
            found[way] = kind.parse
    assert found == FIELDS[table.name]


def test_the_vm_of_a_pool_and_a_disk_to_attach_have_the_fields_of_a_vm() -> None:
    assert {one.key for one in POOL_VM.fields} >= {"gpus", "memory", "hugepages", "disk.size"}
    assert all(POOL_VM.field(key).type == VM.field(key).type for key in ("gpus", "memory", "hugepages", "disk.size"))
    assert DATA_DISK.field("size").type == VM.field("memory").type


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (["capacity", "--gpu", "A40-8Q", "--memory", "8"], "8MiB or 8GiB"),
        (["capacity", "--gpu", "A40-8Q", "--hugepages", "1"], "1MiB or 1GiB"),
        (["capacity", "--gpu", "memory>=16"], "16MiB or 16GiB"),
        (["create-vm", "web-1", "-t", "acme", "--memory", "4096"], "4096MiB or 4096GiB"),
        (["create-vm", "web-1", "-t", "acme", "--disk", "20"], "20MiB or 20GiB"),
        (["explain-vm", "web-1", "--gpu", "A40-8Q", "--memory", "8"], "8MiB or 8GiB"),
        (["render-vm", "web-1", "-t", "acme", "--memory", "8"], "8MiB or 8GiB"),
        (["resize-vm", "web-1", "-t", "acme", "--memory", "8"], "8MiB or 8GiB"),
        (["resize-disk", "web-1", "-t", "acme", "20"], "20MiB or 20GiB"),
        (["create-node-pool", "acme/gpu", "--role", "slurm", "--max", "2", "--memory", "8"], "8MiB or 8GiB"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else None,
)
def test_no_option_takes_a_size_without_a_unit(arguments: list[str], number: str) -> None:
    result = CliRunner().invoke(command_line, arguments)
    assert isinstance(result.exception, UsageError), result.output
    assert result.exception.hint == f"write {number}"


@pytest.mark.parametrize("resource", ["memory", "framebuffer"])
def test_no_quota_takes_a_size_without_a_unit(resource: str) -> None:
    for read in (lambda: parse_assignment(f"{resource}=8", what="quota"), lambda: parse_amount(resource, "96")):
        with pytest.raises(UsageError, match="without a unit"):
            read()
    with pytest.raises(UsageError, match="without a unit"):
        read_request({"gpu": "A40-8Q", "memory": "8"})


@pytest.mark.parametrize(
    ("written", "resource"),
    [
        ("shares:A40-24q", "shares:A40-24Q"),
        ("shares:RTX Pro 6000 Blackwell DC-24Q", "shares:DC-24Q"),
        ("SHARES:nvidia a40-8q", "shares:A40-8Q"),
        ("shares:dc-16q:rtx pro 4500", "shares:DC-16Q:rtx-pro-4500-blackwell-server"),
        ("licences:vWS", "licences:vws"),
        ("VMs", "vms"),
        ("GPU-Hours", "gpu-hours"),
    ],
)
def test_a_quota_has_the_name_in_normal_form(written: str, resource: str) -> None:
    assert parse_resource(written) == resource == parse_resource(resource)


@pytest.mark.parametrize(
    ("written", "meant"), [("vmss", "vms"), ("framebufer", "framebuffer"), ("share:A40-8Q", "shares:")]
)
def test_a_resource_that_there_is_not_gets_the_one_that_was_meant(written: str, meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_resource(written)
    assert refused.value.hint is not None
    assert meant in refused.value.hint


def test_the_form_of_the_web_takes_a_name_with_its_model() -> None:
    def gpus(text: str) -> list[str]:
        request = read_request({"gpu": text})
        return [] if request is None else [one.text for one in request.gpus]

    assert gpus("RTX Pro 6000 Blackwell DC-24Q") == ["DC-24Q"]
    assert gpus("a40-8q 2*l40s-48q passthrough:H100") == ["A40-8Q", "2*L40S-48Q", "passthrough:H100"]
    assert gpus("memory>=16GiB,series=Q") == ["memory>=16GiB,series=Q"]


def test_files_of_other_tools_have_the_readers_of_layouts() -> None:
    assert vars(vgpu_device_manager)["parse_type"] is parse_type
    assert vars(mig_parted)["parse_mig_device"] is parse_mig_device
    assert parse_mig_device("MIG 1G.10GB", what="") == "1g.10gb"
    assert parse_type("NVIDIA a40-8q", what="") == "A40-8Q"
