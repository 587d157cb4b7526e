# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl` whose controller looks at hosts ten times as often: for tests of what it sees, not of how soon."""

from typing import NoReturn

FASTER = 10
"""Only a host that does not answer is given as much time as ever: on a busy machine one that answers needs it."""


def main() -> NoReturn:
    """Run one command line."""
    from vgpuctl.cli.main import main as run
    from vgpuctl.usecases.operate import watch_hosts

    watch_hosts.LOOK_S /= FASTER
    watch_hosts.READ_S /= FASTER
    watch_hosts.RECORD_S /= FASTER
    watch_hosts.BEAT_S /= FASTER
    watch_hosts._PAUSE_S /= FASTER
    run()


if __name__ == "__main__":
    main()
