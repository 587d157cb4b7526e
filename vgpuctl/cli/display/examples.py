# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "view": (
        Example("view acme/web-1", "open its display in a viewer"),
        Example("view acme/web-1 --web", "serve it to a browser"),
    ),
    "screenshot": (
        Example("screenshot acme/web-1 web-1.png", "a picture of its screen"),
        Example("screenshot acme/web-1 --force", "with the usual name, over an older one"),
    ),
    "set-console": (
        Example("set-console acme/web-1 vgpu --dry-run", "what would change"),
        Example("set-console acme/web-1 emulated", "the emulated screen, from the next start on"),
    ),
    "console": (
        Example("console acme/web-1", "this terminal on its serial console"),
        Example("console acme/web-1 --log", "what the console has printed"),
    ),
}
