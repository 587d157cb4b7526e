# SPDX-License-Identifier: Apache-2.0
"""The client of the lab's licence server. It needs the standard library alone, so a guest can run this one file.

    python3 client.py TOKEN_FILE CLIENT_UUID EDITION...     # stays, renews, returns the lease on SIGTERM

Every line that it prints is one JSON object: the state of the licence from then on.
"""

import _thread
import base64
import http.client
import json
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

CERTIFICATE, TIMERS = "lab_certificate", "lab_timers"
"""Claims of the lab's own tokens: the certificate to trust, and the steps of a driver without a licence."""
_MOST_ANSWER = 1 << 16
_TIMEOUT_S = 5.0
_LEAST_RETRY_S, _FIRST_RETRY_S, _MOST_RETRY_S = 0.2, 2.0, 60.0


class Refusal(StrEnum):
    """Why the server refuses."""

    FULL = "full"
    NO_EDITION = "no-edition"
    NO_LEASE = "no-lease"
    BAD_REQUEST = "bad-request"
    NO_TOKEN = "no-token"
    FORGED = "token-forged"
    OTHER_SERVER = "token-of-another-server"
    EXPIRED = "token-expired"
    REVOKED = "token-revoked"


class LicenceRefused(Exception):
    """The server's refusal."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Unreachable(Exception):
    """No address of the token answers as this server does."""


class Held(NamedTuple):
    """A lease. renew_after_s: when the server wants to hear of it again."""

    id: str
    edition: str
    expires_at: float
    renew_after_s: float


class Claims(NamedTuple):
    """The claims that the client needs of its token. certificate: the only one that it trusts, PEM.

    restricted_after_s, stopped_after_s: the steps of a driver without a licence.
    """

    addresses: list[str]
    certificate: str
    restricted_after_s: float
    stopped_after_s: float


def read_claims(token: str) -> Claims | None:
    """Read a token without verifying it; None for one that is not of the lab's licence server."""
    try:
        segment = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
        configuration = claims["service_instance_configuration"]
        ports = {one["idx"]: one["svc_port_map"][0]["port"] for one in configuration["svc_port_set_list"]}
        addresses = [f"{one['url']}:{ports[one['svc_port_set_idx']]}" for one in configuration["node_url_list"]]
        restricted, stopped = claims[TIMERS]
        return Claims(addresses, str(claims[CERTIFICATE]), float(restricted), float(stopped))
    except (ValueError, LookupError, TypeError):
        return None


class LicenceClient:
    """One guest's side. client: its UUID."""

    def __init__(self, token: str, claims: Claims, client: str, timeout_s: float = _TIMEOUT_S) -> None:
        self._token = token
        self._claims = claims
        self._client = client
        self._timeout_s = timeout_s
        # The token says which certificate to trust, so the address needs no name in it.
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname = False
        self._tls.load_verify_locations(cadata=claims.certificate)

    def check_out(self, editions: Sequence[str]) -> Held:
        """Take a seat of the first of these editions that has a free one. Raises LicenceRefused, Unreachable."""
        return _held(self._asks("POST", "/v1/leases", {"client": self._client, "editions": list(editions)}))

    def renew(self, held: Held) -> Held:
        """Let the lease begin again. Raises LicenceRefused, Unreachable."""
        return _held(self._asks("PUT", f"/v1/leases/{held.id}", {}))

    def give_back(self, held: Held) -> None:
        """Return the seat. Raises LicenceRefused, Unreachable."""
        self._asks("DELETE", f"/v1/leases/{held.id}", {})

    def _asks(self, method: str, path: str, document: dict[str, Any]) -> Any:
        said = []
        for address in self._claims.addresses:
            try:
                return self._asks_one(address, method, path, document)
            except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
                said.append(f"{address}: {error}")
        raise Unreachable("; ".join(said))

    def _asks_one(self, address: str, method: str, path: str, document: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"https://{address}{path}",
            data=json.dumps(document).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        # Without a proxy of the environment: the server is beside us.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
        )
        try:
            with opener.open(request, timeout=self._timeout_s) as answer:
                return json.loads(answer.read(_MOST_ANSWER) or b"null")
        except urllib.error.HTTPError as error:
            with error:
                said = json.loads(error.read(_MOST_ANSWER))
            raise LicenceRefused(Refusal(said["error"]), str(said["message"])) from None


def _held(answer: Any) -> Held:
    return Held(
        str(answer["lease"]), str(answer["edition"]), float(answer["expires_at"]), float(answer["renew_after_s"])
    )


def retry_after_s(lease_s: float | None) -> float:
    """How long a client waits after it got no licence. lease_s: of its last lease, None before the first."""
    return _FIRST_RETRY_S if lease_s is None else min(_MOST_RETRY_S, max(_LEAST_RETRY_S, lease_s / 10))


class LicenceSession:
    """A guest's licence from its boot on: steps that check out and renew, and the end of the guest.

    Both may be called from different threads; after the end no step takes a seat.
    """

    def __init__(self, client: LicenceClient, editions: Sequence[str]) -> None:
        self._client = client
        self._editions = list(editions)
        self._lease_s: float | None = None
        self.held: Held | None = None
        self.failure: str | None = None
        self._alone = threading.Lock()
        self._has_ended = False

    def step(self) -> float:
        """Check out, or renew what is held. Returns after how many seconds the next step is due."""
        with self._alone:
            return _MOST_RETRY_S if self._has_ended else self._step()

    def _step(self) -> float:
        try:
            if self.held is None:
                self.held = self._client.check_out(self._editions)
            else:
                self.held = self._client.renew(self.held)
            self._lease_s = self.held.expires_at - time.time()
            self.failure = None
            return self.held.renew_after_s
        except LicenceRefused as refused:
            self.failure = f"{refused.reason.value}: {refused.message}"
            if refused.reason is Refusal.NO_LEASE:
                self.held = None
        except Unreachable as error:
            self.failure = f"unreachable: {error}"
        if self.held is not None and self.held.expires_at <= time.time():
            self.held = None
        return retry_after_s(self._lease_s)

    def end(self) -> bool:
        """Return the seat. Returns False if the server did not hear of it."""
        try:
            with self._alone:
                held, self.held, self._has_ended = self.held, None, True
                if held is not None:
                    self._client.give_back(held)
            return True
        except (LicenceRefused, Unreachable) as error:
            self.failure = str(error)
            return False


def main() -> None:
    """Run as a guest's licence daemon."""
    token = Path(sys.argv[1]).read_text().strip()
    claims = read_claims(token)
    if claims is None:
        sys.exit(f"{sys.argv[1]} has no token of the lab's licence server")
    ending = threading.Event()
    # A thread sets it: the main thread may be within a wait for it, with its lock.
    signal.signal(signal.SIGTERM, lambda _number, _frame: _thread.start_new_thread(ending.set, ()))
    session = LicenceSession(LicenceClient(token, claims, sys.argv[2]), sys.argv[3:])
    while True:
        wait_s = session.step()
        _tell(session)
        if ending.wait(wait_s):
            break
    session.end()
    _tell(session)


def _tell(session: LicenceSession) -> None:
    held = session.held
    state = {"licensed": held is not None, "edition": held and held.edition, "expires_at": held and held.expires_at}
    sys.stdout.write(json.dumps({**state, "failure": session.failure}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
