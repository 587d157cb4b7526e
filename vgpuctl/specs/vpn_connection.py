# SPDX-License-Identifier: Apache-2.0
"""The fields of a VPN connection beside its name and network (vpc_objects.py)."""

from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.wireguard import parse_endpoint, parse_prefix, parse_preshared_key, parse_public_key
from vgpuctl.specs.field import Field, Text, Whole
from vgpuctl.specs.http_balancing import ReadFile


class PresharedKeyFile:
    """A value that is the path of a file with a preshared key."""

    def read(self, path: str, read_file: ReadFile) -> SecretText:
        """What the model keeps. Raises UsageError for a file without a key."""
        return parse_preshared_key(read_file.secret(path).decode("latin-1"), what=f"the content of {path}")


VPN_FIELDS = (
    Field(
        "prefixes",
        Text(parse_prefix),
        "Network of the other site",
        flag="--peer-prefix",
        metavar="CIDR",
        is_list=True,
        is_required=True,
        at_least_one=True,
    ),
    Field("port", Whole(1, 65535), "UDP port of the gateway's address", flag="--port"),
    Field(
        "peer_key",
        Text(parse_public_key),
        "WireGuard public key of the other site",
        flag="--peer-key",
        metavar="KEY",
        default="made by `rotate-vpn-keys --peer`",
    ),
    Field(
        "endpoint",
        Text(parse_endpoint),
        "Address and UDP port of the other site",
        flag="--endpoint",
        metavar="ADDRESS:PORT",
        default="the other site connects first",
    ),
    Field(
        "keepalive_s",
        Whole(1, 65535),
        "Seconds between packets that keep NAT open",
        flag="--keepalive",
        default="no such packets",
    ),
    Field(
        "preshared_key",
        Text(show=lambda key: key.digest),
        "File with the preshared key of both sites, which only you can read",
        flag="--preshared-key",
        metavar="FILE",
        flag_names_file=True,
    ),
)
