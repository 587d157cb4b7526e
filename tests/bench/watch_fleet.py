# SPDX-License-Identifier: Apache-2.0
"""One controller over many simulated hosts: CPU per host, memory, time to notice faults, and the takeover by another.

The CPU time and memory are those of the controller's process alone; hosts and lab run on the same machine. Ten faults
are injected at once, each on a host of its own: power cuts, dead libvirtd, cards off the bus, VMs ended by hand. The
time to notice is from the injection to the first moment at which the store, read twice a second, says it.

Run it with `python -m tests.bench.watch_fleet [--hosts 300] [--vms 5] [--window 60]`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from vgpuctl.store.store import Store, open_store
from vgpuctl.usecases.support.observations import ObservedHost, observations, observed_hosts
from vgpuctl_lab.simulated.layout import simulated_folder

_FAULTS = (*["power-off"] * 3, *["libvirtd"] * 2, *["fallen"] * 2, *["vm-ended"] * 3)
_LIMIT_S = 180.0
_TICK_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Build the fleet, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=300)
    parser.add_argument("--vms", type=int, default=5, help="VMs per host")
    parser.add_argument("--window", type=float, default=60.0, help="seconds of the steady measurement")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vgpuctl-watch-") as home:
        folder = lab.LabFolder(Path(home) / "lab")
        names = [one.name for one in lab.simulated.up(given.hosts, mix="a40", folder=folder)]
        try:
            operator = Operator(Path(home), simulated_folder(folder).inventory, f"sqlite:///{home}/store.db")
            _measure(operator, folder, names, given.vms, given.window)
        finally:
            lab.simulated.down(folder=folder)


def _measure(operator: Operator, folder: lab.LabFolder, names: list[str], vms: int, window_s: float) -> None:
    operator.does("create-tenant", "acme")
    operator.does("list-gpus", "--refresh", timeout_s=3000)
    size = ("--gpu", "A40-4Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
    for name in names if vms else ():
        operator.does("create-vm", name, "--tenant", "acme", "--count", str(vms), "--host", name, *size, timeout_s=3000)
    print(f"{len(names)} hosts, {len(names) * vms} VMs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with open_store(operator.database) as store:
        first, started_at = _controller(operator), time.time()
        took = _until(lambda: _all_seen(store, names, started_at, first))
        print(f"all hosts read after {took:.1f} s")
        before, began = _cpu_s(first), time.monotonic()
        time.sleep(window_s)
        share = (_cpu_s(first) - before) / (time.monotonic() - began)
        print(f"steady: {share:.1%} of one core, {share / len(names) * 1000:.2f} ms of CPU per host and second")
        print(f"memory: {_pss_mib(first):.0f} MiB PSS")
        _inject(store, operator, folder, names)
        second = _controller(operator)
        time.sleep(15)
        first.kill()
        first.wait()
        killed_at = time.time()
        took = _until(lambda: _all_seen(store, names, killed_at, second))
        print(f"takeover: all hosts read again {took:.1f} s after the kill of the other controller")
        second.terminate()
        second.wait()


def _controller(operator: Operator) -> "subprocess.Popen[str]":
    return operator.start("controller", stderr=subprocess.DEVNULL)


def _inject(store: Store, operator: Operator, folder: lab.LabFolder, names: list[str]) -> None:
    """Let the faults begin together and print when each was in the store; then end them."""
    chosen = dict(zip(names, _FAULTS, strict=False))
    waiting: dict[str, float] = {}
    for name, kind in chosen.items():
        if kind == "vm-ended":
            with libvirt_of(operator.inventory, name) as there:
                there.connection.listAllDomains(0)[0].destroy()
        else:
            lab.faults.begin(name, kind, folder=folder)
        waiting[name] = time.monotonic()
    deadline = time.monotonic() + _LIMIT_S
    noticed: dict[str, float] = {}
    while len(noticed) < len(waiting) and time.monotonic() < deadline:
        with store.reading() as session:
            hosts = observed_hosts(session)
            vms = {name: observations(session, session.vms(host=name)).values() for name in chosen}
        for name, kind in chosen.items():
            is_off = any(seen.state == "shut-off" for seen in vms[name])
            if name not in noticed and (is_off if kind == "vm-ended" else _shows(hosts[name], kind)):
                noticed[name] = time.monotonic() - waiting[name]
        time.sleep(0.5)
    for name, kind in chosen.items():
        said = f"{noticed[name]:.1f} s" if name in noticed else f"not within {_LIMIT_S:.0f} s"
        print(f"noticed {kind} on {name}: {said}")
        if kind != "vm-ended":
            lab.faults.clear(name, folder=folder)


def _shows(host: ObservedHost, kind: str) -> bool:
    """True if the record of a host shows the fault."""
    if kind == "power-off":
        return host.state == "unreachable"
    if kind == "libvirtd":
        return host.libvirt.unknown_since is not None
    return any(gpu.state != "present" for gpu in host.gpus.values())


def _all_seen(store: Store, names: list[str], since: float, controller: "subprocess.Popen[str]") -> bool:
    """True if a controller that lives has read every host since then."""
    assert controller.poll() is None, "the controller has ended"
    with store.reading() as session:
        hosts = observed_hosts(session)
        claimed = {host for one in session.controllers() if one.pid == controller.pid for host in one.hosts}
    return set(names) <= claimed and all((hosts[name].agent.at or 0.0) >= since for name in names)


def _until(is_so: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > _LIMIT_S:
            sys.exit(f"not within {_LIMIT_S:.0f} s")
        time.sleep(0.5)
    return time.monotonic() - began


def _cpu_s(process: "subprocess.Popen[str]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK_S


def _pss_mib(process: "subprocess.Popen[str]") -> float:
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
