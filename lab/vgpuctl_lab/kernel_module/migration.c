// SPDX-License-Identifier: GPL-2.0-only
/* VFIO's migration protocol v2: the states of a device, and what travels between two (migration_stream.c). */
#include <linux/delay.h>
#include <linux/fs.h>

#include "vgpulab.h"

static bool is_saving(enum vfio_device_mig_state state)
{
	return state == VFIO_DEVICE_STATE_STOP_COPY || state == VFIO_DEVICE_STATE_PRE_COPY ||
	       state == VFIO_DEVICE_STATE_PRE_COPY_P2P;
}

static const char *name_of(enum vfio_device_mig_state state)
{
	static const char *const names[] = { "error", "stop", "running", "stop-copy", "resuming",
					     "running-p2p", "pre-copy", "pre-copy-p2p" };

	return state < ARRAY_SIZE(names) ? names[state] : "?";
}

/* One arc of the protocol. A file for a stream that begins, NULL, or an error. */
static struct file *step(struct vgpulab_migration *migration, enum vfio_device_mig_state next)
{
	const struct vgpulab_move_faults *faults = &migration->card->faults.moves;
	enum vfio_device_mig_state now = migration->now;
	struct file *file = NULL;
	int ret;

	if (msleep_interruptible(READ_ONCE(faults->sleep_ms)))
		return ERR_PTR(-EINTR);
	if (next == VFIO_DEVICE_STATE_STOP_COPY && READ_ONCE(faults->refuses_stop_copy)) {
		pr_err("NVRM: vGPU migration: %s: the state cannot be saved\n", dev_name(migration->vdev->dev));
		return ERR_PTR(-EIO);
	}
	if (is_saving(next) && !is_saving(now))
		file = vgpulab_stream_open(migration, true);
	else if (next == VFIO_DEVICE_STATE_RESUMING)
		file = vgpulab_stream_open(migration, false);
	if (IS_ERR(file))
		return file;
	if (next == VFIO_DEVICE_STATE_STOP_COPY)
		vgpulab_stream_finish(migration);
	if (now == VFIO_DEVICE_STATE_RESUMING) {
		ret = vgpulab_stream_load(migration);
		if (ret)
			return ERR_PTR(ret);
	}
	if (now == VFIO_DEVICE_STATE_RESUMING || (is_saving(now) && !is_saving(next)))
		vgpulab_stream_kill(migration);
	return file;
}

struct file *vgpulab_migration_set(struct vgpulab_migration *migration, enum vfio_device_mig_state wanted)
{
	struct file *file = NULL;

	mutex_lock(&migration->lock);
	while (migration->now != wanted) {
		enum vfio_device_mig_state next;
		int ret = vfio_mig_get_next_state(migration->vdev, migration->now, wanted, &next);

		file = ret ? ERR_PTR(ret) : step(migration, next);
		if (IS_ERR(file))
			break;
		dev_dbg(migration->vdev->dev, "vGPU migration: %s -> %s\n", name_of(migration->now), name_of(next));
		WRITE_ONCE(migration->now, next);
	}
	mutex_unlock(&migration->lock);
	return file;
}

/* How many bytes of its state would have to be read if the guest stopped now. */
unsigned long vgpulab_migration_size(struct vgpulab_migration *migration)
{
	u64 size;

	mutex_lock(&migration->lock);
	size = vgpulab_stream_left(migration);
	mutex_unlock(&migration->lock);
	return size;
}

/* The device has no DMA, so it dirties no page of the guest. */
static int log_start(struct vfio_device *vdev, struct rb_root_cached *ranges, u32 nodes, u64 *page_size)
{
	return 0;
}

static int log_stop(struct vfio_device *vdev)
{
	return 0;
}

static int log_read_and_clear(struct vfio_device *vdev, unsigned long iova, unsigned long length,
			      struct iova_bitmap *dirty)
{
	return 0;
}

const struct vfio_log_ops vgpulab_log_ops = {
	.log_start = log_start,
	.log_stop = log_stop,
	.log_read_and_clear = log_read_and_clear,
};

static void new_state(struct vgpulab_migration *migration)
{
	mutex_lock(&migration->state_lock);
	uuid_gen(&migration->state.id);
	migration->state.generation = 0;
	mutex_unlock(&migration->state_lock);
}

void vgpulab_migration_init(struct vgpulab_migration *migration, struct vfio_device *vdev, struct vgpulab_card *card)
{
	migration->vdev = vdev;
	migration->card = card;
	migration->now = VFIO_DEVICE_STATE_RUNNING;
	mutex_init(&migration->lock);
	mutex_init(&migration->state_lock);
	vdev->migration_flags = VFIO_MIGRATION_STOP_COPY | VFIO_MIGRATION_P2P | VGPULAB_PRE_COPY;
}

void vgpulab_migration_destroy(struct vgpulab_migration *migration)
{
	mutex_destroy(&migration->state_lock);
	mutex_destroy(&migration->lock);
}

/* A VM opens the device. type: what the state of another device must be of. */
void vgpulab_migration_begin(struct vgpulab_migration *migration, u32 type)
{
	migration->type = type;
	migration->resets = 0;
	new_state(migration);
}

void vgpulab_migration_end(struct vgpulab_migration *migration)
{
	mutex_lock(&migration->lock);
	vgpulab_stream_kill(migration);
	WRITE_ONCE(migration->now, VFIO_DEVICE_STATE_RUNNING);
	mutex_unlock(&migration->lock);
}

/* The device was reset: what the guest had written is gone. The caller clears the configuration space. */
void vgpulab_migration_reset(struct vgpulab_migration *migration)
{
	vgpulab_migration_end(migration);
	new_state(migration);
	WRITE_ONCE(migration->resets, migration->resets + 1);
}

void vgpulab_migration_show(struct seq_file *file, struct vgpulab_migration *migration)
{
	mutex_lock(&migration->state_lock);
	seq_printf(file, " migration=%s resets=%u state=%pUb generation=%llu", name_of(READ_ONCE(migration->now)),
		   READ_ONCE(migration->resets), &migration->state.id, migration->state.generation);
	mutex_unlock(&migration->state_lock);
}
