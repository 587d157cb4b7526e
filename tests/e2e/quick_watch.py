# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl` whose controller looks at hosts ten times as often: for tests of what it sees, not of how soon.

The first pause between two restarts of a VM is RESTART_S.

With VGPUCTL_TESTS_ASK_EVERY_S, so many seconds pass between two of its own questions: what it sees earlier, an event
of libvirt has told it. With VGPUCTL_TESTS_PROVE_S, a VM that was started has so many seconds to have its promises.
"""

import os

FASTER = 10
"""Only a host that does not answer is given as much time as ever: on a busy machine one that answers needs it."""
RESTART_S = 2.0


def main() -> None:
    """Run one command line."""
    from vgpuctl.cli.main import main as run
    from vgpuctl.usecases.domain import promises
    from vgpuctl.usecases.observed import restarts
    from vgpuctl.usecases.operate import network_watch, watch_hosts

    restarts.FIRST_DELAY_S = RESTART_S
    watch_hosts.LOOK_S /= FASTER
    watch_hosts.READ_S /= FASTER
    watch_hosts.RECORD_S /= FASTER
    watch_hosts.BEAT_S /= FASTER  # type: ignore[attr-defined]  # it imports this value
    watch_hosts._PAUSE_S /= FASTER
    network_watch.COUNT_S /= FASTER
    if seconds := os.environ.get("VGPUCTL_TESTS_ASK_EVERY_S"):
        watch_hosts.LOOK_S = watch_hosts.READ_S = float(seconds)
    if seconds := os.environ.get("VGPUCTL_TESTS_PROVE_S"):
        promises.START_TIMEOUT_S = float(seconds)
    run()


if __name__ == "__main__":
    main()
