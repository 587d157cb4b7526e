# SPDX-License-Identifier: Apache-2.0
"""The gRPC server that the cluster-autoscaler calls: mutual TLS, limits, and who may call."""

import ipaddress
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from vgpuctl.autoscaler.messages import SERVICE
from vgpuctl.autoscaler.provider import ProviderCall
from vgpuctl.autoscaler.tls import FollowedTls, ServerTls, identities
from vgpuctl.errors import NotFound, StateError, UsageError, VgpuctlError
from vgpuctl.listening.hosts import read_authority
from vgpuctl.listening.relay import Relay
from vgpuctl.listening.requests import Refusals, refuse_host
from vgpuctl.listening.sockets import listen_on
from vgpuctl.local_files import make_first_folder, private_places

_LOGGER = logging.getLogger("vgpuctl.autoscaler")
_THREADS = 8
_MOST_CALLS = 64
_MOST_BYTES = 16 * 1024 * 1024
"""Of one request: DeleteNodes has each node with all its annotations, 1,024 nodes at most."""
_MOST_HEADER_BYTES = 16 * 1024
_HANDSHAKE_MS = 10_000
_IDLE_MS = 300_000
"""Of a connection without a call: gRPC tells the client that it ends. The autoscaler calls every 10 seconds."""
_STOP_S = 5.0
_LONGEST_MESSAGE = 1024
_CODES = (
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (StateError, grpc.StatusCode.FAILED_PRECONDITION),
)
_OPTIONS = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_metadata_size", _MOST_HEADER_BYTES),
    ("grpc.max_concurrent_streams", _MOST_CALLS),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    ("grpc.so_reuseport", 0),  # a second server on the port is refused
)


@contextmanager
def serving(
    methods: dict[str, ProviderCall],
    address: str,
    port: int,
    tls: ServerTls | None,
    allowed_hosts: Sequence[str] = (),
) -> Iterator[int]:
    """Serve the provider during the block. Yields the port; port 0 takes a free one. tls: None on loopback alone.

    allowed_hosts: names by which it may be called, beside the address and the names in its certificate.

    A renewed key and certificate count from the next connection on. Raises UsageError for files that cannot be used,
    an address that cannot be listened on, or one that others reach without TLS.
    """
    if tls is None and not ipaddress.ip_address(address).is_loopback:
        raise UsageError(
            f"{address} can be reached by others, and who calls this service creates and deletes VMs",
            hint="give --key, --cert and --client-ca, or listen on 127.0.0.1",
        )
    server = grpc.server(
        ThreadPoolExecutor(_THREADS, thread_name_prefix="autoscaler"),
        options=_OPTIONS,
        maximum_concurrent_rpcs=_MOST_CALLS,
    )
    followed, refusals = None if tls is None else FollowedTls(tls), Refusals()

    def refuse(context: Any) -> None:
        names = (*allowed_hosts, *(() if followed is None else followed.names))
        found = _refuse_web_page(context, address, names)
        if found is None and tls is not None and not identities(context.auth_context()) & set(tls.names):
            found = ("certificate", f"the certificate has none of the names {', '.join(tls.names)}")
        if found is not None:
            reason, message = found
            refusals.add(reason)
            _LOGGER.info("call refused", extra={"fields": {"reason": reason, "refused": dict(refusals.counts())}})
            context.abort(grpc.StatusCode.PERMISSION_DENIED, message)

    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _guarded(method, refuse),
            request_deserializer=method.request.FromString,
            response_serializer=method.answer.SerializeToString,
        )
        for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    with listen_on(address, port) as listener, _private_folder() as folder:
        inner = folder / "grpc"
        if followed is None:
            server.add_insecure_port(f"unix:{inner}")
        else:
            server.add_secure_port(f"unix:{inner}", followed.credentials())
        server.start()
        try:
            with Relay(listener, inner, refusals).running() as taken:
                try:
                    yield taken
                finally:
                    server.stop(_STOP_S).wait()  # answers still pass through the relay
        finally:
            server.stop(None).wait()


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = make_first_folder(private_places(), "the folder of gRPC's socket", prefix="vgpuctl-grpc-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_web_page(context: Any, address: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Refuse what a page of another site could send, if a browser spoke gRPC: its name as the authority, an Origin.

    Returns the reason, as servers count it, and the message; None for a call that may pass.
    """
    sent = {key for key, _value in context.invocation_metadata()}
    if sent & {"origin", "sec-fetch-site"}:
        return "origin", "web pages may not call this service"
    # The public interface has the authority nowhere.
    asked = read_authority(context._rpc_event.call_details.host.decode("latin-1"))
    if asked is None:
        return "host", "the authority is no name of a host"
    refusal = refuse_host(asked, address, names)
    return None if refusal is None else (refusal.reason, refusal.message)


def _guarded(method: ProviderCall, refuse: Callable[[Any], None]) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        refuse(context)
        if not context.is_active():
            # Who called does not wait any more: it reads the target size and asks again.
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's deadline passed before its turn")
        if method.call is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, method.why_not)
        else:
            try:
                return method.call(request)
            except VgpuctlError as error:
                code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.UNAVAILABLE)
                _LOGGER.info("refused", extra={"fields": {"reference": error.reference, "message": error.message}})
                context.abort(code, error.message[:_LONGEST_MESSAGE])

    return answer
