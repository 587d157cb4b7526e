# SPDX-License-Identifier: Apache-2.0
"""How a command reaches a host. It tells a host that does not answer from a command that looks in the wrong place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """One way to a host. words: login, address, jump hosts, interpreter and sudo; equal words are the same way.

    host_key: kind and fingerprint of the key that the host showed at a login that worked and checked it; else None.
    """

    words: str
    host_key: tuple[str, str] | None = None
