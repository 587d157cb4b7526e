# SPDX-License-Identifier: Apache-2.0
"""The cost of many waiting nodes in the store: slurm-resume, a round of the controller over them, and slurm-suspend.

No host and no cluster is contacted. gangs: of 8 VMs each, which wait in the same tenant's queue.

Run it with `python -m tests.bench.many_nodes [--nodes 64 256 512] [--gangs 0 100]`; each line of stdout is JSON.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.integration.autoscaler.pools import sized_pool
from tests.stored_fleet import open_stored
from vgpuctl.model.node_pool import NodeRole
from vgpuctl.usecases.node.node_pools import create_node_pool
from vgpuctl.usecases.node.settle_nodes import settle_nodes
from vgpuctl.usecases.placement.queue_entries import wait_for_turn
from vgpuctl.usecases.slurm.slurm_resume import slurm_resume
from vgpuctl.usecases.slurm.slurm_suspend import slurm_suspend

_MATES = 8


def measure(folder: Path, count: int, gangs: int) -> dict[str, float]:
    """Wall and CPU seconds of each command, for a new store in a folder."""
    found: dict[str, float] = {"nodes": count, "gangs": gangs}

    def timed(what: str, work: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found[f"{what}_s"] = round(time.perf_counter() - wall, 2)
        found[f"{what}_cpu_s"] = round(time.process_time() - cpu, 2)

    with open_stored(folder, ("h1",)) as services:
        base = sized_pool("other").request
        with services.store.transaction() as session:
            session.add_tenant("acme")
            for gang in range(gangs):
                mates = [replace(base, name=f"g{gang}-{number}") for number in range(_MATES)]
                wait_for_turn(session, mates, "no room", may_preempt=False)
        create_node_pool(services, sized_pool("hpc", role=NodeRole.SLURM, maximum=count))
        nodes = f"hpc-[001-{count:03}]"
        timed("resume", lambda: slurm_resume(services, "acme", "main", nodes))
        timed("round", lambda: settle_nodes(services, shutdown_timeout_s=0))
        timed("suspend", lambda: slurm_suspend(services, "acme", "main", nodes))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--gangs", type=int, nargs="+", default=[0, 100])
    given = parser.parse_args()
    for gangs in given.gangs:
        for count in given.nodes:
            with tempfile.TemporaryDirectory() as name:
                print(json.dumps(measure(Path(name), count, gangs)), flush=True)


if __name__ == "__main__":
    main()
