# SPDX-License-Identifier: Apache-2.0
"""Cards of the simulated hosts: `a40:50,t4:20` gives the weights, the catalogue every other number."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vgpuctl.catalog import Board, CatalogType, compute_instance_profiles, frame_rate_limit
from vgpuctl.errors import UsageError
from vgpuctl_lab.boards import (
    full_name,
    gpu_uuid,
    interfaces,
    mig_mode_outlives_reboot,
    mig_profiles,
    one_board,
    total_vfs,
    vgpu_types,
)
from vgpuctl_lab.interconnect import LinkedCard, fabric_mode, link_cards, read_words, switch_numbers
from vgpuctl_lab.placements import layout_of, placements
from vgpuctl_lab.simulated.machine.distribution import DEFAULT as DEFAULT_DISTRIBUTION
from vgpuctl_lab.simulated.machine.distribution import DISTRIBUTIONS
from vgpuctl_lab.simulated.machine.shape import (
    MDEV,
    MDEV_VF,
    PASSTHROUGH,
    VF,
    VF_PROFILE,
    CardShape,
    Companion,
    ComputeProfile,
    Mig,
    MigProfile,
    Shape,
    VgpuType,
)

DEFAULT_MIX = "a40:1"
MOST_CARDS = 16
_CARD = re.compile(
    r"(?P<board>[^/*~]+)(?:/(?P<interface>[a-z-]+))?(?P<words>(?:~[a-z-]*)*)(?:\*(?P<count>[0-9]{1,4}))?"
)
_MOST_PLAIN_VFS = 8
_FIRST_BUS = 0x41
# Between two cards, so that 64 VFs with their offset never reach the next one's bus.
_BUSES_PER_CARD = 2
_MIB = 1 << 20
_CLASS_VGA, _CLASS_3D, _CLASS_DISPLAY, _CLASS_ACCELERATOR = "030000", "030200", "038000", "120000"
_CLASS_AUDIO = "040300"


@dataclass(frozen=True)
class SimulatedCard:
    """One card as asked for."""

    board: Board
    interface: str
    words: frozenset[str] = frozenset()


@dataclass(frozen=True)
class MixPart:
    """One part of a mix: what each of its hosts has, and how many hosts of all are of this part."""

    cards: tuple[SimulatedCard, ...]
    weight: int
    text: str
    distribution: str = DEFAULT_DISTRIBUTION


def parse_mix(text: str) -> tuple[MixPart, ...]:
    """Read `BOARD[/INTERFACE][~WORD][*N][+BOARD…][@DISTRIBUTION]:WEIGHT,…`. Raises UsageError.

    `a40/mdev-vf*4+t4:10` means hosts of four A40 and one T4, `a40@rhel` one with RHEL's names of services. Without an
    interface a card has the one that its board has on a current host. `a40~bridged*4`: two pairs at NVLink bridges;
    `a40~switched*8`: two PCIe switches with four cards each; `h100-sxm5~fabric-vgpu*8`: FABRIC_MODE 2.
    """
    parts = []
    for word in (one.strip() for one in text.split(",")):
        cards, colon, weight = word.partition(":")
        if not cards or (colon and not (weight.isdecimal() and len(weight) <= 9 and int(weight))):
            raise UsageError(f"mix {text!r}: {word!r} is not BOARD:WEIGHT", hint="for example --mix a40:50,t4:20")
        cards, at, distribution = cards.partition("@")
        if at and distribution not in DISTRIBUTIONS:
            names = ", ".join(DISTRIBUTIONS)
            raise UsageError(f"mix {word!r}: there is no distribution {distribution!r}", hint=f"there are {names}")
        found = tuple(card for one in cards.split("+") for card in _parse_cards(one))
        if len(found) > MOST_CARDS:
            raise UsageError(f"mix {word!r}: {len(found)} cards", hint=f"a host takes up to {MOST_CARDS}")
        fabric_mode(card.words for card in found)
        parts.append(
            MixPart(found, int(weight or 1), f"{cards}{at}{distribution}", distribution or DEFAULT_DISTRIBUTION)
        )
    return tuple(parts)


def share_out(parts: Sequence[MixPart], hosts: int) -> list[MixPart]:
    """One part per host, in proportion to the weights; largest remainders get what is left."""
    total = sum(part.weight for part in parts)
    counts = [hosts * part.weight // total for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda index: (-(hosts * parts[index].weight % total), index))
    for index in by_remainder[: hosts - sum(counts)]:
        counts[index] += 1
    return [part for part, count in zip(parts, counts, strict=True) for _ in range(count)]


def shape_of(name: str, part: MixPart, versions: Mapping[str, str], *, with_vfs: bool) -> Shape:
    """The machine of one host. with_vfs: its VFs are enabled when it is switched on, as by a boot unit."""
    cards = _cards(name, part.cards)
    enabled = {
        card.address: _vfs_wanted(asked.board, card)
        for card, asked in zip(cards, part.cards, strict=True)
        if card.total_vfs and card.interface != PASSTHROUGH
    }
    return Shape(
        hostname=name,
        cpus=64,
        memory_mib=512 * 1024,
        kernel="6.8.0-simulated",
        operating_system=DISTRIBUTIONS[part.distribution].operating_system,
        nvidia_driver="580.105.06",
        versions=dict(versions),
        cards=cards,
        enabled_vfs=enabled if with_vfs else {},
        distribution=part.distribution,
        fabric_mode=fabric_mode(card.words for card in part.cards),
    )


def _parse_cards(text: str) -> list[SimulatedCard]:
    match = _CARD.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"card {text!r} is not BOARD[/INTERFACE][*COUNT]")
    board = one_board(match["board"], text)
    allowed = interfaces(board)
    interface = match["interface"] or allowed[0]
    if interface not in allowed:
        raise UsageError(f"card {text!r}: a {board.name} has no interface {interface!r}", hint=", ".join(allowed))
    words = read_words(text, board, match["words"].split("~")[1:])
    return [SimulatedCard(board, interface, words)] * int(match["count"] or 1)


def _vfs_wanted(board: Board, card: CardShape) -> int:
    """NVIDIA's script knows only all; of others, the largest published split of up to eight."""
    if card.interface != VF:
        return card.total_vfs
    presets = [count for count in (board.sriov.presets if board.sriov else ()) if count <= _MOST_PLAIN_VFS]
    return max(presets, default=min(card.total_vfs, _MOST_PLAIN_VFS))


def _cards(host: str, asked: Sequence[SimulatedCard]) -> tuple[CardShape, ...]:
    """The cards of a host, with what joins them. The cards of one bridge or switch are at one NUMA node."""
    addresses = [_address(number) for number in range(len(asked))]
    links = link_cards(
        [LinkedCard(address, one.board, one.words) for address, one in zip(addresses, asked, strict=True)]
    )
    switches = switch_numbers([one.words for one in asked])
    cards = []
    for number, (one, linked, switch) in enumerate(zip(asked, links, switches, strict=True)):
        card = replace(_card(host, number, one), links=linked)
        if switch is not None:
            root, bridges = _switch(switch, number)
            card = replace(card, root=root, bridges=bridges, numa_node=switch % 2)
        elif linked.peers and not linked.has_switch:
            first = min(number, addresses.index(linked.peers[0]))
            card = replace(card, numa_node=first // 2 % 2)
        cards.append(card)
    return tuple(cards)


def _address(number: int) -> str:
    return f"0000:{_FIRST_BUS + number * _BUSES_PER_CARD:02x}:00.0"


def _switch(switch: int, number: int) -> tuple[str, tuple[str, ...]]:
    """The root complex of a PCIe switch, and the root port, upstream and downstream port above a card behind it."""
    ports = (f"{0x10 + switch:02x}:01.0", f"{0x20 + switch:02x}:00.0", f"{0x30 + switch:02x}:{number:02x}.0")
    return f"pci0000:{0x10 + switch:02x}", tuple(f"0000:{port}" for port in ports)


def _card(host: str, number: int, asked: SimulatedCard) -> CardShape:
    board, sriov = asked.board, asked.board.sriov
    vendor, device = board.pci.split(":")
    address, root_bus = _address(number), _FIRST_BUS - 1 + number * _BUSES_PER_CARD
    has_vfs = asked.interface in (MDEV_VF, VF_PROFILE, VF)
    has_types = asked.interface in (MDEV, MDEV_VF, VF_PROFILE)
    return CardShape(
        address=address,
        number=number,
        interface=asked.interface,
        model=board.name,
        vendor=vendor,
        device=device,
        subsystem=board.subsystems[0] if board.subsystems else board.pci,
        pci_class=_class(board),
        driver=_driver(board),
        uuid=gpu_uuid(host, address),
        numa_node=number % 2,
        memory_mib=board.memory_mib,
        total_vfs=total_vfs(board) or 16 if has_vfs else 0,
        vf_offset=(sriov.vf_offset if sriov else None) or 4,
        vf_stride=(sriov.vf_stride if sriov else None) or 1,
        vf_device=sriov.vf_pci.split(":")[1] if sriov and sriov.vf_pci else device,
        bars_bytes=(16 * _MIB, _power_of_two(board.bar1_mib or board.memory_mib) * _MIB, 32 * _MIB),
        reset_methods="flr bus",
        types=tuple(vgpu_type(board, *one) for one in vgpu_types(board)) if has_types else (),
        companions=tuple(
            Companion(
                f"{address[:-1]}{each.function}",
                each.pci.split(":")[0],
                each.pci.split(":")[1],
                _CLASS_AUDIO,
                "snd_hda_intel",
            )
            for each in board.companions
            if each.kind == "audio"
        ),
        mig=_mig(board),
        mixes_sizes=bool(board.mixed_size) and has_types and asked.interface != MDEV,
        power_w=board.tdp_w or 0,
        reported_mib=board.memory_reported_mib or board.memory_mib,
        root=f"pci0000:{root_bus:02x}",
        bridges=(f"0000:{root_bus:02x}:01.0",),
    )


def vgpu_type(board: Board, one: CatalogType, type_id: int) -> VgpuType:
    """A type of the catalogue as a card of this board has it."""
    width, height = one.max_resolution
    description = (
        f"num_heads={one.max_displays}, frl_config={frame_rate_limit(one)}, framebuffer={one.fb_mib}M, "
        f"max_resolution={width}x{height}, max_instance={one.max_instances}"
    )
    size = one.placement_size or max(one.fb_mib // 1024, 1)
    region_gib, most = board.memory_mib // 1024, one.max_instances
    table = mig_profiles(board)
    if one.is_mig_backed and table is not None:
        profile = next(each for each in table.profiles if each.id == one.gi_profile_id)
        region_gib = region_gib * (profile.placement_size or 1) // (table.memory_slots or 1)
        most = one.max_per_gi or 1
    return VgpuType(
        type_id,
        full_name(one),
        one.fb_mib,
        one.max_instances,
        description,
        size,
        placements(layout_of(board), region_gib, size, most),
        one.gi_profile_id if one.is_mig_backed else None,
        one.max_per_gi or 1,
    )


def _mig(board: Board) -> Mig | None:
    table = mig_profiles(board)
    if table is None or table.memory_slots is None or table.compute_slices is None:
        return None
    profiles = tuple(
        MigProfile(
            each.id,
            each.nvml_profile,
            each.name,
            each.compute_slices,
            each.memory_mib or 0,
            each.max_count,
            each.placement_starts,
            each.placement_size,
            each.gi_id_base or 0,
            tuple(count or 0 for count in (each.sm, each.ce, each.dec, each.enc, each.jpeg, each.ofa)),
            tuple(
                ComputeProfile(one.id, one.slices, one.max_count, one.placement_starts)
                for one in compute_instance_profiles(each.compute_slices)
            ),
        )
        for each in table.profiles
        if each.id is not None
        and each.nvml_profile is not None
        and each.placement_starts is not None
        and each.placement_size is not None
    )
    return Mig(table.memory_slots, table.compute_slices, mig_mode_outlives_reboot(board), profiles)


def _class(board: Board) -> str:
    if board.vendor == "nvidia":
        return _CLASS_VGA if board.companions else _CLASS_3D
    return _CLASS_ACCELERATOR if "Instinct" in board.name else _CLASS_DISPLAY


def _driver(board: Board) -> str:
    if board.vendor == "intel":
        return "xe"
    return "nvidia" if board.vendor == "nvidia" else "gim"


def _power_of_two(mib: int) -> int:
    size = 1
    while size < mib:
        size *= 2
    return size
