# SPDX-License-Identifier: Apache-2.0
"""A template node as the bytes of Kubernetes' Node, which the autoscaler decodes without an envelope."""

from vgpuctl.autoscaler.messages import node_message
from vgpuctl.node_config.template import TemplateNode


def node_bytes(template: TemplateNode) -> bytes:
    """Write a template node. Equal templates are equal bytes."""
    node = node_message()()
    node.metadata.name = template.name
    for key, value in sorted(template.labels.items()):
        node.metadata.labels[key] = value
    for taint in template.taints:
        node.spec.taints.add(key=taint.key, value=taint.value, effect=str(taint.effect))
    for key, value in sorted(template.capacity.items()):
        node.status.capacity[key].string = value
    for key, value in sorted(template.allocatable.items()):
        node.status.allocatable[key].string = value
    # As the providers of the autoscaler's own tree: it plans no pods on a template that is not ready.
    node.status.conditions.add(type="Ready", status="True")
    return bytes(node.SerializeToString(deterministic=True))
