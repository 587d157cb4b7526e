// SPDX-License-Identifier: GPL-2.0-only
/* The GPU and compute instances of a card, made and taken away as mig_rules.c says. */
#include <linux/slab.h>

#include "vgpulab.h"

struct vgpulab_gpu_instance *vgpulab_find_instance_locked(const struct vgpulab_card *card, unsigned int id)
{
	struct vgpulab_gpu_instance *instance;

	if (!card->mig)
		return NULL;
	list_for_each_entry(instance, &card->mig->instances, node)
		if (instance->id == id)
			return instance;
	return NULL;
}

/* Memory slots of the GPU, and what lies in them. */
void vgpulab_gpu_space_locked(const struct vgpulab_mig *mig, struct mig_space *space)
{
	struct vgpulab_gpu_instance *instance;

	*space = (struct mig_space){
		.slices = mig->slices, .profiles = mig->profiles, .profile_count = mig->profile_count,
	};
	list_for_each_entry(instance, &mig->instances, node) {
		space->placed[space->count].profile = instance->profile;
		space->placed[space->count++].start = instance->start;
	}
}

/* Compute slices of a GPU instance, and what lies in them. */
void vgpulab_instance_space(const struct vgpulab_mig *mig, const struct vgpulab_gpu_instance *instance,
			    struct mig_space *space)
{
	unsigned int index = instance->profile - mig->profiles;
	unsigned int i;

	*space = (struct mig_space){
		.slices = instance->profile->slices,
		.profiles = mig->compute[index], .profile_count = mig->compute_count[index],
		.count = instance->compute_count,
	};
	for (i = 0; i < instance->compute_count; i++) {
		space->placed[i].profile = instance->compute[i].profile;
		space->placed[i].start = instance->compute[i].start;
	}
}

const struct mig_profile *vgpulab_find_profile(const struct mig_space *space, unsigned int id)
{
	unsigned int i;

	for (i = 0; i < space->profile_count; i++)
		if (space->profiles[i].id == id)
			return &space->profiles[i];
	return NULL;
}

/* A vGPU or a process is on it. A compute instance alone keeps it, but is no use of it. */
bool vgpulab_instance_is_used_locked(const struct vgpulab_card *card, unsigned int id)
{
	const struct vgpulab_process *process;
	const struct vgpulab_vgpu *vgpu;

	list_for_each_entry(vgpu, &card->vgpus, node)
		if (vgpu->gi == (int)id)
			return true;
	list_for_each_entry(process, &card->processes, node)
		if (process->gi == (int)id)
			return true;
	return false;
}

static void free_instance(struct vgpulab_mig *mig, struct vgpulab_gpu_instance *instance)
{
	list_del(&instance->node);
	mig->instance_count--;
	kfree(instance);
}

/* A reset, a reboot and every change of the VFs take all instances. Their vGPUs are gone before. */
void vgpulab_forget_instances_locked(struct vgpulab_card *card)
{
	struct vgpulab_gpu_instance *instance, *next;

	if (!card->mig)
		return;
	list_for_each_entry_safe(instance, next, &card->mig->instances, node)
		free_instance(card->mig, instance);
}

/* Where an instance begins: as asked for, else where `choose` says. NVML's code when nowhere. */
static int find_start(const struct mig_space *space, const struct mig_profile *profile, int wanted,
		      int (*choose)(const struct mig_space *space, const struct mig_profile *profile),
		      unsigned int *start)
{
	unsigned int i;
	int chosen;

	if (wanted < 0) {
		chosen = choose(space, profile);
		*start = chosen;
		return chosen < 0 ? NVML_INSUFFICIENT_RESOURCES : NVML_SUCCESS;
	}
	for (i = 0; i < profile->start_count; i++) {
		if (profile->starts[i] != (unsigned int)wanted)
			continue;
		*start = wanted;
		return mig_fits_at(space, profile, wanted) ? NVML_SUCCESS : NVML_INSUFFICIENT_RESOURCES;
	}
	return NVML_INVALID_ARGUMENT;
}

static unsigned int new_instance_id(const struct vgpulab_card *card, const struct mig_profile *profile,
				    unsigned int start)
{
	unsigned int id = profile->base + start / profile->size;

	/* The tables give every place an id of its own; where one did not, the next. */
	while (vgpulab_find_instance_locked(card, id))
		id++;
	return id;
}

int vgpulab_create_instance_locked(struct vgpulab_card *card, unsigned int id, int wanted_start,
				   struct vgpulab_gpu_instance **created)
{
	struct vgpulab_gpu_instance *instance, *other;
	const struct mig_profile *profile;
	struct mig_space space;
	unsigned int start;
	int ret;

	lockdep_assert_held(&card->lock);
	if (!card->mig || !card->mig->mode)
		return NVML_NOT_SUPPORTED;
	vgpulab_gpu_space_locked(card->mig, &space);
	profile = vgpulab_find_profile(&space, id);
	if (!profile)
		return NVML_INVALID_ARGUMENT;
	if (card->mig->instance_count == MIG_MAX_INSTANCES)
		return NVML_INSUFFICIENT_RESOURCES;
	ret = find_start(&space, profile, wanted_start, mig_best_start, &start);
	if (ret)
		return ret;
	instance = kzalloc(sizeof(*instance), GFP_KERNEL);
	if (!instance)
		return -ENOMEM;
	instance->id = new_instance_id(card, profile, start);
	instance->start = start;
	instance->profile = profile;
	list_for_each_entry(other, &card->mig->instances, node)
		if (other->id > instance->id)
			break;
	list_add_tail(&instance->node, &other->node);
	card->mig->instance_count++;
	*created = instance;
	return NVML_SUCCESS;
}

int vgpulab_destroy_instance_locked(struct vgpulab_card *card, unsigned int id)
{
	struct vgpulab_gpu_instance *instance = vgpulab_find_instance_locked(card, id);

	if (!card->mig || !card->mig->mode)
		return NVML_NOT_SUPPORTED;
	if (!instance)
		return NVML_NOT_FOUND;
	if (instance->compute_count || vgpulab_instance_is_used_locked(card, id))
		return NVML_IN_USE;
	free_instance(card->mig, instance);
	return NVML_SUCCESS;
}

static bool has_vgpu(const struct vgpulab_card *card, unsigned int gi)
{
	const struct vgpulab_vgpu *vgpu;

	list_for_each_entry(vgpu, &card->vgpus, node)
		if (vgpu->gi == (int)gi)
			return true;
	return false;
}

static struct vgpulab_compute_instance *find_compute(struct vgpulab_gpu_instance *instance, unsigned int id)
{
	unsigned int i;

	for (i = 0; i < instance->compute_count; i++)
		if (instance->compute[i].id == id)
			return &instance->compute[i];
	return NULL;
}

int vgpulab_create_compute_locked(struct vgpulab_card *card, unsigned int gi, unsigned int id,
				  int wanted_start, struct vgpulab_compute_instance **created)
{
	struct vgpulab_gpu_instance *instance = vgpulab_find_instance_locked(card, gi);
	struct vgpulab_compute_instance *compute;
	const struct mig_profile *profile;
	struct mig_space space;
	unsigned int start, free_id = 0;
	int ret;

	lockdep_assert_held(&card->lock);
	if (!card->mig || !card->mig->mode)
		return NVML_NOT_SUPPORTED;
	if (!instance)
		return NVML_NOT_FOUND;
	/* Those of a GPU instance with a vGPU are made in the guest. */
	if (has_vgpu(card, gi))
		return NVML_IN_USE;
	vgpulab_instance_space(card->mig, instance, &space);
	profile = vgpulab_find_profile(&space, id);
	if (!profile)
		return NVML_INVALID_ARGUMENT;
	ret = find_start(&space, profile, wanted_start, mig_first_start, &start);
	if (ret)
		return ret;
	while (find_compute(instance, free_id))
		free_id++;
	compute = &instance->compute[instance->compute_count++];
	*compute = (struct vgpulab_compute_instance){ .id = free_id, .start = start, .profile = profile };
	*created = compute;
	return NVML_SUCCESS;
}

int vgpulab_destroy_compute_locked(struct vgpulab_card *card, unsigned int gi, unsigned int id)
{
	struct vgpulab_gpu_instance *instance = vgpulab_find_instance_locked(card, gi);
	struct vgpulab_compute_instance *compute = instance ? find_compute(instance, id) : NULL;

	if (!card->mig || !card->mig->mode)
		return NVML_NOT_SUPPORTED;
	if (!compute)
		return NVML_NOT_FOUND;
	if (vgpulab_instance_is_used_locked(card, gi))
		return NVML_IN_USE;
	*compute = instance->compute[--instance->compute_count];
	return NVML_SUCCESS;
}
