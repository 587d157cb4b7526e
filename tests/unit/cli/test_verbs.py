# SPDX-License-Identifier: Apache-2.0
"""One verb for one idea: each command's verb is in the table of docs/conventions.md."""

import re
from pathlib import Path

from vgpuctl.cli.contents import COMMANDS

PAGE = Path(__file__).parents[3] / "docs" / "conventions.md"


def test_every_command_has_a_verb_of_the_table_or_is_one_of_the_single_words() -> None:
    text = PAGE.read_text().partition("\n## Verbs\n")[2]
    table, _, rest = text.partition("\n## ")[0].partition("\nThese commands are")
    verbs = re.findall(r"^\| `([a-z]+)` \| [^|]+ \|$", table, re.M)
    single = re.findall(r"`([a-z-]+)`", rest)
    assert verbs == sorted(set(verbs)) and single == sorted(set(single))
    of_verbs = {name for name in COMMANDS if name not in single}
    assert {re.split("[- ]", name)[0] for name in of_verbs} == set(verbs)
    assert set(single) <= COMMANDS.keys()
    assert all(name not in verbs for name in of_verbs), "a verb of the table has an object"


def test_an_idea_is_not_told_twice() -> None:
    ideas = re.findall(r"^\| `[a-z]+` \| ([^|]+) \|$", PAGE.read_text().partition("\n## Verbs\n")[2], re.M)
    assert len(ideas) == len(set(ideas))
