# SPDX-License-Identifier: Apache-2.0
"""The calls of the cluster-autoscaler's provider: messages in, the use case, messages out.

Source of what each call means: reference clusters, section 1. The autoscaler takes only UNIMPLEMENTED for "not known",
and that of four calls; every other code is a failure to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vgpuctl.autoscaler.messages import message, node_message
from vgpuctl.model.node_pool import NodePool
from vgpuctl.node_config.labels import GPU_LABEL
from vgpuctl.node_config.template import TemplateNode
from vgpuctl.usecases.kubernetes.serve_autoscaler import NodeGroups


# A template node as the bytes of Kubernetes' Node, which the autoscaler decodes without an envelope.
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


_DEBUG = "vgpuctl list-node-pools {tenant}/{name}"


@dataclass(frozen=True)
class ProviderCall:
    """One call. request, answer: classes of its messages. call: None for one that is not offered; then why."""

    request: Any
    answer: Any
    call: Callable[[Any], Any] | None
    why_not: str = ""


def provider_calls(groups: NodeGroups) -> dict[str, ProviderCall]:
    """The fifteen calls by name, over a tenant's node groups."""
    empty, group_request = message("Empty"), message("GroupRequest")
    change = message("ChangeSizeRequest")

    def node_groups(_request: Any) -> Any:
        return message("GroupsAnswer")(nodeGroups=[_group(pool) for pool in groups.pools()])

    def group_for_node(request: Any) -> Any:
        pool = groups.pool_of(request.node.providerID)
        return message("GroupOfNodeAnswer")(nodeGroup=message("Group")() if pool is None else _group(pool))

    def target_size(request: Any) -> Any:
        return message("TargetSizeAnswer")(targetSize=groups.target_size(request.id))

    def increase_size(request: Any) -> Any:
        groups.increase(request.id, request.delta)
        return empty()

    def decrease_target_size(request: Any) -> Any:
        groups.decrease(request.id, request.delta)
        return empty()

    def delete_nodes(request: Any) -> Any:
        groups.delete(request.id, [one.providerID for one in request.nodes])
        return empty()

    def nodes(request: Any) -> Any:
        answer = message("InstancesAnswer")()
        for one in groups.instances(request.id):
            added = answer.instances.add(id=one.provider_id)
            added.status.instanceState = one.state
            if one.code:
                added.status.errorInfo.errorCode = one.code
                added.status.errorInfo.errorMessage = one.reason
                added.status.errorInfo.instanceErrorClass = one.error_class
        return answer

    def template(request: Any) -> Any:
        node = node_bytes(groups.template(request.id))
        return message("TemplateAnswer")(nodeInfo=node, nodeBytes=node)

    def gpu_label(_request: Any) -> Any:
        return message("LabelAnswer")(label=GPU_LABEL)

    def gpu_types(_request: Any) -> Any:
        answer = message("GpuTypesAnswer")()
        for name in groups.gpu_types():
            answer.gpuTypes[name].SetInParent()
        return answer

    def refresh(_request: Any) -> Any:
        groups.refresh()
        return empty()

    return {
        "NodeGroups": ProviderCall(empty, message("GroupsAnswer"), node_groups),
        "NodeGroupForNode": ProviderCall(message("GroupOfNodeRequest"), message("GroupOfNodeAnswer"), group_for_node),
        "NodeGroupTargetSize": ProviderCall(group_request, message("TargetSizeAnswer"), target_size),
        "NodeGroupIncreaseSize": ProviderCall(change, empty, increase_size),
        "NodeGroupDecreaseTargetSize": ProviderCall(change, empty, decrease_target_size),
        "NodeGroupDeleteNodes": ProviderCall(message("DeleteNodesRequest"), empty, delete_nodes),
        "NodeGroupNodes": ProviderCall(group_request, message("InstancesAnswer"), nodes),
        "NodeGroupTemplateNodeInfo": ProviderCall(group_request, message("TemplateAnswer"), template),
        # An answer with the new fields alone crashes releases up to 1.33, and any answer sets the time that newer
        # ones give a node to start to 0.
        "NodeGroupGetOptions": _not_offered("options of node groups are flags of the autoscaler"),
        "PricingNodePrice": _not_offered("nodes have no prices"),
        "PricingPodPrice": _not_offered("pods have no prices"),
        "GPULabel": ProviderCall(
            empty, message("LabelAnswer"), lambda _request: message("LabelAnswer")(label=GPU_LABEL)
        ),
        "GetAvailableGPUTypes": ProviderCall(empty, message("GpuTypesAnswer"), gpu_types),
        "Refresh": ProviderCall(empty, empty, refresh),
        "Cleanup": ProviderCall(empty, empty, lambda _request: empty()),
    }


def _group(pool: NodePool) -> Any:
    return message("Group")(
        id=pool.group_id,
        minSize=pool.minimum,
        maxSize=pool.maximum,
        debug=_DEBUG.format(name=pool.name, tenant=pool.tenant),
    )


def _not_offered(reason: str) -> ProviderCall:
    return ProviderCall(message("Empty"), message("Empty"), None, reason)
