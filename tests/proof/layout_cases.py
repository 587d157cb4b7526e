# SPDX-License-Identifier: Apache-2.0
"""Generated ways from a layout to another, with users of the GPUs, options and faults (tests/proof/layouts.py)."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from vgpuctl import catalog
from vgpuctl.usecases.layout.run_options import RunOptions
from vgpuctl_lab.boards import one_board

Entry = dict[str, Any]
DCGM = "nvidia-dcgm.service"
NOWHERE = "/var/lib/nowhere"
BOARDS = {
    "t4": "T4",
    "a40": "A40",
    "a40/mdev-vf": "A40",
    "l40s": "L40S",
    "a100-pcie-40gb": "A100",
    "h100-pcie": "H100",
    "rtx-pro-6000-blackwell-server": "DC",
    "flex-170": "",
    "a40+t4": "A40",
    "a100-pcie-40gb*2": "A100",
}
GEOMETRIES: dict[str, list[dict[str, int]]] = {
    "a100-pcie-40gb": [{"3g.20gb": 2}, {"2g.10gb": 3}, {"1g.5gb": 7}, {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}, {}],
    "h100-pcie": [{"3g.40gb": 2}, {"2g.20gb": 3}, {"1g.10gb": 7}, {"4g.40gb": 1, "3g.40gb": 1}],
    "rtx-pro-6000-blackwell-server": [
        {"1g.24gb+gfx": 4},
        {"2g.48gb+gfx": 2},
        {"2g.48gb+gfx": 1, "1g.24gb+gfx": 2},
        {"4g.96gb+gfx": 1},
    ],
}
SIZES = ("equal-size", "mixed-size")
POLICIES = ("best-effort", "equal-share", "fixed-share")
CARD_FAULTS = ("lock-busy", "fallen", "refuse", "busy", "sriov-silent", "pf-unbound")


@dataclass
class Case:
    """One way. vms: profiles. fault: (number of the step, whether it is done first), or the name of a card's fault."""

    number: int
    mix: str
    before: dict[str, Any]
    after: dict[str, Any]
    options: RunOptions
    vms: int = 0
    stopped: bool = False
    stranger: bool = False
    dcgm: bool = False
    step_fault: tuple[int, bool] | None = None
    card_fault: str | None = None
    wrong: list[str] = field(default_factory=list, repr=False)
    seen: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list, repr=False)


def make_case(seed: int, number: int) -> Case:
    """The case of a number: the same seed gives the same case."""
    chance = random.Random(f"{seed}/{number}")
    mix = chance.choice(list(BOARDS))
    options = RunOptions(
        disrupt=chance.random() < 0.7,
        reset=chance.random() < 0.7,
        undo=chance.random() < 0.4,
        boot=chance.random() < 0.7,
        patience_s=0,
    )
    case = Case(number, mix, _layout(chance, mix, first=True), _layout(chance, mix), options)
    tunes = random.Random(f"{seed}/{number}/settings")
    for layout in (case.before, case.after):
        for entry in layout["gpus"]:
            entry |= _settings(tunes, entry["kind"], first=layout is case.before)
    case.vms = chance.choice((0, 0, 1, 2, 4))
    case.stopped = chance.random() < 0.3
    case.stranger = chance.random() < 0.1
    case.dcgm = chance.random() < 0.15
    if chance.random() < 0.3:
        case.step_fault = (chance.randrange(6), chance.random() < 0.5)
    elif chance.random() < 0.1:
        case.card_fault = chance.choice(CARD_FAULTS)
    return case


def _layout(chance: random.Random, mix: str, *, first: bool = False) -> dict[str, Any]:
    boards = [part.partition("*")[0].partition("/")[0] for part in mix.split("+")]
    layout: dict[str, Any] = {}
    if len(boards) == 1 and not mix.endswith("*2"):
        layout["gpus"] = [{"match": "all", **_entry(chance, boards[0], first=first)}]
    else:
        names = boards if len(boards) > 1 else boards * 2
        places = [f"0000:{0x41 + 2 * index:02x}:00.0" for index in range(len(names))]
        layout["gpus"] = [
            {"match": {"address": place}, **_entry(chance, name, first=first)}
            for place, name in zip(places, names, strict=True)
        ]
    if chance.random() < 0.3:
        layout["hugepages"] = {"2MiB": chance.choice((0, 16, 64))}
    if chance.random() < 0.3:
        layout["stop_services"] = [DCGM]
    if chance.random() < 0.2:
        layout["kernel_arguments"] = ["iommu=pt"]
    if chance.random() < 0.2:
        layout["network"] = {"southbound": "ssl:192.0.2.1:6642", "tunnels": "10.84.0.0/16"}
        if chance.random() < 0.5:
            layout["uplinks"] = {"provider": "eno2"}
    if chance.random() < 0.2:
        folder = chance.choice(("/var/lib/prometheus/node-exporter",) * 3 + (NOWHERE,))
        layout["telemetry"] = {"textfile": folder}
    return layout


def _settings(chance: random.Random, kind: str, *, first: bool) -> Entry:
    """Settings of the whole card; after the first layout also some that a board does not take."""
    chosen: Entry = {}
    if kind in ("vgpu", "mig", "mig-vgpu", "off"):
        if chance.random() < 0.2:
            chosen["gpu_clocks_mhz"] = chance.choice(
                ("1200-1695", 1500, "default", "1200-1695" if first else "1200-1700")
            )
        if chance.random() < 0.2:
            chosen["power_limit_w"] = "default" if first else chance.choice(("default", 300, 250, 70))
    if kind in ("vgpu", "off") and chance.random() < 0.1:
        chosen["compute_mode"] = chance.choice(("default", "exclusive-process", "prohibited"))
    return chosen


def _entry(chance: random.Random, name: str, *, first: bool) -> Entry:
    board = one_board(name, name)
    if board.vendor != "nvidia":
        return chance.choice(
            [{"kind": "vf", "count": chance.choice((2, 4, 7))}, {"kind": "passthrough"}, {"kind": "off"}]
        )
    kinds = ["vgpu"] * (6 if first else 4) + ["off", "passthrough"]
    if name in GEOMETRIES:
        kinds += ["mig-vgpu"] * 5 + ["mig"]
    kind = chance.choice(kinds)
    if kind == "off":
        return {"kind": kind}
    if kind == "passthrough":
        return {"kind": kind, **({"driver": "vfio-pci"} if chance.random() < 0.5 else {})}
    if kind == "mig":
        return {"kind": kind, "geometry": chance.choice(GEOMETRIES[name])}
    entry: Entry = {"kind": kind}
    if kind == "mig-vgpu":
        entry["geometry"] = chance.choice(GEOMETRIES[name])
    has_sizes = board.mixed_size and (kind == "vgpu" or name.startswith("rtx-pro"))
    size = chance.choice((None, *SIZES)) if has_sizes else None
    if size is not None:
        entry["size_mode"] = size
    policy = chance.choice((None, None, *POLICIES))
    if policy is not None and (size, policy) != ("mixed-size", "fixed-share"):
        entry["scheduler"] = {"policy": policy}
        if policy == "equal-share" and chance.random() < 0.3:
            entry["scheduler"]["time_slice_ms"] = 4
    if chance.random() < 0.4:
        types = [
            one
            for one in catalog.types_of(board)
            if one.series in "QC"
            and one.is_mig_backed == (kind == "mig-vgpu")
            and (kind == "vgpu" or one.gi_profile in entry["geometry"])
        ]
        if types:
            chosen = chance.choice(types)
            room = chosen.max_instances
            if kind == "mig-vgpu":
                room = entry["geometry"][chosen.gi_profile] * (chosen.max_per_gi or 1)
            entry["shares"] = {chosen.name: chance.randint(1, max(1, min(3, room)))}
            others = [one for one in types if one.fb_mib < chosen.fb_mib and 4 * one.fb_mib <= chosen.fb_mib]
            if size == "mixed-size" and others and room > 1:
                entry["shares"] = {chosen.name: 1, chance.choice(others).name: 1}
    return entry
