# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl … --json` for a module, and read what it printed."""

from __future__ import annotations

import json
from typing import Any

ARGUMENTS: dict[str, dict[str, Any]] = {
    "executable": {"type": "path", "default": "vgpuctl"},
    "inventory": {"type": "list", "elements": "path", "default": []},
    "database": {"type": "str", "no_log": True},
}


class Answer:
    """How a command ended. data: its JSON, None when it printed none. error: of a command that failed."""

    def __init__(self, code: int, data: Any, error: dict[str, Any] | None) -> None:
        self.code = code
        self.data = data
        self.error = error


class Vgpuctl:
    """Runs commands with the options that all modules share; the database's address goes by the environment."""

    def __init__(self, module: Any) -> None:
        self._module = module
        parameters = module.params
        self._executable = parameters["executable"]
        self._inventory = [word for path in parameters["inventory"] for word in ("-i", path)]
        self._environment = {"NO_COLOR": "1"}
        if parameters["database"]:
            self._environment["VGPUCTL_DATABASE_URL"] = parameters["database"]

    def ask(self, *words: str, on_hosts: bool = False) -> Answer:
        """Run a command. on_hosts: it takes an inventory."""
        arguments = [self._executable, *words, *(self._inventory if on_hosts else ()), "--json"]
        code, out, err = self._module.run_command(arguments, environ_update=self._environment)
        data = _read(out)
        return Answer(code, data, _error_in(err, code, is_answered=data is not None))

    def read(self, *words: str, on_hosts: bool = False) -> Any:
        """Run a command that must succeed; the module fails otherwise, in the command's own words."""
        answer = self.ask(*words, on_hosts=on_hosts)
        if answer.error is not None:
            self.fail(answer)
        return answer.data

    def fail(self, answer: Answer, **more: Any) -> None:
        """End the module with the command's error."""
        error = answer.error or {}
        text = "; ".join([error.get("message", "vgpuctl failed"), *error.get("context", ())])
        hint = f" (hint: {error['hint']})" if error.get("hint") else ""
        self._module.fail_json(msg=text + hint, reference=error.get("reference"), rc=answer.code, **more)


def _read(out: str) -> Any:
    try:
        return json.loads(out) if out.strip() else None
    except ValueError:
        return None


def _error_in(err: str, code: int, *, is_answered: bool) -> dict[str, Any] | None:
    """The error that the command told; exit codes of 0 and 1 with data on stdout are answers, not failures."""
    for line in reversed(err.splitlines()):
        if line.startswith('{"error"'):
            found: dict[str, Any] = json.loads(line)["error"]
            return found
    if code == 0 or (code == 1 and is_answered):
        return None
    return {"reference": "usage", "message": err.strip() or f"vgpuctl ended with {code}"}
