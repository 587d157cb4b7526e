# SPDX-License-Identifier: Apache-2.0
"""How much a test talks of what a change talks of: words in common, the rarer the more (tf-idf without the tf).

Ways between files say that forty tests run `list-vms`; the words of the changed lines say which of them look at
the column that changed. Ordering tests by such similarity is known as IR-based test prioritization
(Peng, Shi, Zhang: Empirically Revisiting and Enhancing IR-Based Test-Case Prioritization, ISSTA 2020).
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Set

_WORD = re.compile(r"[A-Za-z]+(?:-[a-z]+)*")


def words(text: str) -> frozenset[str]:
    """The words of a text, in lower case. The parts of `vm_states` and of `VmState` count, and so does `shut-off`."""
    spread = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return frozenset(word.lower() for word in _WORD.findall(spread) if len(word) > 2)


class Similarity:
    """Compares texts with the words of a change."""

    def __init__(self, texts: Mapping[str, Set[str]]) -> None:
        self._texts = texts
        count = Counter(word for text in texts.values() for word in text)
        self._weights = {word: math.log(len(texts) / often) for word, often in count.items()}

    def to(self, changed: Set[str]) -> dict[str, float]:
        """Each text's similarity to the change: 1 for the most similar one, 0 for no word in common."""
        sums = {name: sum(self._weights[word] for word in text & changed) for name, text in self._texts.items()}
        most = max(sums.values(), default=0)
        return {name: found / most if most else 0.0 for name, found in sums.items()}
