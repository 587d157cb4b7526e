# SPDX-License-Identifier: Apache-2.0
"""Reach a folder of the host through libvirt: the active pool that is there, else one that lives for the moment."""

import contextlib
import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from vgpuctl.guests.facts.storage_facts import pool_fact
from vgpuctl.guests.libvirt_errors import error_code, libvirt_module
from vgpuctl.guests.templating import render_template

_POLL_S = 0.2
_SHARED_POOL_LIMIT_S = 10.0
_Answer = TypeVar("_Answer")


def with_pool_at(connection: Any, folder: str, action: Callable[[Any], _Answer]) -> _Answer:
    """Run `action` with an active pool for a folder.

    Another run may take such a pool away, or make it first: then it is tried again for up to 10 s.
    Raises libvirtError.
    """
    library = libvirt_module()
    passing = (
        library.VIR_ERR_NO_STORAGE_POOL,
        library.VIR_ERR_NO_STORAGE_VOL,
        library.VIR_ERR_OPERATION_INVALID,
        library.VIR_ERR_OPERATION_FAILED,
    )
    deadline = time.monotonic() + _SHARED_POOL_LIMIT_S
    while True:
        try:
            for pool in connection.listAllStoragePools(library.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
                if pool_fact(pool).path == folder:
                    return action(pool)
            return _with_new_pool_at(connection, folder, action)
        except library.libvirtError as refused:
            if error_code(refused) not in passing or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


def _with_new_pool_at(connection: Any, folder: str, action: Callable[[Any], _Answer]) -> _Answer:
    name = "vgpuctl-" + hashlib.sha256(folder.encode()).hexdigest()[:12]
    xml = render_template("pool.xml.j2", name=name, path=folder)
    pool = connection.storagePoolCreateXML(xml, 0)
    try:
        return action(pool)
    finally:
        with contextlib.suppress(libvirt_module().libvirtError):
            pool.destroy()
