# SPDX-License-Identifier: Apache-2.0
"""The cost of readings: one host with 8 GPUs and 32 vGPUs, an exporter of many hosts, and a page of a large fleet.

The hosts are the lab's simulated ones: real sshd, real agent, real libvirtd with its test driver; hosts and exporter
run on the same machine. NVML is the simulation's, in Python: the host's CPU time of a reading is that of the agent with
this NVML, and a real driver answers in other times.

`host`: readings over a connection that is open. `exporter`: a `vgpuctl serve exporter` process in its steady state;
CPU time and memory are its own alone. `page`: CPU time of the exporter for the readings of `host` under many names:
building and encoding the page of a host, adding the host to the history, and joining the pages of all hosts for a
scrape.
`states`: CPU time to read every state of a store and to encode its page, once for each interval.

Run it with `python -m tests.bench.readings_cost [--hosts 100] [--rounds 50] [--window 60] [--json FILE]`.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.telemetry.running_exporter import running_exporter, values
from vgpuctl.agent.wire.envelope import Reply, reply_to_json
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.store.session import Session
from vgpuctl.store.store import open_store
from vgpuctl.telemetry.exposition import Page, encode, state_families
from vgpuctl.telemetry.history import History
from vgpuctl.telemetry.host_page import host_page, kept_values
from vgpuctl.usecases.observed.observations import note_facts
from vgpuctl.usecases.observed.states import read_states
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.layout import simulated_folder

_TICK_S = os.sysconf("SC_CLK_TCK")
_INTERVAL_S = 15
_SHARES, _TENANTS = 20, 50
_VM = ("--gpu", "A40-12Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--window", type=float, default=60.0, help="seconds of the exporter's steady state")
    parser.add_argument("--json", type=Path, help="write the results here too")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="vgpuctl-cost-") as home:
        folder = lab.LabFolder(Path(home) / "one")
        lab.simulated.up(1, mix="a40*8", folder=folder)
        try:
            operator = Operator(Path(home), simulated_folder(folder).inventory, f"sqlite:///{home}/store.db")
            operator.does("create-tenant", "acme")
            operator.does("create-vm", "web", "--tenant", "acme", "--count", "32", "--policy", "spread", *_VM)
            results["host"], readings, facts = _measure_host(operator, given.rounds)
        finally:
            lab.simulated.down(folder=folder)
        results["page"] = _measure_page(readings, given.hosts)
        results["states"] = _measure_states(facts, given.hosts, Path(home))
        folder = lab.LabFolder(Path(home) / "many")
        lab.simulated.up(given.hosts, mix="a40", folder=folder)
        try:
            operator = Operator(Path(home), simulated_folder(folder).inventory, f"sqlite:///{home}/many.db")
            results["exporter"] = _measure_exporter(operator, given.hosts, given.window)
        finally:
            lab.simulated.down(folder=folder)
    text = json.dumps(results, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


def _measure_host(operator: Operator, rounds: int) -> tuple[dict[str, float], HostReadings, HostFacts]:
    settings = Settings([str(operator.inventory)], operator.database)
    took: list[float] = []
    own: list[float] = []
    with open_services(settings, lambda _text: None) as services:
        session = services.host("sim-001")
        readings = session.agent.readings()
        before = session.connection.statistics.read()
        for _round in range(rounds):
            began, cpu = time.monotonic(), time.thread_time()
            readings = session.agent.readings()
            took.append(time.monotonic() - began)
            own.append(time.thread_time() - cpu)
            cost = readings.measured.get("reading_cpu_seconds")
            assert cost is not None
        after = session.connection.statistics.read()
        facts = session.agent.facts()
        host_cpu = [session.agent.readings().measured.get("reading_cpu_seconds") or 0.0 for _round in range(rounds)]
    objects = (readings.gpus, readings.vgpus, readings.vms)
    measured = [one.measured for of_kind in objects for one in of_kind]
    line = json.dumps(reply_to_json(Reply("0", readings=readings)), separators=(",", ":"))
    return (
        {
            "gpus": len(readings.gpus),
            "vgpus": len(readings.vgpus),
            "values": sum(len(one.values) for one in measured),
            "round_trips": (after.round_trips - before.round_trips) / rounds,
            "bytes_sent": (after.bytes_sent - before.bytes_sent) / rounds,
            "bytes_received": (after.bytes_received - before.bytes_received) / rounds,
            "line_bytes": len(line),
            "wall_ms": statistics.median(took) * 1000,
            "host_cpu_ms": statistics.median(host_cpu) * 1000,
            "own_cpu_ms": statistics.median(own) * 1000,
        },
        readings,
        facts,
    )


def _measure_page(readings: HostReadings, hosts: int) -> dict[str, float]:
    names = [f"gpu-{number:03}" for number in range(hosts)]
    pages, build_s = _cpu_of(lambda: [host_page(name, readings, ()) for name in names])
    (text, _type), first_s = _cpu_of(lambda: encode(pages, ""))
    _text, next_s = _cpu_of(lambda: encode(pages, ""))
    with tempfile.TemporaryDirectory() as folder, History(Path(folder) / "history") as history:
        _none, history_s = _cpu_of(partial(_fill, history, readings, names))
    series = sum(page.series for page in pages)
    return {
        "hosts": hosts,
        "series": series,
        "series_per_gpu": series / hosts / len(readings.gpus),
        "bytes": len(text),
        "build_ms_per_host": build_s / hosts * 1000,
        "encode_ms_per_host": first_s / hosts * 1000,
        "history_ms_per_host": history_s / hosts * 1000,
        "join_ms": next_s * 1000,
    }


def _fill(history: History, readings: HostReadings, names: list[str]) -> None:
    for name in names:
        history.add(0.0, kept_values(name, readings, ()))


def _measure_states(facts: HostFacts, hosts: int, home: Path) -> dict[str, float]:
    """The states of a store with 20 shares on each host, of 50 tenants."""
    with open_store(f"sqlite:///{home}/states.db") as store:
        with store.transaction() as session:
            for number in range(_TENANTS):
                session.add_tenant(f"tenant-{number}")
            for host in range(hosts):
                note_facts(session, f"gpu-{host:03}", facts)
        places = [(gpu.address, vf.address) for gpu in facts.gpus for vf in gpu.vfs[:_SHARES]][:_SHARES]
        for host in range(hosts):
            with store.transaction() as session:
                _add_shares(session, f"gpu-{host:03}", places, host * _SHARES)
        best = {"read_ms": 1e9, "encode_ms": 1e9}
        for _round in range(3):
            with store.reading() as session:
                states, read_s = _cpu_of(partial(read_states, session, ()))
            page = Page(state_families(states.items()))
            (text, _type), encode_s = _cpu_of(partial(encode, [page], ""))
            best = {
                "read_ms": min(best["read_ms"], read_s * 1000),
                "encode_ms": min(best["encode_ms"], encode_s * 1000),
            }
    return {"hosts": hosts, "shares": hosts * _SHARES, "series": page.series, "bytes": len(text), **best}


def _add_shares(session: Session, host: str, places: list[tuple[str, str]], first: int) -> None:
    leases = []
    for number, (gpu, function) in enumerate(places, first):
        vm = Vm(f"vm-{number}", VmRequest(f"vm-{number}", f"tenant-{number % _TENANTS}"), host, VmState.RUNNING)
        session.add_vm(vm)
        share = Share(gpu, Sharing.VF_PROFILE, "A40-8Q", function, type_id="560", framebuffer_mib=8192)
        tenant, name = vm.request.tenant, vm.request.name
        leases.append(Lease(f"lease-{number}", vm.uuid, tenant, name, host, 0, share, LeaseState.RESERVED))
    session.reserve(host, session.generation(host), leases)


def _cpu_of(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    done = work()
    return done, time.monotonic() - began


def _measure_exporter(operator: Operator, hosts: int, window_s: float) -> dict[str, float]:
    with running_exporter(operator, "--interval", str(_INTERVAL_S)) as exporter:
        began = time.monotonic()
        exporter.wait_for("all are read", lambda one: len(values(one, "vgpuctl_snapshot_age_seconds")) == hosts)
        first_s = time.monotonic() - began
        time.sleep(2 * _INTERVAL_S)
        cpu_s, began = _cpu_s(exporter.process.pid), time.monotonic()
        scrapes = []
        while time.monotonic() - began < window_s:
            text, took = _timed(lambda: urllib.request.urlopen(f"{exporter.url}/metrics").read())
            scrapes.append(took)
            time.sleep(_INTERVAL_S - took)
        took_s = time.monotonic() - began
        used_s = _cpu_s(exporter.process.pid) - cpu_s
        return {
            "hosts": hosts,
            "first_round_s": first_s,
            "cpu_share_of_a_core": used_s / took_s,
            "cpu_ms_per_host_reading": used_s / took_s * _INTERVAL_S / hosts * 1000,
            "scrape_ms": statistics.median(scrapes) * 1000,
            "page_bytes": len(text),
            "pss_mib": _pss_mib(exporter.process.pid),
            "threads": len(list(Path(f"/proc/{exporter.process.pid}/task").iterdir())),
        }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK_S


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
