# SPDX-License-Identifier: Apache-2.0
"""The one writer of YAML."""

import yaml

try:  # libyaml's writer takes a third of the time
    from yaml import CSafeDumper as _Dumper
except ImportError:
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]


def yaml_text(document: object, *, is_ascii: bool = False) -> str:
    r"""Write a document, its keys in their order. Texts of several lines keep their lines.

    is_ascii: write every other character as an escape, as in `"\u202e"`, so that a terminal only shows it.
    """
    text: str = yaml.dump(
        document,
        Dumper=_Lines,
        sort_keys=False,
        default_flow_style=False,
        width=10_000,
        allow_unicode=not is_ascii,
    )
    return text


class _Lines(_Dumper):
    """Writes texts of several lines as blocks, so that people can read the files within a file."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Lines.add_representer(str, _text)
