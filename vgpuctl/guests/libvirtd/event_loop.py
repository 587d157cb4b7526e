# SPDX-License-Identifier: Apache-2.0
"""libvirt's event loop in a thread of its own: consoles and keep-alive need it.

libvirt wants it registered before a connection is opened. The thread is a daemon and sleeps in poll(2).
"""

import threading

from vgpuctl.guests.libvirt_errors import libvirt_module

_STARTING = threading.Lock()
_started: list[threading.Thread] = []


def ensure_event_loop() -> None:
    """Register and run libvirt's default event loop, once in this process, however many threads ask at once."""
    with _STARTING:
        if not _started:
            library = libvirt_module()
            library.virEventRegisterDefaultImpl()
            _started.append(threading.Thread(target=_run, name="libvirt-events", daemon=True))
            _started[0].start()


def _run() -> None:
    library = libvirt_module()
    while True:
        library.virEventRunDefaultImpl()
