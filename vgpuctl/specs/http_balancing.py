# SPDX-License-Identifier: Apache-2.0
"""Fields of load balancers: what chooses a VM, what those of HTTP need, and the files with certificates and keys."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import UsageError
from vgpuctl.model.http_balancing import (
    Affinity,
    describe_check,
    describe_pool,
    describe_route,
    parse_check,
    parse_pool,
    parse_route,
)
from vgpuctl.model.load_balancer import BalancerHash
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import check_name
from vgpuctl.model.vpc_text import parse_weight
from vgpuctl.specs.bounded_reader import Malformed, read_bounded
from vgpuctl.specs.field import Choice, Field, Text, Whole
from vgpuctl.trusted_files import NAMED, NAMED_SECRET

_MOST_BYTES = 64 << 10


class ReadFile:
    """How files are read: those that hold secrets, and others."""

    def __init__(self, public: Callable[[str], bytes], secret: Callable[[str], bytes]) -> None:
        self.public = public
        self.secret = secret


@dataclass(frozen=True)
class NamedFile:
    """A value that is the path of a PEM file. label: of the blocks in it. is_secret: the model keeps a SecretText."""

    label: str
    is_secret: bool

    def read(self, path: str, read_file: ReadFile) -> object:
        """What the model keeps. Raises UsageError for a file without such a block."""
        content = (read_file.secret if self.is_secret else read_file.public)(path)
        try:
            text = content.decode("ascii") if len(content) <= _MOST_BYTES else ""
        except UnicodeDecodeError:
            text = ""
        if f"{self.label}-----" not in text or "\0" in text:
            raise UsageError(
                f"{path} has no {self.label} in PEM",
                hint=f"give a file with a line such as -----BEGIN {self.label}-----, of 64 KiB at most",
            )
        text = "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
        return SecretText.of(text) if self.is_secret else text


def _named(path: str, *, is_secret: bool) -> bytes:
    try:
        return read_bounded(Path(path), NAMED_SECRET if is_secret else NAMED)
    except Malformed as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from error


read_named = ReadFile(lambda path: _named(path, is_secret=False), lambda path: _named(path, is_secret=True))
"""Reads files that a user of the command line names."""
HTTP_FILES = {
    "certificate": NamedFile("CERTIFICATE", is_secret=False),
    "private_key": NamedFile("PRIVATE KEY", is_secret=True),
}


def _digest(value: object) -> str:
    """A certificate or a key as people see it: by its digest alone."""
    return value.digest if isinstance(value, SecretText) else SecretText.of(str(value)).digest


OF_CONNECTIONS = (
    Field("hash", Choice(BalancerHash), "What chooses the VM of a connection; for tcp, udp", "selection", "--hash"),
    Field(
        "affinity_s",
        Whole(0, 65535),
        "Seconds for which a client keeps its VM, 0 for none; for protocol tcp and udp",
        flag="--affinity-time",
    ),
    Field(
        "draining",
        Text(check_name),
        "VM that gets no new connections, and keeps those that are open",
        flag="--drain",
        metavar="NAME",
        is_list=True,
    ),
    Field(
        "weights",
        Text(parse_weight),
        "Weight of a VM against the others, 1 without one",
        flag="--weight",
        metavar="VM=NUMBER",
        is_list=True,
    ),
)
"""What chooses the VM of a new connection."""
OF_HTTP = (
    Field(
        "pools",
        Text(parse_pool, describe_pool),
        "Other VMs that routes lead to, with their port unless it is --vm-port's; for protocol http and https",
        flag="--pool",
        metavar="NAME=VM,VM[:PORT]",
        is_list=True,
    ),
    Field(
        "routes",
        Text(parse_route, describe_route),
        "Requests that a pool gets; all others go to the VMs of the balancer; for http and https",
        flag="--route",
        metavar="[HOST][/PATH]=POOL",
        is_list=True,
    ),
    Field(
        "certificate",
        Text(show=_digest),
        "PEM file with the certificate and those up to its authority; for https",
        flag="--certificate",
        metavar="FILE",
        flag_names_file=True,
    ),
    Field(
        "key",
        Text(show=_digest),
        "PEM file with the certificate's private key, which only you can read; for https",
        "private_key",
        flag="--key",
        metavar="FILE",
        flag_names_file=True,
    ),
    Field("affinity", Choice(Affinity), "Keep a client at one VM, by a cookie; for http and https", flag="--affinity"),
    Field(
        "check",
        Text(parse_check, describe_check),
        "Health check by a request, and the status codes of a healthy VM; for http and https",
        flag="--check",
        metavar="[METHOD] PATH [STATUS]",
        default="connect only",
    ),
    Field(
        "max_connections",
        Whole(1, 1_000_000),
        "Connections that each instance takes at once; for http and https",
        flag="--max-connections",
        metavar="NUMBER",
        default="10000",
    ),
    Field(
        "rate",
        Whole(1, 1_000_000),
        "Requests a second that each instance takes from one address; others get status 429; for http and https",
        flag="--rate",
        metavar="NUMBER",
        default="no limit",
    ),
    Field(
        "idle_timeout_s",
        Whole(1, 86_400),
        "Seconds without data after which a connection is closed; for http and https",
        flag="--idle-timeout",
        metavar="SECONDS",
    ),
)
