# SPDX-License-Identifier: Apache-2.0
"""NVML through the bundled pynvml: opened, closed, and its errors as Problems. `facts` reads through it.

`Nvml.open` answers with a problem's text where the library or the driver is missing; such a host is read without it.
It is closed before anything else wants a GPU: whoever has NVML initialised has the GPUs' nodes open.
"""

from contextlib import contextmanager
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Tuple, Type, TypeVar, Union

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

MIB = 1 << 20
"""NVML counts memory in bytes."""
T = TypeVar("T")
M = TypeVar("M")


class Nvml:
    """An open NVML; use it as a context manager. library: pynvml, or what answers in its place."""

    def __init__(self, library: Any) -> None:
        self.library = library

    @staticmethod
    def open(host: Host) -> Tuple[Optional["Nvml"], Optional[str]]:
        """Initialise the host's NVML and return (nvml, None), or (None, why it cannot be used)."""
        try:
            library = host.nvml()
        except Problem as problem:
            return None, problem.message
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            return None, f"NVML cannot be used: {error}"
        return Nvml(library), None

    def __enter__(self) -> "Nvml":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.if_possible(self.library.nvmlShutdown)

    def driver_version(self) -> Optional[str]:
        """Return the driver's version."""
        return text(self.if_possible(self.library.nvmlSystemGetDriverVersion))

    def nvml_version(self) -> Optional[str]:
        """Return the library's version."""
        return text(self.if_possible(self.library.nvmlSystemGetNVMLVersion))

    def device(self, address: str) -> Any:
        """Return the handle of one GPU. Raises Problem."""
        with self.refusals(f"asking NVML for {address}"):
            return self.library.nvmlDeviceGetHandleByPciBusId(address)

    def optional(self, function: Callable[..., T], *arguments: object) -> Optional[T]:
        """Return None for what this GPU or this library has not; every other error is the caller's."""
        library = self.library
        try:
            return function(*arguments)
        except library.NVMLError as error:
            absent = (
                library.NVML_ERROR_NOT_SUPPORTED,
                library.NVML_ERROR_FUNCTION_NOT_FOUND,
                library.NVML_ERROR_NO_PERMISSION,
            )
            if error.value in absent:
                return None
            raise

    def part(self, note: Callable[[str], None], what: str, read: Callable[[], T], missing: M) -> Union[T, M]:
        """Read one part of a GPU; an unexpected code hides this part alone, and `note` gets a sentence.

        Raises NVMLError for a GPU that is lost: it answers nothing.
        """
        library = self.library
        try:
            return read()
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_GPU_IS_LOST:
                raise
            note(f"NVML does not tell {what}: {error} (NVML {error.value})")
            return missing

    @contextmanager
    def refusals(self, what: str) -> Iterator[None]:
        """Turn NVML's errors of the block into Problems `nvml-…`; what: was tried, as `asking NVML for X`."""
        library = self.library
        try:
            yield
        except library.NVMLError as error:
            codes = {
                library.NVML_ERROR_IN_USE: ProblemCode.NVML_IN_USE,
                library.NVML_ERROR_NOT_SUPPORTED: ProblemCode.NVML_NOT_SUPPORTED,
                library.NVML_ERROR_FUNCTION_NOT_FOUND: ProblemCode.NVML_NOT_SUPPORTED,
                library.NVML_ERROR_INSUFFICIENT_RESOURCES: ProblemCode.NVML_NO_ROOM,
                library.NVML_ERROR_NO_PERMISSION: ProblemCode.NVML_NO_PERMISSION,
                library.NVML_ERROR_GPU_IS_LOST: ProblemCode.NVML_GPU_LOST,
                library.NVML_ERROR_NOT_FOUND: ProblemCode.NVML_NOT_FOUND,
            }
            hints = {
                library.NVML_ERROR_IN_USE: "stop what uses the GPU: VMs, DCGM, nvidia-persistenced, nvidia-smi loops",
                library.NVML_ERROR_NO_PERMISSION: "let the agent run as root: ansible_become=true",
                library.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus: reset it or power-cycle the host",
            }
            raise Problem(
                codes.get(error.value, ProblemCode.NVML_REFUSED),
                f"{what} was refused: {error} (NVML {error.value})",
                hint=hints.get(error.value),
            ) from error

    def if_possible(self, function: Callable[[], T]) -> Optional[T]:
        """Return None for what the library as a whole does not answer."""
        try:
            return function()
        except self.library.NVMLError:
            return None


def required(host: Host) -> Nvml:
    """Open the host's NVML for a change; close it before anything else wants the GPU. Raises Problem `nvml-missing`."""
    nvml, problem = Nvml.open(host)
    if nvml is None:
        raise Problem(ProblemCode.NVML_MISSING, problem or "NVML cannot be used", hint="is NVIDIA's driver loaded?")
    return nvml


def text(value: object) -> Optional[str]:
    """Return NVML's text, which older versions give as bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None
