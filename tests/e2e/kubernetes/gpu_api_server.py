# SPDX-License-Identifier: Apache-2.0
"""The API server of tests/unit/usecases/kubernetes/gpu_cluster.py behind HTTP: the requests of serve-extender alone."""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster
from vgpuctl.errors import ClusterConflict, ClusterMissing, ClusterRefused

TOKEN = "a-token"
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding)?")
_NODE = re.compile(r"/api/v1/nodes/([^/]+)")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: GpuCluster
    lock: threading.Lock

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _do(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, _status(401, "Unauthorized"))
            return
        try:
            with self.lock:
                answer = self._call(self.path.partition("?")[0], body)
            self._answer(200, answer)
        except ClusterMissing as error:
            self._answer(404, _status(404, error.message))
        except ClusterConflict as error:
            self._answer(409, _status(409, error.message))
        except ClusterRefused as error:
            self._answer(403, _status(403, error.message))

    def do_GET(self) -> None:
        """Read."""
        self._do()

    def do_POST(self) -> None:
        """Create."""
        self._do()

    def do_PATCH(self) -> None:
        """Merge."""
        self._do()

    def _call(self, path: str, body: Any) -> Any:
        cluster = self.cluster
        lists = {
            "/api/v1/nodes": ("NodeList", cluster.list_nodes),
            "/api/v1/pods": ("PodList", cluster.list_pods),
            "/apis/policy/v1/poddisruptionbudgets": ("PodDisruptionBudgetList", cluster.list_disruption_budgets),
        }
        if path in lists:
            kind, read = lists[path]
            return {"kind": kind, "metadata": {"resourceVersion": "1"}, "items": list(read())}
        if found := _NODE.fullmatch(path):
            if self.command == "PATCH":
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                cluster.patch_node(found[1], body)
            return cluster.get_node(found[1])
        if (found := _POD.fullmatch(path)) is None:
            raise ClusterMissing(f"{path} is unknown")
        namespace, name, binding = found.groups()
        if binding:
            assert (body["kind"], body["target"]["kind"]) == ("Binding", "Node")
            cluster.bind_pod(namespace, name, body["metadata"]["uid"], body["target"]["name"])
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if self.command == "PATCH":
            cluster.patch_pod(namespace, name, body)
        return cluster.get_pod(namespace, name)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def _status(code: int, message: str) -> Any:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


@contextlib.contextmanager
def served(cluster: GpuCluster, folder: Path) -> Iterator[Path]:
    """Serve a cluster during the block. Yields a kubeconfig with the right token."""
    handler = type("Handler", (_Handler,), {"cluster": cluster, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    file = folder / "kubeconfig.json"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "main",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )  # fmt: skip
    try:
        yield file
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
