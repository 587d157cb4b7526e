/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that the module builds for, 6.1 of Debian 12 and 6.12 of Debian 13.
 * No other file asks for a version.
 */
#ifndef VGPULAB_KERNEL_VERSIONS_H
#define VGPULAB_KERNEL_VERSIONS_H

#include <linux/device.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vfio.h>

static inline struct class *vgpulab_class_create(const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	return class_create(name);
#else
	return class_create(THIS_MODULE, name);
#endif
}

/* The end of a VFIO device's release(): before 6.2 the driver gives the memory back, since then VFIO. */
static inline void vgpulab_vfio_free(struct vfio_device *vdev)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
	vfio_free_device(vdev);
#endif
}

/*
 * How a VFIO device gets its DMA by iommufd, without which VFIO registers none since 6.2 (detach: 6.6).
 * kind: `physical`, with an IOMMU group of the bus, or `emulated`.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#define VGPULAB_IOMMUFD(kind)					\
	.bind_iommufd = vfio_iommufd_##kind##_bind,		\
	.unbind_iommufd = vfio_iommufd_##kind##_unbind,		\
	.attach_ioas = vfio_iommufd_##kind##_attach_ioas,	\
	.detach_ioas = vfio_iommufd_##kind##_detach_ioas
#else
#define VGPULAB_IOMMUFD(kind)
#endif

/*
 * Migration: since 6.2 it may begin while the guest runs (PRE_COPY), and VFIO asks migration_get_data_size() for the
 * size of the state. Before that the question, number 9, reaches the driver's device_feature().
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define VGPULAB_PRE_COPY	VFIO_MIGRATION_PRE_COPY
#define VGPULAB_MIGRATION_OPERATIONS(set, get, size)	\
	{ .migration_set_state = set, .migration_get_state = get, .migration_get_data_size = size }
#else
#define VGPULAB_PRE_COPY		0
#define VGPULAB_MIGRATION_OPERATIONS(set, get, size)	\
	{ .migration_set_state = set, .migration_get_state = get }
#define VFIO_DEVICE_STATE_PRE_COPY	6
#define VFIO_DEVICE_STATE_PRE_COPY_P2P	7
#define VFIO_DEVICE_FEATURE_MIG_DATA_SIZE 9
#define VFIO_MIG_GET_PRECOPY_INFO	_IO(VFIO_TYPE, VFIO_BASE + 21)
struct vfio_precopy_info {
	__u32 argsz;
	__u32 flags;
	__aligned_u64 initial_bytes;
	__aligned_u64 dirty_bytes;
};
#endif

/* Whether the kernel's VFIO cannot report a device's DMA log (log_report.c). */
#define VGPULAB_LACKS_LOG_REPORT \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0) && !IS_ENABLED(CONFIG_IOMMUFD_DRIVER))

/* An answer to the question for the size of the state, ENOTTY to any other. Since 6.2 VFIO does not ask here. */
static inline int vgpulab_size_feature(struct vfio_device *vdev,
				       int (*get_size)(struct vfio_device *vdev, unsigned long *size),
				       u32 flags, void __user *argument, size_t argument_size)
{
	unsigned long size = 0;
	u64 answer;
	int ret;

	if (!vdev->mig_ops || (flags & VFIO_DEVICE_FEATURE_MASK) != VFIO_DEVICE_FEATURE_MIG_DATA_SIZE)
		return -ENOTTY;
	ret = vfio_check_feature(flags, argument_size, VFIO_DEVICE_FEATURE_GET, sizeof(answer));
	if (ret != 1)
		return ret;
	ret = get_size(vdev, &size);
	answer = size;
	return ret ?: copy_to_user(argument, &answer, sizeof(answer)) ? -EFAULT : 0;
}

#endif /* VGPULAB_KERNEL_VERSIONS_H */
