# SPDX-License-Identifier: Apache-2.0
"""One API server: a client of lightkube whose errors are ours."""

from collections.abc import Callable
from typing import Any, TypeVar

from lightkube import ApiError, Client, KubeConfig

from vgpuctl.errors import (
    ClusterConflict,
    ClusterMissing,
    ClusterRefused,
    ClusterUnreachable,
    UsageError,
    VgpuctlError,
)
from vgpuctl.model.printable import printable

TIMEOUT_S = 10.0
PAGE = 500
"""Objects of one page of a list."""

_LONGEST_TEXT = 300
_NOT_FOUND = 404
_CONFLICT = 409
T = TypeVar("T")
_HttpError: type[Exception] = ApiError.__mro__[2]
"""HTTPError of the client library under lightkube, whose name is another one in newer releases of lightkube."""


class ApiServer:
    """A server for many threads. where: what gave the access, for errors. rights: the page that lists the rights."""

    def __init__(self, config: KubeConfig, *, where: str, rights: str, timeout_s: float = TIMEOUT_S) -> None:
        """Open nothing yet. Raises UsageError for certificates and keys that cannot be used."""
        timeout: Any = timeout_s
        try:
            self.client: Any = Client(config=config, timeout=timeout, trust_env=False)
        except Exception as error:
            # The library lets the errors of TLS, base64 and its own reader through.
            raise UsageError(
                f"the certificates, key or token for {where} cannot be used: {_short(str(error))}",
                hint="give a kubeconfig with a whole certificate authority, and a client certificate with its key",
            ) from error
        self._where = where
        self._rights = rights

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Make a call. what: it, for errors: `list nodes`.

        Raises ClusterMissing, ClusterConflict, ClusterRefused and ClusterUnreachable.
        """
        try:
            return call()
        except ApiError as error:
            code, text = error.status.code, f"the API server refused to {what}: {_short(error.status.message)}"
            if code == _NOT_FOUND:
                raise ClusterMissing(text) from error
            if code == _CONFLICT:
                raise ClusterConflict(text) from error
            raise ClusterRefused(text, hint=f"{self._rights} has the rights that the account needs") from error
        except _HttpError as error:
            why = _short(str(error)) or type(error).__name__
            raise ClusterUnreachable(f"the API server of {self._where} did not answer to {what}: {why}") from error
        except VgpuctlError:
            raise
        except Exception as error:
            # A missing part of an answer fails anywhere in the library or its reader, and must not end the caller.
            raise ClusterRefused(
                f"the API server's answer to {what} cannot be read: {_short(str(error)) or type(error).__name__}"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def _short(text: str | None) -> str:
    """A text of the server for an error: in one line, and not long."""
    return printable((text or "")[:_LONGEST_TEXT])
