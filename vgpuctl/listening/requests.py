# SPDX-License-Identifier: Apache-2.0
"""The rules of a request, decided from its head alone, before any application and before its body is read.

Sources: RFC 9110 and 9112; Fetch Metadata (W3C) for Sec-Fetch-Site, with the exception for links to a page.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from vgpuctl.listening.hosts import AskedHost, is_served, read_authority

Fields = Sequence[tuple[str, str]]
"""Header fields in their order, names in lower case."""

MOST_BODY_BYTES = 64 * 1024
_MOST_FIELDS = 100
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ACTING = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Without the control characters that urllib takes out of an address: a proxy before us has seen another path then.
_TARGET = re.compile(r"/[!-\"$-~]*")
_PROTOCOLS = ("HTTP/1.0", "HTTP/1.1")
_METHODS = ("GET", "HEAD", "POST")
_ONCE = frozenset(
    {
        "host",
        "origin",
        "authorization",
        "content-type",
        "content-length",
        "content-encoding",
        "transfer-encoding",
        "expect",
        "sec-fetch-site",
        "sec-fetch-mode",
        "sec-fetch-dest",
    }
)
_LENGTH = re.compile(r"[0-9]{1,12}")
_CHARSET = re.compile(r'charset="?utf-8"?', re.IGNORECASE)
_ORIGIN = re.compile(r"(https?)://([^/?#@\\]+)")
_PORTS = {"http": 80, "https": 443}
_LONGEST_SHOWN = 100


@dataclass(frozen=True)
class RequestRefusal:
    """The answer to a request that no application sees. reason: the label of its count."""

    status: HTTPStatus
    reason: str
    message: str

    def answer(self) -> bytes:
        """The whole answer, after which the connection is closed."""
        body = f"{self.message}\n".encode("ascii", "backslashreplace")
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            "Cache-Control: no-store",
            "Connection: close",
        )
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class RequestHead:
    """A request without its body. arrived_at: the address of this machine that the client connected to."""

    method: str
    target: str
    protocol: str
    fields: Fields
    arrived_at: str
    has_tls: bool = False


@dataclass(frozen=True)
class Rules:
    """Requests that one server accepts. names: hosts that it is asked for beside its address. content_types: of bodies;
    no body where there are none."""

    names: Callable[[], Collection[str]] = tuple
    content_types: frozenset[str] = frozenset()
    most_body_bytes: int = MOST_BODY_BYTES


class Refusals:
    """How many requests and connections were refused, by reason, since the start. Threads share it."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def add(self, reason: str) -> None:
        """Count one more."""
        self._counts[reason] += 1

    def counts(self) -> Mapping[str, int]:
        """The numbers so far."""
        return dict(sorted(self._counts.copy().items()))


def read_fields(lines: Sequence[bytes]) -> tuple[Fields, RequestRefusal | None]:
    """Read header lines, without the empty one at their end. Names with `_`, which WSGI takes for `-`, are left out.

    Returns what was wrong too, None if nothing was.
    """
    found: list[tuple[str, str]] = []
    if len(lines) > _MOST_FIELDS:
        large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        return found, RequestRefusal(large, "malformed", f"more than {_MOST_FIELDS} headers")
    for line in lines:
        name, colon, value = line.decode("latin-1").removesuffix("\r\n").partition(":")
        value = value.strip(" \t")
        if not colon or not _NAME.fullmatch(name) or _ACTING.search(value):
            return found, _malformed(f"the header line {name[:_LONGEST_SHOWN]!a} is malformed")
        if "_" not in name:
            found.append((name.lower(), value))
    return found, None


def refuse(head: RequestHead, rules: Rules) -> RequestRefusal | None:
    """Judge a request; None for one that an application may see."""
    if not _TARGET.fullmatch(head.target) or head.protocol not in _PROTOCOLS:
        return _malformed("the request line is malformed: METHOD /PATH HTTP/1.1 with one blank between two words")
    names = [name for name, _value in head.fields]
    twice = next((one for one in names if one in _ONCE and names.count(one) > 1), None)
    if twice is not None:
        return _malformed(f"the header {twice} is there twice")
    fields = dict(head.fields)
    if head.method not in _METHODS:
        return RequestRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "method", f"only {', '.join(_METHODS)} are served")
    asked = read_authority(fields.get("host", ""))
    if asked is None:
        return _malformed("the header Host is missing or is no name or address of a host")
    return (
        refuse_host(asked, head.arrived_at, rules.names())
        or _refuse_origin(fields, asked, head)
        or _refuse_body(fields, rules)
    )


def refuse_host(asked: AskedHost, arrived_at: str, names: Collection[str]) -> RequestRefusal | None:
    """Judge the name that a server is asked for."""
    if is_served(asked.name, arrived_at, names):
        return None
    return RequestRefusal(
        HTTPStatus.MISDIRECTED_REQUEST,
        "host",
        f"this server is not known as {asked.name[:_LONGEST_SHOWN]!a}; if clients are to call it so, start it with"
        " --allow-host and that name, or with a certificate that has the name",
    )


def _refuse_origin(fields: Mapping[str, str], asked: AskedHost, head: RequestHead) -> RequestRefusal | None:
    origin = fields.get("origin")
    if origin is not None and not _is_own_origin(origin, asked, has_tls=head.has_tls):
        shown = f"{origin[:_LONGEST_SHOWN]!a}"
        return RequestRefusal(HTTPStatus.FORBIDDEN, "origin", f"pages of {shown} may send nothing to this server")
    site = fields.get("sec-fetch-site", "none")
    is_link = (
        head.method != "POST"
        and fields.get("sec-fetch-mode") == "navigate"
        and fields.get("sec-fetch-dest") == "document"
    )
    if site not in ("none", "same-origin") and not is_link:
        return RequestRefusal(HTTPStatus.FORBIDDEN, "origin", "pages of other sites may send nothing to this server")
    return None


def _is_own_origin(origin: str, asked: AskedHost, *, has_tls: bool) -> bool:
    """True for the origin of the server itself. A proxy in front may speak TLS for it, so https counts without ours."""
    found = _ORIGIN.fullmatch(origin)
    authority = None if found is None else read_authority(found[2])
    if found is None or authority is None or (has_tls and found[1] != "https"):
        return False
    default = _PORTS[found[1]]
    return (authority.name, authority.port or default) == (asked.name, asked.port or default)


def _refuse_body(fields: Mapping[str, str], rules: Rules) -> RequestRefusal | None:
    if "transfer-encoding" in fields:
        return RequestRefusal(HTTPStatus.LENGTH_REQUIRED, "body", "send the body with Content-Length, not in chunks")
    length = fields.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        return _malformed("the header Content-Length is no number of bytes")
    if int(length) > rules.most_body_bytes:
        most = f"at most {rules.most_body_bytes} bytes are taken"
        return RequestRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", f"the body has {int(length)} bytes; {most}")
    if int(length) == 0:
        return None
    kind, *parameters = (part.strip() for part in fields.get("content-type", "").split(";"))
    is_plain = all(_CHARSET.fullmatch(one) for one in parameters) and "content-encoding" not in fields
    if kind.lower() not in rules.content_types or not is_plain:
        wanted = " or ".join(sorted(rules.content_types))
        message = f"send the body as {wanted}, in UTF-8" if wanted else "this server takes no body"
        return RequestRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type", message)
    return None


def _malformed(message: str) -> RequestRefusal:
    return RequestRefusal(HTTPStatus.BAD_REQUEST, "malformed", message)
