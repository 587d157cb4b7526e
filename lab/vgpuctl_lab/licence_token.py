# SPDX-License-Identifier: Apache-2.0
"""Stand-in client configuration tokens: the claims of NVIDIA's licence service, not its signature.

No real licence client accepts one. `licence_token` signs with a key nobody knows, for tools that read a token without
verifying it; the lab's licence server signs its own (licensing/tokens.py).
"""

import secrets
import time
from collections.abc import Mapping

import jwt

LIFETIME_S = 12 * 365 * 86_400
AUDIENCE = "NLS Licensed Client"


def licence_token(*servers: str, now: float | None = None, lifetime_s: float = LIFETIME_S) -> str:
    """A token that names these servers. now: seconds since the epoch; None for the clock's."""
    issued = time.time() if now is None else now
    claims = token_claims(servers, port=443, now=issued, lifetime_s=lifetime_s)
    return jwt.encode(dict(claims), secrets.token_bytes(32), algorithm="HS256")


def token_claims(
    servers: tuple[str, ...], *, port: int, now: float, lifetime_s: float, instance: str | None = None
) -> Mapping[str, object]:
    """The claims of a token. instance: the id of the server; None for one of its own."""
    nodes = [{"idx": index, "url": one, "url_qr": one, "svc_port_set_idx": 0} for index, one in enumerate(servers)]
    ports = [{"service": name, "port": port} for name in ("auth", "lease")]
    return {
        "jti": secrets.token_hex(16),
        "iss": "vgpuctl lab",
        "aud": AUDIENCE,
        "iat": int(now),
        "nbf": int(now),
        "exp": int(now + lifetime_s),
        "update_mode": "ABSOLUTE",
        "scope_ref_list": [secrets.token_hex(16)],
        "fulfillment_class_ref_list": [],
        "service_instance_configuration": {
            "nls_service_instance_ref": instance or secrets.token_hex(16),
            "svc_port_set_list": [{"idx": 0, "d_name": "LAB", "svc_port_map": ports}],
            "node_url_list": nodes,
        },
    }
