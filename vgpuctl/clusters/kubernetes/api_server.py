# SPDX-License-Identifier: Apache-2.0
"""One API server: a client of lightkube whose errors are ours."""

from collections.abc import Callable
from typing import Any, TypeVar

from lightkube import ApiError, Client, KubeConfig

from vgpuctl.errors import ClusterConflict, ClusterMissing, ClusterRefused, ClusterUnreachable

TIMEOUT_S = 10.0
PAGE = 500
"""Objects of one page of a list."""

_NOT_FOUND = 404
_CONFLICT = 409
T = TypeVar("T")
_HttpError: type[Exception] = ApiError.__mro__[2]
"""HTTPError of the client library under lightkube, whose name is another one in newer releases of lightkube."""


class ApiServer:
    """A server for many threads. where: what gave the access, for errors. rights: the page that lists the rights."""

    def __init__(self, config: KubeConfig, *, where: str, rights: str, timeout_s: float = TIMEOUT_S) -> None:
        timeout: Any = timeout_s
        self.client: Any = Client(config=config, timeout=timeout, trust_env=False)
        self._where = where
        self._rights = rights

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Make a call. what: it, for errors: `list nodes`.

        Raises ClusterMissing, ClusterConflict, ClusterRefused and ClusterUnreachable.
        """
        try:
            return call()
        except ApiError as error:
            code, text = error.status.code, f"the API server refused to {what}: {error.status.message}"
            if code == _NOT_FOUND:
                raise ClusterMissing(text) from error
            if code == _CONFLICT:
                raise ClusterConflict(text) from error
            raise ClusterRefused(text, hint=f"{self._rights} has the rights that the account needs") from error
        except _HttpError as error:
            raise ClusterUnreachable(
                f"the API server of {self._where} did not answer to {what}: {error or type(error).__name__}"
            ) from error
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ClusterRefused(f"the API server's answer to {what} cannot be read: {error}") from error
