# SPDX-License-Identifier: Apache-2.0
"""serve extender: the real command with TLS in front of an API server over HTTP, killed and started again."""

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubernetes.gpu_api_server import served
from tests.kubernetes_api import TOKEN
from tests.self_signed import make_certificate
from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster
from vgpuctl.clusters.kubernetes import hami


@pytest.fixture
def cluster() -> GpuCluster:
    made = GpuCluster()
    for name in ("n1", "n2"):
        made.add_node(name, 2)
    return made


@pytest.fixture
def kubeconfig(cluster: GpuCluster, tmp_path: Path) -> Iterator[Path]:
    with served(cluster, tmp_path) as file:
        yield file


@pytest.fixture
def web_config(tmp_path: Path) -> Path:
    """TLS that demands kube-scheduler's certificate."""
    for name in ("server", "client", "stranger"):
        make_certificate(tmp_path, name, name)
    file = tmp_path / "web.yml"
    file.write_text(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.pem\n"
    )
    return file


@dataclass
class Running:
    """One process, and requests to it as kube-scheduler makes them."""

    process: "subprocess.Popen[str]"
    port: int
    folder: Path

    def request(self, method: str, path: str, body: bytes = b"", client: str = "client") -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=str(self.folder / "server.pem"))
        context.load_cert_chain(self.folder / f"{client}.pem", self.folder / f"{client}.key")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=120)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def post(self, verb: str, body: Any) -> Any:
        status, text = self.request("POST", f"/v1/{verb}", json.dumps(body).encode())
        assert status == 200, text
        return json.loads(text)

    def schedule(self, cluster: GpuCluster, name: str) -> str:
        """Filter, prioritize and bind; return the node."""
        pod = cluster.pods[name]
        fitting = self.post("filter", {"Pod": pod, "NodeNames": sorted(cluster.nodes)})["NodeNames"]
        scores = self.post("prioritize", {"Pod": pod, "NodeNames": fitting})
        best: str = max(scores, key=lambda one: one["Score"])["Host"]
        bind = {"PodName": name, "PodNamespace": "ml", "PodUID": f"uid-{name}", "Node": best}
        assert self.post("bind", bind) == {"Error": ""}
        return best


@contextlib.contextmanager
def running(kubeconfig: Path, web_config: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "vgpuctl", "serve", "extender", "--listen", "127.0.0.1:0", "--json"),
            *("--kubeconfig", str(kubeconfig), "--web-config", str(web_config), "--refresh", "0.2"),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = []
        while not (line := process.stderr.readline()).startswith("serving on "):
            lines.append(line)
            assert line, lines
        yield Running(process, int(line.rpartition(":")[2].partition("/")[0]), web_config.parent)
    finally:
        process.kill()
        process.communicate()


def test_pods_are_placed_through_a_kill(cluster: GpuCluster, kubeconfig: Path, web_config: Path) -> None:
    cluster.add_pod("a", mem=30_000, cores=50)
    cluster.add_pod("b", mem=30_000, cores=50)
    with running(kubeconfig, web_config) as first:
        node = first.schedule(cluster, "a")
        assert cluster.allocate(node) == [(f"{node}-0", 30_000, 50)]
    with running(kubeconfig, web_config) as second:
        assert second.schedule(cluster, "b") == node
        # The device that the first process gave is not given again.
        assert cluster.allocate(node) == [(f"{node}-1", 30_000, 50)]
        assert hami.LOCK not in cluster.nodes[node]["metadata"]["annotations"]
        status, text = second.request("GET", "/metrics")
        assert status == 200
        assert b"\nvgpuctl_extender_bind_total 1\n" in text
        assert b'vgpuctl_extender_request_seconds_count{verb="filter"} 1\n' in text
        assert second.request("GET", "/healthz") == (200, b"ok\n")
        second.process.terminate()
        assert second.process.wait(60) == 0


def test_a_pod_that_is_gone_gives_back(cluster: GpuCluster, kubeconfig: Path, web_config: Path) -> None:
    cluster.add_pod("a", gpu=2, cores=100)
    cluster.add_pod("b", gpu=2, cores=100)
    cluster.add_pod("c", gpu=2, cores=100)
    with running(kubeconfig, web_config) as extender:
        for name in ("a", "b"):
            cluster.allocate(extender.schedule(cluster, name))
        wanted = {"Pod": cluster.pods["c"], "NodeNames": ["n1", "n2"]}
        assert extender.post("filter", wanted)["NodeNames"] == []
        freed = cluster.pods.pop("a")["spec"]["nodeName"]
        fitting: list[str] = []
        while not fitting:
            assert extender.process.poll() is None
            fitting = extender.post("filter", wanted)["NodeNames"]
        assert fitting == [freed]


def test_only_the_scheduler_is_answered(cluster: GpuCluster, kubeconfig: Path, web_config: Path) -> None:
    with running(kubeconfig, web_config) as extender:
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            extender.request("GET", "/healthz", client="stranger")
        assert extender.request("GET", "/v1/filter")[0] == 405
        assert extender.request("POST", "/v1/other")[0] == 404
        for body in (b"", b"[" * 500_000, b'{"Pod":' * 100_000, b"\xff" * 1000):
            status, text = extender.request("POST", "/v1/filter", body)
            assert status == 200
            assert json.loads(text)["Error"]
        assert extender.request("GET", "/healthz") == (200, b"ok\n")


def _fails(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "vgpuctl", "serve", "extender", "--listen", "127.0.0.1:0", *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_second_scheduler_is_refused(cluster: GpuCluster, kubeconfig: Path) -> None:
    cluster.add_pod("sched", labels={"app.kubernetes.io/component": "hami-scheduler"})
    code, said = _fails("--kubeconfig", str(kubeconfig))
    assert code == 12
    assert "HAMi's own scheduler" in said


def test_an_api_server_that_cannot_be_used_is_an_error(kubeconfig: Path, tmp_path: Path) -> None:
    text = kubeconfig.read_text()
    kubeconfig.write_text(text.replace(TOKEN, "wrong"))
    code, said = _fails("--kubeconfig", str(kubeconfig))
    assert (code, "Unauthorized" in said) == (12, True)
    lost = json.loads(text)
    lost["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    kubeconfig.write_text(json.dumps(lost))
    code, said = _fails("--kubeconfig", str(kubeconfig))
    assert (code, "did not answer" in said) == (12, True)
    for broken in ("{", "[]", "x: [", "{}"):
        kubeconfig.write_text(broken)
        assert _fails("--kubeconfig", str(kubeconfig))[0] == 2
    assert _fails("--kubeconfig", str(tmp_path / "absent"))[0] == 2
    assert _fails()[0] == 2


def test_the_configuration_is_printed() -> None:
    command = [sys.executable, "-m", "vgpuctl", "serve", "extender", "--print-config"]
    done = subprocess.run([*command, "https://x.example:9638/v1"], capture_output=True, text=True, check=True)
    config = yaml.safe_load(done.stdout)
    assert config["kind"] == "KubeSchedulerConfiguration"
    [extender] = config["extenders"]
    assert extender["urlPrefix"] == "https://x.example:9638/v1"
    assert (extender["nodeCacheCapable"], extender["ignorable"], extender["enableHTTPS"]) == (True, False, True)
    assert extender["weight"] > 0 and "managedResources" not in extender
    as_json = subprocess.run([*command, "https://x.example:9638/v1", "--json"], capture_output=True, check=True)
    assert json.loads(as_json.stdout) == config
    for wrong in ("x.example", "ftp://x", 'https://x/"'):
        refused = subprocess.run([*command, wrong], capture_output=True, text=True, check=False)
        assert (refused.returncode, "is no URL" in refused.stderr) == (2, True)
