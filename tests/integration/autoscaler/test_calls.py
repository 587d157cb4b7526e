# SPDX-License-Identifier: Apache-2.0
"""Each call of the cluster-autoscaler over gRPC, on a store without hosts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.autoscaler_client import CREATING, DELETING, RUNNING, Autoscaler, Provider, refusal
from tests.autoscaler_protos import Release
from tests.integration.autoscaler.pools import GROUP, make_vm, nodes, provider_of, refuse, stored_pools
from vgpuctl.usecases.node.wanted_nodes import let_go, want_nodes
from vgpuctl.usecases.running.services import Services


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with stored_pools(tmp_path) as opened:
        yield opened


@pytest.fixture
def provider(services: Services) -> Iterator[Provider]:
    with provider_of(services) as made:
        yield made


def provider_ids(services: Services, pool: str = "gpu", tenant: str = "acme") -> list[str]:
    return [f"vgpuctl://default/{tenant}/{one.vm_uuid}" for one in nodes(services, pool, tenant)]


def size(provider: Provider, group: str = GROUP) -> int:
    return int(provider.call("NodeGroupTargetSize", id=group).targetSize)


def test_the_groups_are_the_kubernetes_pools_of_one_cluster(services: Services, provider: Provider) -> None:
    found = {one.id: (one.minSize, one.maxSize) for one in provider.call("NodeGroups").nodeGroups}
    assert found == {"acme/main/big/default": (0, 2), GROUP: (0, 4)}
    with provider_of(services, cluster="other") as other:
        assert [one.id for one in other.call("NodeGroups").nodeGroups] == ["acme/other/lab/default"]


def test_a_pool_grows_at_once_and_its_nodes_are_listed_before_they_are_made(
    services: Services, provider: Provider
) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=3)
    assert size(provider) == 3
    assert provider.instances(GROUP) == dict.fromkeys(provider_ids(services), (CREATING, "", 0))
    make_vm(services, nodes(services)[0])
    assert [one[0] for one in provider.instances(GROUP).values()] == [RUNNING, CREATING, CREATING]


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("NodeGroupIncreaseSize", {"id": GROUP, "delta": 5}, "FAILED_PRECONDITION"),
        ("NodeGroupIncreaseSize", {"id": GROUP, "delta": 2**31 - 1}, "FAILED_PRECONDITION"),
        ("NodeGroupIncreaseSize", {"id": GROUP, "delta": 0}, "INVALID_ARGUMENT"),
        ("NodeGroupIncreaseSize", {"id": GROUP, "delta": -1}, "INVALID_ARGUMENT"),
        ("NodeGroupIncreaseSize", {"id": "globex/main/gpu/default", "delta": 1}, "NOT_FOUND"),
        ("NodeGroupIncreaseSize", {"id": "acme/main/hpc/default", "delta": 1}, "NOT_FOUND"),
        ("NodeGroupIncreaseSize", {"id": "acme/other/lab/default", "delta": 1}, "NOT_FOUND"),
        ("NodeGroupDecreaseTargetSize", {"id": GROUP, "delta": 1}, "INVALID_ARGUMENT"),
        ("NodeGroupDecreaseTargetSize", {"id": GROUP, "delta": -1}, "FAILED_PRECONDITION"),
        ("NodeGroupDecreaseTargetSize", {"id": GROUP, "delta": -(2**31)}, "FAILED_PRECONDITION"),
        ("NodeGroupNodes", {"id": "\x1b[2J" + "x" * 1000}, "NOT_FOUND"),
        ("NodeGroupTemplateNodeInfo", {"id": ""}, "NOT_FOUND"),
        ("NodeGroupGetOptions", {"id": GROUP}, "UNIMPLEMENTED"),
        ("PricingNodePrice", {}, "UNIMPLEMENTED"),
        ("PricingPodPrice", {}, "UNIMPLEMENTED"),
    ],
)
def test_a_refused_call_changes_nothing(
    services: Services, provider: Provider, name: str, values: dict[str, object], code: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        provider.call(name, **values)
    assert refusal(refused.value) == code
    assert "\x1b" not in str(refused.value)
    with services.store.reading() as session:
        assert session.nodes() == []


def test_only_nodes_without_a_vm_are_dropped_by_a_lower_target(services: Services, provider: Provider) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=3)
    make_vm(services, nodes(services)[0])
    with pytest.raises(grpc.RpcError) as refused:
        provider.call("NodeGroupDecreaseTargetSize", id=GROUP, delta=-3)
    assert refusal(refused.value) == "FAILED_PRECONDITION"
    assert size(provider) == 3
    provider.call("NodeGroupDecreaseTargetSize", id=GROUP, delta=-2)
    assert [one.name for one in nodes(services)] == ["gpu-001"]
    assert size(provider) == 1


def test_nodes_are_deleted_by_provider_id_alone_and_only_once(services: Services, provider: Provider) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=3)
    first, second, third = provider_ids(services)
    make_vm(services, nodes(services)[0])
    lies = {"name": "gpu-003", "labels": {"vgpuctl.io/pool": "big"}, "providerID": first}
    provider.delete(GROUP, [lies, lies])
    assert size(provider) == 2
    assert provider.instances(GROUP)[first][0] == DELETING
    provider.delete(GROUP, [lies, {"providerID": second}])
    assert size(provider) == 1, "what leaves lowers the target no second time"
    assert second not in provider.instances(GROUP), "one without a VM is gone at once"
    provider.delete(GROUP, [{"providerID": second}])
    assert size(provider) == 1
    assert provider.instances(GROUP)[third][0] == CREATING


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "gpu-001",
        "k3s://gpu-001",
        "vgpuctl://default/globex/6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01",
        "vgpuctl://elsewhere/acme/6f1f0a52-5a0c-4a3e-9d8c-0b6f5b0f6a01",
        "of big",
        "of globex",
    ],
)
def test_one_foreign_node_keeps_all_from_being_deleted(services: Services, provider: Provider, foreign: str) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=1)
    provider.call("NodeGroupIncreaseSize", id="acme/main/big/default", delta=1)
    with provider_of(services, "globex") as other:
        other.call("NodeGroupIncreaseSize", id="globex/main/gpu/default", delta=1)
    (own,), (of_big,) = provider_ids(services), provider_ids(services, "big")
    (of_globex,) = provider_ids(services, "gpu", "globex")
    named = {"of big": of_big, "of globex": of_globex}.get(foreign, foreign)
    with pytest.raises(grpc.RpcError) as refused:
        provider.delete(GROUP, [{"providerID": own}, {"name": "gpu-001", "providerID": named}])
    assert refusal(refused.value) == "INVALID_ARGUMENT"
    with services.store.reading() as session:
        assert [one.is_leaving for one in session.nodes()] == [False] * 3


def test_a_node_is_found_by_its_provider_id(services: Services, provider: Provider) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=1)
    (own,) = provider_ids(services)

    def group_of(**node: str) -> str:
        return str(provider.call("NodeGroupForNode", node=node).nodeGroup.id)

    assert group_of(providerID=own, name="whatever") == GROUP
    assert group_of(name="gpu-001") == ""
    assert group_of(providerID=own.upper()) == ""
    assert group_of(providerID="k3s://control-plane-1", name="control-plane-1") == ""
    with provider_of(services, "globex") as other:
        assert other.call("NodeGroupForNode", node={"providerID": own}).nodeGroup.id == ""


def test_a_node_wanted_again_while_it_leaves_is_not_dropped_by_a_late_delete(
    services: Services, provider: Provider
) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=1)
    (own,), (node,) = provider_ids(services), nodes(services)
    make_vm(services, node)
    with services.store.reading() as session:
        pool = session.node_pool("acme", "gpu")
    let_go(services, pool, [node.name], reason="a person")
    want_nodes(services, pool, [node.name])
    assert size(provider) == 1
    provider.delete(GROUP, [{"providerID": own}])
    assert size(provider) == 1


def test_the_gpu_label_and_types_are_those_of_the_pools(provider: Provider) -> None:
    assert provider.call("GPULabel").label == "vgpuctl.io/gpu"
    assert list(provider.call("GetAvailableGPUTypes").gpuTypes) == ["A40-24Q"]
    assert provider.template(GROUP).metadata.labels["vgpuctl.io/gpu"] == "A40-24Q"
    provider.call("Cleanup")


@pytest.mark.parametrize(
    ("refusal_there", "code", "error_class"),
    [
        ("no-capacity", "NoVgpuCapacity", 1),
        ("no-licence", "NoLicence", 1),
        ("quota-exceeded", "QuotaExceeded", 1),
        ("image-missing", "ImageMissing", 99),
    ],
)
def test_a_failed_node_is_listed_with_its_error_until_it_is_deleted(
    services: Services, provider: Provider, refusal_there: str, code: str, error_class: int
) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=2)
    refuse(services, nodes(services)[0], refusal_there)
    first, second = provider_ids(services)
    assert provider.instances(GROUP) == {first: (CREATING, code, error_class), second: (CREATING, "", 0)}
    autoscaler = Autoscaler(provider)
    autoscaler.loop()
    assert autoscaler.failures == [code]
    assert list(provider.instances(GROUP)) == [second]
    assert size(provider) == 1


@pytest.mark.parametrize(("minimum", "listed"), [(0, 3), (1, 3), (2, 2), (4, 0)])
def test_failed_nodes_that_the_minimum_needs_are_not_deleted_again_and_again(
    services: Services, provider: Provider, minimum: int, listed: int
) -> None:
    provider.call("NodeGroupIncreaseSize", id=GROUP, delta=4)
    make_vm(services, nodes(services)[0])
    for node in nodes(services)[1:]:
        refuse(services, node, "no-capacity")
    with services.store.transaction() as session:
        session.put_node_pool(replace(session.node_pool("acme", "gpu"), minimum=minimum))
    autoscaler = Autoscaler(provider)
    for _ in range(3):
        autoscaler.loop()
    assert len(autoscaler.failures) == listed
    assert size(provider) == 4 - listed


@pytest.mark.parametrize("release", Release)
def test_a_pool_grows_from_zero_for_every_release(services: Services, release: Release) -> None:
    with provider_of(services, release=release) as provider:
        autoscaler = Autoscaler(provider)
        assert provider.template(GROUP).status.allocatable["nvidia.com/gpu"].string == "1"
        autoscaler.loop(pending=1)
        assert size(provider, "acme/main/big/default") == 1


def test_a_thousand_pending_pods_want_no_more_than_the_maximum(services: Services, provider: Provider) -> None:
    autoscaler = Autoscaler(provider)
    for _ in range(4):
        autoscaler.loop(pending=1000)
    assert (size(provider), size(provider, "acme/main/big/default")) == (4, 2)
    autoscaler.loop(pending=1000)
    assert (len(nodes(services)), len(nodes(services, "big"))) == (4, 2)


def test_a_node_that_never_registers_is_deleted_by_the_autoscaler(services: Services, provider: Provider) -> None:
    autoscaler = Autoscaler(provider)
    autoscaler.loop(pending=1)
    (node,) = nodes(services, "big")
    make_vm(services, node)
    autoscaler.loop()
    assert size(provider, "acme/main/big/default") == 1
    autoscaler.now += 901
    autoscaler.loop()
    assert size(provider, "acme/main/big/default") == 0
    assert nodes(services, "big")[0].is_drained
