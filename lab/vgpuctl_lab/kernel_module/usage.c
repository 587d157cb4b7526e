// SPDX-License-Identifier: GPL-2.0-only
/* Who uses a card: processes with /dev/nvidiaN open or on a GPU instance, and VMs. */
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "vgpulab.h"

/* Somebody opens the GPU or one of its vGPUs. */
int vgpulab_card_use_locked(struct vgpulab_card *card)
{
	lockdep_assert_held(&card->lock);
	if (!card->is_bound)
		return -ENODEV;
	if (card->faults.is_fallen)
		return -EIO;
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

/* The calling process uses a card until vgpulab_process_remove(). gi: the instance, -1 for the GPU. */
struct vgpulab_process *vgpulab_process_add(struct vgpulab_card *card, int gi)
{
	struct vgpulab_process *process = kzalloc(sizeof(*process), GFP_KERNEL);
	int ret;

	if (!process)
		return ERR_PTR(-ENOMEM);
	process->card = card;
	process->pid = task_tgid_nr(current);
	process->gi = gi;
	mutex_lock(&card->lock);
	if (gi >= 0 && !vgpulab_find_instance_locked(card, gi))
		ret = -ENXIO;
	else
		ret = vgpulab_card_use_locked(card);
	if (!ret) {
		card->was_opened = true;
		list_add_tail(&process->node, &card->processes);
	}
	mutex_unlock(&card->lock);
	if (!ret)
		return process;
	kfree(process);
	return ERR_PTR(ret);
}

void vgpulab_process_remove(struct vgpulab_process *process)
{
	struct vgpulab_card *card = process->card;

	mutex_lock(&card->lock);
	list_del(&process->node);
	vgpulab_card_unuse_locked(card);
	mutex_unlock(&card->lock);
	kfree(process);
}

/* Whether the calling process is not the only user: nvidia-smi itself has the GPU open. */
bool vgpulab_used_by_others_locked(const struct vgpulab_card *card)
{
	const struct vgpulab_process *process;
	unsigned int own = 0;

	lockdep_assert_held(&card->lock);
	list_for_each_entry(process, &card->processes, node)
		own += process->gi < 0 && process->pid == task_tgid_nr(current);
	return vgpulab_is_busy_locked(card) || card->usage > own;
}

/* Whether a fault lets it count as used: for as long as it lasts, or for a while. */
bool vgpulab_is_busy_locked(const struct vgpulab_card *card)
{
	const struct vgpulab_faults *faults = &card->faults;

	lockdep_assert_held(&card->lock);
	return faults->is_busy || (faults->has_holder && time_before(jiffies, faults->held_until));
}
