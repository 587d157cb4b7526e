// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which vGPUs a GPU can still take, and where: the rules of kernel_vgpu_mgr.c of NVIDIA's open
 * kernel modules.
 */
#include "rules.h"

static unsigned int most_in(const struct rules_type *type)
{
	return type->gi_profile < 0 ? type->max_instances : type->per_gi;
}

/* Where a type could begin if the pool were empty and in mixed-size mode. */
void pool_supported(const struct rules_pool *pool, const struct rules_type *type,
		    struct placement_set *set)
{
	placement_supported(pool->layout, pool->region, type->placement_size, most_in(type), set);
}

/* Whether [placement, placement + size) is free. After a deletion it is only when all of it is. */
bool pool_placement_is_free(const struct rules_pool *pool, unsigned int placement, unsigned int size)
{
	unsigned int i;

	for (i = 0; i < pool->count; i++)
		if (placement < pool->vgpus[i].placement + pool->vgpus[i].size &&
		    pool->vgpus[i].placement < placement + size)
			return false;
	return true;
}

/* The first place for a type: of its placement ids in mixed-size mode, else side by side. */
unsigned int pool_choose(const struct rules_pool *pool, const struct rules_type *type)
{
	unsigned int step = pool->is_heterogeneous ? 1 : type->placement_size;
	struct placement_set set;
	unsigned int placement;

	if (pool->is_heterogeneous)
		pool_supported(pool, type, &set);
	for (placement = 0; placement < PLACEMENT_MAX_REGION; placement += step)
		if ((!pool->is_heterogeneous || placement_in(&set, placement)) &&
		    pool_placement_is_free(pool, placement, type->placement_size))
			return placement;
	return RM_INVALID_PLACEMENT;
}

/* RM's answer to one more vGPU of a type in a pool. */
unsigned int pool_status(const struct rules_pool *pool, const struct rules_type *type)
{
	if (!pool->count)
		return RM_OK;
	/* Equal size means equal framebuffer, whatever the series. */
	if (!pool->is_heterogeneous && pool->vgpus[0].framebuffer_mib != type->framebuffer_mib)
		return RM_NOT_SUPPORTED;
	if (pool->count >= (type->gi_profile < 0 ? RM_MAX_VGPUS : RM_MAX_VGPUS_PER_INSTANCE))
		return RM_INSUFFICIENT_RESOURCES;
	/* In mixed-size mode places count, and the type's maximum does not. */
	if (pool->is_heterogeneous)
		return pool_choose(pool, type) == RM_INVALID_PLACEMENT ? RM_INSUFFICIENT_RESOURCES : RM_OK;
	return pool->count < most_in(type) ? RM_OK : RM_INSUFFICIENT_RESOURCES;
}

/*
 * RM's answer to one more vGPU of a type on a GPU. A MIG-backed one goes into *instance: the
 * lowest-numbered GPU instance of its profile that has room for it. For others *instance is NULL.
 */
unsigned int gpu_status(const struct rules_gpu *gpu, const struct rules_type *type,
			const struct rules_instance **instance)
{
	unsigned int i, total = 0;

	*instance = NULL;
	if (type->gi_profile < 0)
		return gpu->has_mig ? RM_INVALID_OPERATION : pool_status(&gpu->pool, type);
	if (!gpu->has_mig || !gpu->instance_count)
		return RM_INVALID_OPERATION;
	for (i = 0; i < gpu->instance_count; i++)
		total += gpu->instances[i].pool.count;
	if (total >= RM_MAX_VGPUS_WITH_MIG)
		return RM_INSUFFICIENT_RESOURCES;
	for (i = 0; i < gpu->instance_count; i++) {
		if (gpu->instances[i].profile != (unsigned int)type->gi_profile ||
		    pool_status(&gpu->instances[i].pool, type) != RM_OK)
			continue;
		*instance = &gpu->instances[i];
		return RM_OK;
	}
	return RM_INVALID_STATE;
}
