/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the kernels that the module builds for, 6.1 of Debian 12 and 6.12 of Debian 13.
 * No other file asks for a version.
 */
#ifndef VGPULAB_KERNEL_VERSIONS_H
#define VGPULAB_KERNEL_VERSIONS_H

#include <linux/device.h>
#include <linux/module.h>
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

#endif /* VGPULAB_KERNEL_VERSIONS_H */
