# SPDX-License-Identifier: Apache-2.0
"""The openb trace replayed through the extender's HTTP interface: `extender_http.py FOLDER [--seeds N] [--hami]`.

FOLDER has the placement benchmark (fgd_bench.py), which keeps the books and checks every answer. kube-scheduler is
played by this program: its own filter of CPUs and memory, then filter, prioritize and bind over one TLS connection
with nodeCacheCapable true, and all pods sent (no managedResources). The API server is one in memory, and a model of
HAMi's plugin takes each pod. A thousandth of a GPU is asked for as gpucores and gpumem-percentage, both in whole
percent: every amount of the trace is a multiple of ten. GPUs have 100 slots, since the trace knows no slots.
--hami replays a model of HAMi's own score instead (pkg/scheduler/policy at 4707fb0), without HTTP.
"""

import argparse
import http.client
import importlib
import json
import ssl
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.derived_traces import TRACES, tasks_of
from tests.bench.placement_benchmarks import load
from tests.self_signed import make_certificate
from tests.unit.usecases.kubernetes.gpu_cluster import GpuCluster
from vgpuctl.usecases.kubernetes.serve_extender import Extender
from vgpuctl.web.extender_app import EXTENDER, extender_app
from vgpuctl.web.protection import Protection
from vgpuctl.web.server import serving

SLOTS = 100


def kind_of(model: str) -> str:
    """A model's name of which no other model's is a part."""
    return f"NVIDIA-<{model}>"


class Client:
    """kube-scheduler's connection, and how long each filter took."""

    def __init__(self, port: int, certificate: Path) -> None:
        context = ssl.create_default_context(cafile=str(certificate))
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        self.filters_s: list[float] = []

    def post(self, verb: str, body: Any) -> Any:
        text = json.dumps(body).encode()
        began = time.perf_counter()
        self._connection.request("POST", f"/v1/{verb}", text, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        read = answer.read()
        if verb == "filter":
            self.filters_s.append(time.perf_counter() - began)
        assert answer.status == 200, (answer.status, read[:200])
        return json.loads(read)


def api_of(cluster: Any) -> GpuCluster:
    """The trace's nodes as Kubernetes nodes with HAMi's register."""
    api = GpuCluster()
    for number in range(cluster.n):
        name = f"n{number:06d}"
        kind = kind_of(cluster.models[cluster.model[number]])
        api.add_node(name, int(cluster.n_gpu[number]), mib=100_000, count=SLOTS, kind=kind, numa=4)
        cpu, memory = int(cluster.cpu_cap[number]), int(cluster.mem_cap[number])
        api.nodes[name]["status"]["allocatable"].update(cpu=f"{cpu}m", memory=f"{memory}Mi")
    return api


def pod_of(api: GpuCluster, name: str, task: Any) -> Any:
    """A task as a pod."""
    limits = {"cpu": f"{task.cpu}m", "memory": f"{task.mem}Mi"}
    if task.num:
        percent = task.milli // 10
        limits |= {"nvidia.com/gpu": str(task.num), "nvidia.com/gpucores": str(percent)}
        limits["nvidia.com/gpumem-percentage"] = str(percent)
    models = ",".join(f"<{one}>" for one in sorted(task.models))
    return api.add_pod(name, containers=[limits], annotations={"nvidia.com/use-gputype": models} if models else {})


def through_http(cluster: Any, api: GpuCluster, client: Client) -> Any:
    """The trace's `place` as kube-scheduler does it."""
    numpy = importlib.import_module("numpy")
    names = list(api.nodes)
    arrived = 0

    def place(cluster: Any, task: Any) -> tuple[int, list[int]] | None:
        nonlocal arrived
        arrived += 1
        name = f"p{arrived:06d}"
        pod = pod_of(api, name, task)
        able = [names[at] for at in numpy.flatnonzero((cluster.cpu >= task.cpu) & (cluster.mem >= task.mem))]
        found = client.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": able})
        assert not found["Error"], found["Error"]
        if not found["NodeNames"]:
            return None
        scores = client.post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": found["NodeNames"]})
        best = max(scores, key=lambda one: one["Score"])["Host"]
        about = pod["metadata"]
        bound = client.post(
            "bind", {"PodName": name, "PodNamespace": about["namespace"], "PodUID": about["uid"], "Node": best}
        )
        assert not bound["Error"], bound["Error"]
        given = api.allocate(best) if task.num else []
        return names.index(best), [int(device.rpartition("-")[2]) for device, _, _ in given]

    return place


def by_hami(cluster: Any) -> Any:
    """HAMi's choice as modelled here: binpack over nodes by used slots, cores and memory before; spread over GPUs."""
    numpy = importlib.import_module("numpy")
    slots = [[0] * int(count) for count in cluster.n_gpu]

    def place(cluster: Any, task: Any) -> tuple[int, list[int]] | None:
        able = numpy.flatnonzero(cluster.feasible(task))
        if not len(able):
            return None

        def used(at: int) -> float:
            gpus = int(cluster.n_gpu[at])
            return sum(slots[at]) / (SLOTS * gpus) + 2 * (1 - int(cluster.gpu_sum[at]) / (1000 * gpus))

        node = int(max(able, key=used)) if task.num else int(able[0])
        fitting = [at for at in range(int(cluster.n_gpu[node])) if cluster.gpu[node, at] >= task.milli]
        gpus = sorted(fitting, key=lambda at: (-int(cluster.gpu[node, at]), slots[node][at], at))[: task.num]
        for at in gpus:
            slots[node][at] += 1
        return node, gpus

    return place


def main() -> None:
    """Replay the trace and print what was reached."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="folder with fgd_bench.py")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trace", default="default", choices=[*TRACES], help="see derived_traces.py")
    parser.add_argument("--hami", action="store_true", help="replay the model of HAMi's score instead")
    parser.add_argument("--arrived", type=float, default=1.01, help="stop after this part of the capacity")
    options = parser.parse_args()
    bench = load(options.folder, "fgd_bench")
    numpy = importlib.import_module("numpy")
    cluster = bench.Cluster(bench.load_nodes())
    tasks = tasks_of(options.trace, bench, cluster)
    curves = []
    for seed in range(42, 42 + options.seeds):
        sequence = bench.inflate(tasks, cluster.total_milli, options.arrived, numpy.random.default_rng(seed))
        cluster.reset()
        if options.hami:
            curve, info = bench.replay(cluster, sequence, by_hami(cluster), [95, 100])
            curves.append(curve)
            print(f"seed {seed}  model of HAMi  @95 {curve[95]:.2f}  @100 {curve[100]:.2f}", flush=True)
            continue
        api = api_of(cluster)
        extender = Extender(api, lambda: datetime.now(UTC))
        extender.refresh()
        with tempfile.TemporaryDirectory() as folder:
            make_certificate(Path(folder), "server", "extender")
            Path(folder, "web.yaml").write_text(
                f"tls_server_config:\n  cert_file: {folder}/server.pem\n  key_file: {folder}/server.key\n"
            )
            app = extender_app(extender)
            protection = Protection(Path(folder, "web.yaml"))
            with serving(app, "127.0.0.1", 0, protection, takes=EXTENDER) as port:
                client = Client(port, Path(folder, "server.pem"))
                curve, info = bench.replay(cluster, sequence, through_http(cluster, api, client), [95, 100])
        curves.append(curve)
        times = sorted(client.filters_s)
        print(
            f"seed {seed}  {cluster.n} nodes  {len(sequence)} pods  @95 {curve[95]:.2f}  @100 {curve[100]:.2f}"
            f"  refused {info['refused']}  {1e6 / info['us']:.0f} pods/s with bind and plugin"
            f"  filter median {1000 * times[len(times) // 2]:.1f} ms"
            f"  p99 {1000 * times[int(len(times) * 0.99)]:.1f} ms  longest {1000 * times[-1]:.0f} ms",
            flush=True,
        )
    for mark in (95, 100):
        print(f"mean @{mark}: {statistics.fmean(curve[mark] for curve in curves):.2f}")


if __name__ == "__main__":
    main()
