# SPDX-License-Identifier: Apache-2.0
"""The agent as one file: a zip of the package, `vgpuctl/agent` and a part of pynvml, the same bytes each time."""

import hashlib
import importlib.util
import io
import threading
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import vgpuctl
from vgpuctl.errors import AgentBroken
from vgpuctl.hosts.pynvml_excerpt import excerpt, names_used

_MAIN = """\
# SPDX-License-Identifier: Apache-2.0
from vgpuctl.agent.__main__ import main

main()
"""
# Much quicker to import than the standard library's dataclasses, which the same sources use here.
_VALUES, _LIGHT_VALUES = "vgpuctl/agent/wire/values.py", "vgpuctl/agent/wire/light_values.py"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """The agent's file: its bytes and their sha256 in hex."""

    data: bytes
    sha256: str


_BUILDING = threading.Lock()


def build_agent() -> Bundle:
    """The agent of this installation, zipped once however many threads ask at once.

    Raises AgentBroken when pynvml (nvidia-ml-py) is not installed here.
    """
    with _BUILDING:
        return _build()


@cache
def _build() -> Bundle:
    """Zip the agent of this installation. Equal sources give equal bytes (fixed order, times and modes).

    Raises AgentBroken when pynvml (nvidia-ml-py) is not installed here.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(_sources().items()):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    data = buffer.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest())


def _sources() -> dict[str, bytes]:
    package = Path(vgpuctl.__file__).parent
    files = [package / "__init__.py", *sorted((package / "agent").rglob("*.py"))]
    sources = {f"vgpuctl/{path.relative_to(package).as_posix()}": path.read_bytes() for path in files}
    sources[_VALUES] = sources.pop(_LIGHT_VALUES)
    sources["__main__.py"] = _MAIN.encode()
    agent = [content.decode() for content in sources.values()]
    sources["pynvml.py"] = excerpt(_pynvml_source(), names_used(agent)).encode()
    return sources


def _pynvml_source() -> str:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise AgentBroken(
            "the agent cannot be packed: the module pynvml is not installed beside vgpuctl",
            hint="install the package nvidia-ml-py into vgpuctl's environment",
        )
    return Path(spec.origin).read_text(encoding="utf-8")
