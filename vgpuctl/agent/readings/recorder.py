# SPDX-License-Identifier: Apache-2.0
"""Collection of the measures of one object; whatever one does not tell hides this one alone."""

from typing import Any, Callable, Iterable, List, Optional, Tuple

from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.measures import measure
from vgpuctl.agent.wire.readings import NOT_MEASURABLE, NOT_READABLE, Measured


class Recorder:
    """The measures of one object. of: its kind. library: NVML's module, None for readings without NVML."""

    def __init__(self, of: str, library: Any = None) -> None:
        self._of = of
        self._library = library
        self._values: List[Tuple[str, Tuple[str, ...], float]] = []
        self._missing: List[Tuple[str, str, str]] = []

    def add(self, name: str, value: float, *labels: str) -> None:
        """Record a value. labels: in the measure's order."""
        wanted = measure(self._of, name).labels
        if len(wanted) != len(labels):
            raise TypeError(f"{self._of} {name} has the labels {wanted}, not {labels}")
        self._values.append((name, labels, float(value)))

    def add_states(self, name: str, states: Iterable[str], now: str) -> None:
        """Record 1 for the present state and 0 for each other one."""
        for state in states:
            self.add(name, float(state == now), state)

    def lacks(self, names: str, reason: str) -> None:
        """Record that this board, driver or mode does not have measures. names: parted by blanks."""
        self._miss(names, NOT_MEASURABLE, reason)

    def unread(self, names: str, reason: str) -> None:
        """Record that measures were not told this time. names: parted by blanks."""
        self._miss(names, NOT_READABLE, reason)

    def replace_missing(self, name: str, value: float) -> None:
        """Record a value that another source told, in place of the reason why there was none."""
        self._missing = [one for one in self._missing if one[0] != name]
        self.add(name, value)

    def ask(self, names: str, read: Callable[[], Optional[float]], *, per: float = 1.0) -> Optional[float]:
        """Ask for one measure and record value / per, or why there is none. Returns what was recorded.

        names: of the measure; of several, parted by blanks, where one answer tells them all and `read` records them.
        """
        try:
            value = read()
        except Problem as problem:
            self.unread(names, problem.message)
            return None
        except Exception as error:
            if self._library is None or not isinstance(error, self._library.NVMLError):
                raise
            absent = (self._library.NVML_ERROR_NOT_SUPPORTED, self._library.NVML_ERROR_FUNCTION_NOT_FOUND)
            code: int = error.value
            self._miss(names, NOT_MEASURABLE if code in absent else NOT_READABLE, f"{error} (NVML {code})")
            return None
        if value is None:
            return None
        self.add(names, value / per)
        return value / per

    def measured(self) -> Measured:
        """Return everything that was recorded."""
        return Measured(tuple(self._values), tuple(self._missing))

    def _miss(self, names: str, kind: str, reason: str) -> None:
        known = {name for name, _, _ in self._values} | {name for name, _, _ in self._missing}
        self._missing += [(measure(self._of, name).name, kind, reason) for name in names.split() if name not in known]
