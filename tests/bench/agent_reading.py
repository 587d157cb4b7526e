# SPDX-License-Identifier: Apache-2.0
"""The CPU that one reading costs a host: interpreter, start-up program, agent and facts, each time a new process.

The agent is started as over SSH, by the same start-up program and with its files in the cache already. `empty` is this
machine, which has no GPU; `gpus` is a folder with two A40 of 32 VFs each and 300 processes. `bare` is an interpreter
that does nothing. `packed anew` is the CPU that a command needs to pack the agent's file, `packed before` the CPU that
it needs to read a packed one from the cache.
The rows of one round run one after the other, so that their ratios hold on a busy machine.

Run it with `python -m tests.bench.agent_reading [--rounds N] [--against CHECKOUT]`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.agent import machine

_PACK = """
import json
from vgpuctl.agent.wire.envelope import Request, request_to_json
from vgpuctl.hosts.agent_bootstrap import BOOTSTRAP
from vgpuctl.hosts.bundle import build_agent
bundle = build_agent()
print(json.dumps([BOOTSTRAP, bundle.sha256, bundle.data.hex(), json.dumps(request_to_json(Request("facts")))]))
"""
_PACKING = """
import time
from vgpuctl.hosts.bundle import build_agent
began = time.process_time()
build_agent()
print(time.process_time() - began)
"""
_FOLDERS = "import pwd\npwd.getpwuid = lambda _: type('', (), {{'pw_dir': {home!r}}})\n"
_SERVE = "from vgpuctl.agent.host import Host\nfrom vgpuctl.agent.__main__ import serve\nserve(Host({root!r}))"
_PFS = ("0000:41:00.0", "0000:c1:00.0")


class Agent:
    """The agent of one checkout, in a cache folder of its own."""

    def __init__(self, checkout: Path, home: Path, python: str) -> None:
        home.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        packed = subprocess.run([sys.executable, "-c", _PACK], cwd=checkout, env=environment, stdout=-1, check=True)
        self._bootstrap, self._sha256, data, self._request = json.loads(packed.stdout)
        self._data = bytes.fromhex(data)
        self._python, self._home = python, home

    def read(self, root: Path) -> bytes:
        """Read a host's facts once, in a new process; returns the reply's line."""
        program = _FOLDERS.format(home=str(self._home)) + self._bootstrap
        start, main = program.rstrip().rsplit("from vgpuctl.agent.__main__ import main", 1)
        assert main.strip() == "main()"
        program = start + _SERVE.format(root=str(root))
        argv = [self._python, "-I", "-S", "-c", program, self._sha256, str(len(self._data))]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": "/usr/bin"}) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline().split()[1] == b"need":
                process.stdin.write(self._data)
            process.stdin.write(self._request.encode() + b"\n")
            process.stdin.close()
            line = process.stdout.readline()
        if process.returncode or b'"facts"' not in line:
            raise SystemExit(f"the agent ended with {process.returncode}: {line[:300]!r}")
        return line


def main() -> None:
    """Read both hosts in rounds and print the CPU's medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another version of the sources")
    parser.add_argument("--python", default="/usr/bin/python3")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agent-reading-") as name:
        folder = Path(name)
        roots = {"empty": Path("/"), "gpus": _build_gpus(folder / "gpus")}
        agents = {"this": Agent(Path(__file__).parents[2], folder / "this", given.python)}
        if given.against:
            agents["other"] = Agent(given.against, folder / "other", given.python)
        taken: dict[str, list[float]] = {}
        for number in range(given.rounds + 2):
            costs = {"bare": _bare(given.python)}
            costs["packed anew"], costs["packed before"] = (_packing_s(folder / f"cache-{number}") for _ in range(2))
            for host, root in roots.items():
                for version, agent in agents.items():
                    before = _cpu_s()
                    agent.read(root)
                    costs[f"{host}, {version}"] = _cpu_s() - before
            # The first two start the programs that are asked for their version, and compile.
            if number >= 2:
                for row, cost in costs.items():
                    taken.setdefault(row, []).append(cost)
    print(f"{given.rounds} rounds, load {os.getloadavg()[0]:.1f}, {given.python}")
    for row, found in taken.items():
        print(f"{row:16} min {min(found) * 1000:6.1f} ms   median {statistics.median(found) * 1000:6.1f} ms")
    if given.against:
        for host in roots:
            ratios = [a / b for a, b in zip(taken[f"{host}, this"], taken[f"{host}, other"], strict=True)]
            print(f"{host}: this / other, pair by pair: median {statistics.median(ratios):.2f}")


def _build_gpus(root: Path) -> Path:
    trees = [machine.BASE]
    for number, pf in enumerate(_PFS):
        trees.append(machine.a40(pf, total_vfs=32, group=14 + number))
        trees += [
            machine.virtual_function(
                vf,
                pf,
                files={
                    "nvidia/current_vgpu_type": "558\n" if vf < 8 else "0\n",
                    "nvidia/creatable_vgpu_types": machine.creatable(tuple(machine.VF_TYPES) if vf >= 8 else ()),
                    f"vfio-dev/vfio{number * 32 + vf}": None,
                },
            )
            for vf in range(32)
        ]
        trees.append({f"{machine.device_path(pf)}/sriov_numvfs": "32\n"})
        trees += [machine.holder(1000 + number * 8 + vf, f"/dev/vfio/{20 + vf}") for vf in range(8)]
    trees += [machine.holder(2000 + number, "/dev/null", command="/usr/sbin/other") for number in range(280)]
    return machine.build(root, *trees)


def _bare(python: str) -> float:
    before = _cpu_s()
    subprocess.run([python, "-I", "-S", "-c", "pass"], check=True)
    return _cpu_s() - before


def _packing_s(cache: Path) -> float:
    """The CPU that a command spends on the agent's file. cache: the user's; an earlier command may have filled it."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return float(subprocess.run([sys.executable, "-c", _PACKING], env=environment, stdout=-1, check=True).stdout)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
