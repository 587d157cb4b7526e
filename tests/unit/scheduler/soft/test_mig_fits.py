# SPDX-License-Identifier: Apache-2.0
"""MIG placement: the start and the GPU that keep the most possible."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.scheduler.soft.mig_fits import InstanceProfile, MigFits

PROFILES = {
    one.name: one
    for one in (
        InstanceProfile("1g.10gb", 1, (0, 1, 2, 3, 4, 5, 6)),
        InstanceProfile("1g.20gb", 2, (0, 2, 4, 6)),
        InstanceProfile("2g.20gb", 2, (0, 2, 4)),
        InstanceProfile("3g.40gb", 4, (0, 4)),
        InstanceProfile("4g.40gb", 4, (0,)),
        InstanceProfile("7g.80gb", 8, (0,)),
    )
}


def test_the_start_that_spoils_least_is_taken() -> None:
    fits = MigFits(PROFILES)
    assert fits.best_start("1g.10gb", 0)[1] == 6  # type: ignore[index]
    assert fits.best_start("3g.40gb", 0)[1] == 4  # type: ignore[index]
    assert fits.best_start("7g.80gb", 1) is None


def test_most_counts_what_goes_together() -> None:
    fits = MigFits(PROFILES)
    assert [fits.most(name, 0) for name in PROFILES] == [7, 4, 3, 2, 1, 1]


@given(st.lists(st.tuples(st.sampled_from(list(PROFILES)), st.integers(0, 2)), max_size=40))
@settings(deadline=None, derandomize=True)
def test_an_instance_is_placed_exactly_when_a_start_is_free(deeds: list[tuple[str, int]]) -> None:
    fits, mask = MigFits(PROFILES), 0
    placed: list[int] = []
    for name, release in deeds:
        profile = PROFILES[name]
        free = [start for start in profile.starts if not mask & profile.window(start)]
        found = fits.best_start(name, mask)
        if found is None:
            assert not free
        else:
            assert found[1] in free
            placed.append(profile.window(found[1]))
            mask |= placed[-1]
        if release == 0 and placed:
            mask &= ~placed.pop(0)
