# SPDX-License-Identifier: Apache-2.0
"""known_hosts: which keys a host may show, and what to say when it shows another (sshd(8), file format)."""

import base64
import binascii
import fnmatch
import functools
import hashlib
import hmac
import logging
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import HostError, HostKeyChanged, HostKeyUnknown
from vgpuctl.hosts.known_hosts_command import run_known_hosts_command
from vgpuctl.hosts.public_keys import PublicKey
from vgpuctl.hosts.ssh_config import Endpoint
from vgpuctl.specs.bounded_reader import Malformed, read_bounded
from vgpuctl.trusted_files import NAMED
from vgpuctl.trusted_programs import judge_program

# ssh_config's RevokedHostKeys: a list of public keys, or of `ssh-keygen -k`, which ssh-keygen reads.
# KRL_MAGIC of OpenSSH's krl.h, as it lies in the file.
_MAGIC = b"SSHKRL\n\0"
_REVOKED = 1
_LONGEST_WAIT_S = 10.0


def is_revoked(path: Path, key: PublicKey, *, name: str) -> bool:
    """True if the file revokes the key. Raises HostKeyUnknown when it cannot be read, as ssh refuses every key then."""
    try:
        content = read_bounded(path, NAMED)
    except Malformed as exc:
        raise _unreadable(name, path, str(exc)) from exc
    encoded = base64.b64encode(key.blob)
    if not content.startswith(_MAGIC):
        return any(encoded in line.split() for line in content.splitlines() if not line.startswith(b"#"))
    argv = ["ssh-keygen", "-Q", "-f", str(path), "/dev/stdin"]
    judge_program(argv[0])
    line = f"{key.kind} {encoded.decode()}\n".encode()
    try:
        done = subprocess.run(argv, input=line, capture_output=True, timeout=_LONGEST_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise _unreadable(name, path, f"ssh-keygen cannot be asked: {exc}") from exc
    if done.returncode not in (0, _REVOKED):
        raise _unreadable(name, path, done.stderr.decode("utf-8", "replace").strip())
    return done.returncode == _REVOKED


def _unreadable(name: str, path: Path, said: str) -> HostKeyUnknown:
    return HostKeyUnknown(
        f"{name}: RevokedHostKeys {path} of ssh_config: {said}",
        hint="correct the file or the option; while it cannot be read, ssh trusts no host's key",
    )


_LOGGER = logging.getLogger("vgpuctl.hosts")


@dataclass(frozen=True)
class KnownHost:
    """One line of a known_hosts file. marker: empty, `@revoked` or `@cert-authority`."""

    path: Path
    line: int
    marker: str
    patterns: str
    key: PublicKey

    @property
    def place(self) -> str:
        """Where the line is, for people: `FILE:LINE`."""
        return f"{self.path}:{self.line}"

    def names(self, host: str) -> bool:
        """True if the line is about this name: plain, with wildcards and negations, or hashed."""
        if self.patterns.startswith("|1|"):
            return _matches_hash(self.patterns, host)
        has_matched = False
        for pattern in self.patterns.lower().split(","):
            if _matches_pattern(host, pattern.removeprefix("!")):
                if pattern.startswith("!"):
                    return False
                has_matched = True
        return has_matched


def known_lines(endpoint: Endpoint, shown: PublicKey | None = None) -> list[KnownHost]:
    """Return the lines about an endpoint, in the files' order, then KnownHostsCommand's.

    A port other than 22 is looked up as `[host]:port`; as ssh does, a line without a port serves when there is
    none. shown: the server's key, None before it is known. Raises HostKeyUnknown when a file exists but cannot be
    read, or the command fails.
    """
    lines = [line for path in endpoint.known_hosts_files for line in _read(path, endpoint)]
    if endpoint.known_hosts_command:
        lines += _lines_of_command(endpoint, shown)
    name, address = endpoint.known_hosts_name, endpoint.host.lower()
    found = [line for line in lines if line.names(name)]
    if not found and endpoint.known_as is None:
        found = [line for line in lines if line.names(address)]
    return found


def _lines_of_command(endpoint: Endpoint, shown: PublicKey | None) -> Sequence[KnownHost]:
    """Run KnownHostsCommand: before the key exchange for the order of algorithms, then about the key itself."""
    tokens = {"H": endpoint.known_hosts_name, "I": "ORDER", "t": "NONE", "f": "NONE", "K": "NONE"}
    if shown is not None:
        key = base64.b64encode(shown.blob).decode()
        tokens |= {"I": "HOSTNAME", "t": shown.kind, "f": shown.fingerprint, "K": key}
    return _lines(Path(f"KnownHostsCommand-{tokens['I']}"), run_known_hosts_command(endpoint, tokens))


def preferred_algorithms(lines: Sequence[KnownHost], supported: Sequence[str]) -> tuple[str, ...]:
    """Order the signature algorithms so that the server shows a key we know, where it has one."""
    kinds = {line.key.kind for line in lines if not line.marker}
    known = [name for name in supported if key_kind(name) in kinds]
    return (*known, *(name for name in supported if name not in known))


def key_kind(algorithm: str) -> str:
    """Name of the key behind a signature algorithm: `rsa-sha2-512` signs with an `ssh-rsa` key."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def verify(endpoint: Endpoint, lines: Sequence[KnownHost], shown: PublicKey) -> None:
    """Accept the key that the server showed, or raise HostKeyUnknown or HostKeyChanged.

    Where unknown keys are accepted a warning is logged; a changed or revoked key is never accepted. Nothing is
    written to known_hosts.
    """
    for line in lines:
        if line.marker == "@revoked" and line.key == shown:
            raise _revoked(endpoint, shown, line.place)
    list_of_revoked = endpoint.revoked_host_keys
    if list_of_revoked is not None and is_revoked(list_of_revoked, shown, name=endpoint.name):
        raise _revoked(endpoint, shown, f"{list_of_revoked} (RevokedHostKeys)")
    plain = [line for line in lines if not line.marker]
    if any(line.key == shown for line in plain):
        return
    if plain:
        raise _changed(endpoint, plain, shown)
    error = _unknown(endpoint, lines, shown)
    if not endpoint.accepts_unknown_key:
        raise error
    _LOGGER.warning("%s: host key checking is off; accepted %s", error.message, shown.fingerprint)


def _revoked(endpoint: Endpoint, shown: PublicKey, place: str) -> HostKeyChanged:
    return HostKeyChanged(
        f"{endpoint.name}: the {shown.kind} key of {_where(endpoint)} is revoked by {place}",
        context=[f"shown by the server: {shown.fingerprint}"],
        hint="ask who revoked it: someone may hold the host's old key",
        shown=(shown.kind, shown.fingerprint),
    )


def _changed(endpoint: Endpoint, known: Sequence[KnownHost], shown: PublicKey) -> HostError:
    same_kind = [line for line in known if line.key.kind == shown.kind]
    wanted = same_kind or known
    context = [f"shown by the server: {shown.kind} {shown.fingerprint}"]
    context += [f"{line.place}: {line.key.kind} {line.key.fingerprint}" for line in wanted]
    file = shlex.quote(str(wanted[0].path))
    name = shlex.quote(endpoint.known_hosts_name)
    if wanted[0].path not in endpoint.known_hosts_files and endpoint.known_hosts_command is not None:
        correction = f"correct the key where {endpoint.known_hosts_command.shown} has it from"
    else:
        correction = f"run `ssh-keygen -f {file} -R {name}` and accept the new key"
    return HostKeyChanged(
        f"{endpoint.name}: the host key of {_where(endpoint)} is another than the one in {wanted[0].place}",
        context=context,
        hint=f"this may be a man-in-the-middle attack, or the host was reinstalled; if it was, {correction}",
        shown=(shown.kind, shown.fingerprint),
    )


def _unknown(endpoint: Endpoint, lines: Sequence[KnownHost], shown: PublicKey) -> HostKeyUnknown:
    file = endpoint.known_hosts_files[0]
    context = [f"{shown.kind} {shown.fingerprint}"]
    context += [
        f"{line.place} trusts a certificate authority; host certificates are not checked, so the key itself is needed"
        for line in lines
        if line.marker == "@cert-authority"
    ]
    if endpoint.known_hosts_command:
        context.append(f"KnownHostsCommand {endpoint.known_hosts_command.shown} does not know it either")
    hint = f"compare the fingerprint with the host's own, then run `{_accept_command(endpoint, file)}`"
    if not file.parent.is_dir():
        hint = f"there is no folder {file.parent}: correct UserKnownHostsFile, or make the folder, and run this again"
    elif not file.exists():
        hint = f"{file} does not exist: is UserKnownHostsFile right? Then {hint}"
    return HostKeyUnknown(
        f"{endpoint.name}: the host key of {_where(endpoint)} is not in {file}", context=context, hint=hint
    )


def _accept_command(endpoint: Endpoint, file: Path) -> str:
    host, written = shlex.quote(endpoint.host), shlex.quote(str(file))
    scan = f"ssh-keyscan -p {endpoint.port} {host}"
    if endpoint.via or endpoint.proxy_command:
        # ssh-keyscan cannot go through another host; ssh asks, shows the fingerprint and writes the line.
        jump = ",".join(hop.name for hop in endpoint.via)
        through = f"-J {shlex.quote(jump)} " if jump else ""
        return f"ssh {through}-p {endpoint.port} -o UserKnownHostsFile={written} {endpoint.shown_user}@{host} true"
    if endpoint.known_as is not None:
        alias = shlex.quote(f"s/^[^ ]*/{endpoint.known_as}/")
        return f"{scan} | sed {alias} >> {written}"
    return f"{scan} >> {written}"


def _where(endpoint: Endpoint) -> str:
    return f"{endpoint.host} port {endpoint.port}"


def _read(path: Path, endpoint: Endpoint) -> Sequence[KnownHost]:
    try:
        if not path.exists():
            return ()
        text = read_bounded(path, NAMED).decode(errors="replace")
    except (OSError, Malformed) as exc:
        said = exc if isinstance(exc, Malformed) else f"cannot be read: {exc.strerror}"
        raise HostKeyUnknown(
            f"{endpoint.name}: known_hosts file {path}: {said}",
            hint="make the file readable, or name another with UserKnownHostsFile",
        ) from exc
    return _lines(path, text)


@functools.lru_cache(maxsize=16)
def _lines(path: Path, text: str) -> tuple[KnownHost, ...]:
    """The lines of a file, which is parsed once for all hosts while it stays the same."""
    parsed = (_parse(path, number, line) for number, line in enumerate(text.splitlines(), 1))
    return tuple(line for line in parsed if line is not None)


def _parse(path: Path, number: int, line: str) -> KnownHost | None:
    """Read one line; None for comments and, as ssh does, for lines that cannot be read."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3 or marker not in ("", "@revoked", "@cert-authority"):
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownHost(path, number, marker, words[0], PublicKey(words[1], blob))


def _matches_hash(text: str, host: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in text.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, host.encode(), hashlib.sha1).digest(), digest)


def _matches_pattern(host: str, pattern: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return host == pattern
    # ssh knows * and ? only; the brackets of [host]:port are literal.
    return fnmatch.fnmatchcase(host, pattern.replace("[", "[[]"))
