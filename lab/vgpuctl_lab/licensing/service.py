# SPDX-License-Identifier: Apache-2.0
"""The process of one licence server: HTTPS on one address, for clients alone. Its owner's commands use its files.

    POST   /v1/leases      {"client": UUID, "editions": [...]}   check out: 201
    PUT    /v1/leases/ID                                         renew: 200
    DELETE /v1/leases/ID                                         return: 200

Every call has the client configuration token: `Authorization: Bearer TOKEN`. A refusal is {"error", "message"}.
"""

import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cheroot.ssl.builtin import BuiltinSSLAdapter
from cheroot.wsgi import Server
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from vgpuctl_lab.folder import write_private
from vgpuctl_lab.licensing.client import LicenceRefused, Refusal
from vgpuctl_lab.licensing.seats import Lease, Seats
from vgpuctl_lab.licensing.tokens import Identity

_LOGGER = logging.getLogger("licence-server")
_MOST_BYTES = 64 * 1024
_MOST_EDITIONS = 16
_RENEWED_AFTER = 0.15
"""The part of its lease after which a client renews it, as NVIDIA's service asks for by default."""
_STATUS = {Refusal.FULL: 409, Refusal.NO_EDITION: 409, Refusal.NO_LEASE: 404, Refusal.BAD_REQUEST: 400}
_OF_TOKEN = 401

Answer = tuple[dict[str, object], int]


def application(identity: Identity, seats: Seats) -> Flask:
    """The calls of clients."""
    app = Flask("vgpuctl-lab-licence-server")
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES

    @app.before_request
    def check_token() -> None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not token:
            raise LicenceRefused(Refusal.NO_TOKEN, "the call has no token")
        if seats.is_revoked(identity.verify(token.strip())):
            raise LicenceRefused(Refusal.REVOKED, "the token was revoked")

    @app.post("/v1/leases")
    def check_out() -> Answer:
        client, editions = _wanted(request.get_data())
        return _said(seats.check_out(client, editions, time.time()), "checked out"), 201

    @app.put("/v1/leases/<lease>")
    def renew(lease: str) -> Answer:
        return _said(seats.renew(lease, time.time()), "renewed"), 200

    @app.delete("/v1/leases/<lease>")
    def give_back(lease: str) -> Answer:
        seats.give_back(lease)
        _LOGGER.info("returned")
        return {}, 200

    @app.errorhandler(LicenceRefused)
    def refuse(refused: LicenceRefused) -> Answer:
        _LOGGER.info("refused: %s", refused.message)
        return {"error": refused.reason.value, "message": refused.message}, _STATUS.get(refused.reason, _OF_TOKEN)

    @app.errorhandler(HTTPException)
    def no_such_call(error: HTTPException) -> Response:
        document = {"error": Refusal.BAD_REQUEST.value, "message": str(error.description)}
        return Response(json.dumps(document), error.code or 400, mimetype="application/json")

    return app


def _wanted(body: bytes) -> tuple[str, list[str]]:
    """The client's UUID and its editions. Raises LicenceRefused."""
    try:
        document = json.loads(body)
        client = str(uuid.UUID(document["client"]))
        editions = [one for one in document["editions"] if isinstance(one, str) and 0 < len(one) <= 32]
        if not 0 < len(editions) <= _MOST_EDITIONS:
            raise ValueError("editions")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise LicenceRefused(Refusal.BAD_REQUEST, 'a check-out is {"client": UUID, "editions": [NAME, …]}') from None
    return client, editions


def _said(lease: Lease, what: str) -> dict[str, object]:
    _LOGGER.info("%s: %s for %s", what, lease.edition, lease.client)
    return {
        "lease": lease.id,
        "edition": lease.edition,
        "expires_at": lease.expires_at,
        "renew_after_s": (lease.expires_at - time.time()) * _RENEWED_AFTER,
    }


class _QuietServer(Server):
    """cheroot's server; what a client does wrong is a line of the log."""

    error_log: Callable[..., None]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.error_log = lambda msg="", level=logging.INFO, traceback=False: _LOGGER.log(level, "%s", msg)


def main() -> None:
    """Serve: FOLDER ADDRESS PORT. Writes the port to the folder's file `port` when it listens."""
    folder, address, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    os.umask(0o077)
    app = application(Identity.kept_in(folder, folder.name), Seats(folder / "seats.db"))
    server = _QuietServer((address, port), app, server_name="vgpuctl-lab")
    server.max_request_body_size = _MOST_BYTES
    server.ssl_adapter = BuiltinSSLAdapter(str(folder / "certificate.pem"), str(folder / "key.pem"))
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit())
    try:
        server.prepare()
    except OSError as error:
        sys.exit(f"{address} port {port} cannot be listened on: {error}")
    write_private(folder / "port", f"{server.bind_addr[1]}\n")
    try:
        server.serve()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
