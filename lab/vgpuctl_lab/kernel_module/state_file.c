// SPDX-License-Identifier: GPL-2.0-only
/* /proc/vgpulab/state: what exists now, one truth for every tool of the lab. README.md has the format. */
#include "vgpulab.h"

void vgpulab_print_address(struct seq_file *file, const struct vgpulab_card *card)
{
	seq_printf(file, "%04x:%02x:%02x.%u", card->domain, card->bus,
		   PCI_SLOT(card->identity.devfn), PCI_FUNC(card->identity.devfn));
}

static void begin_line(struct seq_file *file, const char *word, const struct vgpulab_card *card)
{
	seq_printf(file, "%s ", word);
	vgpulab_print_address(file, card);
}

static void show_card(struct seq_file *file, const struct vgpulab_card *card)
{
	const struct vgpulab_scheduler *scheduler = &card->scheduler;
	unsigned int framebuffer_mib = 0;

	if (card->vgpu_count)
		framebuffer_mib = list_last_entry(&card->vgpus, struct vgpulab_vgpu, node)->type->rules.framebuffer_mib;
	begin_line(file, "card", card);
	seq_printf(file, " driver=%s interface=%s usage=%u unbind_lock=%d vgpus=%u framebuffer=%u vgpu_framebuffer=%u",
		   card->is_bound ? vgpulab_driver_name(card) : "-", vgpulab_interface_name(card->interface),
		   card->usage + card->faults.is_busy, card->has_unbind_lock, card->vgpu_count,
		   card->framebuffer_mib, framebuffer_mib);
	seq_printf(file, " uuid=%s vfs=%d mig=%d mig_pending=%d hetero=%d", card->uuid ?: "-",
		   card->pdev ? pci_num_vf(card->pdev) : 0, card->mig && card->mig->mode,
		   card->mig && card->mig->pending, card->is_heterogeneous);
	seq_printf(file, " sched_policy=%u sched_arr=%u sched_slice_us=%u sched_frequency=%u",
		   scheduler->policy, scheduler->arr, scheduler->slice_us, scheduler->frequency);
	seq_printf(file, " fallen=%d ecc_errors=%u retired_pages=%u last_xid=%u", card->faults.is_fallen,
		   card->faults.ecc_errors, card->faults.ecc_errors, card->faults.last_xid);
	seq_printf(file, " busy=%d unregistered=%u state_mib=%u can_move=%d\n", vgpulab_is_busy_locked(card),
		   card->faults.unregistered, READ_ONCE(card->faults.moves.state_mib),
		   !READ_ONCE(card->faults.moves.unsupported));
}

static void show_instances(struct seq_file *file, const struct vgpulab_card *card)
{
	const struct vgpulab_gpu_instance *instance;
	unsigned int i;

	if (!card->mig)
		return;
	list_for_each_entry(instance, &card->mig->instances, node) {
		bool is_used = vgpulab_instance_is_used_locked(card, instance->id);

		begin_line(file, "gi", card);
		seq_printf(file, " id=%u profile=%u start=%u size=%u in_use=%d hetero=%d\n", instance->id,
			   instance->profile->id, instance->start, instance->profile->size, is_used,
			   instance->is_heterogeneous);
		for (i = 0; i < instance->compute_count; i++) {
			const struct vgpulab_compute_instance *compute = &instance->compute[i];

			begin_line(file, "ci", card);
			seq_printf(file, " gi=%u id=%u profile=%u start=%u size=%u in_use=%d\n", instance->id,
				   compute->id, compute->profile->id, compute->start,
				   compute->profile->size, is_used);
		}
	}
}

static void show_gi(struct seq_file *file, int gi)
{
	if (gi < 0)
		seq_puts(file, " gi=-");
	else
		seq_printf(file, " gi=%d", gi);
}

static void show_users(struct seq_file *file, const struct vgpulab_card *card)
{
	const struct vgpulab_process *process;
	const struct vgpulab_vgpu *vgpu;

	list_for_each_entry(vgpu, &card->vgpus, node) {
		begin_line(file, "vgpu", card);
		seq_printf(file, " function=%s type=%u framebuffer=%u placement=%u in_use=%d uuid=%s id=%u",
			   pci_name(vgpu->pdev), vgpu->type->id, vgpu->type->rules.framebuffer_mib,
			   vgpu->placement, vgpu->is_in_use, vgpu->uuid[0] ? vgpu->uuid : "-", vgpu->id);
		show_gi(file, vgpu->gi);
		seq_printf(file, " vm_pid=%d", vgpu->vm_pid);
		if (vgpu->migration)
			vgpulab_migration_show(file, vgpu->migration);
		else
			seq_puts(file, " migration=- resets=- state=- generation=-");
		seq_putc(file, '\n');
	}
	list_for_each_entry(process, &card->processes, node) {
		begin_line(file, "process", card);
		seq_printf(file, " pid=%d", process->pid);
		show_gi(file, process->gi);
		seq_putc(file, '\n');
	}
}

int vgpulab_state_show(struct seq_file *file, void *unused)
{
	struct vgpulab_card *card;

	mutex_lock(&vgpulab_table_lock);
	list_for_each_entry(card, vgpulab_cards(), node) {
		mutex_lock(&card->lock);
		show_card(file, card);
		show_instances(file, card);
		show_users(file, card);
		mutex_unlock(&card->lock);
	}
	mutex_unlock(&vgpulab_table_lock);
	return 0;
}
