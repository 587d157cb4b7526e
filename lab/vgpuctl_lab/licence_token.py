# SPDX-License-Identifier: Apache-2.0
"""Stand-in client configuration tokens: the claims of NVIDIA's licence service, signed with a key nobody knows.

No real licence client accepts one. They are for tools that read a token without verifying it.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time

LIFETIME_S = 12 * 365 * 86_400


def licence_token(*servers: str, now: float | None = None, lifetime_s: float = LIFETIME_S) -> str:
    """A token that names these servers. now: seconds since the epoch; None for the clock's."""
    issued = int(time.time() if now is None else now)
    nodes = [{"idx": index, "url": one, "url_qr": one, "svc_port_set_idx": 0} for index, one in enumerate(servers)]
    ports = [{"service": name, "port": 443} for name in ("auth", "lease")]
    claims = {
        "jti": secrets.token_hex(16),
        "iss": "vgpuctl lab",
        "aud": "NLS Licensed Client",
        "iat": issued,
        "nbf": issued,
        "exp": issued + int(lifetime_s),
        "update_mode": "ABSOLUTE",
        "scope_ref_list": [secrets.token_hex(16)],
        "fulfillment_class_ref_list": [],
        "service_instance_configuration": {
            "nls_service_instance_ref": secrets.token_hex(16),
            "svc_port_set_list": [{"idx": 0, "d_name": "LAB", "svc_port_map": ports}],
            "node_url_list": nodes,
        },
    }
    head = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}"
    signature = hmac.new(secrets.token_bytes(32), head.encode(), hashlib.sha256).digest()
    return f"{head}.{_segment(signature)}"


def _encoded(value: object) -> str:
    return _segment(json.dumps(value, separators=(",", ":")).encode())


def _segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
