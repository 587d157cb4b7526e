// SPDX-License-Identifier: GPL-2.0-only
/*
 * Placement ids of mixed-size mode: at which GiB of its region a vGPU of one type may begin.
 *
 * Before Blackwell the region is halved again and again, and a type takes places at the ends of the
 * parts; this reproduces the tables of NVIDIA's user guide. Blackwell has equal parts.
 */
#include "rules.h"

#define SMALLEST_PART	16	/* the region is cut into so many parts at most */

struct request {
	struct placement_set *set;
	unsigned int size;
	unsigned int max;
	unsigned int power;	/* the largest power of two that is at most max */
};

bool placement_in(const struct placement_set *set, unsigned int placement)
{
	return placement < PLACEMENT_MAX_REGION && set->bits[placement / 8] >> placement % 8 & 1;
}

static void add(struct request *request, unsigned int placement)
{
	if (placement < PLACEMENT_MAX_REGION)
		request->set->bits[placement / 8] |= 1 << placement % 8;
}

static void drop(struct placement_set *set, unsigned int placement)
{
	set->bits[placement / 8] &= ~(1 << placement % 8);
}

/* parts: how many parts of this size the region has. */
static void halve(struct request *request, unsigned int low, unsigned int high, unsigned int parts,
		  bool is_left)
{
	bool both = 2 * parts == request->max;
	bool one = (request->power < request->max && request->power == parts) ||
		   (parts == 1 && request->max == 1);
	unsigned int middle = (low + high) / 2;

	if (parts > SMALLEST_PART)
		return;
	if (both || (one && is_left))
		add(request, low);
	if ((both || (one && !is_left)) && high >= request->size)
		add(request, high - request->size);
	halve(request, low, middle, 2 * parts, true);
	halve(request, middle, high, 2 * parts, false);
}

/* Places that 1 GiB types of 48 GiB boards do not have. */
static void drop_lost_places(enum placement_layout layout, struct placement_set *set)
{
	unsigned int i;

	if (layout == PLACEMENT_HALVES) {
		drop(set, 8);
		drop(set, 32);
		return;
	}
	for (i = 2; i < 48; i += 6) {
		drop(set, i);
		drop(set, i + 1);
	}
}

/* The ids at which a vGPU of `size` GiB may begin; max: instances of its type on the region. */
void placement_supported(enum placement_layout layout, unsigned int region, unsigned int size,
			 unsigned int max, struct placement_set *set)
{
	struct request request = { .set = set, .size = size, .max = max, .power = 1 };
	unsigned int i;

	for (i = 0; i < sizeof(set->bits); i++)
		set->bits[i] = 0;
	if (layout == PLACEMENT_EVEN) {
		for (i = 0; i < max; i++)
			add(&request, region * i / max);
		return;
	}
	while (request.power * 2 <= max)
		request.power *= 2;
	halve(&request, 0, region, 1, true);
	if (region == 48 && size == 1)
		drop_lost_places(layout, set);
}
