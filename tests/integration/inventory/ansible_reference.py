# SPDX-License-Identifier: Apache-2.0
"""Ask the installed ansible-core what `ansible-inventory --list` prints for many inventories, in one process.

Reads a JSON object on stdin, case name to {"folder", "arguments"}; writes one, case name to the text printed. Each case
runs in a fork of its own, since ansible keeps its options and caches in globals.
"""

import contextlib
import io
import json
import os
import sys

from ansible.cli.inventory import InventoryCLI  # type: ignore[import-untyped]


def _print_listing(folder: str, arguments: list[str]) -> str:
    os.chdir(folder)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli = InventoryCLI(["ansible-inventory", "--list", *arguments])
        cli.parse()
        cli.run()
    return printed.getvalue()


def _in_a_fork(folder: str, arguments: list[str]) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            pipe.write(_print_listing(folder, arguments))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def _load_plugins() -> None:
    """Load what every case needs once, before the forks."""
    from ansible import constants  # type: ignore[import-untyped]
    from ansible.plugins import loader  # type: ignore[import-untyped]

    loader.init_plugin_loader()
    for name in constants.INVENTORY_ENABLED:
        loader.inventory_loader.get(name)
    loader.cache_loader.get(constants.CACHE_PLUGIN)


if __name__ == "__main__":
    _load_plugins()
    cases = json.load(sys.stdin)
    json.dump({name: _in_a_fork(case["folder"], case["arguments"]) for name, case in cases.items()}, sys.stdout)
