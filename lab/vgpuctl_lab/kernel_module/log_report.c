// SPDX-License-Identifier: GPL-2.0-only
/*
 * The report of a device's DMA log, where the kernel cannot give one.
 *
 * Since 6.7 VFIO needs IOMMUFD_DRIVER for it, which a driver in the kernel's tree selects and one outside
 * cannot. Debian 13's kernel has no such driver: it takes the log's start, answers EOPNOTSUPP to its report,
 * and so no VM with a VFIO device leaves its host (QEMU: `ram_save_setup failed: Operation not supported`).
 * Other distributions' kernels have it. There a report of our devices, which do no DMA, is an empty one: that
 * is what the caller gets here.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "vgpulab.h"

static bool log_report = true;
module_param(log_report, bool, 0644);
MODULE_PARM_DESC(log_report, "DMA logs are reported where the kernel itself cannot (default 1)");

/* Called for every ioctl of a VFIO device: 0 if its return is wanted. */
static int entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const u32 wanted = VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_DMA_LOGGING_REPORT;
	struct vfio_device_feature feature;

	if (!READ_ONCE(log_report) || regs_get_kernel_argument(regs, 1) != VFIO_DEVICE_FEATURE)
		return 1;
	if (copy_from_user_nofault(&feature, (void __user *)regs_get_kernel_argument(regs, 2), sizeof(feature)))
		return 1;
	return (feature.flags & (VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_MASK)) != wanted;
}

static int returned(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if ((long)regs_return_value(regs) == -EOPNOTSUPP)
		regs_set_return_value(regs, 0);
	return 0;
}

static struct kretprobe ioctl_probe = {
	.kp.symbol_name = "vfio_device_fops_unl_ioctl",
	.entry_handler = entry,
	.handler = returned,
	.maxactive = 64,
};

int vgpulab_log_report_init(void)
{
	return VGPULAB_LACKS_LOG_REPORT ? register_kretprobe(&ioctl_probe) : 0;
}

void vgpulab_log_report_exit(void)
{
	if (VGPULAB_LACKS_LOG_REPORT)
		unregister_kretprobe(&ioctl_probe);
}
