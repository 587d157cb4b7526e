// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which MIG instances fit beside those that are there, and where a new one goes.
 *
 * A set of instances is valid when their ranges do not overlap, each begins at a start of its
 * profile, compute slices add up to at most those there are, each profile stays within its maximum,
 * and at most one has the media engines.
 */
#include "rules.h"

static unsigned int used_slices(const struct mig_space *space)
{
	unsigned int i, used = 0;

	for (i = 0; i < space->count; i++)
		used += space->placed[i].profile->slices;
	return used;
}

/* How many of a profile the sums of the rule still allow, wherever they would lie. */
static unsigned int allowed_by_sums(const struct mig_space *space, const struct mig_profile *profile)
{
	unsigned int of_this = 0, with_media = 0, by_slices, by_max, i;

	for (i = 0; i < space->count; i++) {
		of_this += space->placed[i].profile == profile;
		with_media += space->placed[i].profile->takes_media;
	}
	by_slices = (space->slices - used_slices(space)) / profile->slices;
	by_max = profile->max > of_this ? profile->max - of_this : 0;
	if (profile->takes_media && by_max > 0)
		by_max = with_media ? 0 : 1;
	return by_slices < by_max ? by_slices : by_max;
}

static bool overlaps(unsigned int start, unsigned int size, unsigned int other, unsigned int other_size)
{
	return start < other + other_size && other < start + size;
}

static bool range_is_free(const struct mig_space *space, unsigned int start, unsigned int size)
{
	unsigned int i;

	for (i = 0; i < space->count; i++)
		if (overlaps(start, size, space->placed[i].start, space->placed[i].profile->size))
			return false;
	return true;
}

/* Whether one more instance can begin at a start of its profile. */
bool mig_fits_at(const struct mig_space *space, const struct mig_profile *profile, unsigned int start)
{
	return allowed_by_sums(space, profile) && range_is_free(space, start, profile->size);
}

/* How many more fit together. Starts rise and sizes are equal, so taking each that is free is best. */
unsigned int mig_remaining(const struct mig_space *space, const struct mig_profile *profile)
{
	unsigned int allowed = allowed_by_sums(space, profile);
	unsigned int found = 0, end = 0, i;

	for (i = 0; i < profile->start_count && found < allowed; i++) {
		if (profile->starts[i] < end || !range_is_free(space, profile->starts[i], profile->size))
			continue;
		found++;
		end = profile->starts[i] + profile->size;
	}
	return found;
}

/* The lowest start: the driver's choice for a compute instance. -1 where none is free. */
int mig_first_start(const struct mig_space *space, const struct mig_profile *profile)
{
	unsigned int i;

	for (i = 0; i < profile->start_count; i++)
		if (mig_fits_at(space, profile, profile->starts[i]))
			return (int)profile->starts[i];
	return -1;
}

/* How many places of all profiles, free now, a range would take. */
static unsigned int places_taken(const struct mig_space *space, unsigned int start, unsigned int size)
{
	unsigned int taken = 0, i, j;

	for (i = 0; i < space->profile_count; i++) {
		const struct mig_profile *other = &space->profiles[i];

		for (j = 0; j < other->start_count; j++)
			taken += overlaps(start, size, other->starts[j], other->size) &&
				 range_is_free(space, other->starts[j], other->size);
	}
	return taken;
}

/*
 * The start that takes the fewest places from others, of equals the lowest: the driver's choice for
 * a GPU instance. It gives the order seen on real boards: seven 1g at 6, 4, 5, 0, 1, 2, 3, and two
 * 3g at 4, 0. -1 where none is free.
 */
int mig_best_start(const struct mig_space *space, const struct mig_profile *profile)
{
	unsigned int fewest = 0, i;
	int best = -1;

	for (i = 0; i < profile->start_count; i++) {
		unsigned int start = profile->starts[i];
		unsigned int taken;

		if (!mig_fits_at(space, profile, start))
			continue;
		taken = places_taken(space, start, profile->size);
		if (best < 0 || taken < fewest) {
			best = (int)start;
			fewest = taken;
		}
	}
	return best;
}
