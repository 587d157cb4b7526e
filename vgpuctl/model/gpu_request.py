# SPDX-License-Identifier: Apache-2.0
"""The GPUs that a user asks for with `--gpu`: what, not how (design, section 5)."""

import re
from dataclasses import dataclass

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import UsageError
from vgpuctl.model.units import parse_mib

_FORMS = (
    "a profile (A40-8Q; of one model DC-16Q:MODEL), several (2*L40S-48Q), "
    "a whole card (passthrough, passthrough:A40, passthrough:H100*4), "
    "a plain VF (vf, vf:flex-170) or conditions ('memory>=16GiB,series=Q', 'monitors=3x2560x1440', '2*memory>=48GiB')"
)
MOST_GPUS = 16
"""GPUs that one `--gpu` can ask for."""

_ASKED_BY_NAME = frozenset(str(kind) for kind in Sharing if kind.is_asked_for_by_name())
_COUNTED = re.compile(r"(?:(?P<before>[0-9]{1,9})\*)?(?P<what>[^*]+?)(?:\*(?P<after>[0-9]{1,9}))?")
_LONGEST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")
_MONITORS = re.compile(r"monitors\s*=\s*(?P<count>[0-9]{1,2})x(?P<width>[0-9]{3,5})x(?P<height>[0-9]{3,5})")
_MEMORY = re.compile(r"memory\s*(?P<how>>=|=)\s*(?P<size>.+)")
NO_GPU = "none"
"""The only value of --gpu for a VM without a GPU."""


@dataclass(frozen=True)
class Monitors:
    """Monitors of one size, in pixels."""

    count: int
    width: int
    height: int


@dataclass(frozen=True)
class GpuRequest:
    """`count` equal shares.

    text: as the user wrote it, with the profile in its normal form (catalog/profile_names.py). profile: a vGPU type's
    short name. sharing: passthrough or vf for whole functions, None for any vGPU kind. board: the model wanted (matched
    without case against catalogue key and names), None for any. memory_mib/series/monitors: conditions on the type
    instead of its name.
    position: of the one GPU among those of its VM, where it does not follow from their order (gpu_positions.py).
    spare_port: the spare port that it is on since it was attached to a running guest.
    """

    text: str
    count: int = 1
    profile: str | None = None
    sharing: Sharing | None = None
    board: str | None = None
    minimum_memory_mib: int | None = None
    exact_memory_mib: int | None = None
    series: str | None = None
    monitors: Monitors | None = None
    position: int | None = None
    spare_port: int | None = None

    @property
    def text_of_one(self) -> str:
        """The request for one of its shares, as a user would write it."""
        if self.count == 1:
            return self.text
        match = _COUNTED.fullmatch(self.text)
        return match["what"].strip() if match else self.text


def parse_gpu_request(text: str, *, what: str = "--gpu") -> GpuRequest:
    """Read one `--gpu` value by its form alone. Entries use `catalog.read_gpu_request`, which knows the names too.

    what: the option or field, for the error. Raises UsageError that names the forms.
    """
    if len(text) > _LONGEST:
        raise _bad(f"{what} {text[:_LONGEST] + '…'!r}")
    what = f"{what} {text!r}"
    stripped = text.strip()
    if stripped.lower() == NO_GPU:
        raise UsageError(
            f"{what} is no GPU",
            hint="name a GPU, such as A40-8Q; `none` stands alone, for a VM or the nodes of a pool without a GPU",
        )
    match = _COUNTED.fullmatch(stripped)
    if match is None or (match["before"] and match["after"]):
        raise _bad(what)
    count = _count(what, match["before"] or match["after"] or "1")
    if "=" in match["what"]:
        return _parse_conditions(what, stripped, match["what"].strip(), count)
    kind, colon, board = match["what"].partition(":")
    if not _NAME.fullmatch(kind) or (colon and not _NAME.fullmatch(board)):
        raise _bad(what)
    if kind in _ASKED_BY_NAME:
        return GpuRequest(stripped, count, sharing=Sharing(kind), board=board or None)
    return GpuRequest(stripped, count, profile=kind, board=board or None)


def _count(what: str, written: str) -> int:
    if not 1 <= int(written) <= MOST_GPUS:
        raise UsageError(f"{what} asks for {written} GPUs", hint=f"one VM can have 1 to {MOST_GPUS}")
    return int(written)


def _parse_conditions(what: str, text: str, conditions: str, count: int) -> GpuRequest:
    """Read `memory>=16GiB,series=Q`. text: the whole value, with its count."""
    minimum: int | None = None
    exact: int | None = None
    series: str | None = None
    monitors: Monitors | None = None
    for condition in (part.strip() for part in conditions.split(",")):
        memory = _MEMORY.fullmatch(condition)
        if memory:
            size = parse_mib(memory["size"], what=f"{what}: memory")
            if memory["how"] == ">=":
                minimum = size
            else:
                exact = size
        elif condition.startswith("series=") and condition[7:] in ("A", "B", "C", "Q"):
            series = condition[7:]
        elif shown := _MONITORS.fullmatch(condition):
            monitors = Monitors(int(shown["count"]), int(shown["width"]), int(shown["height"]))
        else:
            raise UsageError(
                f"{what}: {condition!r} is not a condition",
                hint="use memory>=SIZE, memory=SIZE, series=A|B|C|Q, monitors=3x2560x1440",
            )
    return GpuRequest(text, count, minimum_memory_mib=minimum, exact_memory_mib=exact, series=series, monitors=monitors)


def _bad(what: str) -> UsageError:
    return UsageError(f"{what} cannot be read", hint=f"write {_FORMS}")
