# SPDX-License-Identifier: Apache-2.0
"""Requests to a load balancer of HTTPS while its certificate is rotated and a member is drained: none may fail.

Real OVN, Open vSwitch, HAProxy and the agent on this machine, without a module of the kernel. Needs root.
`python -m tests.proof.rotation [--requests 10000]`
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.ovn.http_world import HttpWorld
from tests.integration.ovn.packets import missing_for_packets
from tests.ovn_fixture import LocalOvn


def main() -> int:
    """Run it. Returns the exit status: 1 if a request failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000, metavar="NUMBER")
    arguments = parser.parse_args()
    missing = missing_for_packets()
    if missing is not None:
        sys.exit(missing)
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    try:
        with LocalOvn(folder) as central, HttpWorld(central) as world:
            begun = time.monotonic()
            told = world.rotate_under_load(arguments.requests)
            seconds = time.monotonic() - begun
    finally:
        shutil.rmtree(folder)
    failed = sum(told["failures"].values())
    sys.stdout.write(
        f"{failed} failed requests of {told['requests']} in {seconds:.0f} s; certificates seen: "
        f"{len(told['certificates'])}; members: {dict(sorted(told['names'].items()))}\n"
    )
    for problem, count in told["failures"].items():
        sys.stdout.write(f"  {count} times {problem}\n")
    return int(failed > 0 or len(told["certificates"]) != 2)


if __name__ == "__main__":
    sys.exit(main())
