# SPDX-License-Identifier: Apache-2.0
"""The GPUs that a user asks for with `--gpu`: what, not how (design, section 5)."""

import re
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import UsageError
from vgpuctl.model.compute import ComputeKind, parse_percent, percent_text
from vgpuctl.model.units import parse_mib

_FORMS = (
    "a profile (A40-8Q; of one model DC-16Q:MODEL), several (2*L40S-48Q), "
    "a whole card (passthrough, passthrough:A40, passthrough:H100*4), "
    "a plain VF (vf, vf:flex-170) or conditions ('memory>=16GiB,series=Q', 'monitors=3x2560x1440', '2*memory>=48GiB'); "
    "each with compute time where it is wanted ('A40-8Q,compute>=15%', 'A40-8Q,compute=guaranteed')"
)
_COMPUTE_FORMS = f"compute>=25%, compute={'|'.join(ComputeKind)}"
MOST_GPUS = 16
"""GPUs that one `--gpu` can ask for."""

_ASKED_BY_NAME = frozenset(str(kind) for kind in Sharing if kind.is_asked_for_by_name())
_COUNTED = re.compile(r"(?:(?P<before>[0-9]{1,9})\*)?(?P<what>[^*]+?)(?:\*(?P<after>[0-9]{1,9}))?")
_LONGEST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")
_MONITORS = re.compile(r"monitors\s*=\s*(?P<count>[0-9]{1,2})x(?P<width>[0-9]{3,5})x(?P<height>[0-9]{3,5})")
_COMPUTE = re.compile(r"compute\s*(?P<how>>=|=)\s*(?P<what>\S+)")
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
    instead of its name. minimum_compute_percent: of one GPU's compute time, that each share must be promised. compute:
    how it must be promised; None for `at-least` where there is a minimum, for any way where there is none.
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
    minimum_compute_percent: float | None = None
    compute: ComputeKind | None = None
    position: int | None = None
    spare_port: int | None = None

    @property
    def wants_compute(self) -> bool:
        """True if compute time is asked for that a GPU may not have for it."""
        return self.minimum_compute_percent is not None or self.compute not in (None, ComputeKind.BEST_EFFORT)

    @property
    def compute_text(self) -> str:
        """The compute time that is asked for, in words: `guaranteed 25% of the GPU's time`."""
        kind = self.compute or ComputeKind.AT_LEAST
        least = self.minimum_compute_percent
        return f"{kind.replace('-', ' ')} {'part' if least is None else percent_text(least)} of the GPU's time"

    @property
    def text_of_one(self) -> str:
        """The request for one of its shares, as a user would write it."""
        if self.count == 1:
            return self.text
        found = _counted(self.text)
        return self.text if found is None else found[1]


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
    found = _counted(stripped)
    if found is None:
        raise _bad(what)
    count = _count(what, found[0])
    named, comma, conditions = found[1].partition(",")
    if "=" in named:
        return _parse_conditions(what, stripped, found[1], count)
    request = _parse_named(what, stripped, named.strip(), count)
    return _with_compute(what, request, conditions) if comma else request


def _parse_named(what: str, text: str, named: str, count: int) -> GpuRequest:
    """Read `A40-8Q` or `passthrough:A40`. text: the whole value."""
    kind, colon, board = named.partition(":")
    if not _NAME.fullmatch(kind) or (colon and not _NAME.fullmatch(board)):
        raise _bad(what)
    if kind in _ASKED_BY_NAME:
        return GpuRequest(text, count, sharing=Sharing(kind), board=board or None)
    return GpuRequest(text, count, profile=kind, board=board or None)


def _with_compute(what: str, request: GpuRequest, conditions: str) -> GpuRequest:
    """The request of a type or a card by its name, with the compute time that is wanted of it."""
    for condition in (part.strip() for part in conditions.split(",")):
        wanted = _COMPUTE.fullmatch(condition)
        if wanted is None:
            raise UsageError(
                f"{what}: {condition!r} is not a condition of a GPU that is asked for by its name",
                hint=f"beside a name go {_COMPUTE_FORMS}",
            )
        request = _with_wanted(what, request, wanted["how"], wanted["what"])
    return request


def _with_wanted(what: str, request: GpuRequest, how: str, written: str) -> GpuRequest:
    """Add a condition on compute time. Raises UsageError for a second one of its kind, and where two contradict."""
    if (request.minimum_compute_percent if how == ">=" else request.compute) is not None:
        raise UsageError(f"{what} names compute{how} twice", hint="leave one of them out")
    made = _with_condition(what, request, how, written)
    if made.compute is ComputeKind.BEST_EFFORT and made.minimum_compute_percent is not None:
        raise UsageError(
            f"{what}: compute={ComputeKind.BEST_EFFORT} promises no part of a GPU, and compute>= asks for one",
            hint=f"leave one of them out, or write compute={ComputeKind.AT_LEAST}",
        )
    return made


def _with_condition(what: str, request: GpuRequest, how: str, written: str) -> GpuRequest:
    if how == ">=":
        return replace(request, minimum_compute_percent=parse_percent(written, what=f"{what}: compute"))
    if written not in tuple(ComputeKind):
        raise UsageError(f"{what}: compute={written!a} is unknown", hint=f"use {_COMPUTE_FORMS}")
    return replace(request, compute=ComputeKind(written))


def _counted(text: str) -> tuple[str, str] | None:
    """The count as it is written, `1` where none is, and the rest; None for any other text.

    A count behind a name stands before the conditions: `A40-8Q*2,compute>=25%`.
    """
    named, comma, conditions = text.partition(",")
    is_named = "=" not in named
    match = _COUNTED.fullmatch(named if is_named else text)
    if match is None or (match["before"] and match["after"]):
        return None
    rest = f"{comma}{conditions}" if is_named else ""
    return match["before"] or match["after"] or "1", f"{match['what'].strip()}{rest}"


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
    request = GpuRequest(text, count)
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
        elif wanted := _COMPUTE.fullmatch(condition):
            request = _with_wanted(what, request, wanted["how"], wanted["what"])
        else:
            raise UsageError(
                f"{what}: {condition!r} is not a condition",
                hint=f"use memory>=SIZE, memory=SIZE, series=A|B|C|Q, monitors=3x2560x1440, {_COMPUTE_FORMS}",
            )
    return replace(request, minimum_memory_mib=minimum, exact_memory_mib=exact, series=series, monitors=monitors)


def _bad(what: str) -> UsageError:
    return UsageError(f"{what} cannot be read", hint=f"write {_FORMS}")
