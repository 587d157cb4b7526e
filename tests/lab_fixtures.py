# SPDX-License-Identifier: Apache-2.0
"""One emulated GPU host for a whole test session or worker, shared by every test that asks for `kernel_host`.

The host's folder outlives the session, with what was built. VGPUCTL_TESTS_KEEP_LAB=1 leaves the host up as well:
the next session then starts at once with a restored host.
"""

import fcntl
import os
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
import pytest

import vgpuctl_lab as lab
from vgpuctl.errors import LabError
from vgpuctl_lab.kernel import Kernel, ensure_kernel
from vgpuctl_lab.kernel_faults import END_LIBVIRTD, START_LIBVIRTD

_CHECKOUT = Path(__file__).parent.parent
_RESTORE = (Path(__file__).parent / "lab" / "restore_pristine.sh").read_text()
_RUNNING: dict[str, "_Session"] = {}


@dataclass
class KernelHost:
    """The emulated host as tests use it: commands as root over one SSH connection, and the inventory for `-i`."""

    name: str
    inventory: Path
    folder: lab.LabFolder
    _client: paramiko.SSHClient | None = field(default=None, repr=False)

    def run(self, command: str | list[str], timeout_s: float = 240) -> tuple[int, str, str]:
        """Run shell text, or a list of words, as root. Returns exit code, stdout, stderr.

        Raises TimeoutError when the channel is silent for timeout_s.
        """
        text = command if isinstance(command, str) else shlex.join(command)
        channel = self._transport().open_session(timeout=timeout_s)
        channel.settimeout(timeout_s)
        channel.exec_command(f"/bin/sh -c {shlex.quote(text)}")
        channel.shutdown_write()
        errors: list[bytes] = []
        # Both streams are read at the same time: a full window of one would stop the other.
        reader = threading.Thread(target=lambda: errors.append(channel.makefile_stderr("rb").read()))
        reader.start()
        try:
            output = channel.makefile("rb").read()
        finally:
            reader.join(timeout_s)
        code = channel.recv_exit_status()
        channel.close()
        return code, output.decode(errors="replace"), b"".join(errors).decode(errors="replace")

    def restore_pristine(self) -> None:
        """Remove all VMs, volumes, vGPUs, mdevs and VFs; rebind every card to its first driver."""
        code, output, errors = self.run(_RESTORE)
        assert code == 0, f"the host was not restored:\n{output}\n{errors}"

    @contextmanager
    def without_libvirtd(self) -> Iterator[None]:
        """End libvirtd for the block: it looks at each VF that comes or goes, which takes most of the time."""
        code, output, errors = self.run(END_LIBVIRTD)
        assert code == 0, f"libvirtd did not end:\n{output}\n{errors}"
        try:
            yield
        finally:
            code, output, errors = self.run(START_LIBVIRTD)
            assert code == 0, f"libvirtd did not start:\n{output}\n{errors}"

    def reboot(self) -> None:
        """Switch the host off and on; the address, the key and the inventory stay valid."""
        self.close()
        lab.reboot(self.name, folder=self.folder)

    def close(self) -> None:
        """End the connection; the next command opens a new one."""
        if self._client:
            self._client.close()
            self._client = None

    def _transport(self) -> paramiko.Transport:
        transport = self._client.get_transport() if self._client else None
        if transport and transport.is_active():
            return transport
        host = next(one for one in lab.status(folder=self.folder) if one.name == self.name)
        client = paramiko.SSHClient()
        client.load_host_keys(str(host.known_hosts))
        client.connect(
            host.address,
            port=host.port,
            username="root",
            key_filename=str(host.private_key),
            allow_agent=False,
            look_for_keys=False,
            timeout=30,
            banner_timeout=60,
            auth_timeout=60,
        )
        self._client = client
        transport = client.get_transport()
        assert transport is not None
        return transport


@dataclass
class _Session:
    """The host of this session; users: how many fixtures hold it (each conftest that imports them has its own).

    is_up: False while it rests.
    """

    host: KernelHost
    lock: int
    users: int = 0
    is_up: bool = True

    def rest(self) -> None:
        """Switch the host off until `wake`. One that has nothing to do takes a seventh of a processor."""
        self.host.close()
        if self.is_up and not os.environ.get("VGPUCTL_TESTS_KEEP_LAB"):
            lab.down(folder=self.host.folder)
            self.is_up = False

    def wake(self) -> None:
        """Switch it on again, as it is after a start."""
        if not self.is_up:
            lab.up(folder=self.host.folder, say=print)
            self.is_up = True


def rest_kernel_host() -> None:
    """Switch this worker's emulated host off, if it has one."""
    if session := _RUNNING.get("gpu1"):
        session.rest()


def wake_kernel_host() -> None:
    """Switch it on again, if it rests."""
    if session := _RUNNING.get("gpu1"):
        session.wake()


@pytest.fixture(scope="session")
def lab_folder() -> lab.LabFolder:
    """The folder of this worker's lab. All workers share its builds, which outlive the session."""
    return _own_folder()


@pytest.fixture(scope="session")
def lab_kernel() -> Kernel:
    """The emulated hosts' kernel, for a guest of a test that needs no emulated host."""
    folder = _own_folder()
    with _builds_alone(folder):
        return ensure_kernel(folder)


def _own_folder() -> lab.LabFolder:
    folder = os.environ.get("VGPUCTL_TESTS_LAB_FOLDER") or f"{_CHECKOUT}/build/test-lab"
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    own = lab.LabFolder(Path(f"{folder}-{worker}" if worker else folder))
    own.claim()
    shared = Path(f"{folder}-cache")
    shared.mkdir(exist_ok=True)
    if not own.cache.exists():
        own.cache.symlink_to(shared)
    return own


@contextmanager
def _builds_alone(folder: lab.LabFolder) -> Iterator[None]:
    """Wait until no other worker builds anything in the cache."""
    with (folder.cache.resolve() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def kernel_host(lab_folder: lab.LabFolder) -> Iterator[KernelHost]:
    """The session's emulated host `gpu1` with the default cards, restored to how it was after its first start."""
    session = _RUNNING.get("gpu1")
    if session is None:
        lock = os.open(f"{lab_folder.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            was_there = bool(lab_folder.host_names())
            with _builds_alone(lab_folder):
                (started,) = lab.up(folder=lab_folder, say=print)
        except BlockingIOError:
            os.close(lock)
            pytest.fail(f"another test session uses the lab in {lab_folder.path}; set VGPUCTL_TESTS_LAB_FOLDER")
        except LabError as error:
            os.close(lock)
            reason = "; ".join((error.message, *error.context, error.hint or ""))
            if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
                pytest.fail(reason)
            pytest.skip(reason)
        session = _RUNNING["gpu1"] = _Session(KernelHost("gpu1", started.inventory, lab_folder), lock)
        if was_there:  # a session that was killed, or whose tests failed, left domains on its disk
            session.host.restore_pristine()
    session.users += 1
    yield session.host
    session.users -= 1
    if session.users == 0:
        del _RUNNING["gpu1"]
        session.rest()
        os.close(session.lock)
