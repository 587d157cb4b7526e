# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl` with a clock that says VGPUCTL_TESTS_NOW, in seconds since the epoch, all the time (`Operator.at`)."""

import functools
import os
import sys
from typing import NoReturn


def set_clock() -> None:
    """Give the services the clock of the environment; without the variable they keep the machine's."""
    from vgpuctl import wiring

    if now := os.environ.get("VGPUCTL_TESTS_NOW"):
        at = float(now)
        wiring.open_services = functools.partial(wiring.open_services, clock=lambda: at)


def main() -> NoReturn:
    """Run one command line."""
    from vgpuctl.cli.main import leave, run

    set_clock()
    leave(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
