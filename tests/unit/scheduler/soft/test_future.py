# SPDX-License-Identifier: Apache-2.0
"""The requests that count as typical, and those that count though nobody sent one."""

from vgpuctl.scheduler.soft.future import Future, typical_requests, whole_hosts
from vgpuctl.scheduler.soft.host_state import WHOLE, Demand, HostState

ONE = Demand(8000, 8192, 1, WHOLE)
EIGHT = Demand(88000, 262144, 8, WHOLE)
TINY = Demand(1000, 1024, 1, 50)


def test_typical_are_the_requests_for_most_gpus_rather_than_the_most_frequent() -> None:
    assert typical_requests({ONE: 900, EIGHT: 5, TINY: 95}) == {ONE: 900, EIGHT: 5}


def test_cpu_only_requests_are_no_typical_ones_however_many_they_are() -> None:
    assert typical_requests({ONE: 1, Demand(32000, 65536): 1000}) == {ONE: 1}


def test_requests_that_differ_little_count_as_one_with_their_mean() -> None:
    assert typical_requests({ONE: 30, ONE._replace(cpu=8100): 10}) == {ONE._replace(cpu=8025): 40}


def test_a_request_for_a_whole_host_is_that_of_the_host_with_most_cpus() -> None:
    sizes = [(8, 96000, 400000), (8, 128000, 200000), (8, 96000, 800000), (2, 16000, 100000), (1, 64000, 100000)]
    assert whole_hosts(sizes) == [Demand(14400, 90000, 2, WHOLE), Demand(115200, 180000, 8, WHOLE)]


def test_an_empty_host_is_worth_more_where_a_request_may_want_all_of_it() -> None:
    def lost(unseen: list[Demand]) -> float:
        future = Future({ONE: 100}, unseen)
        empty = HostState("A40", 96000, 400000, ((WHOLE, 0),) * 8)
        future.price_anew([(empty, 10)])
        return future.loss(empty, HostState("A40", 88000, 391808, ((WHOLE, 0),) * 7 + ((0, 0),)))

    assert lost(whole_hosts([(8, 96000, 400000)])) > lost([])
