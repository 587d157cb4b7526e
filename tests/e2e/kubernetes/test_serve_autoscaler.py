# SPDX-License-Identifier: Apache-2.0
"""serve autoscaler: a cluster-autoscaler makes nodes appear on simulated hosts and lets them go again."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import vgpuctl_lab as lab
from tests.autoscaler_client import CREATING, DELETING, RUNNING, Autoscaler, Provider
from tests.certificates import make_authority
from tests.e2e.kills import kill_after
from tests.e2e.node.pools import ONCE, nothing_is_left, vms
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator

__all__ = ["nothing_is_left", "operator"]
FLEET = (2, "a40")
GROUP = "acme/main/gpu/default"
_PORT = re.compile(r"serving the autoscaler of \S+ on \S+:([0-9]+), ")


def create_host_pool(operator: Operator, name: str, gpu: str, *options: str, maximum: int = 4) -> None:
    operator.does(
        *("create-node-pool", name, *ACME, "--role", "k3s", "--max", str(maximum), "--gpu", gpu, *SIZE, *options)
    )


@contextlib.contextmanager
def endpoint(operator: Operator, *options: str) -> Iterator[int]:
    """Run `vgpuctl serve autoscaler` on a free port during the block; it must end well when it is told to."""
    process = operator.start("serve", "autoscaler", *ACME, "--listen", "127.0.0.1:0", *options)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            found = _PORT.search(line)
            if found is not None:
                break
        else:
            raise AssertionError("".join(said))
        yield int(found[1])
        process.terminate()
        assert process.wait(60) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def provider_of(operator: Operator, *options: str) -> Iterator[Provider]:
    with endpoint(operator, *options) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Provider(channel)


def join(operator: Operator, autoscaler: Autoscaler) -> None:
    """Let every running VM register with its provider id, as its kubelet does."""
    autoscaler.nodes = {name: f"vgpuctl://default/acme/{vm['uuid']}" for name, vm in vms(operator).items()}


def test_pending_pods_make_nodes_from_zero_and_idle_ones_are_deleted(operator: Operator) -> None:
    create_host_pool(operator, "gpu", "A40-24Q", "--label", "team=vision")
    with provider_of(operator) as provider:
        autoscaler = Autoscaler(provider)
        template = provider.template(GROUP)
        assert template.metadata.labels["team"] == "vision"
        assert template.status.allocatable["nvidia.com/gpu"].string == "1"
        autoscaler.loop(pending=2)
        autoscaler.loop(pending=2)
        assert vms(operator) == {}, "the calls only wrote the store"
        operator.does(*ONCE)
        assert list(vms(operator)) == ["gpu-001", "gpu-002"]
        join(operator, autoscaler)
        autoscaler.loop()
        assert [one[:2] for one in provider.instances(GROUP).values()] == [(RUNNING, ""), (RUNNING, "")]
        autoscaler.idle = {"gpu-001"}
        autoscaler.loop()
        operator.does(*ONCE)
        assert list(vms(operator)) == ["gpu-002"]
        del autoscaler.nodes["gpu-001"]
        autoscaler.loop()
        assert len(provider.instances(GROUP)) == 1
        assert provider.call("NodeGroupTargetSize", id=GROUP).targetSize == 1
    events = operator.json("list-events", "acme/gpu-001")
    assert "the autoscaler deletes it" in [one["detail"] for one in events if one["kind"] == "node-let-go"]


def test_a_full_fleet_sends_the_autoscaler_to_another_group(operator: Operator) -> None:
    create_host_pool(operator, "big", "A40-48Q")
    create_host_pool(operator, "other", "A40-48Q", maximum=1)
    with provider_of(operator) as provider:
        autoscaler = Autoscaler(provider)
        autoscaler.loop(pending=3)
        operator.does(*ONCE)
        join(operator, autoscaler)
        group = "acme/main/big/default"
        (failed,) = [one for one in provider.instances(group).values() if one[1]]
        assert failed == (CREATING, "NoVgpuCapacity", 1)
        autoscaler.loop(pending=1)
        assert autoscaler.failures == ["NoVgpuCapacity"]
        assert provider.call("NodeGroupTargetSize", id=group).targetSize == 2
        autoscaler.loop(pending=1)
        assert provider.call("NodeGroupTargetSize", id="acme/main/other/default").targetSize == 1


def test_a_tenant_at_its_quota_hears_so(operator: Operator) -> None:
    create_host_pool(operator, "gpu", "A40-24Q")
    operator.does("set-quota", "acme", "vms=1")
    try:
        with provider_of(operator) as provider:
            autoscaler = Autoscaler(provider)
            autoscaler.loop(pending=2)
            operator.does(*ONCE)
            assert sorted(one[1:] for one in provider.instances(GROUP).values()) == [("", 0), ("QuotaExceeded", 1)]
            join(operator, autoscaler)
            autoscaler.loop(pending=1)
            assert autoscaler.failures == ["QuotaExceeded"]
            assert provider.call("NodeGroupTargetSize", id=GROUP).targetSize == 1
    finally:
        operator.does("set-quota", "acme", "vms=none")


_EARLIER = pytest.mark.long(
    "tests/e2e/kubernetes/test_serve_autoscaler.py::"
    "test_a_controller_killed_in_between_changes_nothing_for_the_autoscaler"
)


@pytest.mark.parametrize("effect", [pytest.param("1", marks=_EARLIER), "4"])
def test_a_controller_killed_in_between_changes_nothing_for_the_autoscaler(operator: Operator, effect: str) -> None:
    create_host_pool(operator, "gpu", "A40-24Q")
    with provider_of(operator) as provider:
        autoscaler = Autoscaler(provider)
        autoscaler.loop(pending=2)
        kill_after(operator, effect, *ONCE)
        autoscaler.loop(pending=2)
        operator.does("repair")
        operator.does(*ONCE)
        autoscaler.loop(pending=2)
        operator.does(*ONCE)
        assert provider.call("NodeGroupTargetSize", id=GROUP).targetSize == 2
        assert sorted(vms(operator)) == ["gpu-001", "gpu-002"]
        assert [one[:2] for one in provider.instances(GROUP).values()] == [(RUNNING, ""), (RUNNING, "")]


def test_a_restarted_endpoint_knows_what_was_asked_before(operator: Operator) -> None:
    create_host_pool(operator, "gpu", "A40-24Q")
    with provider_of(operator) as provider:
        Autoscaler(provider).loop(pending=3)
        before = provider.instances(GROUP)
    with provider_of(operator) as provider:
        assert provider.call("NodeGroupTargetSize", id=GROUP).targetSize == 3
        assert provider.instances(GROUP) == before


def test_no_call_waits_for_a_host(operator: Operator, fleet: lab.LabFolder) -> None:
    create_host_pool(operator, "gpu", "A40-24Q")
    with provider_of(operator) as provider:
        autoscaler = Autoscaler(provider)
        autoscaler.loop(pending=2)
        operator.does(*ONCE)
        join(operator, autoscaler)
        dead = vms(operator)["gpu-001"]["host"]
        lab.faults.begin(dead, "sshd", folder=fleet)
        try:
            autoscaler.loop(pending=1)
            assert provider.call("NodeGroupTargetSize", id=GROUP).targetSize == 3
            autoscaler.idle = {"gpu-001"}
            autoscaler.loop()
            assert provider.call("NodeGroupTargetSize", id=GROUP).targetSize == 2
            assert provider.instances(GROUP)[autoscaler.nodes["gpu-001"]][0] == DELETING
            operator.run(*ONCE)
            assert provider.instances(GROUP)[autoscaler.nodes["gpu-001"]][0] == DELETING, "its host cannot delete it"
        finally:
            lab.faults.clear(dead, folder=fleet)
        operator.does("repair")
        operator.does(*ONCE)
        assert autoscaler.nodes["gpu-001"] not in provider.instances(GROUP)


def test_clusters_and_tenants_are_apart_and_certificates_decide(operator: Operator, tmp_path: Path) -> None:
    create_host_pool(operator, "gpu", "A40-24Q")
    create_host_pool(operator, "lab", "A40-24Q", "--cluster", "lab")
    authority = make_authority(tmp_path)
    key, certificate = authority.issue("server", "vgpuctl")
    client_key, client_certificate = authority.issue("client", "acme")
    files = ("--key", str(key), "--cert", str(certificate), "--client-ca", str(authority.certificate))
    with endpoint(operator, "--cluster", "lab", *files) as port:
        credentials = grpc.ssl_channel_credentials(
            *(one.read_bytes() for one in (authority.certificate, client_key, client_certificate))
        )
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            groups = Provider(channel).call("NodeGroups").nodeGroups
            assert [one.id for one in groups] == ["acme/lab/lab/default"]
    refused = operator.is_refused("serve", "autoscaler", *ACME, "--cluster", "none")
    assert refused["reference"] == "not-found"
    assert operator.is_refused("serve", "autoscaler", *ACME, "--key", str(key))["reference"] == "usage"
    assert "can be reached by others" in operator.is_refused("serve", "autoscaler", *ACME, "--listen", ":0")["message"]


def test_the_autoscalers_configuration_is_printed(operator: Operator) -> None:
    create_host_pool(operator, "gpu", "A40-24Q", "--join-timeout", "20m")
    printed = operator.json("serve", "autoscaler", *ACME, "--print", "--advertise", "vgpuctl.example:8086")
    assert printed["cloud_config"] == "address: vgpuctl.example:8086\n"
    assert printed["flags"] == [
        "--cloud-provider=externalgrpc",
        "--cloud-config=/etc/vgpuctl-autoscaler/cloud-config.yaml",
        "--max-node-provision-time=1200s",
    ]
    text = operator.does("serve", "autoscaler", *ACME, "--print").out
    assert text.startswith("address: 127.0.0.1:8086\n# --cloud-provider=externalgrpc\n")
