# SPDX-License-Identifier: Apache-2.0
"""libvirt's event loop in a thread of its own: consoles and keep-alive need it.

libvirt wants it registered before a connection is opened. The thread is a daemon and sleeps in poll(2).
"""

import functools
import threading

from vgpuctl.guests.libvirt_errors import libvirt_module


@functools.cache
def ensure_event_loop() -> None:
    """Register and run libvirt's default event loop, once in this process."""
    library = libvirt_module()
    library.virEventRegisterDefaultImpl()
    threading.Thread(target=_run, name="libvirt-events", daemon=True).start()


def _run() -> None:
    library = libvirt_module()
    while True:
        library.virEventRunDefaultImpl()
