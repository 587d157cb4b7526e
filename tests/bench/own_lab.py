# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts of a bench's own, which nobody has to start before it."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import vgpuctl_lab as lab
from vgpuctl_lab.identity import KEY_EXCHANGE
from vgpuctl_lab.simulated.layout import simulated_folder

MIX = "a40:50,l40s:30,t4:20"


@contextmanager
def simulated_hosts(number: int, *, mix: str = MIX, latency_ms: float = 0.0) -> Iterator[lab.LabFolder]:
    """Hosts that are up for the length of the block, also when the bench is ended by SIGTERM.

    mix: their boards. latency_ms: added to each round trip. A login costs what it does with OpenSSH's own settings, not
    what it does in the lab.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as name:  # sockets need a short path
        folder = lab.LabFolder(Path(name) / "lab")
        try:
            lab.simulated.up(number, mix=mix, latency_ms=latency_ms, folder=folder)
            for name in lab.simulated.names(folder=folder):
                _use_default_key_exchange(simulated_folder(folder).host(name) / "sshd_config")
            yield folder
        finally:
            lab.simulated.down(folder=folder)


def _use_default_key_exchange(config: Path) -> None:
    """Take the lab's setting out of a host's sshd_config, which sshd reads at each login."""
    text = config.read_text()
    line = f"KexAlgorithms {KEY_EXCHANGE}\n"
    assert line in text, config
    config.write_text(text.replace(line, ""))
