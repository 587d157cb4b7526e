# SPDX-License-Identifier: Apache-2.0
"""Takes the steps of a case on one host: through the agent's protocol, or at the kernel's own files."""

import errno
import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from tests.lab_fixtures import KernelHost
from vgpuctl import catalog
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, SetVfParams, SetVfProfile
from vgpuctl.agent.wire.steps import (
    BindDriver,
    CreateGpuInstance,
    DestroyGpuInstance,
    ResetFunction,
    ResetGpu,
    SetHeterogeneousMode,
    SetMigMode,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
)
from vgpuctl.errors import AgentProblem
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost
from vgpuctl_lab.simulated.machine.tree import VGPU_CONFIG

EVERY_KIND = frozenset(("vf-profile", "mdev-vf", "mdev", "passthrough", "vf"))
_PLACE = re.compile(r"\{(\w+)(?::([^}]+))?\}")
# Writes and reads as the kernel takes them, with the errno's name for an answer.
_ON_THE_ADAPTER = """
import errno, json, os, sys
answers = []
for path, text in json.loads(sys.argv[1]):
    try:
        file = os.open(path, os.O_RDONLY if text is None else os.O_WRONLY)
        try:
            if text is None:
                answer = os.read(file, 65536).decode().rstrip("\\n")
            else:
                os.write(file, text.encode())
                answer = "ok"
        finally:
            os.close(file)
    except OSError as error:
        answer = errno.errorcode[error.errno]
    answers.append(answer)
print(json.dumps(answers))
"""


class Bench(ABC):
    """One host under test."""

    def __init__(self, agent: AgentClient) -> None:
        self.agent = agent
        # As they were with their VFs and without any vGPU: reading a card takes seconds where a CPU is emulated.
        self._cards: dict[str, Gpu] = {}
        self.has_nvml = False

    @abstractmethod
    def files(self, asked: Sequence[tuple[str, str | None]]) -> list[str]:
        """Write texts to files of the host and read those without a text, in order: `ok`, a text or an errno's name."""

    @abstractmethod
    def reboot(self) -> None:
        """Restart the host and connect again."""

    def prepare(self, wanted: Set[str] = EVERY_KIND) -> None:
        """Enable the VFs and find the cards, one of each wanted kind. The card with MIG has none when a case begins."""
        for gpu in self.agent.facts().gpus:
            if gpu.total_vfs:
                self.agent.apply([SetVirtualFunctions(gpu.address, gpu.total_vfs)])
        facts = self.agent.facts()
        self.has_nvml = facts.nvml_version is not None
        for gpu in facts.gpus:
            kinds = [kind for kind in gpu.sharing if kind != "passthrough"]
            self._cards["mig" if gpu.mig else kinds[0] if kinds else "passthrough"] = gpu
        assert wanted <= set(self._cards)
        if "mig" in self._cards:
            self.agent.apply([SetVirtualFunctions(self._cards["mig"].address, 0)])

    def card(self, kind: str) -> Gpu:
        """The card of a kind as it was with its VFs and without any vGPU."""
        return self._cards[kind]

    def play(self, case: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Take every step of a case and tidy up: the answers, and those that the case wants."""
        before = self._cards[case["card"]]
        wanted = [
            step["types"] if step["do"] == "types" else self._fill(step["answer"], before)
            for step in case["steps"]
            if step["do"] != "reboot"
        ]
        try:
            return list(self._answers(case["steps"], before)), wanted
        finally:
            self._tidy(case["steps"], before)

    def _answers(self, steps: Sequence[dict[str, Any]], card: Gpu) -> Iterator[Any]:
        """The answers of the steps in order. Neighbouring steps at files are taken at once: each round trip is slow."""
        for is_at_files, some in groupby(steps, key=lambda step: step["do"] in ("write", "read")):
            if is_at_files:
                filled = [{key: self._fill(value, card) for key, value in step.items()} for step in some]
                yield from self.files([(_path(one["path"]), one.get("text")) for one in filled])
                continue
            for step in some:
                if step["do"] == "reboot":
                    self.reboot()
                else:
                    yield self._take(step, card)

    def summary(self, kind: str) -> dict[str, Any]:
        """The agent's answer about an empty card, without the host's own parts: addresses, groups, models."""
        gpu = self._cards[kind]
        modes = {"modes": (gpu.mig, gpu.heterogeneous, gpu.scheduler)} if self.has_nvml else {}
        return {
            **modes,
            "sharing": gpu.sharing,
            "driver": gpu.driver,
            "vfs": [(vf.number, vf.driver, vf.current_type) for vf in gpu.vfs],
            "mdevs": [each.type_id for each in gpu.mdevs],
            "types": {
                each.type_id: (each.name, each.framebuffer_mib, each.max_instances, each.creatable)
                for each in gpu.types
            },
            "companions": len(gpu.companions),
            "problems": gpu.problems,
        }

    def _take(self, step: dict[str, Any], card: Gpu) -> Any:
        what = step["do"]
        filled = {key: self._fill(value, card) for key, value in step.items()}
        if what == "types":
            now = next(gpu for gpu in self.agent.facts().gpus if gpu.address == card.address)
            # A host without vgpuConfig.xml does not know the names of types that no VF lists now.
            return {name: sum(each.creatable for each in now.types if each.name == name) for name in step["types"]}
        if what == "instances":
            now = next(gpu for gpu in self.agent.facts().gpus if gpu.address == card.address)
            return [f"{one.profile}@{one.start}" for one in now.mig.instances] if now.mig and now.mig.current else "off"
        try:
            (change,) = self.agent.apply([self._step(what, filled, card)])
        except AgentProblem as problem:
            return _short(problem)
        return "changed" if change.changed else "same"

    def _step(self, what: str, filled: dict[str, Any], card: Gpu) -> Step:
        if what in ("set-type", "set-id", "clear-type"):
            type_id = filled.get("id") or (_type_id(card, filled["type"]) if what == "set-type" else "0")
            return SetVfProfile(filled["function"], type_id)
        if what == "create":
            return CreateMdev(filled["parent"], f"nvidia-{_type_id(card, filled['type'])}", _uuid(filled["uuid"]))
        if what == "delete":
            return DeleteMdev(_uuid(filled["uuid"]))
        if what == "vf-params":
            return SetVfParams(filled["function"], filled["params"])
        if what == "bind":
            return BindDriver(tuple(filled["functions"]), filled["driver"])
        if what == "reset":
            return ResetFunction(filled["function"])
        on_gpu = self._step_on_gpu(what, filled, card)
        if on_gpu is not None:
            return on_gpu
        assert what == "vfs", what
        return SetVirtualFunctions(card.address, card.total_vfs if filled["count"] == "all" else filled["count"])

    @staticmethod
    def _step_on_gpu(what: str, filled: dict[str, Any], card: Gpu) -> Step | None:
        if what == "mig":
            return SetMigMode(card.address, filled["enabled"])
        if what == "reset-gpu":
            return ResetGpu(card.address)
        if what == "create-instance":
            count, parts = filled.get("count", 1), tuple(filled.get("parts", ()))
            where = (card.address, filled["profile"], filled["start"])
            return CreateGpuInstance(*where, count, filled.get("compute", False), parts)
        if what == "destroy-instance":
            return DestroyGpuInstance(card.address, filled["profile"], filled["start"], filled.get("count", 0))
        if what == "mixed-size":
            return SetHeterogeneousMode(card.address, filled["enabled"])
        if what == "scheduler":
            return SetVgpuScheduler(card.address, filled["policy"], filled.get("slice_us"))
        return None

    def _tidy(self, taken: list[dict[str, Any]], card: Gpu) -> None:
        """Take back whatever the steps may have done; what they did not is `same`."""
        filled = [{key: self._fill(value, card) for key, value in step.items()} for step in taken]
        uuids = {_uuid(step["uuid"]) for step in taken if "uuid" in step}
        steps: list[Step] = [DeleteMdev(uuid) for uuid in sorted(uuids)]
        functions = {step["function"] for step in filled if step["do"] in ("set-type", "set-id")} - {card.address}
        steps += [SetVfProfile(function, "0") for function in sorted(functions)]
        steps += [BindDriver(tuple(step["functions"]), None) for step in filled if step["do"] == "bind"]
        done = {step["do"] for step in taken}
        if "mixed-size" in done and card.heterogeneous is not None:
            steps.append(SetHeterogeneousMode(card.address, False))
        if "scheduler" in done:
            steps.append(SetVgpuScheduler(card.address, "best-effort"))
        if "reboot" in done:
            steps = []
        if card.mig:
            self._tidy_mig(steps, sorted({step["profile"] for step in taken if "profile" in step}), card)
        elif "reboot" in done:
            self.agent.apply([SetVirtualFunctions(card.address, card.total_vfs)])
        else:
            self.agent.apply(steps)

    def _tidy_mig(self, steps: list[Step], profiles: list[str], card: Gpu) -> None:
        now = next(gpu for gpu in self.agent.facts().gpus if gpu.address == card.address)
        self.agent.apply([*(steps if now.vfs else []), SetVirtualFunctions(card.address, 0)])
        instances: list[Step] = [DestroyGpuInstance(card.address, profile, None, 0) for profile in profiles]
        self.agent.apply([*instances, SetMigMode(card.address, False)])

    def _fill(self, value: Any, card: Gpu) -> Any:
        if isinstance(value, list):
            return [self._fill(each, card) for each in value]
        if not isinstance(value, str):
            return value
        return _PLACE.sub(lambda match: _meaning(match[1], match[2], card), value)


class SimulatedBench(Bench):
    """A simulated host; its host adapter is opened in this process, as the agent on the host opens it."""

    def __init__(
        self, agent: AgentClient, folder: Path, restart: Callable[[], AgentClient], lab_folder: LabFolder
    ) -> None:
        super().__init__(agent)
        self.lab_folder = lab_folder
        self._adapter = SimulatedHost(str(folder))
        self._restart = restart

    def reboot(self) -> None:
        """Restart the simulated host."""
        self.agent = self._restart()

    def files(self, asked: Sequence[tuple[str, str | None]]) -> list[str]:
        """Write to and read from the simulated machine."""
        return [self._read(path) if text is None else self._write(path, text) for path, text in asked]

    def _write(self, path: str, text: str) -> str:
        try:
            self._adapter.write_text(path, text)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "ok"

    def _read(self, path: str) -> str:
        try:
            return self._adapter.read(path)
        except Problem as problem:
            return problem.errno or problem.code


class KernelBench(Bench):
    """The emulated host with a real kernel."""

    def __init__(self, agent: AgentClient, host: KernelHost) -> None:
        super().__init__(agent)
        self._host = host

    def reboot(self) -> None:
        """It takes a minute, which tests/lab/test_lab_up.py spends."""
        raise AssertionError("a case with a reboot is not for the emulated host")

    def install(self, text: str | None) -> None:
        """Put NVIDIA's list of types on the host, as its driver's package does; None removes it."""
        folder = VGPU_CONFIG.rpartition("/")[0]
        remove = f"rm -f {VGPU_CONFIG}; rmdir -p --ignore-fail-on-non-empty {folder}"
        write = f"mkdir -p {folder} && printf %s {shlex.quote(text or '')} > {VGPU_CONFIG}"
        code, _output, errors = self._host.run(remove if text is None else write)
        assert code == 0, errors

    def files(self, asked: Sequence[tuple[str, str | None]]) -> list[str]:
        """Write and read in the host, in one round trip."""
        code, output, errors = self._host.run(["python3", "-c", _ON_THE_ADAPTER, json.dumps(asked)])
        assert code == 0, errors
        answers: list[str] = json.loads(output)
        return answers


def _meaning(word: str, name: str | None, card: Gpu) -> str:
    if word == "id":
        return _type_id(card, name or "")
    if word == "uuid":
        return _uuid(name or "")
    if word == "companion":
        return card.companions[0].address
    return card.address if word == "pf" else card.vfs[int(word.removeprefix("vf"))].address


def _path(text: str) -> str:
    return text if text.startswith("/") else f"/sys/bus/pci/devices/{text}"


def _type_id(card: Gpu, name: str) -> str:
    known = next((each.type_id for each in card.types if each.name == name), None)
    if known is not None:
        return known.rpartition("-")[2]
    # A type of another board, for a refusal.
    entry = catalog.type_by_name(catalog.boards_with_type(name)[0], name)
    assert entry is not None and entry.type_id is not None
    return str(entry.type_id)


def _uuid(letter: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"agreement/{letter}"))


def _short(problem: AgentProblem) -> str:
    """`vgpu-refused EIO 0x56`: the code and, where there are any, errno and resource manager code."""
    found = [line.partition(": ")[2] for line in problem.context if line.startswith(("errno: ", "NVIDIA resource"))]
    return " ".join([problem.code, *found])
