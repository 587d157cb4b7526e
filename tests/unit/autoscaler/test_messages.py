# SPDX-License-Identifier: Apache-2.0
"""The compiled messages are those of the protos, and every release of the autoscaler reads the template."""

import pytest
from google.protobuf import descriptor_pb2

from scripts.compile_protos import COMPILED, compile_protos
from tests.autoscaler_protos import Release
from tests.unit.node_config.pools import pool_of
from vgpuctl.autoscaler.messages import message, node_message
from vgpuctl.autoscaler.provider import node_bytes
from vgpuctl.model.node_pool import Taint, TaintEffect
from vgpuctl.node_config.labels import GPU_LABEL
from vgpuctl.node_config.template import template_node

POOL = pool_of(taints=(Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),), labels=(("team", "vision"),))


def test_the_compiled_messages_are_those_of_the_protos() -> None:
    there, made = (
        descriptor_pb2.FileDescriptorSet.FromString(one) for one in (COMPILED.read_bytes(), compile_protos())
    )
    assert there == made, "run `python scripts/compile_protos.py`"


@pytest.mark.parametrize("release", Release)
def test_every_release_reads_the_template(release: Release) -> None:
    node = node_bytes(template_node(POOL, {}))
    wire = message("TemplateAnswer")(nodeInfo=node, nodeBytes=node).SerializeToString()
    read = release.node(release.message("NodeGroupTemplateNodeInfoResponse").FromString(wire))
    assert read.metadata.labels[GPU_LABEL] == "A40-24Q"
    assert read.metadata.labels["team"] == "vision"
    assert [(one.key, one.value, one.effect) for one in read.spec.taints] == [("gpu", "yes", "NoSchedule")]
    assert read.status.allocatable["nvidia.com/gpu"].string == "1"
    assert read.status.capacity["pods"].string == "110"
    assert [(one.type, one.status) for one in read.status.conditions] == [("Ready", "True")]
    assert read.ByteSize() == len(node)


def test_equal_templates_are_equal_bytes() -> None:
    assert node_bytes(template_node(POOL, {})) == node_bytes(template_node(POOL, {}))
    assert node_message().FromString(node_bytes(template_node(POOL, {}))).metadata.name == "gpu-template"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("GroupsAnswer", "NodeGroupsResponse"),
        ("GroupOfNodeRequest", "NodeGroupForNodeRequest"),
        ("GroupOfNodeAnswer", "NodeGroupForNodeResponse"),
        ("TargetSizeAnswer", "NodeGroupTargetSizeResponse"),
        ("ChangeSizeRequest", "NodeGroupIncreaseSizeRequest"),
        ("ChangeSizeRequest", "NodeGroupDecreaseTargetSizeRequest"),
        ("DeleteNodesRequest", "NodeGroupDeleteNodesRequest"),
        ("InstancesAnswer", "NodeGroupNodesResponse"),
        ("LabelAnswer", "GPULabelResponse"),
        ("GpuTypesAnswer", "GetAvailableGPUTypesResponse"),
    ],
)
def test_our_fields_have_the_names_and_numbers_of_the_autoscalers(ours: str, theirs: str) -> None:
    def fields(kind: object) -> dict[str, int]:
        return {one.name: one.number for one in kind.DESCRIPTOR.fields}  # type: ignore[attr-defined]

    assert fields(message(ours)) == fields(Release.FROM_1_35.message(theirs))
