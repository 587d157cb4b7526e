# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the variable `vgpu`: each with its file, line, host and key."""

from pathlib import Path

import pytest

from tests.unit.inventory.written_layout import read_layout
from vgpuctl.errors import InventoryError


@pytest.mark.parametrize(
    ("text", "line", "words", "hint"),
    [
        ("gpus: []", 1, "vgpu of host 'h1' has no 'version'", "version: 1"),
        ("version: 2", 2, "vgpu.version of host 'h1' is 2", "reads version 1"),
        ("version: '1'", 2, "is '1', text, not a whole number", None),
        ("version: 1\ngpu: []", 3, "vgpu.gpu of host 'h1' is not a key of the layout", "did you mean gpus?"),
        ("version: 1\n1: x", 3, "a key that is a number, not text", "quote it"),
        ("version: 1\ngpus: {}", 3, "vgpu.gpus of host 'h1' is a mapping, not a list", None),
        ("version: 1\ngpus:\n- kind: off", 4, "vgpu.gpus[0] of host 'h1' has no 'match'", None),
        ("version: 1\ngpus:\n- match: all", 4, "has no 'kind'", None),
        ("version: 1\ngpus:\n- match: all\n  kindd: vgpu", 5, "gpus[0].kindd of host 'h1'", "did you mean kind?"),
        ("version: 1\ngpus:\n- kind: off\n  match: {board: A4O}", 5, "which no board", "did you mean A40"),
        ("version: 1\ngpus:\n- match: all\n  kind: mdev", 5, "vgpu.gpus[0].kind of host 'h1' is 'mdev'", "it can be"),
        ("version: 1\ngpus:\n- match: all\n  kind: vgpus", 5, "is 'vgpus'", "did you mean vgpu?"),
        ("version: 1\ngpus:\n- match: A40\n  kind: off", 4, "gpus[0].match of host 'h1' is 'A40'", "write `all`"),
        ("version: 1\ngpus:\n- kind: off\n  match: {}", 5, "match of host 'h1' has no key", "give one of"),
        (
            "version: 1\ngpus:\n- kind: off\n  match:\n    board: A40\n    address: '41:00.0'",
            5,
            "has board and address",
            "give one of",
        ),
        (
            "version: 1\ngpus:\n- kind: off\n  match: {address: 0000:41:00.0}",
            5,
            "match.address of host 'h1' is 2460.0, a number, not text",
            'quote it: "0000:41:00.0"',
        ),
        ("version: 1\ngpus:\n- kind: off\n  match: {address: '41'}", 5, "is '41', not a PCI address", None),
        ("version: 1\ngpus:\n- kind: off\n  match: {uuid: x}", 5, "is 'x', not a GPU's UUID", None),
        ("version: 1\ngpus:\n- kind: off\n  match: {board: A41}", 5, "is 'A41', which no board", "did you mean A40"),
        (
            "version: 1\ngpus:\n- {match: all, kind: off}\n- match: all\n  kind: vgpu",
            5,
            "gpus[1].match of host 'h1' is for all GPUs, as is the entry at",
            "one entry per match",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  geometry: {}",
            6,
            "gpus[0].geometry of host 'h1' contradicts kind vgpu: 'geometry' belongs to mig and mig-vgpu and host",
            "vgpu can have virtual_functions",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: off\n  cuont: 1",
            6,
            "gpus[0].cuont of host 'h1' is not a key",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: host\n  geometry: {}",
            6,
            "gpus[0].geometry of host 'h1' names no MIG device",
            "leave it out for the whole card",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: host\n  placements: {1g.5gb: [0]}",
            6,
            "gpus[0].placements of host 'h1' names no MIG device",
            "name them in `geometry`",
        ),
        ("version: 1\ngpus:\n- match: all\n  kind: mig", 4, "is of kind mig and has no 'geometry'", None),
        ("version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 0", 6, "count of host 'h1' is 0", "1 to 256"),
        ("version: 1\ngpus:\n- match: all\n  kind: vf\n  count: true", 6, "is True, true or false, not a whole", None),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {3c.4g.20gb: 1}",
            6,
            "geometry.3c.4g.20gb of host 'h1' is no part of 4g.20gb, which can have 1c, 2c, 4c",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig-vgpu\n  geometry: {1c.2g.10gb: 1}",
            6,
            "geometry.1c.2g.10gb of host 'h1' is a part of a GPU instance",
            "vGPUs sit in whole instances",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {1g.5gb: 1}\n  placements:\n    2g.10gb: [0]",
            8,
            "placements.2g.10gb of host 'h1' is for a profile that the geometry does not have",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {1g.5gb: 1}\n  placements: {1g.5gb: [0, 1]}",
            7,
            "has 2 slots, but the geometry has 1 of 1g.5gb",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: mig\n  geometry: {1g.5gb: 2}\n"
            "  placements:\n    1g.5gb:\n    - 0\n    - 0",
            10,
            "placements.1g.5gb[1] of host 'h1' is 0 a second time",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  size_mode: mixed-size\n"
            "  scheduler:\n    policy: fixed-share",
            8,
            "policy of host 'h1' is fixed-share, which contradicts size_mode mixed-size",
            "equal-share",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  scheduler:\n"
            "    policy: best-effort\n    time_slice_ms: 2",
            8,
            "contradicts policy best-effort, which has no time slice",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [exec_quantum_ms=nan]",
            7,
            "'exec_quantum_ms=nan' is no parameter",
            "0 for no limit",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [exec_quantum_ms=30 %]",
            7,
            "'exec_quantum_ms=30 %' is no parameter",
            "whole number",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [exec_quantum_ms=0.3]",
            7,
            "'exec_quantum_ms=0.3' is no parameter",
            "whole number",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [preempt_timeout_us=4294967296]",
            7,
            "is no parameter",
            "up to 4294967295",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [sched_priority=urgent]",
            7,
            "is no parameter",
            "low, normal, high",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [vram_quota=4]",
            7,
            "a size without a unit",
            "4GiB",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  vf_params: [stop=1]",
            7,
            "'stop=1' is no parameter",
            "exec_quantum_ms",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n"
            "  vf_params: [sched_priority=low, sched_priority=high]",
            7,
            "has sched_priority twice",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vf\n  count: 2\n  pf_params: [vram_quota=1GiB]",
            7,
            "which a VF has and no PF",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  vgpu_params: [frame_limiter=0]",
            6,
            "vgpu_params[0] of host 'h1': 'frame_limiter=0' is no parameter of a vGPU",
            "frame_rate_limiter",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  vgpu_params: [enable_uvm=0, enable_uvm=1]",
            6,
            "vgpu_params of host 'h1' has enable_uvm twice",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: [A40-8Q]\n  vgpu_params: [enable_uvm=1]",
            7,
            "contradicts the types: enable_uvm=1 needs a type that takes the whole GPU",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  scheduler: {policy: equal-share, time_slice_ms: 31}",
            6,
            "time_slice_ms of host 'h1' is 31",
            "1 to 30",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  scheduler: {time_slice_ms: 2}",
            6,
            "scheduler of host 'h1' has no 'policy'",
            None,
        ),
        ("version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: []", 6, "is an empty list", "leave it out"),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: [A100-1-5C]",
            6,
            "types[0] of host 'h1' contradicts the kind: type A100-1-5C sits in a MIG instance",
            "mig-vgpu",
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  types: [A40-8Q]\n  shares: {A40-4Q: 1}",
            7,
            "shares.A40-4Q of host 'h1' contradicts types: A40-4Q is not one of A40-8Q",
            None,
        ),
        (
            "version: 1\ngpus:\n- match: all\n  kind: vgpu\n  shares: {A40-8Q: 1, A40-4Q: 1}",
            6,
            "shares of host 'h1' has types of different sizes, which contradicts equal sizes",
            "size_mode: mixed-size",
        ),
        ("version: 1\nkernel_arguments: iommu=pt", 3, "is 'iommu=pt', text, not a list", None),
        (
            "version: 1\nkernel_arguments:\n- iommu=pt quiet",
            4,
            "kernel_arguments[0] of host 'h1'",
            "one kernel argument",
        ),
        ("version: 1\nkernel_arguments:\n- a\n- a", 5, "kernel_arguments[1] of host 'h1' is 'a' a second time", None),
        ("version: 1\nstop_services:\n- '; rm'", 4, "not the name of a systemd unit", None),
        ("version: 1\nstop_services: [dcgm, dcgm.service]", 3, "is 'dcgm.service' a second time", None),
        ("version: 1\nhugepages:\n  3MiB: 1", 4, "3MiB of host 'h1' is '3MiB'", "a power of two"),
        ("version: 1\nhugepages:\n  big: 1", 4, "is 'big', which is not a size", None),
        ("version: 1\nhugepages:\n  1GiB: 1\n  1024MiB: 1", 5, "1024MiB of host 'h1' means the same as another", None),
        ("version: 1\nhugepages:\n  2MiB: -1", 4, "hugepages.2MiB of host 'h1' is -1", "0 to"),
        ("version: 1\nuplinks:\n  a: 'ens1 f0'", 4, "not the name of a network interface", None),
        ("version: 1\nfabric: {mode: shard}", 3, "fabric.mode of host 'h1' is 'shard'", "shared"),
        ("version: 1\nfabric: {mode: 1}", 3, "fabric.mode of host 'h1' is 1", None),
        (
            "version: 1\nfabric:\n  mode: vgpu\n  partitions: 4",
            5,
            "fabric.partitions of host 'h1' is not a key",
            "mode",
        ),
        ("version: 1\nfabric: {}", 3, "fabric of host 'h1' has no 'mode'", None),
        ("version: 1\nfabric: shared", 3, "fabric of host 'h1' is 'shared'", None),
        ("version: 1\nuplinks:\n  a: '{{ uplink }}'", 4, "is a jinja template", "!unsafe"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_line(
    tmp_path: Path, text: str, line: int, words: str, hint: str | None
) -> None:
    with pytest.raises(InventoryError) as refused:
        read_layout(tmp_path, text)
    assert refused.value.message.startswith(f"{tmp_path}/host_vars/h1.yml:{line}: vgpu"), refused.value.message
    assert words in refused.value.message
    assert hint is None or hint in (refused.value.hint or "")
