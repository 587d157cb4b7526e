# SPDX-License-Identifier: Apache-2.0
"""A secret value and a command line of the user's: in every message they are masked, and revealed only where used."""

import base64
import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
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
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{5,}=*")
_OF_URLS = str.maketrans("-_", "+/")
_PLAIN_VARIABLES = frozenset(("HOME", "USER", "PATH", "LOGNAME", "SHELL"))


class Secret(Generic[T]):
    """A value that no message, log, table or JSON shows: `str` and `repr` are a mask, and only `reveal` returns it.

    It is not a dataclass, so that code that iterates over fields does not find the content.
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
        words = (self.words() | set(_of_environment(self.reveal()))) - set(known)
        return without_words(_without_encoded(said, words), words | set(_cut(words, list(filter(None, known)))))

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


def _without_encoded(said: str, words: Iterable[str]) -> str:
    """Hide every base64 or hexadecimal text that has one of these words in it, as in a header of `user:password`."""
    searched = [one.lower().encode(errors="surrogateescape") for one in words if len(one) >= _SHORTEST_OF_ENVIRONMENT]

    def hidden(found: re.Match[str]) -> str:
        decoded = [one.lower() for one in _decoded(found[0])]
        return MASK if any(word in one for word in searched for one in decoded) else found[0]

    return _ENCODED.sub(hidden, said)


def _decoded(text: str) -> Iterator[bytes]:
    plain = text.rstrip("=").translate(_OF_URLS)
    yield base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "==")
    with contextlib.suppress(ValueError):
        yield bytes.fromhex(text)


def _cut(words: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    """The beginnings and ends of long words, from one half on: what a program shows of a word that it cuts.

    known: words that are shown; a piece that is in one of them, or contains one, is left out.
    """
    for word in words:
        for length in range(max(_SHORTEST_OF_ENVIRONMENT, len(word) // 2), len(word)):
            for piece in (word[:length], word[-length:]):
                if not any(piece in one or one in piece for one in known):
                    yield piece


def _of_environment(text: str) -> Iterator[str]:
    named = set(re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", text))
    for name, value in os.environ.items():
        is_secret = len(value) >= _SHORTEST_OF_ENVIRONMENT and (is_secret_name(name) or name == "SSHPASS")
        if is_secret or (name in named and name not in _PLAIN_VARIABLES):
            yield value
