# SPDX-License-Identifier: Apache-2.0
"""Proves who we are to an SSH server: keys of files and agent, then the password; and says what was tried."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vgpuctl.errors import AuthenticationFailed, FileNotTrusted, HostUnreachable
from vgpuctl.hosts.key_agent import SIGN_TIMEOUT_S, AgentFailure, AgentKey, KeyAgent
from vgpuctl.hosts.public_keys import PublicKey
from vgpuctl.hosts.ssh_config import Endpoint
from vgpuctl.trusted_files import NAMED_SECRET, opened

if TYPE_CHECKING:
    import paramiko

# For the server's answer, in addition to the time to sign.
_ANSWER_S = 20.0


@dataclass
class _Attempts:
    """Attempts of a login, for the error. for_agent: key files that only an agent can use (passphrase, token).

    not_trusted: the refusals of key files, which ssh leaves out too.
    """

    tried: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    for_agent: list[Path] = field(default_factory=list)
    not_trusted: list[FileNotTrusted] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)


def authenticate(transport: "paramiko.Transport", endpoint: Endpoint) -> None:
    """Log in as the endpoint's user.

    Order: key files, keys of the agent, password; a key's certificates before the key itself. A server counts refused
    keys (MaxAuthTries), so configured keys go first. Raises AuthenticationFailed with every method and
    key that was tried, FileNotTrusted where the only key is one that others may read.
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
    transport: "paramiko.Transport", endpoint: Endpoint, attempts: _Attempts, agent_keys: Sequence[AgentKey]
) -> bool:
    offer = _Offer(transport, endpoint, attempts)
    certificates = _certificates(endpoint, attempts)
    chosen: set[bytes] = {certificate.key.blob for certificate in certificates}
    for path in endpoint.identity_files:
        public = _public_key(path)
        if public is not None:
            chosen.add(public.blob)
        key = _load_key(path, endpoint, attempts)
        if key is None:
            continue
        chosen.add(key.asbytes())
        if offer.with_certificates(key, f"key {path} ({key.fingerprint})", certificates):
            return True
    for agent_key in agent_keys:
        if endpoint.identities_only and agent_key.plain.blob not in chosen:
            continue
        kind = "agent certificate" if agent_key.public.is_certificate else "agent key"
        label = f"{kind} {agent_key.comment or agent_key.get_name()} ({agent_key.fingerprint})"
        if offer.with_certificates(agent_key, label, certificates):
            return True
    return False


@dataclass(frozen=True)
class _Certificate:
    """A certificate of a file. key: the plain key that it is about."""

    path: Path
    public: PublicKey
    key: PublicKey
    about: str


class _Offer:
    """Shows keys to the server, each at most once."""

    def __init__(self, transport: "paramiko.Transport", endpoint: Endpoint, attempts: _Attempts) -> None:
        self._transport = transport
        self._endpoint = endpoint
        self._attempts = attempts
        self._offered: set[bytes] = set()

    def with_certificates(
        self, key: "paramiko.PKey | AgentKey", label: str, certificates: Sequence[_Certificate]
    ) -> bool:
        """Try the certificates about a key, then the key; True when the server let us in."""
        import paramiko

        for one in certificates:
            if one.key.blob == key.asbytes():
                key.public_blob = paramiko.pkey.PublicBlob(one.public.kind, one.public.blob)
                if self._once(key, one.public.blob, f"{one.about} ({one.path}) with {label}"):
                    return True
        key.public_blob = None
        return self._once(key, key.asbytes(), label)

    def _once(self, key: "paramiko.PKey | AgentKey", blob: bytes, label: str) -> bool:
        import paramiko

        if blob in self._offered:
            return False
        self._offered.add(blob)
        self._attempts.tried.append(label)
        waits = self._endpoint.connect_timeout_s
        self._transport.auth_timeout = max(waits, SIGN_TIMEOUT_S if isinstance(key, AgentKey) else 0.0) + _ANSWER_S
        try:
            further = self._transport.auth_publickey(self._endpoint.user, cast(paramiko.PKey, key))
        except paramiko.BadAuthenticationType as exc:
            self._attempts.allowed = list(exc.allowed_types)
            return False
        except paramiko.AuthenticationException:
            if not self._transport.is_active():
                raise
            return False
        finally:
            if isinstance(key, AgentKey) and key.failure is not None:
                self._attempts.tried[-1] += f": the agent did not sign: {key.failure}"
        if further:
            self._attempts.allowed = list(further)
            return "password" in further and _try_password(self._transport, self._endpoint, self._attempts)
        return True


def _try_password(transport: "paramiko.Transport", endpoint: Endpoint, attempts: _Attempts) -> bool:
    import paramiko

    if endpoint.password is None:
        return False
    attempts.tried.append("password")
    try:
        # With fallback: servers that ask the password through keyboard-interactive get it there.
        return not transport.auth_password(endpoint.user, endpoint.password.reveal(), fallback=True)
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


_PUBLIC = "key {}: a public key; the private one is needed"


def _load_key(path: Path, endpoint: Endpoint, attempts: _Attempts) -> "paramiko.PKey | None":
    """Return the private key, None (and a word in attempts) when it is missing, encrypted or unreadable."""
    import paramiko

    try:
        with opened(path, NAMED_SECRET) as file:
            key = paramiko.PKey.from_path(file.name)
    except FileNotTrusted as exc:
        if path.suffix == ".pub" and _public_key(path) is not None:  # everybody may read it
            attempts.unusable.append(_PUBLIC.format(path))
            return None
        attempts.unusable.append(f"key {exc.message}")
        attempts.not_trusted.append(exc)
        return None
    except FileNotFoundError:
        if endpoint.has_chosen_identities:
            attempts.unusable.append(f"key {path}: no such file")
        return None
    except OSError as exc:
        attempts.unusable.append(f"key {path}: {exc.strerror}")
        return None
    except (paramiko.PasswordRequiredException, TypeError):
        attempts.for_agent.append(path)
        attempts.unusable.append(f"key {path}: encrypted, and no passphrase is asked for")
        return None
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError) as exc:
        public = _public_key(path)
        if public is not None and public.needs_token:
            attempts.for_agent.append(path)
            attempts.unusable.append(f"key {path}: a FIDO key, whose token only an agent can ask")
            return None
        attempts.unusable.append(f"key {path}: not a private key that can be used ({exc})")
        return None
    if key.can_sign():
        return key
    attempts.unusable.append(_PUBLIC.format(path))
    return None


def _public_key(path: Path) -> PublicKey | None:
    """Return the public half that lies beside a key file: the agent may hold the private one."""
    try:
        return PublicKey.of_file(path if path.suffix == ".pub" else Path(f"{path}.pub")).plain
    except (OSError, ValueError, FileNotTrusted):
        return None


def _certificates(endpoint: Endpoint, attempts: _Attempts) -> list[_Certificate]:
    """Read the certificates that ssh_config names (CertificateFile), and those beside the key files."""
    found = []
    beside = [Path(f"{path}-cert.pub") for path in endpoint.identity_files]
    for path in dict.fromkeys((*endpoint.certificate_files, *beside)):
        try:
            public = PublicKey.of_file(path)
            if not public.is_certificate:
                raise ValueError(f"it is a key of type {public.kind}")
            found.append(_Certificate(path, public, public.plain, public.about()))
        except FileNotFoundError:
            if path in endpoint.certificate_files:
                attempts.unusable.append(f"certificate {path}: no such file")
        except FileNotTrusted as exc:
            attempts.unusable.append(f"certificate {exc.message}")
        except (OSError, ValueError, struct.error) as exc:
            attempts.unusable.append(f"certificate {path}: {getattr(exc, 'strerror', None) or exc}")
    return found


@contextmanager
def _agent_keys(endpoint: Endpoint, attempts: _Attempts) -> Iterator[Sequence[AgentKey]]:
    """Yield the agent's keys; the agent stays connected meanwhile, because it signs."""
    if endpoint.agent_socket is None:
        yield ()
        return
    try:
        agent = KeyAgent(endpoint.agent_socket)
    except AgentFailure as exc:
        attempts.unusable.append(f"agent {endpoint.agent_socket}: {exc}")
        yield ()
        return
    with closing(agent):
        try:
            keys = agent.keys()
        except AgentFailure as exc:
            attempts.unusable.append(f"agent {endpoint.agent_socket}: {exc}")
            keys = []
        yield keys


def _failed(endpoint: Endpoint, attempts: _Attempts) -> AuthenticationFailed | FileNotTrusted:
    """The error of a login: where nothing but a key file that others may read could be tried, it is about that file."""
    if attempts.not_trusted and not attempts.tried:
        refusal = attempts.not_trusted[0]
        return FileNotTrusted(f"{endpoint.name}: the key {refusal.message}", hint=refusal.hint)
    context = [f"tried: {what}" for what in attempts.tried] or ["tried: nothing, there was no key or password"]
    context += [f"not tried: {what}" for what in attempts.unusable]
    context += [
        f"not tried: {text}" for method, text in endpoint.ways_not_tried if method in (attempts.allowed or [method])
    ]
    if attempts.allowed:
        context.append(f"the server accepts: {', '.join(attempts.allowed)}")
    if attempts.for_agent:
        hint = f"load the key into an agent: `ssh-add {attempts.for_agent[0]}`"
    elif attempts.not_trusted:
        hint = f"{attempts.not_trusted[0].message}; {attempts.not_trusted[0].hint}"
    elif not attempts.tried and attempts.unusable:
        hint = (
            f"correct ansible_ssh_private_key_file ({attempts.unusable[0]}), or load a key into an agent with ssh-add"
        )
    elif not attempts.tried:
        hint = "set ansible_ssh_private_key_file, or load a key into an agent with ssh-add"
    else:
        hint = (
            f"check ansible_user (it is {endpoint.shown_user}) and that one of these keys is in the user's "
            "~/.ssh/authorized_keys on the host"
        )
    return AuthenticationFailed(
        f"{endpoint.name}: {endpoint.host} port {endpoint.port} refused to log in {endpoint.shown_user}",
        context=context,
        hint=hint,
    )
