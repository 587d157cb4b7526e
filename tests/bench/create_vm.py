# SPDX-License-Identifier: Apache-2.0
"""The cost of one `create-vm` on a lab host: SSH logins, round trips, bytes and our own CPU seconds.

It starts a simulated host of its own; -i names the inventory of another one, such as the demo's. A bare SSH login that
runs `true` over the same library is measured in the same run; the ratio goes to docs/performance.md.
Run it with `python -m tests.bench.create_vm [--rounds N] [--gpu A40-8Q] [-i INVENTORY]`.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.own_lab import simulated_hosts
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.vm import VmRequest
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.tenant.create_tenant import create_tenant
from vgpuctl.usecases.vm.create_vm import create_together
from vgpuctl.usecases.vm.delete_vm import delete_vm
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.layout import simulated_folder


def main() -> None:
    """Create and delete the VM several times and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpu", default="A40-8Q")
    parser.add_argument("-i", "--inventory", help="of a host that is up, in place of a simulated one")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        inventory = given.inventory
        if inventory is None:
            inventory = str(simulated_folder(stack.enter_context(simulated_hosts(1, mix="a40"))).inventory)
        _measure(inventory, given.gpu, given.rounds)


def _measure(inventory: str, gpu: str, rounds: int) -> None:
    rows: list[dict[str, float]] = []
    logins: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings([inventory], f"sqlite:///{Path(folder)}/store.db")
        with open_services(settings, lambda _text: None) as services:
            create_tenant(services, "bench")
            survey(services, services.hosts(), refresh=True)
        for number in range(rounds):
            with open_services(settings, lambda _text: None) as services:
                began, cpu = time.perf_counter(), time.process_time()
                services.host(services.hosts()[0]).connection.run(["true"], timeout_s=60)
                logins.append((time.perf_counter() - began, time.process_time() - cpu))
            request = VmRequest(f"vm-{number}", "bench", (parse_gpu_request(gpu),), 1, 96, network=None)
            with open_services(settings, lambda _text: None) as services:
                began, cpu = time.perf_counter(), time.process_time()
                (created,) = create_together(services, [request])
                wall, own = time.perf_counter() - began, time.process_time() - cpu
                counts = services.host(created.vm.host).connection.statistics.read()
                rows.append(
                    {"wall s": wall, "own CPU s": own, **{key: float(value) for key, value in vars(counts).items()}}
                )
                delete_vm(services, created.vm, timeout_s=0)
    for key in rows[0]:
        print(f"create-vm, {key:18} {statistics.median(row[key] for row in rows):12.2f}")
    wall = statistics.median(row[0] for row in logins)
    cpu = statistics.median(row[1] for row in logins)
    print(f"bare login and `true`, wall s {wall:.2f}, own CPU s {cpu:.2f}")
    print(
        f"create-vm against it: wall {statistics.median(row['wall s'] for row in rows) / wall:.1f}, "
        f"own CPU {statistics.median(row['own CPU s'] for row in rows) / cpu:.1f}"
    )


if __name__ == "__main__":
    main()
