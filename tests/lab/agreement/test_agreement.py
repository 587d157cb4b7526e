# SPDX-License-Identifier: Apache-2.0
"""A simulated host and one with a real kernel give the same answers to the same cases (cases.yml)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.lab.agreement.bench import Bench, KernelBench, SimulatedBench
from tests.lab.kernel_cards import Do
from tests.lab.loaded_boards import loaded_boards
from tests.lab.simulated_fixtures import need_simulated
from tests.lab_fixtures import KernelHost
from vgpuctl.agent.wire.steps import SetVirtualFunctions
from vgpuctl.agent.wire.vf_health import is_usable
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.inventory.load import load_inventory
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.tree import vgpu_config
from vgpuctl_lab.simulated.mix import parse_mix, shape_of

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yml").read_text())
# The cards of the kernel lab's own default host; the simulated one has a card with MIG as well.
MIX = "a40/vf-profile+a40/mdev-vf+t4+rtx-3090+flex-170"
WITH_MIG = f"{MIX}+a100-pcie-40gb"
SSH = SshSettings(known_hosts_file=Path("/nonexistent"), ssh_config_file=Path("/dev/null"))

# The effects of a reboot are tested on a kernel by tests/lab/test_lab_up.py.
ON_KERNEL = [case for case in CASES if "only" not in case and all(step["do"] != "reboot" for step in case["steps"])]
ON_DEFAULT_HOST = [case for case in ON_KERNEL if case["card"] != "mig"]
WITH_MIG_ON_KERNEL = [case for case in ON_KERNEL if case["card"] == "mig"]


def _each(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"].replace(" ", "-") for case in cases])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    need_simulated()
    folder = lab.LabFolder(tmp_path_factory.mktemp("agreement") / "lab")
    (host,) = lab.simulated.up(1, mix=WITH_MIG, folder=folder)
    target = load_inventory([str(host.inventory)]).target(host.name)
    try:
        with ExitStack() as connections:

            def connect() -> AgentClient:
                return AgentClient(connections.enter_context(Connection(target, settings=SSH)))

            def restart() -> AgentClient:
                lab.simulated.reboot(host.name, folder=folder)
                return connect()

            bench = SimulatedBench(connect(), simulated_folder(folder).host(host.name), restart, folder)
            bench.prepare()
            yield bench
    finally:
        lab.simulated.down(folder=folder)


@pytest.fixture(scope="module")
def pristine(kernel_host: KernelHost) -> Iterator[KernelHost]:
    """The emulated host as after its first start, without libvirtd."""
    kernel_host.restore_pristine()
    with kernel_host.without_libvirtd():
        yield kernel_host
    kernel_host.restore_pristine()


@pytest.fixture(scope="module")
def kernel(pristine: KernelHost) -> Iterator[Bench]:
    target = load_inventory([str(pristine.inventory)]).target(pristine.name)
    with Connection(target, settings=SSH) as connection:
        bench = KernelBench(AgentClient(connection), pristine)
        bench.install(vgpu_config(shape_of("gpu1", parse_mix(MIX)[0], {}, with_vfs=False)))
        bench.prepare()
        yield bench
        bench.install(None)


@pytest.fixture(scope="module")
def kernel_with_mig(pristine: KernelHost, do: Do) -> Iterator[Bench]:
    """The module loaded with an A100 alone."""
    target = load_inventory([str(pristine.inventory)]).target(pristine.name)
    with (
        loaded_boards(pristine, do, "gpu1=a100-pcie-40gb", vfs={1: 2}),
        Connection(target, settings=SSH) as connection,
    ):
        bench = KernelBench(AgentClient(connection), pristine)
        bench.prepare({"mig"})
        yield bench


@_each(CASES)
def test_a_simulated_host_answers_as_the_case_says(case: dict[str, Any], simulated: Bench) -> None:
    answers, wanted = simulated.play(case)
    assert answers == wanted


@pytest.mark.kernel_lab
@_each(ON_DEFAULT_HOST)
def test_a_real_kernel_answers_as_the_case_says(case: dict[str, Any], kernel: Bench) -> None:
    answers, wanted = kernel.play(case)
    assert answers == wanted


@pytest.mark.kernel_lab
@pytest.mark.parametrize("card", ["vf-profile", "mdev-vf", "mdev", "passthrough", "vf"])
def test_the_agent_reads_the_same_card_on_both(card: str, simulated: Bench, kernel: Bench) -> None:
    one, other = simulated.summary(card), kernel.summary(card)
    # A host without NVML says nothing of modes.
    assert {key: one[key] for key in one if key in other} == other


def _is_repaired(bench: Bench, host: str, folder: lab.LabFolder, kind: str) -> None:
    """Let SR-IOV of the card with profiles fall ill, and set its VFs again."""
    card = bench.card("vf-profile")
    lab.faults.begin(host, kind, card=card.address, folder=folder)
    (sick,) = (one for one in bench.agent.facts().gpus if one.address == card.address)
    assert sick.driver is None or {is_usable(vf) for vf in sick.vfs} == {False}
    (change,) = bench.agent.apply([SetVirtualFunctions(card.address, card.total_vfs)])
    (repaired,) = (one for one in bench.agent.facts().gpus if one.address == card.address)
    assert change.changed and len(repaired.vfs) == card.total_vfs
    assert all(is_usable(vf) for vf in repaired.vfs)
    assert lab.faults.active(host, folder=folder) == []
    lab.faults.clear(host, folder=folder)  # what has ended by itself is told no more, also where it cannot be asked


@pytest.mark.parametrize("kind", ["vfs-on-stub", "pf-unbound"])
def test_sick_vfs_of_a_simulated_host_are_repaired(kind: str, simulated: Bench) -> None:
    assert isinstance(simulated, SimulatedBench)
    _is_repaired(simulated, "sim-001", simulated.lab_folder, kind)


# Setting all VFs twice takes half a minute there, and VFs without types are waited for 30 s before.
@pytest.mark.long(
    "tests/agent/test_sriov_repair.py::test_each_sick_state_is_repaired_by_setting_the_vfs_again",
    "tests/lab/agreement/test_agreement.py::test_sick_vfs_of_a_simulated_host_are_repaired",
)
@pytest.mark.kernel_lab
@pytest.mark.parametrize("kind", ["vfs-on-stub", "vfs-unregistered"])
def test_sick_vfs_on_a_real_kernel_are_repaired(kind: str, kernel: Bench, kernel_host: KernelHost) -> None:
    _is_repaired(kernel, kernel_host.name, kernel_host.folder, kind)


# Last, since the host's own cards are gone meanwhile.
@pytest.mark.kernel_lab
@_each(WITH_MIG_ON_KERNEL)
def test_a_real_kernel_answers_as_the_case_with_mig_says(case: dict[str, Any], kernel_with_mig: Bench) -> None:
    answers, wanted = kernel_with_mig.play(case)
    assert answers == wanted
