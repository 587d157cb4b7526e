# SPDX-License-Identifier: Apache-2.0
"""The messages as three releases of the cluster-autoscaler know them, compiled apart from those of the package.

Names and numbers: kubernetes/autoscaler, cloudprovider/externalgrpc/protos/externalgrpc.proto on release-1.33, 1.34
and 1.35; kubernetes/api, core/v1/generated.proto.
"""

import tempfile
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from scripts.compile_protos import compile_protos

SERVICE = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"
_PACKAGE = "clusterautoscaler.cloudprovider.v1.externalgrpc"
_CORE = """
syntax = "proto2";
package k8s.io.api.core.v1;
message Quantity { optional string string = 1; }
message ObjectMeta {
  optional string name = 1; optional string generateName = 2; optional string namespace = 3;
  map<string, string> labels = 11; map<string, string> annotations = 12;
}
message Taint { optional string key = 1; optional string value = 2; optional string effect = 3; }
message NodeSpec {
  optional string podCIDR = 1; optional string providerID = 3; optional bool unschedulable = 4;
  repeated Taint taints = 5;
}
message NodeCondition { optional string type = 1; optional string status = 2; }
message NodeStatus {
  map<string, Quantity> capacity = 1; map<string, Quantity> allocatable = 2; optional string phase = 3;
  repeated NodeCondition conditions = 4;
}
message Node { optional ObjectMeta metadata = 1; optional NodeSpec spec = 2; optional NodeStatus status = 3; }
"""
_PROVIDER = """
syntax = "proto3";
package clusterautoscaler.cloudprovider.v1.externalgrpc;
import "core.proto";
import "google/protobuf/any.proto";
message NodeGroup { string id = 1; int32 minSize = 2; int32 maxSize = 3; string debug = 4; }
message ExternalGrpcNode {
  string providerID = 1; string name = 2; map<string, string> labels = 3; map<string, string> annotations = 4;
}
message NodeGroupsRequest {}
message NodeGroupsResponse { repeated NodeGroup nodeGroups = 1; }
message NodeGroupForNodeRequest { ExternalGrpcNode node = 1; }
message NodeGroupForNodeResponse { NodeGroup nodeGroup = 1; }
message PricingNodePriceRequest { ExternalGrpcNode node = 1; }
message PricingNodePriceResponse { double price = 1; }
message PricingPodPriceRequest {}
message PricingPodPriceResponse { double price = 1; }
message GPULabelRequest {}
message GPULabelResponse { string label = 1; }
message GetAvailableGPUTypesRequest {}
message GetAvailableGPUTypesResponse { map<string, google.protobuf.Any> gpuTypes = 1; }
message CleanupRequest {}
message CleanupResponse {}
message RefreshRequest {}
message RefreshResponse {}
message NodeGroupTargetSizeRequest { string id = 1; }
message NodeGroupTargetSizeResponse { int32 targetSize = 1; }
message NodeGroupIncreaseSizeRequest { int32 delta = 1; string id = 2; }
message NodeGroupIncreaseSizeResponse {}
message NodeGroupDeleteNodesRequest { repeated ExternalGrpcNode nodes = 1; string id = 2; }
message NodeGroupDeleteNodesResponse {}
message NodeGroupDecreaseTargetSizeRequest { int32 delta = 1; string id = 2; }
message NodeGroupDecreaseTargetSizeResponse {}
message NodeGroupNodesRequest { string id = 1; }
message NodeGroupNodesResponse { repeated Instance instances = 1; }
message Instance { string id = 1; InstanceStatus status = 2; }
message InstanceStatus {
  enum InstanceState { unspecified = 0; instanceRunning = 1; instanceCreating = 2; instanceDeleting = 3; }
  InstanceState instanceState = 1;
  InstanceErrorInfo errorInfo = 2;
}
message InstanceErrorInfo { string errorCode = 1; string errorMessage = 2; int32 instanceErrorClass = 3; }
message NodeGroupTemplateNodeInfoRequest { string id = 1; }
message NodeGroupTemplateNodeInfoResponse { TEMPLATE }
message NodeGroupAutoscalingOptionsRequest { string id = 1; }
message NodeGroupAutoscalingOptionsResponse { bytes nodeGroupAutoscalingOptions = 1; }
"""


class Release(Enum):
    """Releases that differ in the template's answer. The value: its fields."""

    UP_TO_1_33 = "k8s.io.api.core.v1.Node nodeInfo = 1;"
    ONLY_1_34 = "k8s.io.api.core.v1.Node nodeInfo = 1; bytes nodeBytes = 2;"
    FROM_1_35 = "bytes nodeBytes = 2;"

    def message(self, name: str) -> Any:
        """The class of a message of the provider."""
        return message_factory.GetMessageClass(_compiled(self).FindMessageTypeByName(f"{_PACKAGE}.{name}"))

    def node(self, template: Any) -> Any:
        """The template's node as this release reads it from an answer; None where it finds none."""
        kind = message_factory.GetMessageClass(_compiled(self).FindMessageTypeByName("k8s.io.api.core.v1.Node"))
        if self is not Release.UP_TO_1_33 and template.nodeBytes:
            return kind.FromString(template.nodeBytes)
        return template.nodeInfo if self is not Release.FROM_1_35 and template.HasField("nodeInfo") else None


@cache
def _compiled(release: Release) -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "core.proto").write_text(_CORE)
        (Path(made) / "provider.proto").write_text(_PROVIDER.replace("TEMPLATE", release.value))
        compiled = compile_protos(Path(made))
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool
