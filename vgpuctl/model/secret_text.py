# SPDX-License-Identifier: Apache-2.0
"""A text that may hold passwords: its digest travels everywhere, its content only where it is revealed."""

from dataclasses import dataclass

from vgpuctl.errors import StateError

UNKNOWN_DIGEST = "unknown"
"""Of a content that an older vgpuctl did not note."""


@dataclass(frozen=True)
class SecretText:
    """A secret document. digest: `sha256:` and 64 hexadecimal digits.

    The content is kept outside the fields: it is not compared, printed, encoded or stored with the value. A value that
    comes from the store has none.
    """

    digest: str

    @classmethod
    def of(cls, text: str) -> "SecretText":
        """Make the value of a text."""
        import hashlib  # loads OpenSSL, which few commands need

        made = cls("sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
        object.__setattr__(made, "_content", text)
        return made

    def has_content(self) -> bool:
        """True if the content is at hand."""
        return self._text() is not None

    def reveal(self) -> str:
        """Return the content. Raises StateError for a value that came from the store."""
        text = self._text()
        if text is None:
            raise StateError(f"a secret document ({self.digest}) is needed, and the store keeps none")
        return text

    def _text(self) -> str | None:
        text = vars(self).get("_content")
        return text if isinstance(text, str) else None
