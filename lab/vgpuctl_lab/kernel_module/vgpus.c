// SPDX-License-Identifier: GPL-2.0-only
/* The vGPUs of a card: creating, deleting and placing them as vgpu_rules.c says. */
#include <linux/atomic.h>
#include <linux/slab.h>

#include "vgpulab.h"

#define PLACEMENT_KEY	"vgpu-placement-id="

static atomic_t last_vgpu_id = ATOMIC_INIT(0);

/* Whether the card's vGPUs sit on virtual functions, one on each. */
bool vgpulab_has_vfs(const struct vgpulab_card *card)
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

static void fill_pool(struct vgpulab_card *card, struct rules_pool *pool, int gi,
		      const struct vgpulab_vgpu *without)
{
	struct vgpulab_vgpu *vgpu;

	pool->layout = card->layout;
	pool->count = 0;
	list_for_each_entry(vgpu, &card->vgpus, node) {
		if (vgpu->gi != gi || vgpu == without || pool->count == RM_MAX_VGPUS)
			continue;
		pool->vgpus[pool->count].framebuffer_mib = vgpu->type->rules.framebuffer_mib;
		pool->vgpus[pool->count].placement = vgpu->placement;
		pool->vgpus[pool->count].size = vgpu->type->rules.placement_size;
		pool->count++;
	}
}

/* The card as the rules see it, as though one of its vGPUs were not there. */
static const struct rules_gpu *rules_without_locked(struct vgpulab_card *card,
						    const struct vgpulab_vgpu *without)
{
	struct rules_gpu *rules = &card->rules;
	struct vgpulab_gpu_instance *instance;

	lockdep_assert_held(&card->lock);
	rules->has_mig = card->mig && card->mig->mode;
	rules->pool.region = card->framebuffer_mib / 1024;
	rules->pool.is_heterogeneous = card->is_heterogeneous;
	fill_pool(card, &rules->pool, -1, without);
	rules->instance_count = 0;
	if (!card->mig)
		return rules;
	list_for_each_entry(instance, &card->mig->instances, node) {
		struct rules_instance *view = &rules->instances[rules->instance_count++];

		view->id = instance->id;
		view->profile = instance->profile->id;
		view->pool.region = rules->pool.region * instance->profile->size / card->mig->slots;
		view->pool.is_heterogeneous = instance->is_heterogeneous;
		fill_pool(card, &view->pool, instance->id, without);
	}
	return rules;
}

/* Valid until the card's lock is given back or a vGPU, instance or mode changes. */
const struct rules_gpu *vgpulab_rules_locked(struct vgpulab_card *card)
{
	return rules_without_locked(card, NULL);
}

/* RM's answer to a request for one vGPU of this type on this function, and where it goes. */
static unsigned int creation_status(struct vgpulab_card *card, struct pci_dev *pdev,
				    const struct vgpulab_type *type,
				    const struct rules_instance **instance)
{
	lockdep_assert_held(&card->lock);
	*instance = NULL;
	if (card->faults.is_fallen)
		return RM_GPU_IS_LOST;
	/* VFs outlive the PF's driver while sriov-manage has the PF on pci-pf-stub. */
	if (!card->is_bound || card->has_unbind_lock)
		return RM_INVALID_STATE;
	if (vgpulab_has_vfs(card) && function_is_used(card, pdev))
		return RM_INVALID_OPERATION;
	return gpu_status(vgpulab_rules_locked(card), &type->rules, instance);
}

unsigned int vgpulab_available_locked(struct vgpulab_card *card, struct pci_dev *pdev,
				      const struct vgpulab_type *type)
{
	const struct rules_instance *instance;

	if (creation_status(card, pdev, type, &instance) != RM_OK)
		return 0;
	return vgpulab_has_vfs(card) ? 1 : type->rules.max_instances - card->vgpu_count;
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

/* Create a vGPU; type is NULL for an id the card does not have. Every refusal is EIO and a log line. */
struct vgpulab_vgpu *vgpulab_vgpu_create_locked(struct vgpulab_card *card, struct pci_dev *pdev,
						const struct vgpulab_type *type)
{
	const struct rules_instance *instance = NULL;
	struct vgpulab_vgpu *vgpu;
	unsigned int status = type ? creation_status(card, pdev, type, &instance) : RM_OBJECT_NOT_FOUND;

	if (card->faults.refusal)
		status = card->faults.refusal;
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
	vgpu->id = atomic_inc_return(&last_vgpu_id);
	vgpu->gi = instance ? (int)instance->id : -1;
	vgpu->placement = pool_choose(instance ? &instance->pool : &card->rules.pool, &type->rules);
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

bool vgpulab_vms_run_locked(const struct vgpulab_card *card)
{
	struct vgpulab_vgpu *vgpu;

	list_for_each_entry(vgpu, &card->vgpus, node)
		if (vgpu->is_in_use)
			return true;
	return false;
}

/* The pool a vGPU lies in, as though it were not there. */
static const struct rules_pool *pool_without(const struct vgpulab_vgpu *vgpu)
{
	const struct rules_gpu *rules = rules_without_locked(vgpu->card, vgpu);
	unsigned int i;

	for (i = 0; i < rules->instance_count; i++)
		if ((int)rules->instances[i].id == vgpu->gi)
			return &rules->instances[i].pool;
	return &rules->pool;
}

/* RM's answer to another place for a vGPU; on RM_OK it has it. */
static unsigned int move_to_placement(struct vgpulab_vgpu *vgpu, unsigned int placement)
{
	const struct rules_pool *pool = pool_without(vgpu);
	struct placement_set supported;

	if (placement == vgpu->placement)
		return RM_OK;
	if (!pool->is_heterogeneous)
		return RM_NOT_SUPPORTED;
	pool_supported(pool, &vgpu->type->rules, &supported);
	if (!placement_in(&supported, placement))
		return RM_INVALID_STATE;
	if (!pool_placement_is_free(pool, placement, vgpu->type->rules.placement_size))
		return RM_INSUFFICIENT_RESOURCES;
	vgpu->placement = placement;
	return RM_OK;
}

/* RM's answer to another GPU instance for a vGPU; on RM_OK it is there. */
static unsigned int move_to_instance(struct vgpulab_vgpu *vgpu, unsigned int id)
{
	const struct rules_gpu *rules = rules_without_locked(vgpu->card, vgpu);
	const struct rules_instance *instance;
	unsigned int status;

	if (id == (unsigned int)vgpu->gi)
		return RM_OK;	/* without MIG that is VGPULAB_NO_GPU_INSTANCE */
	if (!rules->has_mig)
		return RM_INVALID_OPERATION;
	for (instance = rules->instances; instance < rules->instances + rules->instance_count; instance++)
		if (instance->id == id)
			break;
	if (instance == rules->instances + rules->instance_count)
		return RM_INVALID_STATE;
	if ((int)instance->profile != vgpu->type->rules.gi_profile)
		return RM_NOT_SUPPORTED;
	status = pool_status(&instance->pool, &vgpu->type->rules);
	if (status != RM_OK)
		return status;
	vgpu->gi = id;
	vgpu->placement = pool_choose(&instance->pool, &vgpu->type->rules);
	return RM_OK;
}

static int set_number(struct vgpulab_vgpu *vgpu, const char *text, const char *what,
		      unsigned int (*move)(struct vgpulab_vgpu *vgpu, unsigned int value))
{
	unsigned int wanted, status;

	lockdep_assert_held(&vgpu->card->lock);
	if (kstrtouint(text, 0, &wanted))
		return -EINVAL;
	if (vgpu->is_in_use)
		return -EBUSY;
	status = move(vgpu, wanted);
	if (status == RM_OK)
		return 0;
	pr_err("NVRM: Failed to set %s: 0x%x\n", what, status);
	return -EIO;
}

int vgpulab_vgpu_set_instance_locked(struct vgpulab_vgpu *vgpu, const char *text)
{
	return set_number(vgpu, text, "gpu instance id", move_to_instance);
}

int vgpulab_vgpu_set_placement_locked(struct vgpulab_vgpu *vgpu, const char *text)
{
	return set_number(vgpu, text, "placement id", move_to_placement);
}

/* A place asked for by vgpu_params is taken at once where it can be; else the VM does not start. */
static void heed_placement(struct vgpulab_vgpu *vgpu)
{
	const char *found = strstr(vgpu->params, PLACEMENT_KEY);
	unsigned int placement;

	vgpu->has_wrong_placement = false;
	if (!found)
		return;
	vgpu->has_wrong_placement = sscanf(found, PLACEMENT_KEY "%u", &placement) != 1 ||
				    move_to_placement(vgpu, placement) != RM_OK;
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
	heed_placement(vgpu);
	return 0;
}
