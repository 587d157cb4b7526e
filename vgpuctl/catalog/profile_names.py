# SPDX-License-Identifier: Apache-2.0
"""The normal form of a profile's name: the one reader for every entry where a user or a tool names a vGPU type.

`A40-24q`, `NVIDIA A40-24Q` and `A40-24Q` are one type, and so are `RTX Pro 6000 Blackwell DC-24Q`, as hosts print it,
and `DC-24Q`. A type that several models have under one name (`DC-16Q`, `A100D-8C`, `A30-6C`) can be meant of one model:
`DC-16Q:rtx-pro-4500-blackwell-server`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from vgpuctl.catalog.entries import Board
from vgpuctl.catalog.lookup import boards_named, boards_with_type, has_words, type_names, words_of
from vgpuctl.catalog.names import short_name
from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import GpuRequest, parse_gpu_request

_VENDORS = ("nvidia", "grid")


class ProfileName(NamedTuple):
    """name: as the catalogue spells it, without vendor and model; of a type that it does not know, as it was written.

    board: the model's key without its vendor, where several models have a type of this name and one of them is meant.
    """

    name: str
    board: str | None = None

    def __str__(self) -> str:
        """The normal form: `A40-8Q`, `DC-16Q:rtx-pro-4500-blackwell-server`."""
        return self.name if self.board is None else f"{self.name}:{self.board}"


@lru_cache(maxsize=4096)
def profile_name(text: str) -> ProfileName:
    """Read the name of a vGPU type, in any case, with or without vendor and model, or `TYPE:MODEL`.

    A name that the catalogue does not know is kept, since a host may know it; only vendor and model go. Equal for its
    own normal form. Raises UsageError for a model that has no type of this name, or for one that means several.
    """
    written, colon, model = text.partition(":")
    words = written.split()
    if words and words[0].lower() in _VENDORS:
        words = words[1:]
    name = _spellings().get(words[-1].lower()) if words else None
    if name is None:
        return ProfileName(short_name(" ".join(words)), model.strip() or None)
    having = boards_with_type(name)
    prefix = " ".join(words[:-1])
    meant = _of_model(having, prefix) if prefix else having
    if not meant:
        return ProfileName(" ".join(words), model.strip() or None)
    if colon:
        meant = _of_model(meant, model)
        if not meant:
            raise UsageError(
                f"{model.strip()!r} has no vGPU type {name}",
                hint=f"{name} is a type of {' and '.join(one.name for one in having)}",
            )
    if len(meant) == len(having):
        return ProfileName(name)
    if len(meant) > 1:
        raise UsageError(
            f"{text!r} means several models", hint=f"write {' or '.join(f'{name}:{_word(one)}' for one in meant)}"
        )
    return ProfileName(name, _word(meant[0]))


def board_beside(name: str, board: Board | None) -> str | None:
    """The board of a ProfileName for a type that is on a GPU of this model; None where the type's name says it."""
    having = boards_with_type(name)
    return _word(board) if board is not None and len(having) > 1 and board in having else None


def boards_beside(name: str) -> tuple[str, ...]:
    """Every board that a ProfileName of this type can have; empty where the type's name says it."""
    having = boards_with_type(name)
    return tuple(map(_word, having)) if len(having) > 1 else ()


def read_gpu_request(text: str, /, *, what: str = "--gpu") -> GpuRequest:
    """Read one `--gpu` value, with its type in normal form. what: the option or field. Raises UsageError."""
    return normal_gpu(parse_gpu_request(text, what=what))


def normal_gpu(gpu: GpuRequest) -> GpuRequest:
    """The request with its type in normal form; itself where it has that, or names none. Raises UsageError."""
    if gpu.profile is None:
        return gpu
    written = gpu.profile if gpu.board is None else f"{gpu.profile}:{gpu.board}"
    normal = profile_name(written)
    if str(normal) == written:
        return gpu
    return replace(gpu, text=gpu.text.replace(written, str(normal), 1), profile=normal.name, board=normal.board)


def _of_model(boards: Sequence[Board], text: str) -> tuple[Board, ...]:
    """Those of the models that a text means: an exact name first, else the words of a name in a row."""
    named, words = boards_named(text), words_of(text)
    exact = tuple(one for one in boards if one in named)
    return exact or tuple(one for one in boards if words and has_words(words_of(one.name), words))


def _word(board: Board) -> str:
    return board.key.removeprefix(f"{board.vendor}-")


@cache
def _spellings() -> dict[str, str]:
    return {name.lower(): name for name in type_names()}
