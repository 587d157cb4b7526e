# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the API server of a tenant's cluster: nodes, pods, evictions with budgets, over HTTP on loopback.

It keeps objects and changes them as the API does: merge patches with a resourceVersion, uids as preconditions,
evictions refused by 429 while a budget does not allow them, paged lists, bearer tokens. Beside the API it has no
behaviour: no kubelet, no scheduler, no admission, no validation; a test registers the Node object in the guest's place.
"""

import contextlib
import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-tenants-token"
_NODE = re.compile(r"/api/v1/nodes/([^/]+)")
_EVICTION = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction")


class KubernetesApi:
    """The objects of one cluster. requests: `METHOD PATH` of each change that was asked for, in order.

    kept: pods that a disruption budget keeps. broken: what the next answers are instead, as (status, body).
    before: called with the method and path of each request before it is answered.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.pods: dict[tuple[str, str], Any] = {}
        self.requests: list[str] = []
        self.kept: set[str] = set()
        self.broken: list[tuple[int, bytes]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.address = ""
        self._version = 0
        self.lock = threading.RLock()

    def add_node(self, name: str, provider_id: str, *, is_ready: bool = True, unschedulable: bool = False) -> None:
        """Register a node, as its kubelet would."""
        with self.lock:
            self.nodes[name] = {
                "metadata": {
                    "name": name, "uid": f"node-{self._next()}", "resourceVersion": self._next(),
                    "annotations": {}, "labels": {},
                },
                "spec": {"providerID": provider_id, "unschedulable": unschedulable},
                "status": {
                    "conditions": [{"type": "Ready", "status": str(is_ready), "message": "kubelet says so"}],
                    "allocatable": {"cpu": "4", "nvidia.com/gpu": "1"},
                },
            }  # fmt: skip

    def add_pod(self, name: str, node: str, *, owner: str | None = "ReplicaSet", phase: str = "Running") -> None:
        """A pod of the namespace `ml` on a node."""
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}]
        with self.lock:
            self.pods["ml", name] = {
                "metadata": {
                    "name": name, "namespace": "ml", "uid": f"pod-{self._next()}",
                    "resourceVersion": self._next(), "ownerReferences": owners if owner else [],
                },
                "spec": {"nodeName": node, "containers": [{"name": "c"}]},
                "status": {"phase": phase},
            }  # fmt: skip

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig of the tenant for this server."""
        return kubeconfig_of(self.address)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """The status and the object of one request."""
        with self.lock:
            self.before(method, path)
            if self.broken:
                return self.broken.pop(0)
            if method != "GET":
                self.requests.append(f"{method} {path}")
            if path == "/api/v1/nodes" and method == "GET":
                return 200, self._page("NodeList", list(self.nodes.values()), query)
            if path == "/api/v1/pods" and method == "GET":
                wanted = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
                return 200, self._page("PodList", [one for one in self.pods.values()
                                                   if wanted in ("", one["spec"]["nodeName"])], query)  # fmt: skip
            if (found := _NODE.fullmatch(path)) and found[1] in self.nodes:
                return self._on_node(method, found[1], body)
            if (found := _EVICTION.fullmatch(path)) and method == "POST" and (found[1], found[2]) in self.pods:
                if _is_of_another(self.pods[found[1], found[2]], body.get("deleteOptions")):
                    return 409, status_object(409, "the UID in the precondition is another one")
                if found[2] in self.kept:
                    return 429, status_object(429, "Cannot evict pod as it would violate the pod's disruption budget.")
                del self.pods[found[1], found[2]]
                return 201, status_object(201, "Success")
            return 404, status_object(404, f"{path} not found")

    def _on_node(self, method: str, name: str, body: Any) -> tuple[int, Any]:
        node = self.nodes[name]
        if method == "DELETE":
            if _is_of_another(node, body):
                return 409, status_object(409, "the UID in the precondition is another one")
            del self.nodes[name]
            return 200, status_object(200, "Success")
        if method == "PATCH":
            if body["metadata"].pop("resourceVersion", None) not in (None, node["metadata"]["resourceVersion"]):
                return 409, status_object(409, "the object has been modified")
            _merge(node, body)
            node["metadata"]["resourceVersion"] = self._next()
        return 200, copy.deepcopy(node)

    def _page(self, kind: str, items: list[Any], query: dict[str, str]) -> Any:
        begin, size = int(query.get("continue", "0")), int(query.get("limit", "500"))
        rest = {"continue": str(begin + size)} if begin + size < len(items) else {}
        return {"kind": kind, "metadata": {"resourceVersion": "1", **rest}, "items": items[begin : begin + size]}

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _is_of_another(found: Any, options: Any) -> bool:
    """True if the precondition of a DeleteOptions does not fit the object."""
    uid = ((options or {}).get("preconditions") or {}).get("uid")
    return uid is not None and uid != found["metadata"]["uid"]


def status_object(code: int, message: str) -> Any:
    """The Status object of an answer."""
    kind = "Success" if code < 400 else "Failure"
    return {"kind": "Status", "apiVersion": "v1", "status": kind, "message": message, "code": code}


def kubeconfig_of(address: str) -> str:
    """A kubeconfig for a server of this file."""
    return json.dumps(
        {
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        }
    )  # fmt: skip


Answer = Callable[[str, str, dict[str, str], Any], tuple[int, Any]]
"""From the method, path, query and body of a request to a status and an object; bytes are sent as they are."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Answer

    def _do(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(size) if size else b""
        url = urlsplit(self.path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, answer = 401, status_object(401, "Unauthorized")
        else:
            is_merge = self.headers["Content-Type"] == "application/merge-patch+json"
            assert is_merge == (self.command == "PATCH"), self.headers["Content-Type"]
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            status, answer = type(self).answer(self.command, url.path, query, json.loads(sent) if sent else None)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving_api(answer: Answer) -> Iterator[str]:
    """Serve these answers over HTTP on loopback during the block. Yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"answer": staticmethod(answer)}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    """Serve an empty cluster during the block."""
    api = KubernetesApi()
    with serving_api(api.answer) as api.address:
        yield api
