# SPDX-License-Identifier: Apache-2.0
"""The join files of each role: of the form that its program reads, with the secrets only where they belong."""

from dataclasses import replace

import pytest
import yaml

from tests.unit.node_config.pools import HASH, MUNGE_KEY, TOKEN, VM_UUID, pool_of, problems
from vgpuctl.errors import StateError
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.licence import Edition
from vgpuctl.model.node_pool import NodePool, NodeRole, Taint, TaintEffect
from vgpuctl.node_config.join.files import Joining, NodeFile
from vgpuctl.node_config.join.setup import (
    NodeSetup,
    has_join,
    node_setup,
    refuse_expired,
    show_digest,
    write_for_guest,
)
from vgpuctl.node_config.labels import template_labels

TAINTS = (
    Taint("nvidia.com/gpu", "present", TaintEffect.NO_SCHEDULE),
    Taint("dedicated", "", TaintEffect.NO_EXECUTE),
)
PROVIDER_ID = f"vgpuctl://default/acme/{VM_UUID}"


def setup_of(pool: NodePool, *, shown: bool = False) -> NodeSetup:
    joining = Joining(pool, "gpu-001", VM_UUID, template_labels(pool))
    return node_setup(joining, show_digest if shown else write_for_guest)


def files_of(pool: NodePool) -> dict[str, NodeFile]:
    return {one.path: one for one in setup_of(pool).files}


def test_kubeadm_gets_a_join_configuration() -> None:
    (file,) = setup_of(pool_of(NodeRole.KUBEADM, taints=TAINTS)).files
    document = yaml.safe_load(file.content)
    assert problems("kubeadm-join", document) == []
    assert file.mode == "0600", "it holds the token"
    assert document["discovery"]["bootstrapToken"] == {
        "apiServerEndpoint": "10.0.0.2:6443",
        "token": TOKEN,
        "caCertHashes": [HASH],
    }
    node = document["nodeRegistration"]
    assert node["name"] == "gpu-001"
    assert node["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "dedicated", "effect": "NoExecute"},
    ]
    arguments = {one["name"]: one["value"] for one in node["kubeletExtraArgs"]}
    assert arguments["provider-id"] == PROVIDER_ID
    assert "node.kubernetes.io/instance-type=A40-24Q" in arguments["node-labels"].split(",")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"token": "short"}, ("discovery", "bootstrapToken")),
        ({"caCertHashes": []}, ("discovery", "bootstrapToken")),
        ({"unsafeSkipCAVerification": True}, ("discovery", "bootstrapToken")),
        ({"kubeletExtraArgs": {"node-labels": "a=b"}}, ("nodeRegistration",)),
        ({"name": "GPU_1"}, ("nodeRegistration",)),
    ],
)
def test_the_schema_of_kubeadm_refuses_other_forms(change: dict[str, object], where: tuple[str, ...]) -> None:
    document = yaml.safe_load(setup_of(pool_of(NodeRole.KUBEADM)).files[0].content)
    inner = document
    for key in where:
        inner = inner[key]
    inner.update(change)
    assert problems("kubeadm-join", document)


@pytest.mark.parametrize("role", [NodeRole.K3S, NodeRole.RKE2])
def test_k3s_and_rke2_get_a_file_beside_config_yaml_and_the_token_in_its_own(role: NodeRole) -> None:
    files = files_of(pool_of(role, taints=TAINTS))
    folder = f"/etc/rancher/{role}"
    assert list(files) == [f"{folder}/vgpuctl-token", f"{folder}/config.yaml.d/50-vgpuctl.yaml"]
    assert {one.mode for one in files.values()} == {"0600"}
    assert files[f"{folder}/vgpuctl-token"].content == f"{TOKEN}\n"
    text = files[f"{folder}/config.yaml.d/50-vgpuctl.yaml"].content
    document = yaml.safe_load(text)
    assert problems("rancher-agent", document) == []
    assert TOKEN not in text
    assert document["kubelet-arg+"] == [f"provider-id={PROVIDER_ID}"]
    assert document["node-taint+"] == ["nvidia.com/gpu=present:NoSchedule", "dedicated=:NoExecute"]


def test_the_schema_of_agents_refuses_one_without_provider_id() -> None:
    (_, file) = setup_of(pool_of()).files
    document = yaml.safe_load(file.content)
    document["kubelet-arg+"] = ["max-pods=10"]
    assert problems("rancher-agent", document)


def test_slurm_gets_its_munge_key_and_the_options_of_slurmd() -> None:
    files = files_of(pool_of(NodeRole.SLURM))
    key = files["/etc/munge/munge.key"]
    assert (key.mode, key.owner, key.is_base64, key.content) == ("0400", "munge:munge", True, MUNGE_KEY)
    for path in ("/etc/default/slurmd", "/etc/sysconfig/slurmd"):
        assert 'SLURMD_OPTIONS="--conf-server slurm.example:6817 -N gpu-001"\n' in files[path].content


@pytest.mark.parametrize("role", list(NodeRole))
def test_what_people_see_has_digests_in_the_place_of_secrets(role: NodeRole) -> None:
    shown = "".join(one.content for one in setup_of(pool_of(role), shown=True).files)
    assert TOKEN not in shown
    assert MUNGE_KEY not in shown
    assert "sha256:" in shown


@pytest.mark.parametrize("role", list(NodeRole))
@pytest.mark.parametrize("field", ["token", "munge_key", "ca_cert_hash"])
def test_a_pool_without_what_its_role_needs_says_what_is_missing(role: NodeRole, field: str) -> None:
    pool = pool_of(role)
    if getattr(pool.join, field) is None:
        return
    incomplete = replace(pool, join=replace(pool.join, **{field: None}))
    with pytest.raises(StateError, match=f"it has no {field}") as refused:
        setup_of(incomplete)
    flag = {"token": "--join-token", "munge_key": "--munge-key", "ca_cert_hash": "--ca-cert-hash"}[field]
    assert flag in (refused.value.hint or "")


def test_an_expired_token_is_refused_by_name() -> None:
    pool = pool_of()
    pool = replace(pool, join=replace(pool.join, token_expires_at=1000.0))
    refuse_expired(pool, 999.0)
    with pytest.raises(StateError, match="the join token of node pool acme/gpu has expired"):
        refuse_expired(pool, 1000.0)


def test_a_pool_without_a_server_joins_by_other_means() -> None:
    pool = pool_of()
    by_itself = replace(pool, join=replace(pool.join, server=None))
    assert not has_join(by_itself)
    assert by_itself.request_of("gpu-001").has_seed is False
    assert pool.request_of("gpu-001").cloud_init.hostname == "gpu-001", "the node's name, and so it has a seed"


@pytest.mark.parametrize(("edition", "waits"), [(Edition.VWS, True), (None, False)])
def test_a_node_with_a_licence_joins_once_it_has_it(edition: Edition | None, waits: bool) -> None:
    pool = pool_of()
    driver = GuestDriver(DriverSource.IMAGE)
    setup = setup_of(replace(pool, request=replace(pool.request, licence=edition, guest_driver=driver)))
    assert (setup.waits_for_guest, setup.waits_for_licence) == (True, waits)
