# SPDX-License-Identifier: Apache-2.0
"""Opens the stream to a host (TCP, jump hosts or ProxyCommand), checks the host key and logs in by SSH."""

import errno
import logging
import random
import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import HostUnreachable, WayFailed
from vgpuctl.hosts import host_keys
from vgpuctl.hosts.authentication import authenticate
from vgpuctl.hosts.bounds import LASTING_PER_SECOND, MOST_IN_SESSION, SocketLike, WatchedStream
from vgpuctl.hosts.jump_hosts import Chain, JumpHosts
from vgpuctl.hosts.proxy_command import ProxyCommand
from vgpuctl.hosts.public_keys import PublicKey
from vgpuctl.hosts.ssh_config import Endpoint
from vgpuctl.hosts.statistics import ConnectionStatistics

if TYPE_CHECKING:
    import paramiko

_LOGGER = logging.getLogger("vgpuctl.hosts")
_JOIN_TIMEOUT_S = 5.0
_WAKE_S = 2.0
_SILENT = (
    "look whether the host is overloaded or its disk hangs, and whether a firewall or an SSH server with MaxStartups"
    " holds the connection back; `ssh -v` to it shows where it stops"
)
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Before a refused start is tried again; a penalty of PerSourcePenalties lasts 15 s and longer."""
# An sshd before 8.5 says nothing, and neither does a port that leads nowhere.
_SILENT_TRIES = 3
_REFUSED_START = re.compile(rb"Exceeded MaxStartups|Not allowed at this time")
_USER_TIMEOUT_MS = 30_000
_OF_THIS_MACHINE = frozenset(
    {
        *(errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    }
)
"""A connect that ends so has not left this machine."""
_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


@dataclass
class Login:
    """A logged-in transport and what must be closed after it: its jump hosts or its proxy program."""

    transport: "paramiko.Transport"
    resources: ExitStack

    def close(self) -> None:
        """Close everything, the target first."""
        self.resources.close()


def session_budget(sender: str) -> ByteBudget:
    """The bound of everything that one host sends."""
    return ByteBudget(sender, MOST_IN_SESSION, per_second=LASTING_PER_SECOND)


def log_in(endpoint: Endpoint, statistics: ConnectionStatistics, budget: ByteBudget, jump_hosts: JumpHosts) -> Login:
    """Reach an endpoint through its jump hosts and log in; every hop's key is checked.

    budget: of the endpoint; each jump host has one of its own.
    Raises HostUnreachable, HostKeyUnknown, HostKeyChanged, AuthenticationFailed.
    """

    def log_in_hop(chain: Chain, stack: ExitStack, hop_budget: ByteBudget) -> "paramiko.Transport":
        *earlier, hop = chain
        before = None
        if earlier:
            before = stack.enter_context(jump_hosts.through(tuple(earlier), log_in_hop, name=hop.name))
        return _log_in_one(hop, before, statistics, stack, lambda stream: WatchedStream(stream, hop_budget))

    with ExitStack() as stack:
        before = None
        if endpoint.via:
            before = stack.enter_context(jump_hosts.through(endpoint.via, log_in_hop, name=endpoint.name))
        transport = _log_in_one(
            endpoint, before, statistics, stack, lambda stream: WatchedStream(stream, budget, statistics)
        )
        return Login(transport, stack.pop_all())


def _log_in_one(
    endpoint: Endpoint,
    before: "paramiko.Transport | None",
    statistics: ConnectionStatistics,
    stack: ExitStack,
    watch: Callable[[SocketLike], WatchedStream],
) -> "paramiko.Transport":
    transport, watched = _start(endpoint, before, statistics, stack, watch)
    authenticate(transport, endpoint)
    watched.log_in_done()
    statistics.count_login()
    transport.set_keepalive(endpoint.keepalive_s)
    # paramiko's thread wakes ten times a second, for each host of a controller, to look whether it may end or should
    # send a keep-alive. _close_transport wakes it for its end.
    watched.settimeout(_WAKE_S)
    return transport


class _StartRefused(Exception):
    """The server closed the connection before its version: too many logins, or our address is blocked for a while."""


def _start(
    endpoint: Endpoint,
    before: "paramiko.Transport | None",
    statistics: ConnectionStatistics,
    stack: ExitStack,
    watch: Callable[[SocketLike], WatchedStream],
) -> "tuple[paramiko.Transport, WatchedStream]":
    """Open the stream and exchange keys; a start that the server refuses is tried again for some 30 s.

    The pauses double and have jitter, so that many logins do not retry at the same time.
    """
    tried = 0
    while True:
        with ExitStack() as attempt:
            if before is None:
                stream, proxy = _first_stream(endpoint, statistics, attempt)
            else:
                stream, proxy = _through(before, endpoint), None
            watched = watch(stream)
            try:
                transport = _handshake(watched, endpoint, attempt, proxy)
            except _StartRefused as exc:
                refused = exc
            else:
                stack.push(attempt.pop_all())
                return transport, watched
        said = str(refused)
        pauses_s = PAUSES_S if said else PAUSES_S[:_SILENT_TRIES]
        if tried == len(pauses_s):
            where = f"{endpoint.host} port {endpoint.port}"
            # A message concerns our own logins (MaxStartups); silence may mean that the host is faulty.
            raise (WayFailed if said else HostUnreachable)(
                f"{endpoint.name}: {where} accepted the connection but closed it at once, {tried + 1} times: "
                f"{said or 'it said nothing'}",
                hint="raise MaxStartups in its sshd_config or lower --forks; PerSourcePenalties, hosts.deny and a "
                "port that is forwarded to nobody look the same; see the server's log",
            ) from refused
        pause_s = pauses_s[tried] * random.uniform(0.5, 1.0)
        tried += 1
        _LOGGER.warning(
            "%s: the SSH server refused to begin (%s); try %d of %d in %.1f s",
            endpoint.name,
            said or "closed without a word",
            tried + 1,
            len(pauses_s) + 1,
            pause_s,
        )
        time.sleep(pause_s)


def _first_stream(
    hop: Endpoint, statistics: ConnectionStatistics, stack: ExitStack
) -> tuple[SocketLike, ProxyCommand | None]:
    if hop.proxy_command is not None:
        proxy = ProxyCommand(hop.proxy_command, known=(hop.name, hop.host, hop.user, str(hop.port)))
        stack.callback(proxy.close)
        return proxy.stream, proxy
    stream = _connect(hop)
    stack.callback(stream.close)
    statistics.count_connect()
    return stream, None


def _connect(endpoint: Endpoint) -> socket.socket:
    """Connect to the first address that answers; the error lists what each one answered."""
    where = f"{endpoint.host} port {endpoint.port}"
    family = _FAMILIES.get(endpoint.address_family, socket.AF_UNSPEC)
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, family, socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise WayFailed(
            f"{endpoint.name}: the name {endpoint.host} cannot be resolved: {reason}",
            hint="check ansible_host, ssh_config's HostName and the resolver",
        ) from exc
    deadline = time.monotonic() + endpoint.connect_timeout_s
    answers: list[str] = []
    has_left = False
    for kind, _, _, _, address in found:
        shown_address = f"{address[0]!s} port {endpoint.port}"
        try:
            stream = socket.socket(kind, socket.SOCK_STREAM)
        except OSError as exc:
            answers.append(f"{shown_address}: {exc.strerror or exc}")
            continue
        try:
            stream.settimeout(max(0.1, deadline - time.monotonic()))
            stream.connect(address)
        except TimeoutError:
            stream.close()
            has_left = True
            answers.append(f"{shown_address}: no answer within {endpoint.connect_timeout_s:g} s")
        except OSError as exc:
            stream.close()
            has_left = has_left or exc.errno not in _OF_THIS_MACHINE
            answers.append(f"{shown_address}: {exc.strerror or exc}")
        else:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Without it a host that lost power keeps a write waiting for a quarter of an hour.
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
            return stream
    raise (HostUnreachable if has_left else WayFailed)(
        f"{endpoint.name}: no connection to {where}: {answers[0].partition(': ')[2]}",
        context=answers if len(answers) > 1 else (),
        hint="check that the host is up, that sshd listens there (ansible_host, ansible_port) and the firewall",
    )


def _through(before: "paramiko.Transport", hop: Endpoint) -> SocketLike:
    """Open a stream to the next hop from inside the one before."""
    import paramiko

    try:
        channel = before.open_channel(
            "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=hop.connect_timeout_s
        )
    except (paramiko.SSHException, OSError, EOFError) as exc:
        raise HostUnreachable(
            f"{hop.name}: the jump host before it could not reach {hop.host} port {hop.port}: {exc}",
            hint="check the address as the jump host sees it, and AllowTcpForwarding in its sshd_config",
        ) from exc
    return cast(SocketLike, channel)


def _handshake(
    stream: WatchedStream, endpoint: Endpoint, stack: ExitStack, proxy: ProxyCommand | None
) -> "paramiko.Transport":
    """Exchange keys and check the server's. The transport is closed by the stack from the start."""
    import paramiko

    from vgpuctl.hosts.ordered_transport import OrderedTransport

    name = endpoint.name
    lines = host_keys.known_lines(endpoint)
    transport = OrderedTransport(cast(socket.socket, stream))
    stack.callback(_close_transport, transport, stream)
    security = transport.get_security_options()
    security.key_types = host_keys.preferred_algorithms(lines, security.key_types)
    transport.banner_timeout = endpoint.connect_timeout_s
    where = f"{endpoint.host} port {endpoint.port}"
    try:
        transport.start_client(timeout=endpoint.connect_timeout_s)
    except (paramiko.SSHException, OSError, EOFError) as exc:
        stream.give_up()
        unshared = transport.unshared()
        if unshared:
            raise WayFailed(
                f"{name}: {where} and vgpuctl share no {' and no '.join(unshared)} algorithm",
                context=[f"{kind}: {lists}" for kind, lists in unshared.items()],
                hint="allow one of these in its sshd_config (KexAlgorithms, HostKeyAlgorithms, Ciphers, MACs), "
                "or give it a host key of another kind",
            ) from exc
        if proxy is not None:
            raise proxy.failure(name, endpoint.connect_timeout_s) from exc
        if stream.has_ended and (not stream.greeting or _REFUSED_START.match(stream.greeting)):
            raise _StartRefused(stream.greeting.decode("utf-8", "replace").strip()) from exc
        raise HostUnreachable(
            f"{name}: {where} accepted the connection but the SSH handshake failed: {exc or 'connection closed'}",
            hint=_SILENT if "banner" in str(exc) else "see the SSH server's log on the host for what it refused",
        ) from exc
    if not transport.initial_kex_done:
        stream.give_up()
        if proxy is not None:
            raise proxy.failure(name, endpoint.connect_timeout_s)
        raise HostUnreachable(
            f"{name}: {where} accepted the connection but did not finish the SSH handshake within "
            f"{endpoint.connect_timeout_s:g} s",
            hint=_SILENT,
        )
    key = transport.get_remote_server_key()
    shown = PublicKey(key.get_name(), key.asbytes())
    if endpoint.known_hosts_command:
        lines = host_keys.known_lines(endpoint, shown)
    host_keys.verify(endpoint, lines, shown)
    return transport


def _close_transport(transport: "paramiko.Transport", stream: SocketLike) -> None:
    try:
        # Wakes the transport's thread, which otherwise looks every _WAKE_S whether it may end.
        stream.shutdown(socket.SHUT_RDWR)
    except (OSError, EOFError):
        pass  # The host has closed it.
    transport.close()
    stream.close()
    if transport.is_alive():
        transport.join(_JOIN_TIMEOUT_S)
