# SPDX-License-Identifier: Apache-2.0
"""The cost of onboarding: a tenant with a VPC and 10 VMs on simulated hosts, and many tenants with 5 networks each.

A real OVN central and, for the VMs, simulated hosts are started for it. Wall time and our own CPU seconds are printed;
the second tells more on a machine that does other things too.
Run it with `python -m tests.bench.onboarding [--tenants 200] [--vms 10]`.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.own_lab import simulated_hosts
from tests.lab.simulated_fixtures import make_chassis
from tests.ovn_fixture import LocalOvn
from vgpuctl.model.network import Backend, NetworkRequest
from vgpuctl.model.security_rule import Protocol, Rule
from vgpuctl.model.tenant_file import TenantFile
from vgpuctl.model.vm import VmRequest
from vgpuctl.model.vpc import SecurityGroup
from vgpuctl.usecases.tenant.onboard import onboard
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.layout import simulated_folder

WEB = SecurityGroup("web", (Rule(Protocol.TCP, (80, 80)),))


def tenant(name: str, *, networks: int, vms: int) -> TenantFile:
    """A tenant with networks and with VMs in the first of them."""
    requests = tuple(
        NetworkRequest(f"net-{number}", name, f"10.0.{number}.0/24", backend=Backend.OVN) for number in range(networks)
    )
    guests = tuple(
        VmRequest(f"vm-{number}", name, (), 1, 96, network="net-0", security_groups=("web",)) for number in range(vms)
    )
    return TenantFile(name, {"vms": 100}, networks=requests, objects=(WEB,), vms=guests)


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--vms", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vgpuctl-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "ovn").mkdir()
        with LocalOvn(folder / "ovn") as ovn:
            if given.vms:
                _one_tenant(folder, ovn, given.vms)
            _many_tenants(folder, ovn, given.tenants)


def _one_tenant(folder: Path, ovn: LocalOvn, vms: int) -> None:
    with simulated_hosts(4) as fleet:
        make_chassis(fleet)
        ovn.bind_ports()
        settings = Settings(
            [str(simulated_folder(fleet).inventory)], f"sqlite:///{folder}/one.db", ovn_northbound=ovn.northbound
        )
        for what in ("first", "again"):
            began, cpu = time.perf_counter(), time.process_time()
            with open_services(settings, lambda _text: None) as services:
                onboard(services, tenant("bench", networks=1, vms=vms), [])
            wall, own = time.perf_counter() - began, time.process_time() - cpu
            print(f"a VPC and {vms} VMs, {what:5}: wall {wall:7.2f} s, own CPU {own:6.2f} s", flush=True)


def _many_tenants(folder: Path, ovn: LocalOvn, tenants: int) -> None:
    settings = Settings((), f"sqlite:///{folder}/many.db", ovn_northbound=ovn.northbound)
    spent: list[tuple[float, float]] = []
    with open_services(settings, lambda _text: None) as services:
        for number in range(tenants):
            began, cpu = time.perf_counter(), time.process_time()
            onboard(services, tenant(f"tenant-{number:03}", networks=5, vms=0), [])
            spent.append((time.perf_counter() - began, time.process_time() - cpu))
    print(f"{tenants} tenants with 5 networks each: wall {sum(one[0] for one in spent):.1f} s")
    tenth = max(tenants // 10, 1)
    for what, part in (("first", spent[:tenth]), ("last", spent[-tenth:])):
        wall, own = (statistics.median(one[side] for one in part) / 5 * 1000 for side in (0, 1))
        print(f"one network, {what:5} tenth: wall {wall:7.1f} ms, own CPU {own:6.1f} ms")


if __name__ == "__main__":
    main()
