# SPDX-License-Identifier: Apache-2.0
"""A real sshd on loopback with its own configuration, host keys and authorized keys, for any test that needs a host.

With accounts or mounts it runs in a mount namespace of its own: /run is empty there, /etc can have more users with
sudo rules, and folders can lie elsewhere.
"""

import hashlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.host_targets import typed
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.model.host_target import HostTarget

_SSHD = "/usr/sbin/sshd"
_START_LIMIT_S = 15.0
_ADDRESS = "127.0.0.1"
_SEEN = Path("/run/vgpuctl-test-sshd")
_PORTS = range(21000, 32000)
NO_FILE_OF_THE_USER = "Host *\n  IdentityFile none\n  IdentityAgent none\n  GlobalKnownHostsFile none\n"

# Users of LoopbackSshd(accounts=True): sudo asks the first for a password, not the second, and refuses the third.
PASSWORD_USER, FREE_USER, PLAIN_USER = "vgpu-password", "vgpu-free", "vgpu-plain"
# One user for each login shell, with sudo without a password.
SHELLS = {f"vgpu-{name}": f"/bin/{name}" for name in ("sh", "bash", "zsh", "fish", "tcsh")}
PASSWORD = "correct horse $HOME 'battery'"


def missing_for_sshd() -> str | None:
    """Say what this machine lacks to run a private sshd; None when it has all."""
    if os.geteuid() != 0:
        return "a private sshd needs root"
    for program in (_SSHD, "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def missing_for_accounts() -> str | None:
    """Return what this machine lacks for an sshd with its own users, sudo and several shells; None if it has all."""
    if missing := missing_for_sshd():
        return missing
    for program in ("sudo", "openssl", "unshare", *SHELLS.values()):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else f"mount namespaces cannot be made: {probe.stderr.decode().strip()}"


@cache
def _punishes_addresses() -> bool:
    """True if sshd refuses an address for a while after failed logins (OpenSSH 9.8); all tests have one address."""
    return b"persourcepenalties" in Path(_SSHD).read_bytes().lower()


class LoopbackSshd:
    """The server as a context manager.

    folder: everything lies in it. options: more lines for sshd_config, before ours, so that they win.
    environment: variables of every session. key_kinds: of the host keys. accounts: makes the users above. mounts:
    folders of the test by where the sessions see them, for example a private libvirtd's at /run/libvirt.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        key_kinds: Sequence[str] = ("ed25519",),
        accounts: bool = False,
        mounts: Mapping[Path, Path] | None = None,
    ) -> None:
        self.folder = folder
        self.port = 0
        self.address = _ADDRESS
        self.client_key = folder / "client_key"
        self.known_hosts = folder / "known_hosts"
        self._options = tuple(options)
        # bash reads ~/.bashrc for a command of sshd, unless it is nested; the machine's own is none of ours.
        self._environment = {"SHLVL": "1", **(environment or {})}
        self._key_kinds = tuple(key_kinds)
        self._has_accounts = accounts
        self._mounts = dict(mounts or {})
        self._process: subprocess.Popen[bytes] | None = None

    def target(self, **changes: Any) -> HostTarget:
        """Return a HostTarget that logs in as root with our key; any field can be given."""
        target = HostTarget("gpu1", self.address, port=self.port, user="root", private_key_file=str(self.client_key))
        return replace(target, **typed(changes))

    def settings(self, config: str = "", **changes: Any) -> SshSettings:
        """Return settings that know this server's keys and no file of the user; `config` comes first in ssh_config."""
        path = self.folder / f"ssh_config-{hashlib.sha256(config.encode()).hexdigest()[:8]}"
        unfinished = path.with_suffix(f".{threading.get_ident()}")
        unfinished.write_text(f"{config}\n{NO_FILE_OF_THE_USER}  UserKnownHostsFile {self.known_hosts}\n")
        unfinished.replace(path)
        return SshSettings(**{"ssh_config_file": path, **changes})

    def public_key(self, kind: str = "ed25519") -> str:
        """Return the host's public key of one kind as `TYPE BASE64`."""
        return " ".join((self.folder / f"host_{kind}.pub").read_text().split()[:2])

    def fingerprint(self, kind: str = "ed25519") -> str:
        """Return the fingerprint of a host key as ssh-keygen prints it."""
        return _output(["ssh-keygen", "-l", "-f", str(self.folder / f"host_{kind}.pub")]).split()[1]

    @property
    def log(self) -> str:
        """The log of sshd."""
        path = self.folder / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def accepted(self) -> list[str]:
        """The line of sshd's log on each accepted login, with its method, key and certificate."""
        return [line for line in self.log.splitlines() if line.startswith("Accepted ") and " ssh2" in line]

    @contextmanager
    def admits(self, public_key: str) -> Iterator[None]:
        """Let another key log in, a line of authorized_keys, until the block ends."""
        path = self.folder / "authorized_keys"
        before = path.read_text()
        try:
            path.write_text(f"{before}{public_key.rstrip()}\n")
            yield
        finally:
            path.write_text(before)

    def kill_sessions(self) -> int:
        """Kill the connections of a server without a namespace, and return how many there were.

        In OpenSSH 10 a child of the connection's process carries the traffic, for root too, and outlives it.
        """
        assert self._process is not None
        sessions = _children(self._process.pid)
        for pid in [*sessions, *(child for session in sessions for child in _children(session))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(sessions)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._has_accounts:
            self.folder.chmod(0o755)
        if not self._has_namespace():
            # Debian's service makes it at boot; sshd refuses to start without.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for kind in self._key_kinds:
            make_key(self.folder / f"host_{kind}", kind)
        make_key(self.client_key, "ed25519")
        shutil.copy(f"{self.client_key}.pub", self.folder / "authorized_keys")
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        entries = [f"[{self.address}]:{self.port} {self.public_key(kind)}\n" for kind in self._key_kinds]
        self.known_hosts.write_text("".join(entries))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and the sessions it still has."""
        process, self._process = self._process, None
        if process is None:
            return
        # The server leads a session of its own; its connections are in the same process group.
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # It has ended by itself: wait() below takes its status.
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=5)

    def _start(self) -> None:
        """Try ports until sshd itself has bound one: asking for a free port first would be a race."""
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            self.port = random.choice(_PORTS)
            (self.folder / "sshd_config").write_text(self._config())
            (self.folder / "sshd.log").write_text("")
            command = [_SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            with (self.folder / "sshd.log").open("ab") as log:
                self._process = subprocess.Popen(
                    self._in_namespace(command) if self._has_namespace() else command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            while self._process.poll() is None:
                if "Server listening on" in self.log:
                    return
                if time.monotonic() > deadline:
                    raise RuntimeError(f"sshd does not listen: {self.log}")
                time.sleep(0.01)
            if "Address already in use" not in self.log:
                raise RuntimeError(f"sshd ended: {self.log}")
        raise RuntimeError(f"sshd found no free port: {self.log}")

    def _config(self) -> str:
        lines = [
            *self._options,
            f"ListenAddress {self.address}:{self.port}",
            *(f"HostKey {self.folder}/host_{kind}" for kind in self._key_kinds),
            f"AuthorizedKeysFile {self._seen_folder}/authorized_keys",
            "PidFile none",
            "UsePAM no",
            "PermitRootLogin yes",
            "StrictModes no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UseDNS no",
            "LogLevel VERBOSE",
        ]
        # Of this option alone sshd takes the last value.
        if not any(option.startswith("MaxStartups ") for option in self._options):
            lines.append("MaxStartups 100")
        if _punishes_addresses():
            lines.append("PerSourcePenalties no")
        lines.append("SetEnv " + " ".join(f"{name}={value}" for name, value in self._environment.items()))
        return "\n".join(lines) + "\n"

    def _has_namespace(self) -> bool:
        return self._has_accounts or bool(self._mounts)

    @property
    def _seen_folder(self) -> Path:
        """The folder as sessions see it; pytest closes its own to other users whenever another one starts."""
        return _SEEN if self._has_namespace() else self.folder

    def _in_namespace(self, command: Sequence[str]) -> list[str]:
        script = ["mount --make-rprivate /", "mount -t tmpfs -o mode=755 tmpfs /run", "mkdir -m 755 /run/sshd"]
        script += [f"mkdir {_SEEN}", f"mount --bind {shlex.quote(str(self.folder))} {_SEEN}"]
        mounts = {**self._mounts, **(self._account_files() if self._has_accounts else {})}
        for seen, path in mounts.items():
            if path.is_dir():
                script.append(f"mkdir -p {shlex.quote(str(seen))}")
            script.append(f"mount --bind {shlex.quote(str(path))} {shlex.quote(str(seen))}")
        script.append(f"exec {shlex.join(command)}")
        return ["unshare", "--mount", "sh", "-e", "-c", "\n".join(script)]

    def _account_files(self) -> dict[Path, Path]:
        etc = self.folder / "etc"
        etc.mkdir(exist_ok=True)
        hashed = _output(["openssl", "passwd", "-6", "-stdin"], PASSWORD)
        passwd, group, shadow = (Path(f"/etc/{name}").read_text() for name in ("passwd", "group", "shadow"))
        shells = dict.fromkeys((PASSWORD_USER, FREE_USER, PLAIN_USER), "/bin/sh") | SHELLS
        for number, (user, shell) in enumerate(shells.items(), 61000):
            passwd += f"{user}:x:{number}:{number}::{self._seen_folder}:{shell}\n"
            group += f"{user}:x:{number}:\n"
            shadow += f"{user}:{hashed}:20000:0:99999:7:::\n"
        rules = f"root ALL=(ALL:ALL) ALL\n{PASSWORD_USER} ALL=(ALL) ALL\n{FREE_USER} ALL=(ALL) NOPASSWD: ALL\n"
        rules += "".join(f"{user} ALL=(ALL) NOPASSWD: ALL\n" for user in SHELLS)
        files = {}
        texts = {"passwd": passwd, "group": group, "shadow": shadow, "sudoers": rules}
        for name, text in texts.items():
            path = etc / name
            path.write_text(text)
            path.chmod(0o440 if name == "sudoers" else 0o644)
            files[Path("/etc") / name] = path
        return files


def make_key(path: Path, kind: str, *, passphrase: str = "") -> None:
    """Make a key pair, unless it is there."""
    if not path.exists():
        size = ["-b", "2048"] if kind == "rsa" else []
        _output(["ssh-keygen", "-q", "-t", kind, *size, "-N", passphrase, "-C", path.name, "-f", str(path)])


def let_others_in(folder: Path) -> None:
    """Let other users reach `folder` below pytest's, which it closes to them whenever it starts."""
    temporary = Path(tempfile.gettempdir())
    for one in (folder, *folder.parents):
        if temporary in one.parents:
            one.chmod(one.stat().st_mode | 0o055)


def _children(pid: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _output(argv: Sequence[str], text: str = "") -> str:
    completed = subprocess.run(argv, input=text, capture_output=True, text=True, check=True, timeout=60)
    return completed.stdout.strip()
