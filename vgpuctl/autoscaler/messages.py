# SPDX-License-Identifier: Apache-2.0
"""The messages of the cluster-autoscaler's provider, made from the compiled protos with protobuf alone.

messages.binpb is made by scripts/compile_protos.py. It has a descriptor pool of its own: another program in the same
process may know other forms of the same messages.
"""

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
_PACKAGE = SERVICE.rpartition(".")[0]
_OF_KUBERNETES = "vgpuctl.kubernetes"


@cache
def message(name: str) -> Any:
    """The class of a message of the provider, by its name in externalgrpc.proto."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def node_message() -> Any:
    """The class of Kubernetes' Node, as far as node.proto has it."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_OF_KUBERNETES}.Node"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    compiled = resources.files("vgpuctl.autoscaler").joinpath("messages.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool
