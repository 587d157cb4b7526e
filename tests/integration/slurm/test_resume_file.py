# SPDX-License-Identifier: Apache-2.0
"""The document with which Slurm resumes nodes is read in both forms, or refused whole."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.clusters.slurm.resume_file import MOST_BYTES, jobs_of_nodes, read_resume_file
from vgpuctl.errors import ClusterRefused


def test_the_document_of_22_05_is_read() -> None:
    """As slurmctld 22.05.8 wrote it."""
    content = (
        b'{"jobs":[{"job_id":1,"nodes":"gpu-001"},{"job_id":7,"nodes":"gpu-[001-002]"}],"all_nodes":"gpu-[001-002]"}'
    )
    assert jobs_of_nodes(content) == {"gpu-001": ["1", "7"], "gpu-002": ["7"]}


def test_the_document_of_23_02_is_read() -> None:
    """By the source of 23.02, src/slurmctld/power_save.c."""
    job = {
        "extra": None,
        "features": "l40s-8q&nvme",
        "job_id": 42,
        "nodes_alloc": "gpu-[001-004]",
        "nodes_resume": "gpu-[003-004]",
        "oversubscribe": "OK",
        "partition": "vgpu",
        "reservation": None,
    }
    content = json.dumps({"all_nodes_resume": "gpu-[003-004]", "jobs": [job, {}]}).encode()
    assert jobs_of_nodes(content) == {"gpu-003": ["42"], "gpu-004": ["42"]}


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"jobs":[]}',
        b'{"jobs":[{}]}',
        b'{"jobs":[{"nodes":"a"}]}',
        b'{"jobs":[{"job_id":0,"nodes":"a"}]}',
        b'{"jobs":[{"job_id":-1,"nodes":"a"}]}',
        b'{"jobs":[{"job_id":4294967296,"nodes":"a"}]}',
        b'{"jobs":[{"job_id":1}]}',
        b'{"jobs":[{"job_id":{"set":false,"infinite":false,"number":1},"nodes_resume":"a"}]}',
        b'{"jobs":[{"job_id":{"set":true,"infinite":true,"number":1},"nodes_resume":"a"}]}',
    ],
)
def test_what_is_missing_or_no_job_is_left_out(content: bytes) -> None:
    assert jobs_of_nodes(content) == {}


def test_the_numbers_and_further_keys_of_newer_releases_are_read() -> None:
    """`--extra` is free text of the job's owner, and features may have counts and brackets."""
    job = {
        "extra": '{"vgpuctl": "\x1b[2J", "jobs": [{"job_id": 1}]}',
        "features": "[rack1*2&rack2*2]",
        "job_id": {"set": True, "infinite": False, "number": 42},
        "nodes_resume": "gpu-003",
        "licenses": ["a:1"],
        "tres": {"gpu": 1},
    }
    assert jobs_of_nodes(json.dumps({"jobs": [job], "meta": {"slurm": "25.05"}}).encode()) == {"gpu-003": ["42"]}


@pytest.mark.parametrize(
    "job",
    [1, None, [], {"job_id": "1", "nodes": "a"}, {"job_id": 1, "nodes": ["a"]}, {"job_id": 1, "nodes": "a[1-"},
     {"job_id": 1, "nodes": "a[1-99999]"}, {"job_id": 1.5, "nodes": "a"}, {"job_id": True, "nodes": "a"}],
)  # fmt: skip
def test_a_job_that_cannot_be_read_costs_its_own_id_alone(job: object) -> None:
    good = {"job_id": 2, "nodes_resume": "gpu-001"}
    assert jobs_of_nodes(json.dumps({"jobs": [job, good]}).encode()) == {"gpu-001": ["2"]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"[]",
        b'"x"',
        b'{"jobs":{}}',
        b'{"jobs":' + b"[" * 100_000,
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"jobs":[' + b",".join(b'{"job_id":%d,"nodes":"a[1-4096]"}' % job for job in range(1, 18)) + b"]}",
        b"\xff\xfe",
    ],
)
def test_what_is_no_document_is_refused_whole(content: bytes) -> None:
    with pytest.raises(ClusterRefused, match="SLURM_RESUME_FILE") as refused:
        jobs_of_nodes(content)
    assert len(refused.value.message) < 400


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        found = jobs_of_nodes(content)
    except ClusterRefused as refused:
        assert refused.message.isprintable()
    else:
        assert all(job.isdecimal() for jobs in found.values() for job in jobs)


def test_a_memory_file_is_read_by_its_path() -> None:
    """slurmctld hands over `/proc/PID/fd/NUMBER` of a memfd."""
    descriptor = os.memfd_create("resume")
    try:
        os.write(descriptor, b'{"jobs":[]}')
        assert read_resume_file(f"/proc/{os.getpid()}/fd/{descriptor}") == b'{"jobs":[]}'
    finally:
        os.close(descriptor)


def test_what_cannot_be_read_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large"
    large.write_bytes(b" " * (MOST_BYTES + 1))
    for path in (tmp_path / "pipe", tmp_path / "missing", tmp_path, large, Path("/dev/zero"), Path("a\x00b")):
        with pytest.raises(ClusterRefused, match="SLURM_RESUME_FILE"):
            read_resume_file(str(path))
