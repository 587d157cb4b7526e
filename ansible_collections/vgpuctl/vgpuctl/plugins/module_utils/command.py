# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl … --json` for a module, and read what it printed."""

from __future__ import annotations

import json
from collections.abc import Callable
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
        self._given = module.params
        self._inventory = [word for path in self._given["inventory"] for word in ("-i", path)]
        self._environment = {"NO_COLOR": "1"}
        if self._given["database"]:
            self._environment["VGPUCTL_DATABASE_URL"] = self._given["database"]

    def options(self, *names: str) -> list[str]:
        """The options of a command that have the names of module options, for those that were given.

        A list gives one option for each item, and a dictionary one for each `KEY=VALUE`.
        """
        words = []
        for name in names:
            value, option = self._given[name], f"--{name.replace('_', '-')}"
            if isinstance(value, dict):
                value = [f"{key}={amount}" for key, amount in value.items()]
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                words += [f"{option}={one}" for one in (value if isinstance(value, list) else [value])]
        return words

    def ask(self, command: str, *words: str, on_hosts: bool = False) -> Answer:
        """Run a command. on_hosts: it takes an inventory."""
        shared = (*(self._inventory if on_hosts else ()), "--json")
        arguments = [self._given["executable"], command, *shared, *words]
        code, out, err = self._module.run_command(arguments, environ_update=self._environment)
        data = _read(out)
        return Answer(code, data, _error_in(err, code, is_answered=data is not None))

    def read(self, *words: str, on_hosts: bool = False) -> Any:
        """Run a command that must succeed; the module fails otherwise, in the command's own words."""
        answer = self.ask(*words, on_hosts=on_hosts)
        if answer.error is not None:
            self.fail(answer, **(answer.data if isinstance(answer.data, dict) else {}))
        return answer.data

    def change(self, command: str, *words: str, on_hosts: bool = False) -> Any:
        """Run a command that changes something, in check mode with `--dry-run`. It must succeed."""
        dry = ("--dry-run",) if self._module.check_mode else ()
        return self.read(command, *dry, *words, on_hosts=on_hosts)

    def keep(
        self,
        key: str,
        find: Callable[[], dict[str, Any] | None],
        create: Callable[[dict[str, Any] | None], bool],
        delete: Callable[[], bool],
    ) -> None:
        """Make one thing of the store present or absent, and end the module.

        key: of the thing in the module's result. find: reads it, None if absent. create, delete: return if it changed;
        create gets what was found, delete runs only if something was.
        """
        before = find()
        is_wanted = self._given["state"] == "present"
        changed = create(before) if is_wanted else before is not None and delete()
        after = find() if changed and not self._module.check_mode else before
        state = "absent" if before is None else "present"
        ends = self._given["state"] if changed else state
        diff = {"before": f"state: {state}\n", "after": f"state: {ends}\n"}
        self._module.exit_json(changed=changed, diff=diff, **{key: after})

    def fail(self, answer: Answer, **more: Any) -> None:
        """End the module with the command's error."""
        error = answer.error or {}
        text = "; ".join([error.get("message", "vgpuctl failed"), *error.get("context", ())])
        hint = error.get("hint")
        told = f"{text} (hint: {hint})" if hint else text
        self._module.fail_json(msg=told, reference=error.get("reference"), hint=hint, rc=answer.code, **more)


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
