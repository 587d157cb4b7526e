# SPDX-License-Identifier: Apache-2.0
"""One run of the timer that writes the readings for node_exporter. Its complaints go to the journal."""

import os
import sys

from vgpuctl.agent.facts.textfile import read_config
from vgpuctl.agent.host import Host
from vgpuctl.agent.readings import textfile
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.textfile import CONFIG


def main(host: Host, *, has_ended: bool) -> int:
    """Write the file and return the exit code.

    has_ended: the service's run is over, and systemd passes its result. After a failure, or a refused reading, the
    file reports the failure in place of old values.
    """
    config = read_config(host)
    if config is None:
        _complain(f"{CONFIG} is not there or cannot be read: run `vgpuctl apply-hosts`")
        return 1
    try:
        if not has_ended:
            textfile.write(host, config)
        elif os.environ.get("SERVICE_RESULT") != "success":
            textfile.write_failure(host, config)
    except Problem as problem:
        _complain(problem.message)
        return 1
    return 0


def _complain(text: str) -> None:
    """Tell the journal, as an error (sd-daemon(3))."""
    sys.stderr.write(f"<3>{text}\n")
