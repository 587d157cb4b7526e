# SPDX-License-Identifier: Apache-2.0
"""Proves who we are to an SSH server: keys of files and agent, then the password; and says what was tried."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpuctl.errors import AuthenticationFailed, HostUnreachable
from vgpuctl.hosts.ssh_config import Endpoint

if TYPE_CHECKING:
    import paramiko

_AGENT_TIMEOUT_S = 5.0


@dataclass
class _Attempts:
    """What was tried, for the error. encrypted: key files that ask for a passphrase."""

    tried: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    encrypted: list[Path] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)


def authenticate(transport: "paramiko.Transport", endpoint: Endpoint) -> None:
    """Log in as the endpoint's user.

    Order: key files, keys of the agent, password. A server counts refused keys (MaxAuthTries), so the keys that
    somebody named go first. Raises AuthenticationFailed with every method and key that was tried.
    """
    import paramiko

    attempts = _Attempts()
    with _agent_keys(endpoint, attempts) as agent_keys:
        try:
            is_in = _try_keys(transport, endpoint, attempts, agent_keys) or _try_password(transport, endpoint, attempts)
            if not is_in and not attempts.allowed:
                _ask_methods(transport, endpoint, attempts)
        except (paramiko.SSHException, OSError, EOFError) as exc:
            if transport.is_active() or attempts.tried:
                attempts.unusable.append(f"the server ended the login: {exc}" if str(exc) else "the server hung up")
                raise _failed(endpoint, attempts) from exc
            raise HostUnreachable(
                f"{endpoint.name}: {endpoint.host} port {endpoint.port} closed the connection during the login: {exc}"
            ) from exc
    if not is_in:
        raise _failed(endpoint, attempts)


def _try_keys(
    transport: "paramiko.Transport",
    endpoint: Endpoint,
    attempts: _Attempts,
    agent_keys: "tuple[paramiko.AgentKey, ...]",
) -> bool:
    offered: set[bytes] = set()
    chosen: set[bytes] = set()
    for path in endpoint.identity_files:
        public = _public_blob(path)
        if public is not None:
            chosen.add(public)
        key = _load_key(path, endpoint, attempts)
        if key is None:
            continue
        chosen.add(key.asbytes())
        offered.add(key.asbytes())
        if _offer(transport, endpoint, key, f"key {path} ({key.fingerprint})", attempts):
            return True
    for agent_key in agent_keys:
        blob = agent_key.asbytes()
        if blob in offered or (endpoint.identities_only and blob not in chosen):
            continue
        offered.add(blob)
        label = f"agent key {agent_key.comment or agent_key.get_name()} ({agent_key.fingerprint})"
        if _offer(transport, endpoint, agent_key, label, attempts):
            return True
    return False


def _offer(
    transport: "paramiko.Transport", endpoint: Endpoint, key: "paramiko.PKey", label: str, attempts: _Attempts
) -> bool:
    import paramiko

    attempts.tried.append(label)
    try:
        further = transport.auth_publickey(endpoint.user, key)
    except paramiko.BadAuthenticationType as exc:
        attempts.allowed = list(exc.allowed_types)
        return False
    except paramiko.AuthenticationException:
        if not transport.is_active():
            raise
        return False
    if further:
        attempts.allowed = list(further)
        return "password" in further and _try_password(transport, endpoint, attempts)
    return True


def _try_password(transport: "paramiko.Transport", endpoint: Endpoint, attempts: _Attempts) -> bool:
    import paramiko

    if endpoint.password is None:
        return False
    attempts.tried.append("password")
    try:
        # With fallback: servers that ask the password through keyboard-interactive get it there.
        return not transport.auth_password(endpoint.user, endpoint.password, fallback=True)
    except paramiko.BadAuthenticationType as exc:
        attempts.allowed = list(exc.allowed_types)
        attempts.unusable.append("password: the server does not take one")
        return False
    except paramiko.AuthenticationException:
        if not transport.is_active():
            raise
        return False


def _ask_methods(transport: "paramiko.Transport", endpoint: Endpoint, attempts: _Attempts) -> None:
    import paramiko

    try:
        transport.auth_none(endpoint.user)
    except paramiko.BadAuthenticationType as exc:
        attempts.allowed = list(exc.allowed_types)
    except paramiko.AuthenticationException:
        return


def _load_key(path: Path, endpoint: Endpoint, attempts: _Attempts) -> "paramiko.PKey | None":
    """Return the private key, None (and a word in attempts) when it is missing, encrypted or unreadable."""
    import paramiko

    try:
        key = paramiko.PKey.from_path(path)
    except FileNotFoundError:
        if endpoint.has_chosen_identities:
            attempts.unusable.append(f"key {path}: no such file")
        return None
    except OSError as exc:
        attempts.unusable.append(f"key {path}: {exc.strerror}")
        return None
    except (paramiko.PasswordRequiredException, TypeError):
        attempts.encrypted.append(path)
        attempts.unusable.append(f"key {path}: encrypted, and no passphrase is asked for")
        return None
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError) as exc:
        attempts.unusable.append(f"key {path}: not a private key that can be used ({exc})")
        return None
    if key.can_sign():
        return key
    attempts.unusable.append(f"key {path}: a public key; the private one is needed")
    return None


def _public_blob(path: Path) -> bytes | None:
    """Return the public half that lies beside a key file: the agent may hold the private one."""
    import paramiko

    try:
        blob = paramiko.pkey.PublicBlob.from_file(str(path if path.suffix == ".pub" else f"{path}.pub"))
    except (OSError, ValueError, UnicodeDecodeError):
        return None
    return bytes(blob.key_blob)


@contextmanager
def _agent_keys(endpoint: Endpoint, attempts: _Attempts) -> "Iterator[tuple[paramiko.AgentKey, ...]]":
    """Yield the agent's keys; the agent stays connected meanwhile, because it signs."""
    import paramiko
    from paramiko.agent import AgentSSH

    if endpoint.agent_socket is None:
        yield ()
        return
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_AGENT_TIMEOUT_S)
        agent = AgentSSH()
        keys: tuple[paramiko.AgentKey, ...] = ()
        try:
            connection.connect(endpoint.agent_socket)
            # paramiko.Agent knows SSH_AUTH_SOCK only; IdentityAgent and tests name another socket.
            agent._connect(connection)  # type: ignore[attr-defined]  # not in the stubs
            keys = agent.get_keys()
        except (OSError, paramiko.SSHException) as exc:
            attempts.unusable.append(f"agent {endpoint.agent_socket}: {exc}")
        yield keys
    finally:
        connection.close()


def _failed(endpoint: Endpoint, attempts: _Attempts) -> AuthenticationFailed:
    context = [f"tried: {what}" for what in attempts.tried] or ["tried: nothing, there was no key or password"]
    context += [f"not tried: {what}" for what in attempts.unusable]
    if attempts.allowed:
        context.append(f"the server accepts: {', '.join(attempts.allowed)}")
    if attempts.encrypted:
        hint = f"load the encrypted key into an agent: `ssh-add {attempts.encrypted[0]}`"
    elif not attempts.tried:
        hint = "set ansible_ssh_private_key_file, or load a key into an agent with ssh-add"
    else:
        hint = (
            f"check ansible_user (it is {endpoint.user}) and that one of these keys is in the user's "
            "~/.ssh/authorized_keys on the host"
        )
    return AuthenticationFailed(
        f"{endpoint.name}: {endpoint.host} port {endpoint.port} refused to log in {endpoint.user}",
        context=context,
        hint=hint,
    )
