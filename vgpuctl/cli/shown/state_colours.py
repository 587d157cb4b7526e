# SPDX-License-Identifier: Apache-2.0
"""Colours of states in lists: red for what failed, yellow for what waits or is not known, green for what works."""

import re

_COLOURS = {
    "red": "failed lost taken missing unreadable unreachable quarantine quarantined fenced silent down refused"
    " broken invalid dead cut-short no-answer host-key-changed wrong-host not-reached unusable",
    "yellow": "waiting queued unknown declared cordon cordoned drained draining preempted creating deleting detaching"
    " joining stale leaving not-ready",
    "green": "running ready created kept ok up active present attached",
}


def _pattern(words: str) -> re.Pattern[str]:
    """Any of the words; a hyphen stands for a blank too."""
    alternatives = "|".join(one.replace("-", "[ -]") for one in words.split())
    return re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])", re.IGNORECASE)


_WORDS = {colour: _pattern(words) for colour, words in _COLOURS.items()}


def colour_of_state(text: str | None) -> str | None:
    """The colour of a state in words; the worst word counts."""
    return next((colour for colour, words in _WORDS.items() if words.search(text or "")), None)
