# SPDX-License-Identifier: Apache-2.0
"""One controller over many simulated hosts: CPU per host, memory, time to notice ten faults, takeover by another.

The hosts are the lab's: each has a real sshd, a real agent process and libvirt's test driver; hosts and lab run on the
same machine. The VMs are made by the product itself: `create-vm --count` with the policy `spread`, a command for each
20 hosts, two at a time. Nothing is written into the store or the hosts by the bench.

CPU time and memory are those of the controller's process alone. Ten different faults begin together, each on a host of
its own. The time to notice goes from the beginning of the injection to the first moment at which the store, read twice
a second, says it. For the takeover, two controllers share the hosts, and one is killed with SIGKILL; as root it runs
under another host name, so that the survivor cannot know that the process is gone and waits for its heartbeat, as for a
controller on another machine.

Run it with `python -m tests.bench.watch_fleet [--hosts 300] [--vms 1500] [--window 120] [--json FILE]`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.store.store import Session, Store, open_store
from vgpuctl.usecases.observed.observations import ObservedHost, observations, observed_hosts
from vgpuctl.usecases.operate.watch_hosts import LOOK_S
from vgpuctl_lab.simulated.layout import simulated_folder

_HOST_FAULTS = ("power-off", "network", "libvirtd", "fallen", "row-remap-failed", "ecc", "reboot")
_VM_FAULTS = ("vm-ended", "vm-undefined", "vm-paused")
_STATE_OF = {"vm-ended": "shut-off", "vm-undefined": "absent", "vm-paused": "paused"}
_LIMIT_S = 300.0
_GROUP = 20
_MOST_VMS = 100
_SIZE = ("--gpu", "A40-4Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none", "--policy", "spread")
_ONE_LAB_COMMAND = threading.Lock()
_TICK_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Results:
    """The measured values. noticed: seconds by fault, None where the store never said it."""

    hosts: int
    vms: int
    load: float = 0.0
    create_s: float = 0.0
    first_round_s: float = 0.0
    core_share: float = 0.0
    ms_per_host_second: float = 0.0
    ms_per_look: float = 0.0
    oldest_answer_s: float = 0.0
    pss_mib: float = 0.0
    threads: int = 0
    noticed: dict[str, float | None] = field(default_factory=dict)
    divided_s: float = 0.0
    takeover_s: float = 0.0
    takeover_of: str = ""


def main() -> None:
    """Build the fleet, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--vms", type=int, default=1500, help="VMs in all, at most 12 on a host")
    parser.add_argument("--window", type=float, default=120.0, help="seconds of the steady measurement")
    parser.add_argument("--json", type=Path, help="write the results here too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vgpuctl-watch-") as home:
        folder = lab.LabFolder(Path(home) / "lab")
        names = [one.name for one in lab.simulated.up(given.hosts, mix="a40", folder=folder)]
        try:
            operator = Operator(Path(home), simulated_folder(folder).inventory, f"sqlite:///{home}/store.db")
            results = _measure(operator, folder, names, given.vms, given.window)
        finally:
            lab.simulated.down(folder=folder)
    text = json.dumps(vars(results), indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


def _measure(operator: Operator, folder: lab.LabFolder, names: list[str], vms: int, window_s: float) -> Results:
    began = time.monotonic()
    _create(operator, names, vms)
    results = Results(len(names), vms, create_s=_since(began))
    _say(f"{len(names)} hosts, {vms} VMs, created in {results.create_s:.0f} s, {os.cpu_count()} cores")
    with open_store(operator.database) as store, ExitStack() as ending:
        first, started_at = _controller(operator, ending), time.time()
        results.first_round_s = _until(lambda: _all_seen(store, names, started_at, first))
        _say(f"all hosts read after {results.first_round_s:.0f} s")
        time.sleep(LOOK_S)
        _steady(store, first, results, window_s)
        _inject(store, operator, folder, results, names)
        _take_over(store, operator, results, names, first, ending)
    return results


def _create(operator: Operator, names: Sequence[str], vms: int) -> None:
    operator.does("create-tenant", "acme")
    commands: list[tuple[str, ...]] = []
    for at in range(0, len(names), _GROUP):
        group = names[at : at + _GROUP]
        left = vms * (at + len(group)) // len(names) - vms * at // len(names)
        while left:
            count = min(left, _MOST_VMS)
            left -= count
            commands.append((f"vm{len(commands)}", "--count", str(count), "--limit", ",".join(group)))
    with ThreadPoolExecutor(2) as pool:
        for done in [
            pool.submit(operator.does, "create-vm", *one, "--tenant", "acme", *_SIZE, timeout_s=3000)
            for one in commands
        ]:
            done.result()


def _steady(store: Store, controller: "subprocess.Popen[str]", results: Results, window_s: float) -> None:
    results.load = os.getloadavg()[0]
    before, began = _cpu_s(controller), time.monotonic()
    while _since(began) < window_s:
        time.sleep(2)
        results.oldest_answer_s = max(results.oldest_answer_s, _oldest_s(store))
    cpu_s, took_s = _cpu_s(controller) - before, _since(began)
    results.core_share = cpu_s / took_s
    results.ms_per_host_second = results.core_share / results.hosts * 1000
    results.ms_per_look = results.ms_per_host_second * LOOK_S
    results.pss_mib = _pss_mib(controller)
    results.threads = len(list(Path(f"/proc/{controller.pid}/task").iterdir()))
    _say(f"steady: {results.core_share:.1%} of one core, {results.ms_per_look:.1f} ms of CPU per host and look")
    _say(f"the oldest answer in the store was {results.oldest_answer_s:.1f} s old")
    _say(f"memory: {results.pss_mib:.0f} MiB PSS, {results.threads} threads")


def _oldest_s(store: Store) -> float:
    """The age of the oldest answer of any agent in the store."""
    with store.reading() as session:
        return time.time() - min(one.agent.at or 0.0 for one in observed_hosts(session).values())


def _controller(operator: Operator, ending: ExitStack, *, elsewhere: bool = False) -> "subprocess.Popen[str]":
    """Start a controller. elsewhere: under another host name, as if it ran on another machine."""
    named = ["unshare", "--uts", "sh", "-c", 'hostname other && exec "$@"', "sh"] if elsewhere else []
    process = subprocess.Popen(
        [*named, *operator.command, "controller"],
        env=operator.environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ending.callback(process.wait)
    ending.callback(process.kill)
    return process


def _inject(store: Store, operator: Operator, folder: lab.LabFolder, results: Results, names: Sequence[str]) -> None:
    """Let the faults begin together and note when each was in the store; then end them."""
    chosen = dict(zip((*_HOST_FAULTS, *_VM_FAULTS), names[:: max(1, len(names) // 10)], strict=False))
    with store.reading() as session:
        boots = {name: host.boot_id for name, host in observed_hosts(session).items()}
    began: dict[str, float] = {}
    ready = threading.Barrier(len(chosen))
    begun = []
    with ThreadPoolExecutor(len(chosen)) as pool, ExitStack() as opened:
        for fault, name in chosen.items():
            there = opened.enter_context(libvirt_of(operator.inventory, name)) if fault in _VM_FAULTS else None
            begun.append(pool.submit(_begin, fault, name, folder, there, ready, began))
        deadline = time.monotonic() + _LIMIT_S
        while len(results.noticed) < len(chosen) and time.monotonic() < deadline:
            for one in begun:
                if one.done():
                    one.result()
            with store.reading() as session:
                for fault in set(began) - set(results.noticed):
                    if _shows(session, fault, chosen[fault], boots[chosen[fault]]):
                        results.noticed[fault] = round(_since(began[fault]), 1)
            time.sleep(0.5)
    for fault, name in chosen.items():
        results.noticed.setdefault(fault, None)
        _say(f"noticed {fault} on {name}: {results.noticed[fault]} s")
        lab.faults.clear(name, folder=folder)


def _begin(
    fault: str,
    name: str,
    folder: lab.LabFolder,
    there: Hypervisor | None,
    ready: threading.Barrier,
    began: dict[str, float],
) -> None:
    """Wait until all faults are ready, then let this one begin."""
    domain = (
        None if there is None else there.connection.listAllDomains(libvirt_module().VIR_CONNECT_LIST_DOMAINS_RUNNING)[0]
    )
    ready.wait()
    if domain is None:
        with _ONE_LAB_COMMAND:
            began[fault] = time.monotonic()
            if fault == "reboot":
                lab.simulated.reboot(name, folder=folder)
            else:
                lab.faults.begin(name, fault, folder=folder)
        return
    began[fault] = time.monotonic()
    if fault == "vm-paused":
        domain.suspend()
    else:
        domain.destroy()
        if fault == "vm-undefined":
            domain.undefine()


def _shows(session: Session, fault: str, name: str, boot_id: str | None) -> bool:
    """True if the store shows the fault of a host."""
    if fault in _VM_FAULTS:
        seen = observations(session, session.vms(host=name)).values()
        return any(one.state == _STATE_OF[fault] for one in seen)
    if fault in ("ecc", "row-remap-failed"):
        return any(one.host == name for one in session.restrictions())
    host: ObservedHost = observed_hosts(session)[name]
    if fault in ("power-off", "network"):
        return host.state == "unreachable"
    if fault == "libvirtd":
        return host.libvirt.unknown_since is not None
    if fault == "reboot":
        return host.boot_id != boot_id
    return any(gpu.state != "present" for gpu in host.gpus.values())


def _take_over(
    store: Store,
    operator: Operator,
    results: Results,
    names: Sequence[str],
    first: "subprocess.Popen[str]",
    ending: ExitStack,
) -> None:
    """Share the hosts with a second controller, kill it, and wait until the first has read each host again."""
    is_root = os.geteuid() == 0
    results.takeover_of = "another host name" if is_root else "the same machine"
    second, started_at = _controller(operator, ending, elsewhere=is_root), time.time()
    results.divided_s = _until(lambda: _all_seen(store, names, started_at, first, second))
    _say(f"two controllers had divided the hosts after {results.divided_s:.0f} s")
    time.sleep(LOOK_S)
    second.kill()
    second.wait()
    killed_at = time.time()
    results.takeover_s = _until(lambda: _all_seen(store, names, killed_at, first))
    _say(f"takeover: all hosts read again {results.takeover_s:.0f} s after kill -9 of the other controller")


def _all_seen(store: Store, names: Sequence[str], since: float, *controllers: "subprocess.Popen[str]") -> bool:
    """True if these controllers live, share all hosts, and have read every one since then."""
    pids = {one.pid for one in controllers}
    assert all(one.poll() is None for one in controllers), "a controller has ended"
    with store.reading() as session:
        hosts = observed_hosts(session)
        claims = {one.pid: one.hosts for one in session.controllers() if one.pid in pids}
    claimed = {host for hosts_of in claims.values() for host in hosts_of}
    return (
        set(claims) == pids
        and all(claims.values())
        and set(names) <= claimed
        and all((hosts[name].agent.at or 0.0) >= since for name in names if name in hosts)
        and set(names) <= set(hosts)
    )


def _until(is_so: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not is_so():
        if _since(began) > _LIMIT_S:
            sys.exit(f"not within {_LIMIT_S:.0f} s")
        time.sleep(0.5)
    return _since(began)


def _since(began: float) -> float:
    return time.monotonic() - began


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _cpu_s(process: "subprocess.Popen[str]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK_S


def _pss_mib(process: "subprocess.Popen[str]") -> float:
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
