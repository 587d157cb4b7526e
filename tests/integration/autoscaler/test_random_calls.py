# SPDX-License-Identifier: Apache-2.0
"""Random sequences of calls and losses of VMs: no node is deleted that nobody named, and sizes stay in their bounds."""

from collections.abc import Iterator

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.autoscaler_client import DELETING, Provider, refusal
from tests.integration.autoscaler.pools import GROUP, lose_vm, make_vm, nodes, provider_of, stored_pools
from vgpuctl.usecases.running.services import Services

MAXIMUM = 4
Action = tuple[str, int]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["increase", "decrease", "delete", "delete again", "make", "lose"]), st.integers(0, 5)),
    max_size=12,
)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with stored_pools(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def provider(services: Services) -> Iterator[Provider]:
    with provider_of(services) as made:
        yield made


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(actions=ACTIONS)
def test_random_calls_keep_every_bound(services: Services, provider: Provider, actions: list[Action]) -> None:
    gone: list[str] = []
    for action, number in actions:
        before = _living(services)
        target = _target(provider)
        named: set[str] = set()
        if action == "increase":
            is_done = _tries(provider, "NodeGroupIncreaseSize", delta=number)
            assert is_done == (0 < number <= MAXIMUM - target)
            assert _target(provider) == target + number * is_done
        elif action == "decrease":
            waiting = {one.vm_uuid for one in nodes(services)} - _with_vm(services)
            is_done = _tries(provider, "NodeGroupDecreaseTargetSize", delta=-number)
            assert is_done == (0 < number <= len(waiting))
            named = waiting
            assert _target(provider) == target - number * is_done
        elif action in ("delete", "delete again"):
            ids = gone if action == "delete again" else sorted(before)[:number]
            assert _tries(provider, "NodeGroupDeleteNodes", nodes=[{"providerID": _id(one)} for one in ids])
            named = set(ids)
            assert _target(provider) == target - len(named & before)
            gone += ids
        elif action == "make":
            with_vm = _with_vm(services)
            for node in [one for one in nodes(services) if one.vm_uuid not in with_vm][:number]:
                make_vm(services, node)
        else:
            with_vm = _with_vm(services)
            lost = [one for one in nodes(services) if one.vm_uuid in with_vm][:number]
            named = {one.vm_uuid for one in lost}
            for node in lost:
                lose_vm(services, node)
        assert before - _living(services) <= named, "a node is let go that nobody named"
        listed = provider.instances(GROUP)
        assert 0 <= _target(provider) <= MAXIMUM
        assert _target(provider) >= sum(state != DELETING for state, _, _ in listed.values())
    for node in nodes(services):
        _tries(provider, "NodeGroupDeleteNodes", nodes=[{"providerID": _id(node.vm_uuid)}])
        if node.vm_uuid in _with_vm(services):
            lose_vm(services, node)
    assert provider.instances(GROUP) == {}


def _tries(provider: Provider, name: str, **values: object) -> bool:
    try:
        provider.call(name, id=GROUP, **values)
    except grpc.RpcError as error:
        assert refusal(error) in ("FAILED_PRECONDITION", "INVALID_ARGUMENT")
        return False
    return True


def _target(provider: Provider) -> int:
    return int(provider.call("NodeGroupTargetSize", id=GROUP).targetSize)


def _living(services: Services) -> set[str]:
    return {one.vm_uuid for one in nodes(services) if not one.is_leaving}


def _with_vm(services: Services) -> set[str]:
    with services.store.reading() as session:
        return {one.uuid for one in session.vms()}


def _id(uuid: str) -> str:
    return f"vgpuctl://default/acme/{uuid}"
