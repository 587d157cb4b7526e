// SPDX-License-Identifier: GPL-2.0-only
/*
 * The VFIO driver `xe-vfio-pci` for VFs of the Intel cards: VFIO's own PCI driver, and the migration protocol.
 *
 * As Intel's it has no log of the device's DMA, so QEMU blocks a move unless iommufd tracks dirty pages.
 * No guest reaches its state, which has a name and a generation only.
 */
#include <linux/module.h>
#include <linux/vfio_pci_core.h>

#include "vgpulab.h"

struct intel_vf {
	struct vfio_pci_core_device core;
	struct vgpulab_migration migration;
};

static struct intel_vf *vf_of(struct vfio_device *vdev)
{
	return container_of(vdev, struct intel_vf, core.vdev);
}

static struct file *set_state(struct vfio_device *vdev, enum vfio_device_mig_state wanted)
{
	return vgpulab_migration_set(&vf_of(vdev)->migration, wanted);
}

static int get_state(struct vfio_device *vdev, enum vfio_device_mig_state *state)
{
	*state = READ_ONCE(vf_of(vdev)->migration.now);
	return 0;
}

static int get_data_size(struct vfio_device *vdev, unsigned long *size)
{
	*size = vgpulab_migration_size(&vf_of(vdev)->migration);
	return 0;
}

static const struct vfio_migration_ops migration_operations =
	VGPULAB_MIGRATION_OPERATIONS(set_state, get_state, get_data_size);

static int intel_vfio_init(struct vfio_device *vdev)
{
	struct pci_dev *pdev = to_pci_dev(vdev->dev);
	int ret = vfio_pci_core_init_dev(vdev);

	if (ret)
		return ret;
	vgpulab_migration_init(&vf_of(vdev)->migration, vdev, vgpulab_card_of(pdev));
	vdev->mig_ops = &migration_operations;
	return 0;
}

static void intel_vfio_release(struct vfio_device *vdev)
{
	vgpulab_migration_destroy(&vf_of(vdev)->migration);
	vfio_pci_core_release_dev(vdev);
}

static int intel_vfio_open(struct vfio_device *vdev)
{
	struct intel_vf *vf = vf_of(vdev);
	int ret = vfio_pci_core_enable(&vf->core);

	if (ret)
		return ret;
	vgpulab_migration_begin(&vf->migration, vf->core.pdev->device << 16 | vf->core.pdev->subsystem_device);
	vfio_pci_core_finish_enable(&vf->core);
	return 0;
}

static void intel_vfio_close(struct vfio_device *vdev)
{
	vgpulab_migration_end(&vf_of(vdev)->migration);
	vfio_pci_core_close_device(vdev);
}

static long intel_vfio_ioctl(struct vfio_device *vdev, unsigned int command, unsigned long argument)
{
	long ret = vfio_pci_core_ioctl(vdev, command, argument);

	if (command == VFIO_DEVICE_RESET && !ret)
		vgpulab_migration_reset(&vf_of(vdev)->migration);
	return ret;
}

static int intel_vfio_feature(struct vfio_device *vdev, u32 flags, void __user *argument, size_t size)
{
	int ret = vgpulab_size_feature(vdev, get_data_size, flags, argument, size);

	return ret == -ENOTTY ? vfio_pci_core_ioctl_feature(vdev, flags, argument, size) : ret;
}

static const struct vfio_device_ops intel_vfio_operations = {
	.name = "xe-vfio-pci",
	.init = intel_vfio_init,
	.release = intel_vfio_release,
	.open_device = intel_vfio_open,
	.close_device = intel_vfio_close,
	.ioctl = intel_vfio_ioctl,
	.device_feature = intel_vfio_feature,
	.read = vfio_pci_core_read,
	.write = vfio_pci_core_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
	VGPULAB_IOMMUFD(physical)
};

static int intel_vfio_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vgpulab_card *card = vgpulab_card_of(pdev);
	struct intel_vf *vf;
	int ret;

	if (!card || !pdev->is_virtfn)
		return -ENODEV;
	vf = vfio_alloc_device(intel_vf, core.vdev, &pdev->dev, &intel_vfio_operations);
	if (IS_ERR(vf))
		return PTR_ERR(vf);
	dev_set_drvdata(&pdev->dev, &vf->core);
	ret = vfio_pci_core_register_device(&vf->core);
	if (ret)
		vfio_put_device(&vf->core.vdev);
	return ret;
}

static void intel_vfio_remove(struct pci_dev *pdev)
{
	struct vfio_pci_core_device *core = dev_get_drvdata(&pdev->dev);

	vfio_pci_core_unregister_device(core);
	vfio_put_device(&core->vdev);
}

/* Taken by driver_override alone, as every VFIO driver. */
static const struct pci_device_id intel_vfio_ids[] = {
	{ PCI_DRIVER_OVERRIDE_DEVICE_VFIO(PCI_VENDOR_ID_INTEL, PCI_ANY_ID) },
	{ }
};

struct pci_driver vgpulab_intel_vfio_driver = {
	.name = "xe-vfio-pci",
	.id_table = intel_vfio_ids,
	.probe = intel_vfio_probe,
	.remove = intel_vfio_remove,
	.err_handler = &vfio_pci_core_err_handlers,
	.driver_managed_dma = true,
};
