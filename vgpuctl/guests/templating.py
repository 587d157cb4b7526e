# SPDX-License-Identifier: Apache-2.0
"""The one door to the template engine: every value escaped, every unknown name an error."""

import functools
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def environment() -> "Environment":
    """Make the environment; jinja2 is loaded on first use: commands that render nothing start without it."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = resources.files("vgpuctl.templates")
    return Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_template(name: str, /, **values: object) -> str:
    """Render the file `name` of templates/. Values are escaped for XML; `tojson` writes them for YAML."""
    return environment().get_template(name).render(**values)
