# SPDX-License-Identifier: Apache-2.0
"""The gRPC server that the cluster-autoscaler calls: mutual TLS, limits, and who may call."""

import ipaddress
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from vgpuctl.autoscaler.messages import SERVICE
from vgpuctl.autoscaler.provider import ProviderCall
from vgpuctl.autoscaler.tls import ServerTls, credentials, identities
from vgpuctl.errors import NotFound, StateError, UsageError, VgpuctlError

_LOGGER = logging.getLogger("vgpuctl.autoscaler")
_THREADS = 8
_MOST_CALLS = 64
_MOST_BYTES = 16 * 1024 * 1024
"""Of one request: DeleteNodes has each node with all its annotations, 1,024 nodes at most."""
_MOST_HEADER_BYTES = 16 * 1024
_HANDSHAKE_MS = 10_000
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
    ("grpc.so_reuseport", 0),  # a second server on the port is refused
)


@contextmanager
def serving(methods: dict[str, ProviderCall], address: str, port: int, tls: ServerTls | None) -> Iterator[int]:
    """Serve the provider during the block. Yields the port; port 0 takes a free one. tls: None on loopback alone.

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
    names = None if tls is None else tls.names
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _guarded(method, names),
            request_deserializer=method.request.FromString,
            response_serializer=method.answer.SerializeToString,
        )
        for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        taken = server.add_insecure_port(where) if tls is None else server.add_secure_port(where, credentials(tls))
    except RuntimeError as error:
        raise UsageError(
            f"{address} port {port} cannot be listened on: {error}", hint="choose another one with --listen"
        ) from error
    server.start()
    try:
        yield taken
    finally:
        server.stop(_STOP_S).wait()


def _guarded(method: ProviderCall, names: Sequence[str] | None) -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        if names is not None and not identities(context.auth_context()) & set(names):
            context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"the certificate has none of the names {', '.join(names)}"
            )
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
