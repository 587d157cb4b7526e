# SPDX-License-Identifier: Apache-2.0
"""The fields of a node pool: the flags of create-node-pool and set-node-pool, and `node_pools:` of a tenant's file.

`vm` is the VM that each node is made from: the fields of a VM without those that differ from node to node.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgpuctl.catalog.guest_os import is_windows
from vgpuctl.catalog.names import gpu_instance_slices
from vgpuctl.errors import UsageError
from vgpuctl.model.labels import parse_label
from vgpuctl.model.licence_token import expiry_of
from vgpuctl.model.node_pool import (
    JOIN_SECRETS,
    MOST_NODES,
    GpuSharing,
    MigStrategy,
    NodePool,
    NodeRole,
    Spread,
    parse_pool_name,
    parse_taint,
)
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.times import format_duration, format_time_to_second, parse_duration, parse_time
from vgpuctl.model.vm import Preemption, VmRequest
from vgpuctl.node_config.device_plugin import check_sharing
from vgpuctl.node_config.labels import refuse_kubelets_refusals
from vgpuctl.specs import comparison
from vgpuctl.specs.field import Choice, Compared, Field, Section, Table, Text, Truth, Whole, text_like
from vgpuctl.specs.flags import read_flags
from vgpuctl.specs.reading import read_file_entry
from vgpuctl.specs.secret_file import SecretFiles
from vgpuctl.specs.value import Value
from vgpuctl.specs.vm import VM, check_request

VM_KEY = "vm"
_EACH_NODES_OWN = ("name", "tenant", "duration", "guest_metrics", "labels")
"""Fields that differ from node to node, and labels, which a pool has for its nodes."""


def _show_digest(secret: SecretText) -> str:
    return secret.digest


_NAME = Text(parse_pool_name)
_DURATION = Text(parse_duration, format_duration)
_SECRET = Text(show=_show_digest)
"""The path of a file, whose content the model keeps as a SecretText."""
NODE_POOL = Table(
    "a node pool",
    NodePool,
    (
        Field("name", _NAME, "Name of the pool, with which the names of its nodes begin", is_required=True),
        Field("cluster", _NAME, "The tenant's cluster that the nodes join", flag="--cluster", metavar="NAME"),
        Field(
            "role",
            Choice(NodeRole),
            "How a node joins its cluster",
            flag="--role",
            is_required=True,
            example="k3s",
        ),
        Field(
            "min",
            Whole(0, MOST_NODES),
            "Nodes that are always there",
            "minimum",
            "--min",
            metavar="NUMBER",
            compared=Compared.ALWAYS,
            example="1",
        ),
        Field(
            "max",
            Whole(1, MOST_NODES),
            "Nodes that there are at most",
            "maximum",
            "--max",
            metavar="NUMBER",
            is_required=True,
            example="8",
        ),
        Field(
            "zone",
            _NAME,
            "Value of the label topology.kubernetes.io/zone, and a part of the ids of nodes",
            flag="--zone",
            metavar="NAME",
        ),
        Field(
            "labels",
            Text(parse_label, "=".join),
            "Label of the nodes, or feature in Slurm, beside those that vgpuctl adds",
            flag="--label",
            metavar="KEY=VALUE",
            is_list=True,
            is_set=True,
            example="[team=vision]",
        ),
        Field(
            "taints",
            Text(parse_taint, str),
            "Taint that the nodes register with",
            flag="--taint",
            metavar="KEY=VALUE:EFFECT",
            is_list=True,
            example="['nvidia.com/gpu=present:NoSchedule']",
        ),
        Field("sharing.how", Choice(GpuSharing), "How pods share the GPUs of a node", flag="--sharing"),
        Field(
            "sharing.replicas",
            Whole(2, 64),
            "Pods per GPU, for time-slicing and mps",
            flag="--replicas",
            metavar="NUMBER",
            example="4",
        ),
        Field(
            "sharing.mig_strategy",
            Choice(MigStrategy),
            "How NVIDIA's device plugin names MIG devices",
            flag="--mig-strategy",
        ),
        Field("spread", Choice(Spread), "Rule for different hosts of the nodes", flag="--spread"),
        Field(
            "join.server",
            text_like(r"[A-Za-z0-9:/.\[\]-]{1,255}", "an address", hint="write HOST, HOST:PORT or https://HOST:PORT"),
            "Address that nodes join: https://HOST:PORT for k3s and rke2, HOST:PORT for kubeadm, HOST of slurmctld",
            flag="--join-server",
            metavar="ADDRESS",
            example="https://10.0.0.2:6443",
        ),
        Field(
            "join.ca_cert_hash",
            text_like(r"sha256:[0-9a-f]{64}", "sha256: and 64 hexadecimal digits"),
            "Hash of the cluster's certificate authority, for kubeadm",
            flag="--ca-cert-hash",
            metavar="HASH",
        ),
        Field(
            "join.token_expires",
            Text(parse_time, format_time_to_second),
            "When the join token ends; no node is made after that",
            "join.token_expires_at",
            "--token-expires",
            metavar="TIME",
            compared=Compared.IF_GIVEN,
            example="2026-12-24T10:00",
        ),
        Field(
            "join.token",
            _SECRET,
            "File with the join token, mode 0600",
            flag="--join-token",
            metavar="FILE",
            compared=Compared.IF_GIVEN,
        ),
        Field(
            "join.munge_key",
            _SECRET,
            "File with the munge key of the Slurm cluster, mode 0600",
            flag="--munge-key",
            metavar="FILE",
            compared=Compared.IF_GIVEN,
        ),
        Field(
            "join.kubeconfig",
            _SECRET,
            "File with a kubeconfig by which vgpuctl cordons, drains and removes the nodes, mode 0600",
            flag="--kubeconfig",
            metavar="FILE",
            compared=Compared.IF_GIVEN,
        ),
        Field(
            "join_timeout",
            _DURATION,
            "Time in which a started node has to join its cluster; else it is deleted",
            "join_timeout_s",
            "--join-timeout",
            metavar="DURATION",
        ),
        Field(
            "drain_timeout",
            _DURATION,
            "Time in which the work on a node may leave before its VM stops",
            "drain_s",
            "--drain-timeout",
            metavar="DURATION",
        ),
        Field("may_preempt", Truth(), "Let a node preempt VMs of a lower priority", flag="--may-preempt"),
    ),
    (Section("sharing", "How pods share the GPUs"), Section("join", "How a node joins its cluster")),
)
POOL_VM = replace(
    VM,
    name="the VM of a node",
    fields=tuple(replace(one, compared=Compared.ALWAYS) for one in VM.fields if one.key not in _EACH_NODES_OWN),
)
"""A pool makes nodes for as long as it is there, so each field of its VM counts, also those that only place it."""
CHANGEABLE = tuple(one for one in NODE_POOL.fields if one.key not in ("name", "cluster", "role", "zone"))
"""The fields that set-node-pool changes. Nodes that are there keep what they were made with."""
_FIXED = replace(NODE_POOL, fields=tuple(one for one in NODE_POOL.fields if one not in CHANGEABLE))


def read_pool_flags(tenant: str, given: Mapping[str, Any], read_file: Callable[[str], str]) -> NodePool:
    """Make the pool of a command line. given: by `Field.parameter`. Raises UsageError."""
    values = _with_secrets(read_flags(NODE_POOL.fields, given), _read_named)
    return _build(tenant, values, read_flags(POOL_VM.fields, given, read_file))


def read_pool_entry(
    tenant: str, entry: Value, files: SecretFiles, build_vm: Callable[[Mapping[str, Any]], VmRequest]
) -> NodePool:
    """Read one pool of a tenant's file. build_vm: makes the VM of its values, by attribute.

    Raises InventoryError with the line.
    """
    values = read_file_entry(NODE_POOL, entry, beside=[VM_KEY])
    vm = entry.named((VM_KEY,)).get(VM_KEY)
    inner = {"name": values["name"], "tenant": tenant, **({} if vm is None else read_file_entry(POOL_VM, vm))}
    with (vm or entry).located():
        request = build_vm(inner)
    with entry.located():
        pool = {**_with_secrets(values, files.read), "tenant": tenant, "request": request}
        return check_pool(NODE_POOL.build(pool))


def changed_pool(there: NodePool, given: Mapping[str, Any]) -> NodePool:
    """The pool with the changeable fields that flags name. there: with its secrets. Raises UsageError."""
    read = read_flags(CHANGEABLE, given)
    values = _with_secrets(read, _read_named)
    join = values.get("join", {})
    if "token" in join and "token_expires_at" not in read["join"]:
        is_same = join["token"] == there.join.token
        join["token_expires_at"] = there.join.token_expires_at if is_same else join.get("token_expires_at")
    inner = {name: replace(getattr(there, name), **values.pop(name)) for name in ("sharing", "join") if name in values}
    return check_pool(replace(there, **inner, **values))


def list_fixed_differences(there: NodePool, wanted: NodePool) -> list[str]:
    """One line per field that differs and that a pool cannot change: all of its VM but the limit of a live move."""
    vm = replace(wanted, request=replace(wanted.request, max_downtime_s=there.request.max_downtime_s))
    return [*comparison.list_differences(_FIXED, there, wanted), *_list_vm_differences(there, vm)]


def declared_pool(there: NodePool, wanted: NodePool) -> NodePool:
    """The pool that is there, with the changeable fields of a file. there: with its secrets.

    A field that the file leaves out has its default. A secret stays, and with the token its end.
    """
    kept = {
        one.path.removeprefix("join."): comparison.value_at(there, one.path)
        for one in CHANGEABLE
        if one.compared is Compared.IF_GIVEN and comparison.value_at(wanted, one.path) is None
    }
    if wanted.join.token not in (None, there.join.token):
        kept.pop("token_expires_at", None)
    limit_s = wanted.request.max_downtime_s or there.request.max_downtime_s
    request = replace(there.request, max_downtime_s=limit_s)
    return replace(wanted, request=request, join=replace(wanted.join, **kept))


def list_pool_differences(there: NodePool, wanted: NodePool) -> list[str]:
    """One line per field that differs; those of the VM begin with `vm.`."""
    return [*comparison.list_differences(NODE_POOL, there, wanted), *_list_vm_differences(there, wanted)]


def check_pool(pool: NodePool) -> NodePool:
    """Accept a pool whose fields fit together. Raises UsageError."""
    if pool.minimum > pool.maximum:
        raise UsageError(
            f"node pool {pool.name} has a minimum of {pool.minimum} and a maximum of {pool.maximum} nodes",
            hint="give --max at least as high as --min",
        )
    sharing, how = pool.sharing, pool.sharing.how
    check_sharing(sharing)
    slices = [one.profile for one in pool.request.gpus if one.profile and gpu_instance_slices(one.profile) is not None]
    if slices and how in (GpuSharing.MPS, GpuSharing.HAMI):
        raise UsageError(
            f"sharing {how} does not go with MIG, and {slices[0]} is a slice of a GPU in MIG mode",
            hint="use time-slicing, or a type that is not backed by MIG",
        )
    if not pool.role.is_kubernetes and (pool.taints or how is not GpuSharing.NONE or pool.join.kubeconfig):
        raise UsageError(
            f"a {pool.role} pool has no taints, no sharing and no kubeconfig: these are of Kubernetes",
            hint="leave them out; gres.conf and partitions say it in Slurm",
        )
    if pool.role.is_kubernetes and pool.join.munge_key is not None:
        raise UsageError(f"a {pool.role} pool has no munge key", hint="leave it out; it is of Slurm")
    if (how is not GpuSharing.NONE or sharing.mig_strategy is not MigStrategy.NONE) and not pool.request.gpus:
        raise UsageError(f"the nodes of pool {pool.name} have no GPU to share", hint="give --gpu")
    if pool.request.install is not None or (
        pool.request.data_disks and any(one.keep for one in pool.request.data_disks)
    ):
        raise UsageError(
            "a node cannot be installed from media or keep disks: it is made and deleted as a whole",
            hint="use an image, and disks without `keep`",
        )
    if pool.request.preemptible is Preemption.SUSPEND:
        raise UsageError(
            f"the nodes of pool {pool.name} cannot be suspended when they are preempted: nobody resumes them",
            hint="use `requeue`, which starts them again, or `stop`",
        )
    if is_windows(pool.request.os):
        raise UsageError(
            f"the nodes of pool {pool.name} cannot have Windows: vgpuctl lets only Linux join a cluster",
            hint="give an image of Linux",
        )
    if pool.role.is_kubernetes:
        refuse_kubelets_refusals(pool.labels)
    check_request(pool.request_of(pool.node_name(pool.maximum)))
    return pool


def _list_vm_differences(there: NodePool, wanted: NodePool) -> list[str]:
    return [f"{VM_KEY}.{line}" for line in comparison.list_differences(POOL_VM, there.request, wanted.request)]


def _build(tenant: str, values: Mapping[str, Any], vm: Mapping[str, Any]) -> NodePool:
    request = check_request(VM.build({**vm, "name": values["name"], "tenant": tenant}))
    return check_pool(NODE_POOL.build({**values, "tenant": tenant, "request": request}))


def _read_named(path: str) -> bytes:
    """The content of a file that the operator names on the command line. Raises UsageError."""
    return SecretFiles(Path(path)).read(Path(path).name)


def _with_secrets(values: dict[str, Any], read_secret: Callable[[str], bytes]) -> dict[str, Any]:
    """The values with the contents of the files that they name."""
    join = values.get("join", {})
    read = {name: _secret_of(name, join[name], read_secret(join[name])) for name in JOIN_SECRETS if name in join}
    ends = [join.get("token_expires_at"), expiry_of(read["token"].reveal()) if "token" in read else None]
    known = [one for one in ends if one is not None]
    end = {"token_expires_at": min(known)} if known else {}
    return {**values, "join": {**join, **read, **end}} if read else values


def _secret_of(name: str, path: str, content: bytes) -> SecretText:
    if name == "munge_key":
        return SecretText.of(base64.b64encode(content).decode())
    try:
        text = content.decode().strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"the secret {path} is no text in UTF-8") from error
    if not text or (name == "token" and not text.isprintable()):
        raise UsageError(f"the secret {path} is no {name}", hint="write the token alone, in one line")
    return SecretText.of(text)
