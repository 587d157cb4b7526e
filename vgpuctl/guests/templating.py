# SPDX-License-Identifier: Apache-2.0
"""The only entry point to the template engine: it escapes every value and refuses unknown names."""

import functools
import json
import re
import shlex
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_NOT_IN_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@functools.cache
def environment() -> "Environment":
    """Make the environment; jinja2 is loaded on first use: commands that render nothing start without it."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = resources.files("vgpuctl.templates")
    made = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_function"] = _yaml_text
    made.filters["shell"] = _shell_word
    made.filters["haproxy"] = _haproxy_word
    return made


def _yaml_text(value: object, **_options: object) -> str:
    """Write a value as JSON that YAML reads alike: YAML knows no pairs of surrogates, and NEL and U+2028 end a line."""
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _shell_word(value: object) -> "Markup":
    """Write a value as one word of a POSIX shell, whatever it holds."""
    from markupsafe import Markup

    return Markup(shlex.quote(str(value)))


def _haproxy_word(value: object) -> "Markup":
    """Write a value as one word of HAProxy's configuration: in single quotes every character stands for itself.

    Raises ValueError for control characters: no quotes hold the end of a line (HAProxy's configuration manual, 2.2).
    """
    from markupsafe import Markup

    text = str(value)
    if not text.isprintable():
        raise ValueError(f"a word of HAProxy's configuration cannot be {text!a}")
    return Markup("'" + text.replace("'", "'\"'\"'") + "'")


def render_template(name: str, /, **values: object) -> str:
    """Render the file `name` of templates/. Values are escaped for XML; `tojson` is for YAML, `shell` for sh.

    `haproxy` is for HAProxy's configuration.
    """
    return environment().get_template(name).render(**values)
