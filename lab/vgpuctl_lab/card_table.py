# SPDX-License-Identifier: Apache-2.0
"""The text that tells the kernel module its cards; kernel_module/README.md has the format."""

import re
from collections.abc import Iterator
from uuid import NAMESPACE_URL, uuid5

from vgpuctl.catalog import Board, CatalogType, MigProfile, MigTable, compute_instance_profiles, frame_rate_limit
from vgpuctl_lab import boards
from vgpuctl_lab.card_links import CardLinks
from vgpuctl_lab.cards import Card, CardInterface, HostShape
from vgpuctl_lab.interconnect import BRIDGED, LinkedCard, link_cards

_CLASS_VGA_CONTROLLER = "030000"
_CLASS_3D_CONTROLLER = "030200"
_CLASS_OTHER_DISPLAY = "038000"
_CLASS_HD_AUDIO = "040300"
# The driver's names of the types' licences: published output of `nvidia-smi vgpu -s -v`.
_LICENSES = {
    "Q": "Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0;GRID-Virtual-WS-Ext,2.0",
    "B": "GRID-Virtual-PC,2.0;Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0;GRID-Virtual-WS-Ext,2.0",
    "A": "GRID-Virtual-Apps,3.0",
    "C": "NVIDIA-vComputeServer,9.0;Quadro-Virtual-DWS,5.0",
}
_ENGINES = ("sm", "ce", "dec", "enc", "jpeg", "ofa")


def card_table(shape: HostShape) -> str:
    """The host's text for `/proc/vgpulab/cards`, ordered by bus, as NVML numbers GPUs."""
    by_bus = sorted(zip(shape.buses, shape.cards, strict=True), key=lambda one: one[0])
    cards = [(f"0000:{bus:02x}:00.0", card) for bus, card in by_bus]
    links = link_cards(
        [LinkedCard(address, card.board, frozenset([BRIDGED] if card.is_bridged else [])) for address, card in cards]
    )
    lines = (_card(shape, address, card, linked) for (address, card), linked in zip(cards, links, strict=True))
    return "".join(f"{line}\n" for of_card in lines for line in of_card)


def _card(shape: HostShape, address: str, card: Card, links: CardLinks) -> Iterator[str]:
    board = card.board
    subsystem = board.subsystems[0] if board.subsystems else board.pci
    table = boards.mig_profiles(board)
    pci_class, revision = _CLASS_VGA_CONTROLLER if board.companions else _CLASS_3D_CONTROLLER, "a1"
    if board.vendor == "intel":
        pci_class, revision = _CLASS_OTHER_DISPLAY, "08"
    yield _line(
        f"card {address}",
        interface=card.interface.module_word,
        device=board.pci,
        subsystem=subsystem,
        **{"class": pci_class},
        revision=revision,
        framebuffer=board.memory_mib,
        vfs=card.virtual_functions,
        **(_nvidia_keys(shape, address, card, table) if board.vendor == "nvidia" else {}),
        **(_link_keys(links) if links.count else {}),
        name=board.name,
    )
    if card.interface is CardInterface.PASSTHROUGH:
        for companion in board.companions[:1]:
            yield (
                f"companion {address[:-1]}1 device={companion.pci} subsystem={subsystem} class={_CLASS_HD_AUDIO}"
                " revision=a1"
            )
    elif card.interface is not CardInterface.VF:
        for entry, type_id in boards.vgpu_types(board):
            yield _type(entry, type_id)
    if table is not None:
        for profile in table.profiles:
            yield from _profile(board, table, profile)


def _nvidia_keys(shape: HostShape, address: str, card: Card, table: MigTable | None) -> dict[str, object]:
    """NVML's values of the card, and its modes."""
    board = card.board
    keys: dict[str, object] = {
        "uuid": boards.gpu_uuid(shape.name, address),
        "serial": f"{uuid5(NAMESPACE_URL, f'serial/{shape.name}/{address}').int % 10**13:013}",
        "architecture": board.architecture.split()[0].lower(),
        "memory": board.memory_reported_mib or board.memory_mib,
        "power": board.tdp_w,
        "bar1": board.bar1_mib,
        "ecc": 1 if boards.vgpu_types(board) else None,
        "hetero": int(bool(board.mixed_size)),
        "mig": int(table is not None),
    }
    if table is not None:
        keys |= {
            "mig_reset": int(boards.mig_mode_outlives_reboot(board)),
            "mig_kept": int(card.keeps_mig_mode or boards.mig_mode_outlives_reboot(board)),
            "slots": table.memory_slots,
            "slices": table.compute_slices,
        }
    return keys


def _link_keys(links: CardLinks) -> dict[str, object]:
    """The card's NVLinks, which only NVML's library reads: link N leads to the peer N modulo their number."""
    return {
        "nvlinks": links.count,
        "nvlink_version": links.version,
        "nvlink_peers": ",".join(links.peers),
        "nvlink_switch": int(links.has_switch),
        "fabric": int(links.has_fabric),
        "module": links.module or None,
    }


def _type(entry: CatalogType, type_id: int) -> str:
    width, height = entry.max_resolution
    return _line(
        f"type {type_id}",
        framebuffer=entry.fb_mib,
        max=entry.max_instances,
        heads=entry.max_displays,
        frl=frame_rate_limit(entry),
        resolution=f"{width}x{height}",
        vdev=entry.vdev,
        placement=entry.placement_size,
        gi=entry.gi_profile_id,
        per_gi=entry.max_per_gi,
        guest_framebuffer=entry.guest_fb_mib,
        **{"class": boards.CLASSES[entry.series]},
        license=_LICENSES[entry.series],
        name=boards.full_name(entry),
    )


def _profile(board: Board, table: MigTable, profile: MigProfile) -> Iterator[str]:
    """One GPU-instance profile and what compute instances it can have."""
    yield _line(
        f"gi {profile.id}",
        slices=profile.compute_slices,
        size=profile.placement_size,
        memory=profile.memory_mib or _nominal_memory_mib(board, table, profile),
        max=profile.max_count,
        starts=",".join(str(start) for start in profile.placement_starts or ()),
        me=int(any(one in ("me", "me.all") for one in profile.attributes)),
        base=profile.gi_id_base,
        nvml=profile.nvml_profile,
        **{engine: getattr(profile, engine) for engine in _ENGINES},
        name=profile.name,
    )
    for compute in compute_instance_profiles(profile.compute_slices):
        yield _line(
            f"ci {compute.id}",
            slices=compute.slices,
            max=compute.max_count,
            gi=profile.id,
            starts=",".join(str(start) for start in compute.placement_starts),
            nvml=compute.id,
            name=profile.name if compute.default else f"{compute.slices}c.{profile.name}",
        )


def _nominal_memory_mib(board: Board, table: MigTable, profile: MigProfile) -> int:
    """The size in the profile's name, where no public text has the exact one."""
    named = re.search(r"\.(\d+)gb", profile.name)
    return int(named[1]) * 1024 if named else board.memory_mib * profile.memory_slices // (table.memory_slots or 1)


def _line(start: str, **values: object) -> str:
    """`start key=value …` without the keys that have no value; `name` comes last."""
    return " ".join([start, *(f"{key}={value}" for key, value in values.items() if value is not None)])
