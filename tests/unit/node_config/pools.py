# SPDX-License-Identifier: Apache-2.0
"""Node pools for tests, as `create-node-pool` reads them, and the schemas of what is written for them."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema

from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.node_pool import ClusterJoin, NodePool, NodeRole
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import VmRequest

TOKEN = "abcdef.0123456789abcdef"
MUNGE_KEY = base64.b64encode(bytes(range(256)) * 4).decode()
VM_UUID = "6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01"
HASH = "sha256:" + "ab" * 32
SERVERS = {
    NodeRole.KUBEADM: "10.0.0.2:6443",
    NodeRole.K3S: "https://10.0.0.2:6443",
    NodeRole.RKE2: "https://10.0.0.2:9345",
    NodeRole.SLURM: "slurm.example:6817",
}


def pool_of(role: NodeRole = NodeRole.K3S, gpu: str = "A40-24Q", **values: Any) -> NodePool:
    """A pool with all that its role needs to join. gpu: "" for none."""
    gpus = (parse_gpu_request(gpu),) if gpu else ()
    is_slurm = role is NodeRole.SLURM
    join = ClusterJoin(
        SERVERS[role],
        ca_cert_hash=HASH if role is NodeRole.KUBEADM else None,
        token=None if is_slurm else SecretText.of(TOKEN),
        munge_key=SecretText.of(MUNGE_KEY) if is_slurm else None,
    )
    made = NodePool("gpu", "acme", role, VmRequest("gpu", "acme", gpus=gpus), maximum=4, join=join)
    return replace(made, **values)


def problems(name: str, document: object) -> list[str]:
    """The errors that a schema of this folder finds in a document."""
    schema = json.loads((Path(__file__).parent / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return [one.message for one in jsonschema.Draft202012Validator(schema).iter_errors(document)]
