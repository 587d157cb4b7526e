# SPDX-License-Identifier: Apache-2.0
"""A tenant's kubeconfig: nothing in it runs a program, reads a file of this machine, or leads elsewhere."""

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.clusters.kubernetes.kubeconfig import read_kubeconfig
from vgpuctl.clusters.kubernetes.link import KubernetesLink
from vgpuctl.clusters.kubernetes.server_address import ClusterNetworks, parse_cluster_networks
from vgpuctl.errors import UsageError
from vgpuctl.model.secret_text import SecretText

GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "main",
    "clusters": [
        {"name": "c", "cluster": {"server": "https://10.0.0.2:6443", "certificate-authority-data": "Y2E="}},
        {"name": "unused", "cluster": {"server": "https://10.0.0.3"}},
    ],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
}


def _read(document: object) -> Any:
    return read_kubeconfig(SecretText.of(json.dumps(document)), ClusterNetworks())


def _cluster(**values: Any) -> Callable[[Any], None]:
    return lambda document: document["clusters"][0]["cluster"].update(values)


def _user(**values: Any) -> Callable[[Any], None]:
    return lambda document: document["users"][0]["user"].update(values)


def test_the_current_context_gives_the_access() -> None:
    config = _read(GOOD)
    assert config.clusters["current"].server == "https://10.0.0.2:6443"
    assert config.users["current"].token == "t"


def test_remarks_of_other_programs_are_passed_over() -> None:
    """minikube writes `extensions` into clusters and contexts."""
    document = copy.deepcopy(GOOD)
    remark = [{"name": "cluster_info", "extension": {"provider": "minikube.sigs.k8s.io", "server": "https://evil"}}]
    for part in (document, document["clusters"][0]["cluster"], document["contexts"][0]["context"]):
        part["extensions"] = remark
    document["users"][0]["user"]["extensions"] = remark
    assert _read(document).clusters["current"].server == "https://10.0.0.2:6443"


def test_an_operator_allows_loopback_and_plain_http_to_it() -> None:
    networks = parse_cluster_networks(["127.0.0.0/8", "10.0.0.0/8"])
    for server, is_fine in [
        ("http://127.0.0.1:6443", True), ("http://localhost:6443", True), ("https://10.1.2.3", True),
        ("http://10.1.2.3", False), ("https://192.168.1.1", False), ("https://[::1]", False),
    ]:  # fmt: skip
        document = copy.deepcopy(GOOD)
        document["clusters"][0]["cluster"]["server"] = server
        text = SecretText.of(json.dumps(document))
        with contextlib.nullcontext() if is_fine else pytest.raises(UsageError):
            assert read_kubeconfig(text, networks).clusters["current"].server == server


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_user(exec={"command": "/bin/sh"}), "'exec'"),
        (_user(tokenFile="/etc/shadow"), "'tokenFile'"),
        (_user(**{"client-key": "/root/.ssh/id_rsa"}), "'client-key'"),
        (_user(**{"auth-provider": {}}), "'auth-provider'"),
        (_user(token=7), "token is no text"),
        (_user(token="a\nb"), "token is no text"),
        (_user(**{"client-certificate-data": "Y2E="}), "without its key"),
        (_cluster(**{"insecure-skip-tls-verify": True}), "'insecure-skip-tls-verify'"),
        (_cluster(**{"tls-server-name": "x"}), "'tls-server-name'"),
        (_cluster(**{"proxy-url": "http://evil"}), "'proxy-url'"),
        (_cluster(**{"certificate-authority": "/etc/passwd"}), "'certificate-authority'"),
        (_cluster(server="http://10.0.0.2:6443"), "not by https"),
        (_cluster(server="https://169.254.169.254"), "is not an address of a cluster"),
        (_cluster(server="https://127.0.0.1:6443"), "127.0.0.1 is this machine"),
        (_cluster(server="http://localhost:6443"), "127.0.0.1 is this machine"),
        (_cluster(server="https://2852039166"), "not four decimal numbers"),
        (_cluster(server="https://u:p@10.0.0.2"), "no address of an API server"),
        (_cluster(server="https://10.0.0.2:99999999"), "no address"),
        (_cluster(server="file:///etc/passwd"), "no address of an API server"),
        (lambda document: document["users"][0].update(user={}), "neither a token nor a certificate"),
        (lambda document: document["clusters"][0]["cluster"].pop("certificate-authority-data"), "no certificate-"),
        (lambda document: document.update({"current-context": "none"}), "names no context"),
        (lambda document: document.update(clusters={}), "names no cluster"),
        (lambda document: document.update(extras=[]), "'extras'"),
    ],
)
def test_what_is_not_trusted_is_refused_by_name(change: Callable[[Any], None], words: str) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(UsageError) as caught:
        _read(document)
    assert words in caught.value.message


@pytest.mark.parametrize(
    "change",
    [
        _cluster(),
        _cluster(**{"certificate-authority-data": "%"}),
        _user(**{"client-certificate-data": "Y2E=", "client-key-data": "Y2E="}),
    ],
)
def test_certificates_that_are_none_are_refused_before_they_are_used(change: Callable[[Any], None]) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(UsageError, match="cannot be used"):
        KubernetesLink(_read(document), tenant="acme", name="main")


@pytest.mark.parametrize(
    "text", ["", "a: [", "- 1", "x" * 70_000, "\x00", "!!python/object:os.system {}", "a: 1\na: 2"]
)
def test_text_that_is_no_kubeconfig_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_kubeconfig(SecretText.of(text), ClusterNetworks())


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(["clusters", "users", "contexts", "current-context", "kind"]), _VALUES)
def test_any_value_gives_an_access_or_an_error_for_people(key: str, value: object) -> None:
    try:
        _read({**GOOD, key: value})
    except UsageError as error:
        assert error.message


@given(st.text(max_size=60))
def test_any_server_gives_an_access_or_an_error_for_people(server: str) -> None:
    document = copy.deepcopy(GOOD)
    _cluster(server=server)(document)
    try:
        _read(document)
    except UsageError as error:
        assert error.message
