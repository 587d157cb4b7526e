# SPDX-License-Identifier: Apache-2.0
"""Server time of the read-only pages for a large fleet: first view after start, and the views after it.

The store is written by this bench: 100 hosts with eight GPUs and 2,000 VMs with one share each, with readings of all of
them. Timed is the CPU time of the whole request inside the process (use case, store, template), without network and
browser, so that a busy machine disturbs less. The first view reads the inventory, decodes the cached facts of every
host and compiles the templates. A rested view is one after KEPT_S: the map of the fleet is read again.

Run it with `python -m tests.bench.web_page [--hosts 100] [--shares 2000] [--rounds 5] [--serve]`. --serve keeps the
pages at http://127.0.0.1:8000/ to look at.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

from tests.stored_fleet import fill, keep_history, open_stored, readings_of
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.telemetry.kept import KEPT_S
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import make_application
from vgpuctl.web.server import serving


def main() -> None:
    """Fill a store, ask for every page and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--shares", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vgpuctl-web-") as home:
        names = tuple(f"gpu-host-{number:03}" for number in range(1, given.hosts + 1))
        now = time.time()
        with open_stored(Path(home), names, lambda: now) as filling:
            fleet = fill(filling, names, cards=given.cards, shares=given.shares)
            snapshots = readings_of(fleet, now)
        keep_history(Path(home) / "history.db", fleet, now)
        print(f"{len(names)} hosts, {len(names) * given.cards} GPUs, {len(fleet.leases)} shares")
        # New services: their first view has nothing in memory, as after a start.
        inventory = Path(home) / "inventory.yml"
        text = inventory.read_text()
        with open_stored(Path(home), names, lambda: now) as services:
            assert inventory.read_text() == text
            sources = PageSources(services, PastSource(Path(home) / "history.db"), lambda: snapshots)
            app = make_application(sources, PageAccess(None, has_tls=False, is_loopback=True, clock=time.time))
            lease = fleet.leases[0]
            vm = f"/tenants/{lease.tenant}/vms/{lease.vm_name}"
            host = f"/hosts/{lease.host}"
            paths = ("/", host, f"{host}/gpus/{lease.share.gpu}", vm, "/vms", "/tenants", f"/tenants/{lease.tenant}")
            for path in (
                *paths,
                "/queue",
                "/capacity",
                "/capacity?gpu=A40-8Q",
                "/events",
                "/search?q=vm1",
                "/states",
                "/states/lease_state",
            ):
                _time(app.test_client(), path, given.rounds)
            if given.serve:
                with serving(app, "127.0.0.1", 8000):
                    threading.Event().wait()


def _time(client: object, path: str, rounds: int) -> None:
    took, size = [], 0
    for number in range(rounds + 1):
        time.sleep(KEPT_S * 1.1 if number and not path.startswith("/hosts") else 0)
        began = time.process_time()
        answer = client.get(path)  # type: ignore[attr-defined]  # werkzeug's test client
        took.append(time.process_time() - began)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        size = len(answer.data)
    again = statistics.median(took[1:])
    print(f"{path:48} first {took[0] * 1000:6.0f} ms, then {again * 1000:6.0f} ms, {size // 1024:5} KiB")


if __name__ == "__main__":
    main()
