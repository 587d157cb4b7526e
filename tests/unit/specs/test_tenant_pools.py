# SPDX-License-Identifier: Apache-2.0
"""`node_pools:` of a tenant's file: what is read, with the file's own defaults, and every refusal with its line."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.errors import FileNotTrusted, InventoryError
from vgpuctl.model.guest_driver import DriverSource
from vgpuctl.model.network import Backend
from vgpuctl.model.node_pool import GpuSharing, NodePool, NodeRole
from vgpuctl.model.secret_text import SecretText
from vgpuctl.specs.node_pool import changed_pool, declared_pool, list_fixed_differences
from vgpuctl.specs.tenant import read_tenant_files

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv ops@acme.example"


def _read(folder: Path, text: str) -> tuple[NodePool, ...]:
    file = folder / "acme.yml"
    file.write_text("version: 1\ntenant: acme\n" + text)
    (tenant,) = read_tenant_files(file, default_backend=Backend.LIBVIRT)
    return tenant.node_pools


def _secret(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    (folder / name).chmod(0o600)


def test_a_pool_is_read_with_the_files_defaults_and_its_secrets(tmp_path: Path) -> None:
    _secret(tmp_path, "token", "K10abc::node:secret\n")
    (pool,) = _read(
        tmp_path,
        f"priority: high\nssh_keys: ['{KEY}']\nguest_driver: {{source: packages, package: nvidia-open}}\n"
        "node_pools:\n  - name: gpu\n    role: k3s\n    min: 1\n    max: 8\n    taints: ['gpu=yes:NoSchedule']\n"
        "    sharing: {how: time-slicing, replicas: 4}\n"
        "    join: {server: 'https://10.0.0.2:6443', token: token}\n"
        "    vm: {gpus: [A40-8Q], os: debian-12, memory: 8GiB, vcpus: 4, disk: {base_image: debian-12}}\n",
    )
    assert (pool.printed_name, pool.role, pool.minimum, pool.maximum) == ("acme/gpu", NodeRole.K3S, 1, 8)
    assert (pool.sharing.how, pool.sharing.replicas) == (GpuSharing.TIME_SLICING, 4)
    assert pool.join.token is not None
    assert pool.join.token.reveal() == "K10abc::node:secret"
    request = pool.request
    assert (request.tenant, request.memory_mib, request.priority) == ("acme", 8192, 700)
    assert request.cloud_init.ssh_authorized_keys == (KEY,)
    assert request.guest_driver.source is DriverSource.PACKAGES


REFUSED = [
    ("node_pools: {gpu: {}}\n", "3: file.node_pools"),
    ("node_pools:\n  - {role: k3s, max: 2}\n", "4: file.node_pools[0] has no 'name'"),
    ("node_pools:\n  - name: gpu\n    role: k8s\n    max: 2\n", "5: file.node_pools[0].role"),
    ("node_pools:\n  - name: gpu\n    role: k3s\n    max: 0\n", "6: file.node_pools[0].max"),
    ("node_pools:\n  - {name: gpu, role: k3s, max: 2, mni: 1}\n", "4: file.node_pools[0].mni is not a key"),
    ("node_pools:\n  - {name: gpu, role: k3s, max: 2, min: 3}\n", "4: node pool gpu has a minimum of 3"),
    (
        "node_pools:\n  - {name: gpu, role: k3s, max: 2, vm: {preemptible: suspend}}\n",
        "4: the nodes of pool gpu cannot be suspended",
    ),
    (
        "node_pools:\n  - name: gpu\n    role: k3s\n    max: 2\n    vm:\n      memory: 8GiB\n      nmae: a\n",
        "9: file.node_pools[0].vm.nmae is not a key of",
    ),
    ("node_pools:\n  - name: gpu\n    role: k3s\n    max: 2\n    vm:\n      memory: 1MiB\n", "7: 1 MiB of memory"),
    (
        "node_pools:\n  - {name: gpu, role: k3s, max: 2}\n  - {name: gpu, role: k3s, max: 2}\n",
        "5: file.node_pools[1] has the name 'gpu', as at",
    ),
    (
        "vms:\n  - {name: gpu-002}\nnode_pools:\n  - {name: gpu, role: k3s, max: 2}\n",
        "6: file.node_pools[0] would have a node named as the VM 'gpu-002'",
    ),
    (
        "node_pools:\n  - {name: gpu, role: k3s, max: 2, join: {token: missing}}\n",
        "4: the secret missing cannot be read: No such file",
    ),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_a_wrong_pool_is_refused_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        _read(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path / 'acme.yml'}:{said}"), caught.value.message


def test_a_secret_of_a_pool_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(FileNotTrusted, match=r"token is not used: it may be read by every user") as caught:
        _read(tmp_path, "node_pools:\n  - {name: gpu, role: k3s, max: 2, join: {token: token}}\n")
    assert "secret'" not in str(caught.value)


def test_a_declared_pool_keeps_a_secret_that_the_file_leaves_out(tmp_path: Path) -> None:
    (wanted,) = _read(tmp_path, "node_pools:\n  - {name: gpu, role: k3s, max: 4}\n")
    join = replace(wanted.join, token=SecretText.of("old"), token_expires_at=1e9)
    there = replace(wanted, join=join, maximum=2, may_preempt=True)
    assert declared_pool(there, wanted) == replace(wanted, join=join), "the rest is as the file says"
    newer = replace(wanted, join=replace(wanted.join, token=SecretText.of("new")))
    assert declared_pool(there, newer).join.token_expires_at is None, "the end was the old token's"
    assert list_fixed_differences(there, replace(wanted, zone="b")) == ["zone: default there, b wanted"]


@pytest.mark.parametrize(
    ("claims", "given", "end"),
    [
        ('{"exp": 1000}', "", 1000.0),
        ('{"exp": 4000000000}', ", token_expires: '2030-01-01T00:00'", 1893456000.0),
        ('{"sub": "node"}', "", None),
        ('{"exp": true}', "", None),
        (None, "", None),
    ],
)
def test_a_join_token_that_tells_its_end_has_it(
    tmp_path: Path, claims: str | None, given: str, end: float | None
) -> None:
    parts = ("{}", claims or "", "signature")
    text = ".".join(base64.urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in parts)
    file = tmp_path / "token"
    file.write_text(text if claims else "abcdef.0123456789abcdef")
    file.chmod(0o600)
    join = f"join: {{token: token{given}}}"
    (pool,) = _read(tmp_path, f"node_pools:\n  - {{name: gpu, role: k3s, max: 2, {join}}}\n")
    assert pool.join.token_expires_at == end
    newer = changed_pool(pool, {"join_token": str(file)})
    assert newer.join.token_expires_at == end, "the same token keeps its end"
    file.write_text("another")
    assert changed_pool(pool, {"join_token": str(file)}).join.token_expires_at is None


def test_where_the_vm_of_a_pool_may_be_counts_as_its_other_fields(tmp_path: Path) -> None:
    (wanted,) = _read(tmp_path, "node_pools:\n  - {name: gpu, role: k3s, max: 4, vm: {policy: spread}}\n")
    (other,) = _read(tmp_path, "node_pools:\n  - {name: gpu, role: k3s, max: 4, vm: {policy: binpack}}\n")
    assert list_fixed_differences(wanted, other) == ["vm.policy: spread there, binpack wanted"]


@pytest.mark.parametrize("how", ["{how: mps, replicas: 4}", "{how: hami}"])
def test_a_slice_of_a_gpu_in_mig_mode_is_not_shared_by_mps_or_hami(how: str, tmp_path: Path) -> None:
    text = "node_pools:\n  - {{name: gpu, role: k3s, max: 4, sharing: {how}, vm: {{gpus: [{gpu}]}}}}\n"
    with pytest.raises(InventoryError, match="does not go with MIG, and A100-3-20C is a slice"):
        _read(tmp_path, text.format(how=how, gpu="A100-3-20C"))
    (taken,) = _read(tmp_path, text.format(how=how, gpu="A100-20C"))
    assert str(taken.sharing.how) in how
