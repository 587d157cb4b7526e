# SPDX-License-Identifier: Apache-2.0
"""The real agent file in a bare interpreter: its protocol, its end, and how it is pushed."""

import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.agent import machine
from vgpuctl.agent.host_lock import LOCK
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev
from vgpuctl.agent.wire.steps import ResetFunction
from vgpuctl.errors import AgentBroken, AgentProblem, CommandFailed, CommandTimedOut, PythonMissing
from vgpuctl.hosts import bundle as agent_bundle
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.model.host_target import HostTarget

PYTHON = "/usr/bin/python3"
PF = "0000:41:00.0"
UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"


@pytest.fixture(scope="module")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(build_agent().data)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return machine.build(tmp_path / "root", machine.BASE, machine.a40(), machine.mdev_types(PF, available={"558": 24}))


def agent_argv(file: Path, root: Path) -> list[str]:
    return ["/usr/bin/env", "-i", PYTHON, "-I", "-S", str(file), "--root", str(root)]


def ask(file: Path, root: Path, text: bytes) -> list[dict[str, Any]]:
    done = subprocess.run(agent_argv(file, root), input=text, capture_output=True, timeout=30, check=True)
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.splitlines()]


def line(**fields: object) -> bytes:
    return json.dumps({"protocol": 1, **fields}).encode() + b"\n"


def test_two_builds_are_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_agent()
    agent_bundle._build.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    second = build_agent()
    assert first is not second
    assert first == second
    assert first.sha256 == hashlib.sha256(first.data).hexdigest()


def test_many_hosts_at_once_zip_the_agent_once() -> None:
    agent_bundle._build.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(lambda _: build_agent(), range(8)))
    assert all(one is built[0] for one in built)


def test_the_agent_needs_nothing_but_python(agent_file: Path, root: Path) -> None:
    [pong, facts] = ask(agent_file, root, line(call="ping") + line(call="facts"))
    assert pong == {"protocol": 1, "agent": facts["agent"], "writes": 0}
    assert facts["facts"]["hostname"] == "gpu1"
    assert facts["facts"]["gpus"][0]["types"][0]["creatable"] == 24


def test_the_real_machine_can_be_read(agent_file: Path) -> None:
    [reply] = ask(agent_file, Path("/"), line(call="facts"))
    assert reply["facts"]["hostname"] == os.uname().nodename


def test_garbage_is_answered_and_the_agent_goes_on(agent_file: Path, root: Path) -> None:
    garbage = [
        b"\n",
        b"not json\n",
        b"\xff\xfe\x00\n",
        b"[1,2]\n",
        b"[" * 100_000 + b"\n",
        line(call="apply", steps=[{"op": "mdev.create", "parent": PF, "type_id": 558, "uuid": UUID}]),
    ]
    replies = ask(agent_file, root, b"".join(garbage) + line(call="ping"))
    assert [reply.get("problem", {}).get("code") for reply in replies] == ["bad-request"] * 5 + [None]
    assert "steps[0].type_id" in replies[4]["problem"]["message"]


def test_half_a_line_is_no_request(agent_file: Path, root: Path) -> None:
    assert ask(agent_file, root, line(call="facts")[:-2]) == []
    assert len(ask(agent_file, root, line(call="ping") + b'{"protocol"')) == 1


def test_an_unexpected_error_is_a_problem_with_its_traceback(agent_file: Path, root: Path) -> None:
    group = Path(os.path.realpath(root / f"sys/bus/pci/devices/{PF}")) / "iommu_group"
    group.unlink()
    group.symlink_to("../../../../kernel/iommu_groups/nonsense")
    [broken, pong] = ask(agent_file, root, line(call="holders", target=PF) + line(call="ping"))
    assert broken["problem"]["code"] == "internal-error"
    assert "read_group_of" in broken["problem"]["message"]
    assert "problem" not in pong


def test_nonsense_in_a_file_of_the_kernels_loses_its_own_fact_alone(agent_file: Path, root: Path) -> None:
    (root / "sys/devices/system/cpu/online").write_text("nonsense-4\n")
    [reply] = ask(agent_file, root, line(call="facts"))
    assert [one["name"] for one in reply["facts"]["unread"]] == ["cpus"]
    assert (reply["facts"]["cpus"], reply["facts"]["hostname"]) == (0, "gpu1")


def test_the_agent_ends_in_the_middle_of_a_wait_when_stdin_closes(agent_file: Path, root: Path) -> None:
    lock = root / LOCK.lstrip("/")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(agent_argv(agent_file, root), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdin.write(line(call="ping") + line(call="apply", steps=[]))
            agent.stdin.flush()
            agent.stdout.readline()
            assert agent.poll() is None
            agent.stdin.close()
            reply = json.loads(agent.stdout.readline())
            assert agent.wait(60) == 0
    assert reply["problem"]["code"] == "interrupted"


# Pushing it: the same start-up program as over SSH, in a process of this machine.


class LocalProcess:
    """The parts of a remote process that the client needs."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str]) -> None:
        self.received = 0
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self._rest = b""

    @property
    def stderr(self) -> bytes:
        return b""

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self.received += len(data)
        pending = memoryview(data)
        try:
            while pending:
                pending = pending[os.write(self._process.stdin.fileno(), pending) :]
        except BrokenPipeError as error:
            raise CommandFailed("ended") from error

    def take(self) -> bytes | None:
        taken, self._rest = self._rest, b""
        return taken

    def read_line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.close()
                raise CommandTimedOut("no answer")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                assert self._process.stderr is not None
                shown = self._process.stderr.read().decode().splitlines()
                if self._process.wait(10) == 127:
                    raise PythonMissing("no python")
                raise CommandFailed("ended", context=shown)
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\n")
        return first

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process.wait(10)

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)


class LocalConnection:
    """Starts processes here with another home folder, so the cache is the test's."""

    def __init__(
        self, home: Path, *, root: Path | None = None, python: str = PYTHON, kind: type[LocalProcess] = LocalProcess
    ) -> None:
        self.target = HostTarget("gpu1", "127.0.0.1", python_interpreter=python)
        self._kind = kind
        self.processes: list[LocalProcess] = []
        self.limits: list[float] = []
        self._home = home
        self._root = root

    def open_process(self, argv: Sequence[str], *, timeout_s: float) -> LocalProcess:
        self.limits.append(timeout_s)
        words = list(argv)
        if "-c" in words:
            program = words.index("-c") + 1
            home = f"import pwd\npwd.getpwuid = lambda _: type('', (), {{'pw_dir': {str(self._home)!r}}})\n"
            words[program] = home + words[program].replace("/run/vgpuctl-agent-%d", f"{self._home}/run-%d")
            if self._root is not None:
                words[program] = words[program].replace("main()", f"main(['--root', {str(self._root)!r}])")
        if shutil.which(words[0]) is None:
            words = ["/bin/sh", "-c", "exit 127"]
        process = self._kind(words, {"PATH": "/usr/bin:/bin"})
        self.processes.append(process)
        return process


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "home"
    path.mkdir()
    yield path
    path.chmod(0o700)


def test_the_agent_is_pushed_once_and_kept_private(home: Path, root: Path) -> None:
    bundle = build_agent()
    first = LocalConnection(home, root=root)
    with AgentClient(first) as client:
        assert client.facts().hostname == "gpu1"
        assert client.facts().gpus[0].address == PF
    assert len(first.processes) == 1
    assert first.processes[0].received > len(bundle.data)
    folder = home / ".cache/vgpuctl"
    assert folder.stat().st_mode & 0o777 == 0o700
    compiled, file = sorted(folder.glob("agent-*"))
    assert (file.name, file.read_bytes()) == (f"agent-{bundle.sha256}.pyz", bundle.data)
    assert compiled.name.startswith(f"agent-{bundle.sha256}.cpython-3")
    second = LocalConnection(home, root=root)
    with AgentClient(second) as client:
        client.facts()
    assert second.processes[0].received < 1000


def test_the_start_of_the_agent_has_the_limit_of_an_answer(home: Path, root: Path) -> None:
    """A login that hangs answers neither."""
    connection = LocalConnection(home, root=root)
    with AgentClient(connection, answer_timeout_s=29) as client:
        client.facts()
    assert connection.limits == [29]


class Impatient(LocalProcess):
    """Its reader presses Ctrl-C once, when an answer is on its way."""

    presses = 0

    def read_line(self, timeout_s: float) -> bytes:
        if self.presses:
            self.presses -= 1
            raise KeyboardInterrupt
        return super().read_line(timeout_s)


def test_an_answer_that_an_interrupt_left_unread_is_not_taken_for_the_next(home: Path, root: Path) -> None:
    connection = LocalConnection(home, root=root, kind=Impatient)
    with AgentClient(connection) as client:
        client.facts()
        (process,) = connection.processes
        assert isinstance(process, Impatient)
        process.presses = 1
        with pytest.raises(KeyboardInterrupt):
            client.facts()
        assert client.holders(PF) == []
    assert len(connection.processes) == 2


@pytest.mark.parametrize("damage", [b"", b"print('not the agent')\n"])
def test_a_damaged_file_in_the_cache_is_replaced(damage: bytes, home: Path, root: Path) -> None:
    folder = home / ".cache/vgpuctl"
    folder.mkdir(parents=True, mode=0o700)
    file = folder / f"agent-{build_agent().sha256}.pyz"
    file.write_bytes(damage)
    with AgentClient(LocalConnection(home, root=root)) as client:
        client.facts()
    assert file.read_bytes() == build_agent().data


@pytest.mark.parametrize("damage", [b"", b"0" * 64 + b"not what the digits say"])
def test_damaged_bytecode_in_the_cache_is_compiled_again(damage: bytes, home: Path, root: Path) -> None:
    with AgentClient(LocalConnection(home, root=root)) as client:
        client.facts()
    compiled, _ = sorted((home / ".cache/vgpuctl").glob("agent-*"))
    compiled.write_bytes(damage)
    with AgentClient(LocalConnection(home, root=root)) as client:
        assert client.facts().hostname == "gpu1"
    whole = compiled.read_bytes()
    assert whole[:64].decode() == hashlib.sha256(whole[64:]).hexdigest()
    assert len(whole) > 10_000


def test_a_programs_version_is_asked_again_when_its_file_has_changed(home: Path, root: Path) -> None:
    program = root / "usr/bin/qemu-system-x86_64"
    program.parent.mkdir(parents=True, exist_ok=True)
    asked = root / "asked"

    def version() -> str | None:
        with AgentClient(LocalConnection(home, root=root)) as client:
            return client.facts().qemu_version

    for number, times in (("7.2.9", 1), ("10.0.2", 2)):
        program.write_text(f"#!/bin/sh\necho x >>{asked}\necho QEMU emulator version {number}\n")
        program.chmod(0o755)
        assert [version(), version()] == [number, number]
        assert len(asked.read_text().splitlines()) == times


def test_an_open_cache_folder_is_not_trusted_and_closed(home: Path, root: Path) -> None:
    folder = home / ".cache/vgpuctl"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / f"agent-{build_agent().sha256}.pyz").write_bytes(build_agent().data)
    connection = LocalConnection(home, root=root)
    with AgentClient(connection) as client:
        client.facts()
    assert connection.processes[0].received > len(build_agent().data)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_cache_folder_that_is_a_link_is_not_used(home: Path, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (home / ".cache").mkdir()
    (home / ".cache/vgpuctl").symlink_to(elsewhere)
    with AgentClient(LocalConnection(home, root=root)) as client:
        client.facts()
    assert list(elsewhere.iterdir()) == []


def test_a_host_without_any_writable_folder_runs_it_from_memory(home: Path, root: Path) -> None:
    (home / ".cache").write_text("not a folder")
    (home / f"run-{os.geteuid()}").write_text("not a folder")
    with AgentClient(LocalConnection(home, root=root)) as client:
        assert client.facts().hostname == "gpu1"


def test_files_that_nobody_used_for_a_month_go(home: Path, root: Path) -> None:
    folder = home / ".cache/vgpuctl"
    folder.mkdir(parents=True, mode=0o700)
    old, other = folder / "agent-old.pyz", folder / "notes"
    for file in (old, other):
        file.write_text("")
        os.utime(file, (0, 0))
    for _ in range(2):
        with AgentClient(LocalConnection(home, root=root)) as client:
            client.facts()
    assert not old.exists()
    assert other.exists()


def test_a_problem_carries_what_was_done_before_it(home: Path, root: Path) -> None:
    with AgentClient(LocalConnection(home, root=root)) as client:
        [reset] = client.apply([ResetFunction(PF)])
        assert reset.changed
        # Five writes: note the list, choose the method, reset, write the list back, remove the note.
        assert client.writes == 5
        with pytest.raises(AgentProblem) as caught:
            client.apply([DeleteMdev(UUID), ResetFunction(PF), CreateMdev(PF, "nvidia-1", UUID)])
        assert caught.value.code == "type-not-offered"
        assert [change.op for change in caught.value.done] == ["mdev.delete", "function.reset"]
        assert caught.value.context[0] == f"changed before: function.reset {PF}: None -> flr"
        assert client.writes == 10
        assert client.apply([ResetFunction(PF)], dry_run=True)[0].changed
        assert client.writes == 10
        assert client.holders(PF) == []


def test_a_missing_python_is_told(home: Path) -> None:
    with pytest.raises(PythonMissing), AgentClient(LocalConnection(home, python="/nowhere/python3")) as client:
        client.facts()


def fake_python(folder: Path, body: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("echo Welcome to gpu1; cat", "Welcome to gpu1"),
        ("printf '\\033[31mred\\n'; cat", "\\x1b[31mred"),
        ("echo vgpuctl-agent have; read request; echo 'Segmentation fault'", "Segmentation fault"),
        ("echo vgpuctl-agent have; read request; echo '{\"protocol\": 7}'", '{"protocol": 7}'),
        ("echo boom >&2; exit 1", "boom"),
        ("echo vgpuctl-agent have; read request; echo died >&2; exit 1", "died"),
    ],
)
def test_garbage_from_the_host_is_shown_and_never_guessed_at(body: str, shown: str, home: Path, tmp_path: Path) -> None:
    connection = LocalConnection(home, python=fake_python(tmp_path, body))
    with pytest.raises(AgentBroken) as caught, AgentClient(connection) as client:
        client.facts()
    assert shown in caught.value.context


def test_an_old_python_is_told(home: Path, tmp_path: Path) -> None:
    connection = LocalConnection(home, python=fake_python(tmp_path, "echo vgpuctl-agent old 3.6"))
    with pytest.raises(PythonMissing, match=r"is Python 3\.6"), AgentClient(connection) as client:
        client.facts()


def test_a_killed_agent_is_told_and_the_next_call_starts_another(home: Path, root: Path) -> None:
    connection = LocalConnection(home, root=root)
    with AgentClient(connection) as client:
        client.facts()
        connection.processes[0].kill()
        with pytest.raises(AgentBroken):
            client.facts()
        assert client.facts().hostname == "gpu1"


def test_the_start_up_program_passes_through_a_shell_in_single_quotes() -> None:
    from vgpuctl.hosts.agent_bootstrap import BOOTSTRAP

    assert "'" not in BOOTSTRAP
    compile(BOOTSTRAP, "bootstrap", "exec")
