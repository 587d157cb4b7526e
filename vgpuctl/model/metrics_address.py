# SPDX-License-Identifier: Apache-2.0
"""The address of an exporter in a guest, as its tenant allows it to be scraped."""

import ipaddress

from vgpuctl.errors import UsageError


def parse_metrics_address(text: str, /, *, what: str = "guest metrics") -> str:
    """Read `10.0.0.5:9400` or `[fd00::5]:9400`, and write it in one form. Raises UsageError.

    Only addresses that a guest can have: a tenant must not make Prometheus scrape the operator's own machine.
    """
    host, _colon, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if is_bracketed else host)
    except ValueError:
        address = None
    if address is None or is_bracketed != (address.version == 6) or not _is_port(port):
        raise UsageError(
            f"{what}: {text[:80]!a} is no address with a port", hint="write 10.0.0.5:9400 or [fd00::5]:9400"
        )
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or getattr(address, "ipv4_mapped", None) is not None
        or getattr(address, "scope_id", None) is not None
    ):
        raise UsageError(f"{what}: {address} is no address of a guest", hint="name the guest's own address")
    return f"[{address}]:{int(port)}" if address.version == 6 else f"{address}:{int(port)}"


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536
