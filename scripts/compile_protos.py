# SPDX-License-Identifier: Apache-2.0
"""Compile the protos of vgpuctl.autoscaler into messages.binpb. Run it after a change of a proto."""

import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOM = Path(__file__).parent.parent / "vgpuctl" / "autoscaler"
COMPILED = ROOM / "messages.binpb"


def compile_protos(folder: Path = ROOM / "protos") -> bytes:
    """Compile the protos of a folder. Returns a FileDescriptorSet with all that they import. Raises RuntimeError."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "set"
        files = sorted(one.name for one in folder.glob("*.proto"))
        arguments = [f"-I{folder}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={out}", *files]
        if protoc.main(["protoc", *arguments]) != 0:
            raise RuntimeError(f"protoc refused the files of {folder}")
        return out.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compile_protos())
    print(f"{COMPILED} is written", file=sys.stderr)
