# SPDX-License-Identifier: Apache-2.0
"""The only entry point to libvirt-python: loads it on first use, silences it and translates its exceptions."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from vgpuctl.errors import GuestError, LibvirtMissing, VgpuctlError
from vgpuctl.guests.libvirt_hints import hint_for
from vgpuctl.logs import timed
from vgpuctl.model.libvirt_units import hint_of


@functools.cache
def libvirt_module() -> Any:
    """Import libvirt-python and stop libvirt from printing errors on stderr: they travel as exceptions."""
    import libvirt

    libvirt.registerErrorHandler(_swallow, None)
    return libvirt


@contextlib.contextmanager
def translated(action: str, error: type[GuestError] = GuestError) -> Iterator[None]:
    """Turn libvirt's exceptions within into `error`: "cannot ACTION: message (libvirt error CODE)" and a hint."""
    library = libvirt_module()
    with timed("libvirt-call", action=action):
        try:
            yield
        except library.libvirtError as refused:
            raise translate(refused, action, error) from refused


def translate(refused: Any, action: str, error: type[GuestError] = GuestError) -> VgpuctlError:
    """Make a GuestError of a libvirtError, or LibvirtMissing when the connection to libvirt broke."""
    answer = answer_of(refused)
    if refused.get_error_domain() == libvirt_module().VIR_FROM_RPC:
        return LibvirtMissing(
            f"cannot {action}: the connection to libvirt was lost: {answer}",
            hint=hint_of(answer),
        )
    return error(f"cannot {action}: {answer} (libvirt error {refused.get_error_code()})", hint=hint_for(answer))


def answer_of(refused: Any) -> str:
    """Give a libvirtError's message in one line."""
    return "; ".join(line.strip() for line in (refused.get_error_message() or str(refused)).strip().splitlines())


def error_code(refused: Any) -> int:
    """Give libvirt's error number (VIR_ERR_*), -1 when there is none."""
    code = refused.get_error_code()
    return code if isinstance(code, int) else -1


def _swallow(_context: object, _error: object) -> None:
    """Take the place of libvirt's handler that prints to stderr."""
