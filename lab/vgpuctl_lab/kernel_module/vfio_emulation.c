// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI device a guest sees: a configuration space with the vGPU's identity and some registers, and nothing else.
 *
 * No BARs and no interrupts, because no guest driver runs on it. The class stays 3D controller
 * (0x0302): QEMU's NVIDIA quirks touch BAR 0 of a VGA device without asking whether it is there.
 */
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vgpulab.h"

/* Dwords that a guest may write and that mean nothing: a VM's move shall bring them along. */
#define FIRST_REGISTER	0x40
#define LAST_REGISTER	0x7f

#define REGION_SHIFT	40
#define REGION_MASK	(BIT_ULL(REGION_SHIFT) - 1)

static struct vgpulab_vfio *vfio_of(struct vfio_device *vdev)
{
	return container_of(vdev, struct vgpulab_vfio, vdev);
}

static void put_word(u8 *config, unsigned int where, u16 value)
{
	config[where] = value & 0xff;
	config[where + 1] = value >> 8;
}

static void fill_config(struct vgpulab_vfio *vfio, const struct vgpulab_type *type)
{
	const struct vgpulab_identity *identity = &vfio->function->card->identity;
	u8 *config = vfio->migration.state.config;

	mutex_lock(&vfio->migration.state_lock);
	memset(config, 0, PCI_CFG_SPACE_SIZE);
	put_word(config, PCI_VENDOR_ID, identity->vendor);
	put_word(config, PCI_DEVICE_ID, type->guest_device);
	config[PCI_REVISION_ID] = identity->revision;
	put_word(config, PCI_CLASS_DEVICE, PCI_CLASS_DISPLAY_3D);
	put_word(config, PCI_SUBSYSTEM_VENDOR_ID, identity->vendor);
	put_word(config, PCI_SUBSYSTEM_ID, type->guest_subsystem);
	mutex_unlock(&vfio->migration.state_lock);
}

/* Which bits of a byte of configuration space a guest may change. */
static u8 writable_bits(unsigned int where)
{
	switch (where) {
	case PCI_COMMAND:
		return PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
	case PCI_COMMAND + 1:
		return PCI_COMMAND_INTX_DISABLE >> 8;
	case PCI_CACHE_LINE_SIZE:
	case PCI_LATENCY_TIMER:
	case PCI_INTERRUPT_LINE:
		return 0xff;
	case FIRST_REGISTER ... LAST_REGISTER:
		return 0xff;
	default:
		return 0;
	}
}

static struct file *set_state(struct vfio_device *vdev, enum vfio_device_mig_state wanted)
{
	return vgpulab_migration_set(&vfio_of(vdev)->migration, wanted);
}

static int get_state(struct vfio_device *vdev, enum vfio_device_mig_state *state)
{
	*state = READ_ONCE(vfio_of(vdev)->migration.now);
	return 0;
}

static int get_data_size(struct vfio_device *vdev, unsigned long *size)
{
	*size = vgpulab_migration_size(&vfio_of(vdev)->migration);
	return 0;
}

static const struct vfio_migration_ops migration_operations =
	VGPULAB_MIGRATION_OPERATIONS(set_state, get_state, get_data_size);

static void vgpulab_vfio_release(struct vfio_device *vdev)
{
	vgpulab_migration_destroy(&vfio_of(vdev)->migration);
	vgpulab_vfio_free(vdev);
}

/* What this VM's vGPU can do for a move, by the faults that its card has now. */
static void begin_migration(struct vgpulab_vfio *vfio, struct vgpulab_vgpu *vgpu)
{
	const struct vgpulab_move_faults *faults = &vfio->function->card->faults.moves;
	struct vfio_device *vdev = &vfio->vdev;

	vdev->mig_ops = faults->unsupported ? NULL : &migration_operations;
	vdev->log_ops = faults->untracked ? NULL : &vgpulab_log_ops;
	vdev->migration_flags = VFIO_MIGRATION_STOP_COPY | VFIO_MIGRATION_P2P |
				(faults->no_pre_copy ? 0 : VGPULAB_PRE_COPY);
	vgpulab_migration_begin(&vfio->migration, vgpu->type->guest_device << 16 | vgpu->type->guest_subsystem);
	vgpu->migration = &vfio->migration;
}

static int vgpulab_vfio_open(struct vfio_device *vdev)
{
	struct vgpulab_vfio *vfio = vfio_of(vdev);
	struct vgpulab_card *card = vfio->function->card;
	struct vgpulab_vgpu *vgpu;
	int ret = -EIO;

	mutex_lock(&card->lock);
	vgpu = vfio->vgpu ?: vfio->function->vgpu;
	if (!vgpu) {
		pr_err("NVRM: %s has no vGPU type, cannot open its VFIO device\n", dev_name(vdev->dev));
	} else if (card->faults.wedged_vf && pci_iov_vf_id(vfio->function->pdev) + 1 == (int)card->faults.wedged_vf) {
		pr_err("NVRM: %s: RmInitAdapter failed! (0x22:0x65:884)\n", dev_name(vdev->dev));
	} else if (vgpu->has_wrong_placement) {
		pr_err("NVRM: %s: vgpu-placement-id cannot be had: 0x%x\n", dev_name(vdev->dev), RM_INVALID_STATE);
	} else if (!vgpulab_card_use_locked(card)) {
		vgpu->is_in_use = true;
		vgpu->vm_pid = task_tgid_nr(current);
		fill_config(vfio, vgpu->type);
		begin_migration(vfio, vgpu);
		ret = 0;
	}
	mutex_unlock(&card->lock);
	return ret;
}

static void vgpulab_vfio_close(struct vfio_device *vdev)
{
	struct vgpulab_vfio *vfio = vfio_of(vdev);
	struct vgpulab_card *card = vfio->function->card;
	struct vgpulab_vgpu *vgpu;

	vgpulab_migration_end(&vfio->migration);
	mutex_lock(&card->lock);
	/* A vGPU in use is never deleted, so it is the one that was opened. */
	vgpu = vfio->vgpu ?: vfio->function->vgpu;
	vgpu->is_in_use = false;
	vgpu->migration = NULL;
	vgpu->vm_pid = 0;
	vgpu->was_used = true;
	vgpu->closed_at = jiffies;
	vgpulab_card_unuse_locked(card);
	mutex_unlock(&card->lock);
}

/* Clip an access to configuration space, the only region there is. */
static int config_range(loff_t position, size_t *count, unsigned int *where)
{
	if (position >> REGION_SHIFT != VFIO_PCI_CONFIG_REGION_INDEX)
		return -EINVAL;
	position &= REGION_MASK;
	if (position >= PCI_CFG_SPACE_SIZE)
		return -EINVAL;
	*where = position;
	*count = min_t(size_t, *count, PCI_CFG_SPACE_SIZE - position);
	return 0;
}

static ssize_t vgpulab_vfio_read(struct vfio_device *vdev, char __user *buffer, size_t count,
				 loff_t *position)
{
	struct vgpulab_vfio *vfio = vfio_of(vdev);
	u8 bytes[PCI_CFG_SPACE_SIZE];
	unsigned int where;
	int ret;

	ret = config_range(*position, &count, &where);
	if (ret)
		return ret;
	mutex_lock(&vfio->migration.state_lock);
	memcpy(bytes, vfio->migration.state.config + where, count);
	mutex_unlock(&vfio->migration.state_lock);
	if (copy_to_user(buffer, bytes, count))
		return -EFAULT;
	*position += count;
	return count;
}

static ssize_t vgpulab_vfio_write(struct vfio_device *vdev, const char __user *buffer, size_t count,
				  loff_t *position)
{
	struct vgpulab_vfio *vfio = vfio_of(vdev);
	u8 *config = vfio->migration.state.config;
	u8 bytes[PCI_CFG_SPACE_SIZE];
	unsigned int where, i;
	int ret;

	ret = config_range(*position, &count, &where);
	if (ret)
		return ret;
	if (copy_from_user(bytes, buffer, count))
		return -EFAULT;
	mutex_lock(&vfio->migration.state_lock);
	for (i = 0; i < count; i++) {
		u8 bits = writable_bits(where + i);

		config[where + i] = (config[where + i] & ~bits) | (bytes[i] & bits);
	}
	mutex_unlock(&vfio->migration.state_lock);
	*position += count;
	return count;
}

static long get_device_info(void __user *argument)
{
	const unsigned long minimum = offsetofend(struct vfio_device_info, num_irqs);
	struct vfio_device_info info;

	if (copy_from_user(&info, argument, minimum))
		return -EFAULT;
	if (info.argsz < minimum)
		return -EINVAL;
	info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
	info.num_regions = VFIO_PCI_NUM_REGIONS;
	info.num_irqs = VFIO_PCI_NUM_IRQS;
	return copy_to_user(argument, &info, minimum) ? -EFAULT : 0;
}

static long get_region_info(void __user *argument)
{
	const unsigned long minimum = offsetofend(struct vfio_region_info, offset);
	struct vfio_region_info info;

	if (copy_from_user(&info, argument, minimum))
		return -EFAULT;
	if (info.argsz < minimum || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info.flags = 0;
	info.cap_offset = 0;
	info.size = 0;
	info.offset = (u64)info.index << REGION_SHIFT;
	if (info.index == VFIO_PCI_CONFIG_REGION_INDEX) {
		info.size = PCI_CFG_SPACE_SIZE;
		info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
	}
	return copy_to_user(argument, &info, minimum) ? -EFAULT : 0;
}

static long get_irq_info(void __user *argument)
{
	const unsigned long minimum = offsetofend(struct vfio_irq_info, count);
	struct vfio_irq_info info;

	if (copy_from_user(&info, argument, minimum))
		return -EFAULT;
	if (info.argsz < minimum || info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info.flags = VFIO_IRQ_INFO_EVENTFD;
	info.count = 0;
	return copy_to_user(argument, &info, minimum) ? -EFAULT : 0;
}

/* With no interrupts, switching them off is all there is to ask for. */
static long set_irqs(void __user *argument)
{
	const unsigned long minimum = offsetofend(struct vfio_irq_set, count);
	struct vfio_irq_set set;

	if (copy_from_user(&set, argument, minimum))
		return -EFAULT;
	if (set.argsz < minimum || set.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	return set.count ? -EINVAL : 0;
}

static long reset(struct vgpulab_vfio *vfio)
{
	unsigned int where;

	vgpulab_migration_reset(&vfio->migration);
	mutex_lock(&vfio->migration.state_lock);
	for (where = 0; where < PCI_CFG_SPACE_SIZE; where++)
		vfio->migration.state.config[where] &= ~writable_bits(where);
	mutex_unlock(&vfio->migration.state_lock);
	return 0;
}

static long vgpulab_vfio_ioctl(struct vfio_device *vdev, unsigned int command, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;

	switch (command) {
	case VFIO_DEVICE_GET_INFO:
		return get_device_info(pointer);
	case VFIO_DEVICE_GET_REGION_INFO:
		return get_region_info(pointer);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return get_irq_info(pointer);
	case VFIO_DEVICE_SET_IRQS:
		return set_irqs(pointer);
	case VFIO_DEVICE_RESET:
		return reset(vfio_of(vdev));
	default:
		return -ENOTTY;
	}
}

static int vgpulab_vfio_feature(struct vfio_device *vdev, u32 flags, void __user *argument, size_t size)
{
	return vgpulab_size_feature(vdev, get_data_size, flags, argument, size);
}

/* A VF is a VFIO device of the bus, an mdev one that the kernel makes up. */
#define VFIO_OPERATIONS(kind)			\
{						\
	.name = "nvidia-vgpu-vfio",		\
	.release = vgpulab_vfio_release,	\
	.open_device = vgpulab_vfio_open,	\
	.close_device = vgpulab_vfio_close,	\
	.read = vgpulab_vfio_read,		\
	.write = vgpulab_vfio_write,		\
	.ioctl = vgpulab_vfio_ioctl,		\
	.device_feature = vgpulab_vfio_feature,	\
	VGPULAB_IOMMUFD(kind)			\
}

static const struct vfio_device_ops physical_operations = VFIO_OPERATIONS(physical);
static const struct vfio_device_ops emulated_operations = VFIO_OPERATIONS(emulated);

/* A VFIO device on dev, to be registered by the caller and given back by vfio_put_device(). */
struct vgpulab_vfio *vgpulab_vfio_alloc(struct device *dev, struct vgpulab_function *function)
{
	bool is_vf = dev == &function->pdev->dev;
	struct vgpulab_vfio *vfio = vfio_alloc_device(vgpulab_vfio, vdev, dev,
						      is_vf ? &physical_operations : &emulated_operations);

	if (IS_ERR(vfio))
		return vfio;
	vfio->function = function;
	vgpulab_migration_init(&vfio->migration, &vfio->vdev, function->card);
	return vfio;
}

/* What the driver says in the log when it has made a vGPU that can be moved. */
void vgpulab_vfio_announce(struct device *dev, struct vgpulab_card *card)
{
	if (!READ_ONCE(card->faults.moves.unsupported))
		dev_info(dev, "vGPU migration enabled with upstream V2 migration protocol\n");
}
