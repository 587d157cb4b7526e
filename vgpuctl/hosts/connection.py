# SPDX-License-Identifier: Apache-2.0
"""One SSH connection per host: commands, streams, files and libvirt's RPC go through it (design, section 6)."""

import logging
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import CommandFailed, CommandTimedOut, HostError, HostUnreachable, TooMuchOutput, WayFailed
from vgpuctl.hosts import become as sudo
from vgpuctl.hosts import login
from vgpuctl.hosts.bounds import MOST_PICTURES, PICTURES_PER_SECOND
from vgpuctl.hosts.graphics_tunnel import GraphicsSource
from vgpuctl.hosts.jump_hosts import JumpHosts
from vgpuctl.hosts.libvirt_tunnel import LibvirtTunnel
from vgpuctl.hosts.public_keys import PublicKey
from vgpuctl.hosts.quiet_paramiko import load_paramiko
from vgpuctl.hosts.remote_process import CompletedCommand, Ending, ProcessOwner, RemoteProcess
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import Endpoint, resolve
from vgpuctl.hosts.statistics import ConnectionStatistics
from vgpuctl.hosts.time_limit import TimeLimit
from vgpuctl.logs import timed
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.way import Way

if TYPE_CHECKING:
    import paramiko

_START_TIMEOUT_S = 30.0
_POLL_S = 0.05
# sshd frees a session only when it has reaped the command, a moment after the channel's end.
_REFUSED_GRACE_S = 2.0

# The size is compared because a connection that breaks ends the input just as a whole file does.
_UPLOAD = r"""
set -e
umask 077
path=$1 size=$2 mode=$3 folder_mode=$4 temporary=$5
case $path in "~/"*) path=$HOME/${path#??};; esac
folder=${path%/*}
if [ -n "$folder_mode" ] && [ ! -d "$folder" ]; then mkdir -p -m "$folder_mode" -- "$folder"; fi
temporary=$folder/.$temporary
trap 'rm -f -- "$temporary"' EXIT
cat > "$temporary"
received=$(wc -c < "$temporary")
if [ "$received" -ne "$size" ]; then echo "received $received of $size bytes" >&2; exit 1; fi
chmod "$mode" -- "$temporary"
mv -f -- "$temporary" "$path"
printf '%s\n' "$path"
"""
# A zombie counts as ended: where the first process of a container reaps nobody, it stays. Source: proc(5), stat.
# Exit status: 0 ended, 1 still there, 3 nothing of it was there.
_END_GROUPS = r"""
groups=" $* "
is_alive() {
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    set -- ${line##*) }
    case $1 in Z|X) continue;; esac
    case $groups in *" $3 "*) return 0;; esac
  done
  return 1
}
is_alive || exit 3
for signal in TERM KILL; do
  for group in $groups; do kill -s "$signal" -- "-$group" 2>/dev/null; done
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    is_alive || exit 0
    sleep 0.1
  done
done
exit 1
"""
_END_TIMEOUT_S = 10.0


class Connection:
    """The SSH connection of one host, opened on first use and again after it was lost. Thread-safe.

    Many commands can run at once; where the server allows fewer sessions than are asked for (OpenSSH's
    MaxSessions is 10) the rest waits its turn. jump_hosts: shared by the connections of a run.
    """

    def __init__(
        self,
        target: HostTarget,
        *,
        settings: SshSettings,
        budget: ByteBudget | None = None,
        jump_hosts: JumpHosts | None = None,
    ) -> None:
        self.target = target
        self._jump_hosts = jump_hosts or JumpHosts()
        self._budget = budget or login.session_budget("the host")
        self.settings = settings
        self.statistics = ConnectionStatistics()
        self._lock = threading.Lock()
        self._places = threading.Condition()
        self._open_channels = 0
        self._lasting_channels = 0
        self._login: login.Login | None = None
        self._endpoint: Endpoint | None = None
        self.way: Way | None = None
        """The way of the last attempt to log in; None before one, and where ssh's settings lead nowhere."""
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Log in now; the other methods do it when they need to.

        Raises HostUnreachable, HostKeyUnknown, HostKeyChanged, AuthenticationFailed, InventoryError.
        """
        self._transport()

    @property
    def is_open(self) -> bool:
        """True if there is a login that works."""
        return self._login is not None and self._login.transport.is_active()

    def close(self) -> None:
        """Close the connection and what runs over it. Can be called again; nothing else can be."""
        with self._lock:
            self._is_closed = True
            if self._login is not None:
                self._login.close()
                self._login = None

    def run(
        self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"", become: bool | None = None
    ) -> CompletedCommand:
        """Run one command to its end and return what it left; a non-zero exit status is a value.

        become: None means as the inventory says. Raises HostUnreachable, BecomeFailed, CommandTimedOut (the
        command is ended on the host).
        """
        limit = TimeLimit(timeout_s)
        with timed("ssh-run", host=self.target.name, program=argv[0]) as about:
            with self._start(argv, limit, become=become) as process:
                completed = process.communicate(stdin, limit)
            about["exit_status"] = completed.exit_status
            return completed

    def open_process(
        self, argv: Sequence[str], *, become: bool | None = None, timeout_s: float = _START_TIMEOUT_S
    ) -> RemoteProcess:
        """Start a command, within timeout_s and _START_TIMEOUT_S, and talk with it; the caller closes it."""
        with timed("ssh-start", host=self.target.name, program=argv[0]):
            return self._start(argv, TimeLimit(min(timeout_s, _START_TIMEOUT_S)), become=become, is_lasting=True)

    def upload(
        self,
        data: bytes,
        path: str,
        mode: int,
        *,
        folder_mode: int | None = None,
        become: bool | None = None,
        timeout_s: float = 120.0,
    ) -> str:
        """Write a file on the host in one round: temporary name in its folder, size checked, then renamed.

        path: absolute, or `~/...` of the user who writes it. folder_mode: makes a missing folder with this mode.
        Returns the absolute path. Raises CommandFailed.
        """
        if not path.startswith(("/", "~/")):
            raise ValueError(f"remote path {path!r} is not absolute")
        folder = "" if folder_mode is None else f"{folder_mode:o}"
        temporary = f"vgpuctl-{secrets.token_hex(8)}"
        argv = ["/bin/sh", "-c", _UPLOAD, "sh", path, str(len(data)), f"{mode:o}", folder, temporary]
        completed = self.run(argv, timeout_s=timeout_s, stdin=data, become=become)
        if completed.exit_status != 0:
            raise CommandFailed(
                f"{self.target.name}: {path} could not be written (exit status {completed.exit_status})",
                context=completed.stderr.decode("utf-8", "replace").splitlines()[-5:],
                hint="check the folder's owner and mode, and the free space on the host",
            )
        return completed.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    @contextmanager
    def libvirt_uri(self) -> Iterator[str]:
        """Yield a libvirt URI that reaches the host's libvirt through this connection.

        It can be opened several times while the context lasts. When the block fails because the remote side
        did, its reason replaces libvirt's "end of file": LibvirtMissing, BecomeFailed or HostUnreachable. A failure of
        this machine (WayFailed) replaces every error.
        """
        with self.libvirt_tunnel() as tunnel:
            try:
                yield tunnel.uri
            except Exception as exc:
                failure = tunnel.failure()
                if failure is None or (isinstance(exc, HostError) and not isinstance(failure, WayFailed)):
                    raise
                raise failure from exc

    def libvirt_tunnel(self) -> LibvirtTunnel:
        """Return the tunnel under `libvirt_uri`, for a caller that asks it for `failure()` itself."""
        self.open()
        return LibvirtTunnel(
            self.target, self.settings.libvirt_helper, self.open_process, self.settings.libvirt_answer_s
        )

    def graphics(self, uuid: str, *, python: str, index: int) -> GraphicsSource:
        """The display of a domain. python: path of the host's interpreter. index: of its `graphics` element.

        Moving pictures are more than a session may send otherwise, so the limit is wider from now on.
        """
        self.open()
        self._budget.widen(MOST_PICTURES, PICTURES_PER_SECOND)
        uri = next((word for word in self.settings.libvirt_helper if "://" in word), "qemu:///system")
        return GraphicsSource(self.target, self.open_process, python=python, uri=uri, uuid=uuid, index=index)

    def _start(
        self, argv: Sequence[str], limit: TimeLimit, *, become: bool | None, is_lasting: bool = False
    ) -> RemoteProcess:
        command = sudo.wrap(argv, self.target, become=self.target.become if become is None else become)
        channel = self._open_channel(limit, is_lasting=is_lasting)
        owner = ProcessOwner(
            self.target,
            self._dropped,
            lambda groups: self._end_groups(groups, become=become) if argv[2:3] != [_END_GROUPS] else Ending.UNKNOWN,
            lambda: self._release_channel(is_lasting=is_lasting),
        )
        process = RemoteProcess(channel, command, owner)
        try:
            self._execute(channel, command, limit)
            process.answer_sudo(limit)
        except BaseException:
            process.close()
            raise
        return process

    def _execute(self, channel: "paramiko.Channel", command: sudo.RemoteCommand, limit: TimeLimit) -> None:
        import paramiko

        # exec_command waits without a limit for the server's answer; closing the channel wakes it.
        guard = threading.Timer(limit.left_s(), channel.close)
        guard.daemon = True
        guard.start()
        try:
            channel.exec_command(command.line)
        except (paramiko.SSHException, OSError, EOFError) as exc:
            if channel.get_transport().is_active() and limit.is_over():
                raise self._not_started(limit, [f"command: {sudo.shown_program(command.argv)}"]) from exc
            raise self._dropped(f"`{sudo.shown_program(command.argv)}` was being started", exc) from exc
        finally:
            guard.cancel()
        self.statistics.count_channel()

    def _open_channel(self, limit: TimeLimit, *, is_lasting: bool) -> "paramiko.Channel":
        transport = self._transport()
        import paramiko

        refused_since: float | None = None
        while True:
            with self._places:
                self._open_channels += 1
                self._lasting_channels += is_lasting
            try:
                return transport.open_session(timeout=limit.left_s())
            except (paramiko.SSHException, OSError, EOFError) as exc:
                self._release_channel(is_lasting=is_lasting)
                if not transport.is_active():
                    raise self._dropped("a channel was being opened", exc) from exc
                now = time.monotonic()
                refused_since = now if refused_since is None else refused_since
                with self._places:
                    others, lasting = self._open_channels, self._lasting_channels
                    if limit.is_over():
                        raise self._not_started(limit, [f"{others} other sessions are open", str(exc)]) from exc
                    if others == lasting and now - refused_since > _REFUSED_GRACE_S:
                        raise self._no_session_left(others, exc) from exc
                    self._places.wait(_POLL_S)

    def _no_session_left(self, others: int, exc: BaseException) -> HostUnreachable:
        """Build the error for sessions that nobody will give back: the agent and libvirt keep theirs."""
        name = self.target.name
        if others == 0:
            return HostUnreachable(
                f"{name}: the SSH server opened no session: {exc}",
                hint="raise MaxSessions in the host's sshd_config, or look at its log",
            )
        sessions = "1 session" if others == 1 else f"{others} sessions"
        return HostUnreachable(
            f"{name}: the SSH server allows {sessions} on a connection (MaxSessions), and vgpuctl needs more",
            context=["the agent and libvirt keep one each, and a command beside them takes a third", str(exc)],
            hint="set MaxSessions to 10, OpenSSH's default, in the host's sshd_config and reload sshd",
        )

    def _release_channel(self, *, is_lasting: bool) -> None:
        with self._places:
            self._open_channels -= 1
            self._lasting_channels -= is_lasting
            self._places.notify_all()

    def _transport(self) -> "paramiko.Transport":
        with self._lock:
            if self._is_closed:
                raise HostUnreachable(f"{self.target.name}: the connection is closed, since the command ends")
            if self._budget.refusal is not None:
                raise self._too_much()
            if self._login is not None and self._login.transport.is_active():
                return self._login.transport
            if self._login is not None:
                self._login.close()
                self._login = None
            load_paramiko()
            self.way = None
            self._endpoint = there = resolve(self.target, self.settings)
            self.way = _way(self.target, there)
            with timed(
                "ssh-login",
                level=logging.INFO,
                host=self.target.name,
                address=there.host,
                port=there.port,
                user=there.shown_user,
            ):
                self._login = login.log_in(there, self.statistics, self._budget, self._jump_hosts)
            key = self._login.transport.get_remote_server_key()
            shown = PublicKey(key.get_name(), key.asbytes())
            if not there.accepts_unknown_key:  # else it may be anybody's
                self.way = replace(self.way, host_key=(shown.kind, shown.fingerprint))
            return self._login.transport

    def _dropped(self, doing: str, exc: BaseException | None = None) -> HostError:
        if self._budget.refusal is not None:
            return self._too_much(f" while {doing}")
        endpoint = self._endpoint
        where = f"{endpoint.host} port {endpoint.port}" if endpoint else self.target.address
        reason = f": {exc}" if exc is not None and str(exc) else ""
        return HostUnreachable(
            f"{self.target.name}: the connection to {where} was lost while {doing}{reason}",
            hint="see whether the host is up, then run the same command again",
        )

    def _too_much(self, doing: str = "") -> TooMuchOutput:
        return TooMuchOutput(
            f"{self.target.name}: {self._budget.refusal} in one session{doing}; its connection was closed",
            hint="look on the host for what sends so much; vgpuctl does not go on with it in this command",
        )

    def _not_started(self, limit: TimeLimit, context: Sequence[str]) -> CommandTimedOut:
        return CommandTimedOut(
            f"{self.target.name}: the SSH server did not start a command within {limit.seconds:g} s",
            context=context,
            hint="see whether the host is overloaded, or raise MaxSessions in its sshd_config",
        )

    def _end_groups(self, groups: Sequence[int], *, become: bool | None) -> Ending:
        argv = ["/bin/sh", "-c", _END_GROUPS, "sh", *map(str, groups)]
        try:
            exit_status = self.run(argv, timeout_s=_END_TIMEOUT_S, become=become).exit_status
        except HostError:
            return Ending.UNKNOWN
        return {0: Ending.ENDED, 3: Ending.GONE}.get(exit_status, Ending.UNKNOWN)


def _way(target: HostTarget, there: Endpoint) -> Way:
    """The way to an endpoint. Secrets are not in it."""
    hops = [f"{one.shown_user}@{one.host} port {one.port}" for one in (there, *there.via)]
    proxy = [] if there.proxy_command is None else [f"ProxyCommand {there.proxy_command.shown}"]
    become = [f"as {target.become_user or 'root'}"] if target.become else []
    return Way("; ".join([" via ".join(hops), *proxy, f"python {target.python_interpreter}", *become]))
