# SPDX-License-Identifier: Apache-2.0
"""What a load balancer does with HTTP: pools of members, routes to them, health checks, and how people write these.

Every text goes into the configuration of a program, so each is of a small set of characters
(vgpuctl.guests.haproxy also quotes it).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name

DEFAULT_POOL = "default"
"""The pool of the balancer's own VMs, which takes what no route is about."""
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_LONGEST_HOST, _LONGEST_PATH = 253, 200
# pchar of RFC 3986 without percent signs, quotes and equals signs: a path as browsers and servers write it.
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&()*+,;:@-]*)+")
_DOTS = re.compile(r"(^|/)\.{1,2}(/|$)")
_METHODS = ("GET", "HEAD", "OPTIONS")
_LOWEST_STATUS, _HIGHEST_STATUS = 100, 599
_STATUS = re.compile(r"[1-5][0-9]{2}(-[1-5][0-9]{2})?(,[1-5][0-9]{2}(-[1-5][0-9]{2})?){0,9}")


class BalancerProtocol(StrEnum):
    """What a load balancer understands of its connections. https: it ends TLS, and members get HTTP."""

    TCP = "tcp"
    UDP = "udp"
    HTTP = "http"
    HTTPS = "https"

    def is_http(self) -> bool:
        """True if it reads requests, and so is a program on hosts."""
        return self in (BalancerProtocol.HTTP, BalancerProtocol.HTTPS)

    @property
    def transport(self) -> str:
        """The protocol of its connections: `tcp` or `udp`."""
        return "udp" if self is BalancerProtocol.UDP else "tcp"


class Affinity(StrEnum):
    """Whether requests of one client go to one member."""

    NONE = "none"
    COOKIE = "cookie"
    """By a cookie that the balancer sets."""


@dataclass(frozen=True)
class Pool:
    """VMs that routes lead to. vm_port: None for the balancer's."""

    name: str
    vms: tuple[str, ...]
    vm_port: int | None = None


@dataclass(frozen=True)
class HttpRoute:
    """Requests that go to a pool. host: "" for any, `*.example.com` for every name below. path: "" for any, else it and
    all below it.
    """

    host: str
    path: str
    pool: str

    @property
    def rank(self) -> tuple[bool, bool, int, int, str, str]:
        """The first route in this order that fits a request decides: exact hosts, then long paths."""
        return (not self.host, self.host.startswith("*"), -len(self.host), -len(self.path), self.host, self.path)


@dataclass(frozen=True)
class HttpCheck:
    """A request that a healthy member answers with one of these status codes: `200`, `200-299`, `200,204`."""

    method: str
    path: str
    status: str


def parse_pool(text: str, *, what: str = "pool") -> Pool:
    """Read `api=web-3,web-4` or `api=web-3,web-4:8080`. Raises UsageError."""
    name, equals, rest = text.partition("=")
    members, colon, port = rest.partition(":")
    vms = [one for one in members.split(",") if one]
    if not equals or not vms:
        raise UsageError(f"{what} {text[:80]!a} is no pool", hint="write NAME=VM,VM or NAME=VM,VM:PORT")
    if name == DEFAULT_POOL:
        raise UsageError(
            f"{what} {text[:80]!a}: the pool {DEFAULT_POOL} is that of the balancer's own VMs", hint="take another name"
        )
    if colon and not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise UsageError(f"{what} {text[:80]!a}: {port[:20]!a} is no port", hint="write NAME=VM,VM:8080")
    names = tuple(dict.fromkeys(check_name(one, what=f"{what} {check_name(name, what=what)}: VM") for one in vms))
    return Pool(name, names, int(port) if colon else None)


def describe_pool(pool: Pool) -> str:
    """A pool as `parse_pool` reads it."""
    return f"{pool.name}={','.join(pool.vms)}" + (f":{pool.vm_port}" if pool.vm_port is not None else "")


def parse_route(text: str, *, what: str = "route") -> HttpRoute:
    """Read `shop.example.com=web`, `shop.example.com/api=api`, `*.example.com=web` or `/api=api`. Raises UsageError."""
    hint = "write HOST=POOL, /PATH=POOL or HOST/PATH=POOL, such as shop.example.com/api=api"
    where, equals, pool = text.rpartition("=")
    host, slash, rest = where.partition("/")
    if not equals or not where:
        raise UsageError(f"{what} {text[:80]!a} is no route", hint=hint)
    host = host.lower().removesuffix(".")
    if host and (not _HOST.fullmatch(host) or len(host) > _LONGEST_HOST):
        raise UsageError(
            f"{what} {text[:80]!a}: {host[:80]!a} is no name of a host",
            hint="letters, digits, - and dots; *. before it for every name below; names with others in their xn-- form",
        )
    path = check_path(f"/{rest}", what=what).rstrip("/") if slash else ""
    return HttpRoute(host, path, check_name(pool, what=f"{what} {where[:80]!a}: pool"))


def describe_route(route: HttpRoute) -> str:
    """A route as `parse_route` reads it."""
    return f"{route.host}{route.path or '/' * (not route.host)}={route.pool}"


def parse_check(text: str, *, what: str = "check") -> HttpCheck:
    """Read `/healthz`, `GET /healthz` or `GET /healthz 200-299`; without codes 200 to 399 counts. Raises UsageError."""
    words = text.split()
    if words and words[0].startswith("/"):
        words.insert(0, _METHODS[0])
    if not 2 <= len(words) <= 3 or words[0] not in _METHODS:
        methods = ", ".join(_METHODS)
        raise UsageError(
            f"{what} {text[:80]!a} is no health check",
            hint=f"write [METHOD] PATH [STATUS], such as 'GET /healthz 200-299'; METHOD is {methods}",
        )
    status = words[2] if len(words) == 3 else "200-399"
    if not _STATUS.fullmatch(status) or any(
        low > high for low, _, high in (one.partition("-") for one in status.split(",")) if high
    ):
        raise UsageError(f"{what} {text[:80]!a}: {status[:40]!a} are no status codes", hint="200, 200-299 or 200,204")
    return HttpCheck(words[0], check_path(words[1], what=what), status)


def describe_check(check: HttpCheck) -> str:
    """A check as `parse_check` reads it."""
    return f"{check.method} {check.path} {check.status}"


def check_path(path: str, *, what: str) -> str:
    """A path of requests without `.` and `..`, in which no character needs quoting. Raises UsageError."""
    if not _PATH.fullmatch(path) or _DOTS.search(path) or "//" in path or len(path) > _LONGEST_PATH:
        raise UsageError(
            f"{what}: {path[:80]!a} is no path",
            hint=f"up to {_LONGEST_PATH} characters, such as /api: letters, digits and -._~!$&()*+,;:@",
        )
    return path
