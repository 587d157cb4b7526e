# SPDX-License-Identifier: Apache-2.0
"""The program server loads what a host keeps of the agent, and only what is whole."""

import hashlib
import marshal
import sys
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import fleet
from vgpuctl_lab.simulated import interpreter
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.loaded_agents import LoadedAgents

__all__ = ["fleet"]
FLEET = (1, "a40")
HOST = "vgpuctl.agent.host"


@pytest.fixture(scope="module")
def reached(fleet: lab.LabFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a host that was reached: it keeps the agent."""
    home = tmp_path_factory.mktemp("operator")
    Operator(home, simulated_folder(fleet).inventory, f"sqlite:///{home}/store.db").does("list-gpus", "--refresh")
    return simulated_folder(fleet).host("sim-001")


def login(host: Path) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment of a login that starts the agent."""
    (file,) = (host / "home/.cache/vgpuctl").glob("agent-*.pyz")
    digest = file.stem.removeprefix("agent-")
    return ["python3", "-I", "-S", "-c", "the bootstrap", digest, "1"], {interpreter.HOST_VARIABLE: str(host)}


def loaded(agents: LoadedAgents, host: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The modules that a login gets, in place of those of this process."""
    monkeypatch.setattr(sys, "modules", {})
    agents.give(*login(host))
    return set(sys.modules)


def test_a_login_gets_all_modules_of_the_file_and_the_server_has_none(
    reached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = LoadedAgents()
    before = dict(sys.modules)
    for name in [one for one in before if one.partition(".")[0] in ("vgpuctl", "pynvml")]:
        del sys.modules[name]
    try:
        agents.load(*login(reached))
        assert not [one for one in sys.modules if one.startswith("vgpuctl.agent")]
    finally:
        sys.modules.update(before)
    assert {HOST, "vgpuctl.agent.__main__", "pynvml"} <= loaded(agents, reached, monkeypatch)


@pytest.mark.parametrize("damaged", ["*.pyz", "*.cpython-*"])
def test_what_is_damaged_or_missing_is_left_to_the_agents_own_bootstrap(
    reached: Path, damaged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = (reached / "home/.cache/vgpuctl").glob(f"agent-{damaged}")
    whole = file.read_bytes()
    agents = LoadedAgents()
    try:
        file.write_bytes(whole[:-1])
        agents.load(*login(reached))
    finally:
        file.write_bytes(whole)
    assert loaded(agents, reached, monkeypatch) == set()


def test_an_agent_whose_module_fails_is_left_to_its_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "home/.cache/vgpuctl"
    cache.mkdir(parents=True)
    file, code = b"an agent's file", compile("raise ZeroDivisionError", "broken", "exec")
    compiled = marshal.dumps(
        {"vgpuctl.agent.broken": marshal.dumps(code), "vgpuctl.agent.__init__": marshal.dumps(code)}
    )
    name = f"agent-{hashlib.sha256(file).hexdigest()}"
    (cache / f"{name}.pyz").write_bytes(file)
    kept = cache / f"{name}.{sys.implementation.cache_tag}-{sys.hexversion:x}"
    kept.write_bytes(hashlib.sha256(compiled).hexdigest().encode() + compiled)
    before = set(sys.modules)
    agents = LoadedAgents()
    agents.load(*login(tmp_path))
    assert set(sys.modules) == before
    assert loaded(agents, tmp_path, monkeypatch) == set()
