# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NVIDIA's licence service: HTTPS, seats by edition, leases that end, tokens that it verifies.

NVIDIA's protocol is not public. This service has one of its own, with the behaviour that NVIDIA documents; no real
licence client can talk to it.
"""

from vgpuctl_lab.licensing.lifecycle import (
    TIMERS,
    LicenceServer,
    down,
    names,
    revoke_tokens,
    status,
    stop,
    token,
    up,
)

__all__ = ["TIMERS", "LicenceServer", "down", "names", "revoke_tokens", "status", "stop", "token", "up"]
