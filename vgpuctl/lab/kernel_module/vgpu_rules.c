// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which vGPUs a card can still take: the rules of NVIDIA's resource manager for a GPU without MIG
 * in equal-size mode (kernel_vgpu_mgr.c of the open kernel modules).
 */
#include <linux/slab.h>

#include "vgpulab.h"

static bool has_vfs(const struct vgpulab_card *card)
{
	return card->interface == VGPULAB_MDEV_VF || card->interface == VGPULAB_VF_PROFILE;
}

static bool function_is_used(struct vgpulab_card *card, struct pci_dev *pdev)
{
	struct vgpulab_vgpu *vgpu;

	list_for_each_entry(vgpu, &card->vgpus, node)
		if (vgpu->pdev == pdev)
			return true;
	return false;
}

/* RM's answer to a request for one vGPU of this type on this function. */
static unsigned int creation_status(struct vgpulab_card *card, struct pci_dev *pdev,
				    const struct vgpulab_type *type)
{
	struct vgpulab_vgpu *first;

	lockdep_assert_held(&card->lock);
	/* VFs outlive the PF's driver while sriov-manage has the PF on pci-pf-stub. */
	if (!card->is_bound || card->has_unbind_lock)
		return RM_INVALID_STATE;
	if (has_vfs(card) && function_is_used(card, pdev))
		return RM_INVALID_OPERATION;
	if (list_empty(&card->vgpus))
		return RM_OK;
	first = list_first_entry(&card->vgpus, struct vgpulab_vgpu, node);
	/* Equal size means equal framebuffer, whatever the series. */
	if (first->type->framebuffer_mib != type->framebuffer_mib)
		return RM_NOT_SUPPORTED;
	if (card->vgpu_count >= type->max_instances)
		return RM_INSUFFICIENT_RESOURCES;
	return RM_OK;
}

unsigned int vgpulab_available_locked(struct vgpulab_card *card, struct pci_dev *pdev,
				      const struct vgpulab_type *type)
{
	if (creation_status(card, pdev, type) != RM_OK)
		return 0;
	return has_vfs(card) ? 1 : type->max_instances - card->vgpu_count;
}

unsigned int vgpulab_available(struct vgpulab_card *card, struct pci_dev *pdev,
			       const struct vgpulab_type *type)
{
	unsigned int available;

	mutex_lock(&card->lock);
	available = vgpulab_available_locked(card, pdev, type);
	mutex_unlock(&card->lock);
	return available;
}

/* The first free place, in GiB, for vGPUs of one size laid side by side. */
static unsigned int free_placement(struct vgpulab_card *card, const struct vgpulab_type *type)
{
	unsigned int size = max(type->framebuffer_mib / 1024, 1U);
	unsigned int placement = 0;
	struct vgpulab_vgpu *vgpu;
	bool is_taken;

	do {
		is_taken = false;
		list_for_each_entry(vgpu, &card->vgpus, node)
			is_taken |= vgpu->placement == placement;
		if (is_taken)
			placement += size;
	} while (is_taken);
	return placement;
}

/* Create a vGPU; type is NULL for an id the card does not have. Every refusal is EIO and a log line. */
struct vgpulab_vgpu *vgpulab_vgpu_create_locked(struct vgpulab_card *card, struct pci_dev *pdev,
						const struct vgpulab_type *type)
{
	unsigned int status = type ? creation_status(card, pdev, type) : RM_OBJECT_NOT_FOUND;
	struct vgpulab_vgpu *vgpu;

	if (status != RM_OK) {
		pr_err("NVRM: Failed to add vgpu create request: 0x%x\n", status);
		return ERR_PTR(-EIO);
	}
	vgpu = kzalloc(sizeof(*vgpu), GFP_KERNEL);
	if (!vgpu)
		return ERR_PTR(-ENOMEM);
	vgpu->card = card;
	vgpu->pdev = pdev;
	vgpu->type = type;
	vgpu->placement = free_placement(card, type);
	list_add_tail(&vgpu->node, &card->vgpus);
	card->vgpu_count++;
	return vgpu;
}

void vgpulab_vgpu_destroy_locked(struct vgpulab_vgpu *vgpu)
{
	lockdep_assert_held(&vgpu->card->lock);
	list_del(&vgpu->node);
	vgpu->card->vgpu_count--;
	kfree(vgpu);
}

/*
 * Store vgpu_params. The driver keeps the text as it is written and judges it when the VM starts;
 * a single blank clears it.
 */
int vgpulab_vgpu_set_params_locked(struct vgpulab_vgpu *vgpu, const char *text, size_t length)
{
	lockdep_assert_held(&vgpu->card->lock);
	if (vgpu->is_in_use)
		return -EBUSY;
	if (length && text[length - 1] == '\n')
		length--;
	if (length > VGPULAB_MAX_VGPU_PARAMS)
		return -EINVAL;
	if (length == 1 && text[0] == ' ')
		length = 0;
	memcpy(vgpu->params, text, length);
	vgpu->params[length] = '\0';
	return 0;
}

/* Somebody opens the GPU or one of its vGPUs. */
int vgpulab_card_use_locked(struct vgpulab_card *card)
{
	lockdep_assert_held(&card->lock);
	if (!card->is_bound)
		return -ENODEV;
	if (card->has_unbind_lock)
		return -EBUSY;
	card->usage++;
	return 0;
}

void vgpulab_card_unuse_locked(struct vgpulab_card *card)
{
	lockdep_assert_held(&card->lock);
	if (!--card->usage)
		wake_up_all(&card->idle);
}
