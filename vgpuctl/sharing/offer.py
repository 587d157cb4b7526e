# SPDX-License-Identifier: Apache-2.0
"""The answer of one GPU to one share request: offers, or a refusal."""

from dataclasses import dataclass

from vgpuctl.model.constraints import Label
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Share
from vgpuctl.model.vgpu_terms import NO_TERMS, VgpuTerms
from vgpuctl.sharing.codes import Code


@dataclass(frozen=True)
class ShareRequest:
    """One wanted share. boards: keys of the catalogue's models that `request.board` means; None when any will do.

    labels: that the GPU must have. display: how the console shows the share's picture, None if it does not. terms: what
    the VM asks of vGPUs beside their type. together: how many GPUs of the VM have to be one NVSwitch partition, None
    where that is not sure before they are chosen. partition: the number of that partition, None for any. vgpus: the
    types of all vGPUs of the VM, None for one that is asked for by condition.
    """

    request: GpuRequest
    boards: frozenset[str] | None = None
    labels: tuple[Label, ...] = ()
    display: VgpuDisplay | None = None
    terms: VgpuTerms = NO_TERMS
    together: int | None = None
    partition: int | None = None
    vgpus: tuple[str | None, ...] = ()

    @property
    def what(self) -> str:
        """The request in a few words, without its count."""
        board = f":{self.request.board}" if self.request.board else ""
        name = self.request.profile or self.request.sharing
        return self.request.text_of_one if name is None else f"{name}{board}"


@dataclass(frozen=True)
class Refusal:
    """Why this GPU cannot. reason: a sentence with the numbers. remedy: the nearest change that would admit it."""

    code: Code
    reason: str
    remedy: str | None = None


@dataclass(frozen=True)
class Offer:
    """A concrete share. waste orders offers of all hosts, smallest first; the numbers of several shares are added.

    Three numbers: the size given, whether a GPU is opened for it that could serve others, and what is left there.
    """

    share: Share
    waste: tuple[int, int, int]


Answer = list[Offer] | Refusal
