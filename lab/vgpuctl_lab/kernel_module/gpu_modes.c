// SPDX-License-Identifier: GPL-2.0-only
/*
 * The modes of a GPU: MIG, mixed size and scheduler, with what refuses a change and what takes them
 * away again. Every int is NVML's return code.
 */
#include <linux/kobject.h>

#include "vgpulab.h"

#define LEAST_SLICE_US		1000
#define MOST_SLICE_US		30000
#define LEAST_FREQUENCY		0x3f
#define MOST_FREQUENCY		0x3c0

static const char * const policies[] = { "UNKNOWN", "BEST_EFFORT", "EQUAL_SHARE", "FIXED_SHARE" };

/* What a reset of the GPU takes, and what goes with the driver when VFs change. */
void vgpulab_modes_lost_locked(struct vgpulab_card *card)
{
	card->is_heterogeneous = false;
	vgpulab_forget_instances_locked(card);
}

static void apply_mig_mode(struct vgpulab_card *card)
{
	char event[sizeof("VGPULAB_MIG_MODE=0")];
	char *environment[] = { event, NULL };

	card->mig->mode = card->mig->pending;
	vgpulab_modes_lost_locked(card);
	/* Ampere keeps the mode over a reboot; the host's udev writes it down. */
	snprintf(event, sizeof(event), "VGPULAB_MIG_MODE=%d", card->mig->mode);
	kobject_uevent_env(&card->pdev->dev.kobj, KOBJ_CHANGE, environment);
}

/* activation: 0, or why the mode stays pending although the call succeeds. */
int vgpulab_set_mig_mode_locked(struct vgpulab_card *card, bool mode, int *activation)
{
	struct vgpulab_mig *mig = card->mig;
	bool is_used;

	lockdep_assert_held(&card->lock);
	*activation = NVML_SUCCESS;
	if (!mig)
		return NVML_NOT_SUPPORTED;
	if (mode == mig->mode && mode == mig->pending)
		return NVML_SUCCESS;
	if (pci_num_vf(card->pdev) || card->vgpu_count)
		return NVML_IN_USE;
	is_used = mig->instance_count || vgpulab_used_by_others_locked(card);
	if (is_used && !mig->needs_reset)
		return NVML_IN_USE;
	mig->pending = mode;
	if (mode == mig->mode)
		return NVML_SUCCESS;
	if (is_used)
		*activation = NVML_IN_USE;
	else
		apply_mig_mode(card);
	return NVML_SUCCESS;
}

/* A pending mode takes effect; instances, mixed-size mode and counted errors go. */
int vgpulab_reset_locked(struct vgpulab_card *card)
{
	lockdep_assert_held(&card->lock);
	if (pci_num_vf(card->pdev) || card->vgpu_count || vgpulab_used_by_others_locked(card))
		return NVML_IN_USE;
	vgpulab_modes_lost_locked(card);
	card->faults.ecc_errors = 0;
	if (card->mig && card->mig->pending != card->mig->mode)
		apply_mig_mode(card);
	return NVML_SUCCESS;
}

/* gi: of one GPU instance, -1 for the GPU. */
int vgpulab_set_heterogeneous_locked(struct vgpulab_card *card, bool mode, int gi)
{
	bool has_mig = card->mig && card->mig->mode;
	struct vgpulab_gpu_instance *instance;
	unsigned int i;

	lockdep_assert_held(&card->lock);
	if (!card->has_heterogeneous || has_mig != (gi >= 0))
		return NVML_NOT_SUPPORTED;
	/* Fixed share has no use for sizes that differ. */
	if (mode && card->scheduler.policy == 3)
		return NVML_NOT_SUPPORTED;
	if (gi < 0) {
		if (card->is_heterogeneous == mode)
			return NVML_SUCCESS;
		if (card->vgpu_count)
			return NVML_IN_USE;
		card->is_heterogeneous = mode;
		return NVML_SUCCESS;
	}
	instance = vgpulab_find_instance_locked(card, gi);
	if (!instance)
		return NVML_NOT_FOUND;
	/* Only where an instance takes several vGPUs. */
	for (i = 0; i < card->type_count; i++)
		if (card->types[i].rules.gi_profile == (int)instance->profile->id &&
		    card->types[i].rules.per_gi > 1)
			break;
	if (i == card->type_count)
		return NVML_NOT_SUPPORTED;
	if (instance->is_heterogeneous == mode)
		return NVML_SUCCESS;
	if (vgpulab_instance_is_used_locked(card, gi))
		return NVML_IN_USE;
	instance->is_heterogeneous = mode;
	return NVML_SUCCESS;
}

static bool mixes_sizes(const struct vgpulab_card *card)
{
	const struct vgpulab_gpu_instance *instance;

	if (card->is_heterogeneous || !card->mig)
		return card->is_heterogeneous;
	list_for_each_entry(instance, &card->mig->instances, node)
		if (instance->is_heterogeneous)
			return true;
	return false;
}

/* Only while no VM runs on the GPU. */
int vgpulab_set_scheduler_locked(struct vgpulab_card *card, const struct vgpulab_scheduler *wanted)
{
	lockdep_assert_held(&card->lock);
	if (!card->type_count)
		return NVML_NOT_SUPPORTED;
	if (wanted->policy < 1 || wanted->policy > 3 || wanted->arr > 2 ||
	    wanted->slice_us < LEAST_SLICE_US || wanted->slice_us > MOST_SLICE_US ||
	    wanted->frequency < LEAST_FREQUENCY || wanted->frequency > MOST_FREQUENCY)
		return NVML_INVALID_ARGUMENT;
	if (wanted->policy == 3 && mixes_sizes(card))
		return NVML_NOT_SUPPORTED;
	if (vgpulab_vms_run_locked(card))
		return NVML_IN_USE;
	card->scheduler = *wanted;
	pr_info("NVRM: GPU at %s has software scheduler %s with policy %s.\n", pci_name(card->pdev),
		wanted->policy == 1 ? "DISABLED" : "ENABLED", policies[wanted->policy]);
	return NVML_SUCCESS;
}
