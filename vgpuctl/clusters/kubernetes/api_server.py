# SPDX-License-Identifier: Apache-2.0
"""One API server: requests with JSON whose answers are bounded in bytes and in time, and whose errors are ours.

lightkube reads the kubeconfig and signs the requests. The objects are read here, each of a list on its own: its models
would refuse a whole list for one odd object.
"""

import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
from lightkube import KubeConfig
from lightkube.config import client_adapter

from vgpuctl.clusters.kubernetes.bounded_transport import HTTPX, AnswerRefused, BoundedTransport, IpAddress, NoAnswer
from vgpuctl.errors import (
    ClusterConflict,
    ClusterMissing,
    ClusterRefused,
    ClusterUnreachable,
    UsageError,
)
from vgpuctl.model.printable import printable
from vgpuctl.typed_json import decode

TIMEOUT_S = 10.0
"""Of one exchange, from the connection to the last byte."""
MOST_BYTES = 64 * 1024 * 1024
"""Of one answer: a page of 500 objects of 128 KiB each."""
PAGE = 500
"""Objects of one page of a list."""
MOST_OBJECTS = 200_000
"""Of one list. Kubernetes is built for at most 150,000 pods (kubernetes.io, Considerations for large clusters)."""

_PAGES_TIME = 6
"""Times the limit of one exchange for all pages of a list."""
_LONGEST_TEXT = 300
_NOT_FOUND = 404
_CONFLICT = 409
_MERGE_PATCH = "application/merge-patch+json"


class _ListMetadata(msgspec.Struct):
    continue_: str | None = msgspec.field(name="continue", default=None)


class _ObjectList(msgspec.Struct):
    """A page of a list; each object is decoded on its own."""

    items: list[msgspec.Raw] | None
    metadata: _ListMetadata | None = None


class _Status(msgspec.Struct):
    """Of meta/v1, as errors have it."""

    message: str | None = None


class ApiServer:
    """A server for many threads. where: what gave the access, for errors. rights: the page that lists the rights.

    Every request raises ClusterMissing, ClusterConflict, ClusterRefused and ClusterUnreachable.
    check: refuses addresses (bounded_transport.py).
    """

    def __init__(
        self,
        config: KubeConfig,
        *,
        where: str,
        rights: str,
        timeout_s: float = TIMEOUT_S,
        most_bytes: int = MOST_BYTES,
        check: Callable[[IpAddress], None] | None = None,
    ) -> None:
        """Open nothing yet. Raises UsageError for certificates and keys that cannot be used."""
        try:
            one: Any = config.get()
            context = client_adapter.verify_cluster(one.cluster, one.user, one.abs_file, trust_env=False)
            # From Python 3.13 on an authority must name its key's use, which openssl's own do not; kubectl takes them.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._client: Any = HTTPX.Client(
                base_url=one.cluster.server,
                auth=client_adapter.user_auth(one.user),
                transport=BoundedTransport(context, timeout_s=timeout_s, most_bytes=most_bytes, check=check),
                trust_env=False,
                follow_redirects=False,
            )
        except Exception as error:
            # The library lets the errors of TLS, base64 and its own reader through.
            raise UsageError(
                f"the certificates, key or token for {where} cannot be used: {_short(str(error))}",
                hint="give a kubeconfig with a whole certificate authority, and a client certificate with its key",
            ) from error
        self._where = where
        self._rights = rights
        self._timeout_s = timeout_s

    def get(self, what: str, path: str, kind: Any = Any) -> Any:
        """One object as `kind`. what: the request in words, for errors: `get node x`. path: `/api/v1/nodes/x`."""
        return self._read(what, self._ask(what, "GET", path), kind)

    def list(self, what: str, path: str, **query: str) -> Iterator[msgspec.Raw]:
        """The objects of a list as bytes, page by page, at most MOST_OBJECTS."""
        give_up = time.monotonic() + _PAGES_TIME * self._timeout_s
        query = {"limit": str(PAGE), **query}
        count = 0
        while True:
            page = self._read(what, self._ask(what, "GET", path, query), _ObjectList)
            for one in page.items or ():
                count += 1
                if count > MOST_OBJECTS:
                    raise ClusterRefused(f"cannot {what}: the API server lists more than {MOST_OBJECTS} objects")
                yield one
            following = page.metadata.continue_ if page.metadata is not None else None
            if not following:
                return
            if time.monotonic() > give_up:
                limit = _PAGES_TIME * self._timeout_s
                raise ClusterUnreachable(f"the API server of {self._where} did not {what} in full in {limit:g} s")
            query["continue"] = following

    def patch(self, what: str, path: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into an object (RFC 7386)."""
        self._ask(what, "PATCH", path, body=patch, content_type=_MERGE_PATCH)

    def create(self, what: str, path: str, document: Mapping[str, Any], *, accepted: Collection[int] = ()) -> None:
        """Create an object. accepted: HTTP statuses that count as success too."""
        self._ask(what, "POST", path, body=document, accepted=accepted)

    def delete(self, what: str, path: str, uid: str) -> None:
        """Delete the object of this uid; ClusterConflict where the name is another object's by now."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        self._ask(what, "DELETE", path, body=options)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(
        self,
        what: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        accepted: Collection[int] = (),
    ) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": "application/json"} | ({} if content is None else {"Content-Type": content_type})
        try:
            answer = self._client.request(method, path, params=query, content=content, headers=headers)
        except AnswerRefused as error:
            raise ClusterRefused(f"cannot {what}: the API server of {self._where} {_short(str(error))}") from error
        except (NoAnswer, HTTPX.HTTPError) as error:
            why = _short(str(error)) or type(error).__name__
            raise ClusterUnreachable(f"the API server of {self._where} did not answer to {what}: {why}") from error
        except Exception as error:
            # Odd headers fail anywhere in the library, and must not end the caller.
            raise ClusterRefused(
                f"the API server's answer to {what} cannot be read: {_short(str(error)) or type(error).__name__}"
            ) from error
        if not answer.is_success and answer.status_code not in accepted:
            self._refuse(what, answer)
        content = answer.content
        assert isinstance(content, bytes)
        return content

    def _refuse(self, what: str, answer: Any) -> None:
        """Raise the error of an answer without success."""
        status = answer.status_code
        try:
            said = decode(answer.content, _Status).message or ""
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            said = ""
        text = f"the API server refused to {what}: {_short(said) or f'HTTP status {status}'}"
        if status == _NOT_FOUND:
            raise ClusterMissing(text)
        if status == _CONFLICT:
            raise ClusterConflict(text)
        raise ClusterRefused(text, hint=f"{self._rights} has the rights that the account needs")

    def _read(self, what: str, content: bytes, kind: Any) -> Any:
        try:
            return decode(content, kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ClusterRefused(f"the API server's answer to {what} cannot be read: {_short(str(error))}") from error


def _short(text: str) -> str:
    """A text of the server for an error: in one line, and not long."""
    return printable(text[:_LONGEST_TEXT])
