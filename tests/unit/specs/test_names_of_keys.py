# SPDX-License-Identifier: Apache-2.0
"""A file's keys and a command's flags have one name each, other words are suggested, and kinds of files are told."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.network import Backend
from vgpuctl.specs.fencing import FENCING_VARIABLE
from vgpuctl.specs.field import Table
from vgpuctl.specs.file_kinds import HOST_VARIABLES
from vgpuctl.specs.health import HEALTH_VARIABLE
from vgpuctl.specs.keys import SYNONYMS, fields_by_flag, flag_name, suggest_key
from vgpuctl.specs.layout import GPU, LAYOUT, LAYOUT_VARIABLE
from vgpuctl.specs.moves import MOVES_VARIABLE
from vgpuctl.specs.network import NETWORK
from vgpuctl.specs.node_pool import NODE_POOL
from vgpuctl.specs.placing import PLACING_VARIABLE
from vgpuctl.specs.tenant import AMOUNTS, HEAD, read_tenant_files
from vgpuctl.specs.vm import VM, read_vm_file
from vgpuctl.specs.vpc_objects import KINDS

TABLES: list[Table[Any]] = [VM, NETWORK, NODE_POOL, HEAD, *(kind.table for kind in KINDS)]


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv alice"


def _vm(folder: Path, text: str) -> Path:
    path = folder / "vm.yml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_flag_has_its_key(table: Table[object]) -> None:
    """The flag's name is the key, stands for it, or is answered with it."""
    by_flag = fields_by_flag(table)
    for field in table.fields:
        name = flag_name(field)
        if name and name not in table.keys and by_flag.get(name) is not field:
            assert suggest_key(name, table.keys, table) == field.key


@pytest.mark.parametrize(
    ("by_flags", "by_keys"),
    [
        ("gpu: A40-8Q", "gpus: [A40-8Q]"),
        ("gpu: [A40-8Q, A40-8Q]", "gpus: [A40-8Q, A40-8Q]"),
        ("base-image: debian-12", "disk: {base_image: debian-12}"),
        ("disk: 20GiB\nbase_image: debian-12", "disk: {size: 20GiB, base_image: debian-12}"),
        ("for: 2h", "duration: 2h"),
        ("require-label: rack=r1", "require_labels: [rack=r1]"),
        ("kernel: vmlinuz\nkernel-args: quiet", "kernel: {image: vmlinuz, command_line: quiet}"),
        (
            "cloud-init: {ssh-authorized-keys: [KEY], hostname: h}",
            "cloud_init: {ssh_authorized_keys: [KEY], hostname: h}",
        ),
    ],
)
def test_the_name_of_a_flag_says_what_its_key_says(by_flags: str, by_keys: str, tmp_path: Path) -> None:
    one, other = (f"name: web-1\n{text}\n".replace("KEY", KEY) for text in (by_flags, by_keys))
    assert read_vm_file(_vm(tmp_path, one), tenant="acme") == read_vm_file(_vm(tmp_path, other), tenant="acme")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cpus: 4", ":2: vm.cpus is not a key of a VM", "did you mean vcpus?"),
        ("RAM: 4GiB", ":2: vm.RAM is not", "did you mean memory?"),
        ("image: debian", ":2: vm.image is not", "did you mean disk.base_image?"),
        ("disk: {image: debian}", ":2: vm.disk.image is not", "did you mean base_image?"),
        ("ssh_key: k", ":2: vm.ssh_key is not", "did you mean cloud_init.ssh_authorized_keys?"),
        ("user-data: x", ":2: vm.user-data is not", "did you mean cloud_init.user_data?"),
        ("vgpu: A40-8Q", ":2: vm.vgpu is not", "did you mean gpus?"),
        ("disk: {base_image: a}\nbase-image: b", ":3: vm.base-image says the same as vm.disk.base_image", "one of"),
        ("nic-model: virtio\nnic_model: virtio", ":3: vm.nic_model says the same as vm.nic-model", "one of"),
        ("initrd: i", ":1: vm has no 'kernel.image'", None),
    ],
)
def test_another_word_is_answered_with_the_key(text: str, message: str, hint: str | None, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read_vm_file(_vm(tmp_path, f"name: web-1\n{text}\n"), tenant="acme")
    assert message in refused.value.message
    assert hint is None or hint in (refused.value.hint or "")


def test_a_join_token_is_looked_for_in_its_section() -> None:
    assert suggest_key("join_token", NODE_POOL.keys, NODE_POOL) == "join.token"
    assert suggest_key("join-timeuot", NODE_POOL.keys, NODE_POOL) == "join_timeout"


def test_every_word_is_for_a_key_that_some_table_has() -> None:
    keys = {field.key for table in (*TABLES, GPU, LAYOUT) for field in table.fields} | {*AMOUNTS, "vms"}
    assert set(SYNONYMS) <= keys


OTHER_KINDS = {
    "a VM": "name: web-1\ngpus: [A40-8Q]\n",
    "a tenant's file": "version: 1\ntenant: acme\n",
    "variables of hosts": "vgpu: {version: 1}\n",
    "an inventory": "all: {hosts: {gpu1: }}\n",
    "a web configuration": "tls_server_config: {}\n",
    "an object of Kubernetes": "apiVersion: v1\nkind: Pod\n",
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_file_that_mixes_kinds_is_refused_at_the_document(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mixed.yml"
    if kind != "a VM":
        path.write_text(f"name: db\n---\n{OTHER_KINDS[kind]}")
        with pytest.raises(UsageError, match=f"mixed.yml:3: this is {kind}, not a VM"):
            read_vm_file(path, tenant="acme")
    if kind != "a tenant's file":
        path.write_text(f"version: 1\ntenant: acme\n---\n{OTHER_KINDS[kind]}")
        with pytest.raises(InventoryError, match=f"mixed.yml:4: this is {kind}, not a tenant's file"):
            read_tenant_files(path, default_backend=Backend.LIBVIRT)


def test_the_variables_of_hosts_are_known_by_their_names() -> None:
    assert {LAYOUT_VARIABLE, PLACING_VARIABLE, HEALTH_VARIABLE, FENCING_VARIABLE, MOVES_VARIABLE} == set(HOST_VARIABLES)


def test_a_file_has_a_tenant_in_each_document(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yml"
    path.write_text("---\nversion: 1\ntenant: acme\n---\nversion: 1\ntenant: shop\nvms: [{name: web-1}]\n---\n")
    tenants = read_tenant_files(path, default_backend=Backend.LIBVIRT)
    assert [(one.tenant, len(one.vms)) for one in tenants] == [("acme", 0), ("shop", 1)]
    path.write_text("version: 1\ntenant: acme\n---\nversion: 1\ntenant: acme\n")
    with pytest.raises(InventoryError, match=r"tenants.yml:4: tenant acme is in this file twice, first at .*:1"):
        read_tenant_files(path, default_backend=Backend.LIBVIRT)
    path.write_text("---\n---\n")
    with pytest.raises(InventoryError, match=r"tenants.yml holds no tenant"):
        read_tenant_files(path, default_backend=Backend.LIBVIRT)


@pytest.fixture
def standard_input() -> Iterator[io.TextIOBase]:
    """The writing end of a pipe that is standard input for the test."""
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    with os.fdopen(writing, "w") as writer:
        yield writer
    os.dup2(kept, 0)
    os.close(kept)


def test_a_dash_is_standard_input(standard_input: io.TextIOBase) -> None:
    standard_input.write("name: web-1\n---\nname: web-2\nmemory: lots\n")
    standard_input.close()
    with pytest.raises(UsageError, match=r"^stdin:4: vm.memory is 'lots'"):
        read_vm_file(Path("-"), tenant="acme")
