# SPDX-License-Identifier: Apache-2.0
"""A secret value and a command line of the user's: in every message they are masked, and revealed only where used."""

import base64
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Generic, TypeVar
from urllib.parse import quote, unquote

from vgpuctl.model.masking import MASK, is_secret_name, without_words

T = TypeVar("T")

_PROGRAM = re.compile(r"[A-Za-z/~][A-Za-z0-9._+/-]{0,120}")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_SHORTEST_OF_ENVIRONMENT = 4
_OPTION = re.compile(r"-[A-Za-z]?|--[A-Za-z-]*|\W*")
# Words that a program's own messages consist of, and that nobody takes for a password.
_OF_MESSAGES = frozenset(
    (
        *("ssh", "scp", "nc", "ncat", "netcat", "socat", "sshpass", "sh", "bash", "dash", "env", "exec", "sudo"),
        *("timeout", "python", "python3", "openssl", "cloudflared", "proxytunnel", "corkscrew", "connect", "aws"),
        *("gcloud", "tsh", "step", "ipmitool", "curl", "true", "false", "host", "port", "user"),
        *("proxycommand", "knownhostscommand"),
    )
)
_PLAIN_VARIABLES = frozenset(("HOME", "USER", "PATH", "LOGNAME", "SHELL"))


class Secret(Generic[T]):
    """A value that no message, log, table or JSON shows: `str` and `repr` are a mask, and `reveal` is the only way in.

    It is no dataclass, so that nothing that walks over fields finds the content.
    """

    __slots__ = ("_content",)

    def __init__(self, content: T) -> None:
        self._content = content

    def reveal(self) -> T:
        """Return the content, at the place that uses it."""
        return self._content

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Secret) and other._content == self._content

    def __hash__(self) -> int:
        return hash((type(self), repr(self._content)))


class ProgramLine(Secret[str]):
    """A command, or arguments of one, that a user wrote and that may hold a password.

    A message shows the program and where the rest is written. source: file and line, or the name of the setting.
    """

    __slots__ = ("source",)

    def __init__(self, text: str, *, source: str = "") -> None:
        super().__init__(text)
        self.source = source

    def __repr__(self) -> str:
        is_whole = self.program == self.reveal().strip()
        return self.program if is_whole else f"{self.program} …".strip()

    @property
    def program(self) -> str:
        """The program as it is written; empty where the text does not begin with one."""
        words = (one for one in _split(self.reveal()) if not _ASSIGNMENT.fullmatch(one))
        name = next(words, "")
        return name if _PROGRAM.fullmatch(name) else ""

    @property
    def shown(self) -> str:
        """For messages: the program, and the place where the user finds the rest."""
        return f"`{self}`{f' of {self.source}' if self.source else ''}"

    def clean(self, said: str, *, known: Iterable[str] = ()) -> str:
        """Hide in what the program said the words that it was given, and secrets of the environment.

        known: words that the message shows anyway, such as the host's name.
        """
        words = self.words() | set(_of_environment(self.reveal()))
        return without_words(said, words - set(known))

    def words(self) -> set[str]:
        """Everything in the command that may be secret, in the forms in which programs repeat it."""
        return set(_forms(self.reveal(), self.program))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _forms(text: str, program: str) -> Iterator[str]:
    """Every word, what stands behind an option or a sign in it, and the forms in which programs repeat these."""
    for word in _split(text):
        if word != text and len(word.split()) > 1:
            yield from _forms(word, "")
        pieces = {word, *re.split(r"[:=@,]", word), *word.split("=", 1)[1:]}
        if re.match(r"-[A-Za-z0-9]", word):
            pieces.add(word[2:])
        for piece in pieces:
            if (
                piece in (program, PurePosixPath(program).name)
                or piece.lower() in _OF_MESSAGES
                or _OPTION.fullmatch(piece)
            ):
                continue
            yield piece
            yield quote(piece, safe="")
            yield unquote(piece)
            if len(piece) >= _SHORTEST_OF_ENVIRONMENT:
                yield base64.b64encode(piece.encode(errors="surrogateescape")).decode().rstrip("=")


def _of_environment(text: str) -> Iterator[str]:
    named = set(re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", text))
    for name, value in os.environ.items():
        is_secret = len(value) >= _SHORTEST_OF_ENVIRONMENT and (is_secret_name(name) or name == "SSHPASS")
        if is_secret or (name in named and name not in _PLAIN_VARIABLES):
            yield value
