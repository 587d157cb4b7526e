# SPDX-License-Identifier: Apache-2.0
"""A kubeconfig that a tenant gave: read strictly, since it comes from outside and vgpuctl acts by it.

The tenant chooses the server that vgpuctl connects to. So nothing in the file may run a program, read a file of this
machine or go through a proxy, and addresses that only this machine or its cloud can reach are refused. `extensions`, in
which other programs keep remarks (minikube does), are data that nothing reads: they are passed over.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lightkube import KubeConfig

from vgpuctl.clusters.kubernetes.server_address import VARIABLE, ClusterNetworks, is_loopback
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.secret_text import SecretText
from vgpuctl.specs.document import parse_document

_LONGEST = 65_536
_ROOT = {"apiVersion", "kind", "clusters", "users", "contexts", "current-context", "preferences"}
_CLUSTER = {"server", "certificate-authority-data"}
_USER = {"token", "client-certificate-data", "client-key-data"}
_CONTEXT = {"cluster", "user", "namespace"}
_REMARKS = "extensions"
_HINT = "write certificates, keys and the token into the file: `kubectl config view --raw --minify --flatten`"


def read_kubeconfig(secret: SecretText, networks: ClusterNetworks) -> KubeConfig:
    """The access of the current context. secret: the file, YAML or JSON. networks: where the server may be.

    Raises UsageError, which names the key.
    """
    text = secret.reveal()
    if len(text) > _LONGEST:
        raise UsageError(f"the kubeconfig has {len(text)} characters, more than {_LONGEST}", hint=_HINT)
    try:
        document = parse_document("the kubeconfig", text)
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint or _HINT) from error
    if document.warnings:
        raise UsageError(document.warnings[0], hint="write each key once")
    root = _mapping(document.data, "the kubeconfig", _ROOT)
    context = _named(root, "contexts", "context", root.get("current-context"), _CONTEXT)
    cluster = _named(root, "clusters", "cluster", context.get("cluster"), _CLUSTER)
    user = _named(root, "users", "user", context.get("user"), _USER)
    for name, value in (*cluster.items(), *user.items()):
        if not isinstance(value, str) or not value or not value.isprintable():
            raise UsageError(f"the kubeconfig's {name} is no text of one line", hint=_HINT)
    if "token" not in user and not {"client-certificate-data", "client-key-data"} <= user.keys():
        raise UsageError("the kubeconfig's user has neither a token nor a certificate with its key", hint=_HINT)
    if ("client-certificate-data" in user) != ("client-key-data" in user):
        raise UsageError("the kubeconfig's user has a certificate without its key, or a key alone", hint=_HINT)
    server = str(cluster.get("server", ""))
    _check_server(server, networks, has_authority="certificate-authority-data" in cluster)
    name = "current"
    return KubeConfig.from_dict(
        {
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
    )


def _check_server(server: str, networks: ClusterNetworks, *, has_authority: bool) -> None:
    hint = "write `server: https://HOST:PORT` with the address of the cluster's API server"
    try:
        url = urlsplit(server)
        host, _port = url.hostname or "", url.port
    except ValueError as error:
        raise UsageError("the kubeconfig's server is no address", hint=hint) from error
    if not host or url.username or url.password or url.query or url.fragment:
        raise UsageError("the kubeconfig's server is no address of an API server", hint=hint)
    refusal = networks.refusal_of_name(host)
    if refusal is not None:
        hint = f"the operator allows networks, loopback too, by {VARIABLE} (docs/kubernetes.md)"
        raise UsageError(f"the kubeconfig's server cannot be used: {refusal}", hint=hint)
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(host)):
        raise UsageError(f"the kubeconfig's server is reached by {url.scheme or 'no scheme'}, not by https", hint=hint)
    if url.scheme == "https" and not has_authority:
        raise UsageError("the kubeconfig has no certificate-authority-data", hint=_HINT)


def _named(root: Mapping[str, Any], plural: str, single: str, name: object, known: set[str]) -> Mapping[str, Any]:
    """The entry of a name in one of the lists."""
    entries = root.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        one = _mapping(entry, f"an entry of {plural}", {"name", single})
        if isinstance(name, str) and one.get("name") == name:
            return _mapping(one.get(single), f"{single} {name!a}", known)
    raise UsageError(f"the kubeconfig's current context names no {single} of its list {plural}", hint=_HINT)


def _mapping(value: object, what: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} is no mapping", hint=_HINT)
    unknown = sorted(f"{key!a}" for key in value if key not in known and key != _REMARKS)
    if unknown:
        raise UsageError(f"{what} has {', '.join(unknown)[:200]}, which vgpuctl does not use or trust", hint=_HINT)
    return {key: one for key, one in value.items() if key != _REMARKS}
