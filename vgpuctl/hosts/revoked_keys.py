# SPDX-License-Identifier: Apache-2.0
"""ssh_config's RevokedHostKeys: a list of public keys, or of `ssh-keygen -k`, which ssh-keygen reads."""

import base64
import subprocess
from pathlib import Path

from vgpuctl.errors import HostKeyUnknown
from vgpuctl.hosts.public_keys import PublicKey
from vgpuctl.specs.bounded_reader import Malformed, read_bounded
from vgpuctl.trusted_files import NAMED
from vgpuctl.trusted_programs import judge_program

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
