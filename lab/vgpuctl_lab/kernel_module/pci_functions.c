// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI driver `nvidia`: binds physical functions and VFs of the cards in the table.
 *
 * It has no sriov_configure, as NVIDIA's has none: VFs come by sriov-manage through pci-pf-stub.
 * VFs that came before the vGPU manager was ready are bound all the same, and offer no types (faults.c).
 * Its name is NVIDIA's because the mdev core puts the parent's driver name before the type id.
 */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "vgpulab.h"

static int physical_function_probe(struct vgpulab_function *function)
{
	struct vgpulab_card *card = function->card;
	int ret;

	ret = vgpulab_proc_add_card(card);
	if (ret)
		return ret;
	mutex_lock(&card->lock);
	card->is_bound = true;
	card->pdev = function->pdev;
	card->has_unbind_lock = false;
	card->was_opened = false;
	mutex_unlock(&card->lock);
	if (card->interface == VGPULAB_MDEV_PF) {
		ret = vgpulab_mdev_add(function);
		if (ret)
			goto unbind;
	}
	vgpulab_character_device_add(card);
	return 0;

unbind:
	mutex_lock(&card->lock);
	card->is_bound = false;
	card->pdev = NULL;
	mutex_unlock(&card->lock);
	vgpulab_proc_remove_card(card);
	return ret;
}

/* VFs outlive their PF's driver, which leaves them without one, as when its module is unloaded. */
static void strand_virtual_functions(struct pci_dev *pdev)
{
	struct pci_dev *vf = NULL;

	while ((vf = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, vf)))
		if (vf->is_virtfn && vf->physfn == pdev && vf->dev.driver == &vgpulab_pci_driver.driver)
			device_release_driver(&vf->dev);
}

static void physical_function_remove(struct vgpulab_function *function)
{
	struct vgpulab_card *card = function->card;
	struct pci_dev *pdev = function->pdev;

	vgpulab_character_device_remove(card);
	mutex_lock(&card->lock);
	card->is_bound = false;		/* no new users from here on */
	card->pdev = NULL;
	if (card->usage)
		pr_err("NVRM: Attempting to remove device %04x:%02x:%02x.%x with non-zero usage count!\n",
		       pci_domain_nr(pdev->bus), pdev->bus->number,
		       PCI_SLOT(pdev->devfn), PCI_FUNC(pdev->devfn));
	mutex_unlock(&card->lock);
	/* NVIDIA's driver sleeps here too, and the writer of `unbind` with it. */
	wait_event(card->idle, !READ_ONCE(card->usage));
	if (card->interface == VGPULAB_MDEV_PF)
		vgpulab_mdev_remove(function);
	strand_virtual_functions(pdev);
	/* Instances and mixed-size mode do not outlive it. */
	mutex_lock(&card->lock);
	vgpulab_modes_lost_locked(card);
	/* The PF goes away with VFs only to have them taken away. */
	if (pci_num_vf(pdev) && card->faults.unregistered)
		WRITE_ONCE(card->faults.unregistered, card->faults.unregistered - 1);
	mutex_unlock(&card->lock);
	vgpulab_proc_remove_card(card);
}

static int virtual_function_probe(struct vgpulab_function *function)
{
	struct pci_dev *pdev = function->pdev;

	if (!device_iommu_mapped(&pdev->dev)) {
		pr_err("NVRM: Aborting probe for VF %04x:%02x:%02x.%x since IOMMU is not present on the system.\n",
		       pci_domain_nr(pdev->bus), pdev->bus->number,
		       PCI_SLOT(pdev->devfn), PCI_FUNC(pdev->devfn));
		return -ENODEV;
	}
	if (READ_ONCE(function->card->faults.unregistered)) {
		pr_info("nvidia-vgpu-vfio: Parent device %s is not currently registered for mdev support\n",
			pci_name(pdev));
		return 0;
	}
	switch (function->card->interface) {
	case VGPULAB_MDEV_VF:
		return vgpulab_mdev_add(function);
	case VGPULAB_VF_PROFILE:
		return vgpulab_profile_add(function);
	default:
		pr_info("NVRM: Ignoring probe for VF %04x:%02x:%02x.%x\n",
			pci_domain_nr(pdev->bus), pdev->bus->number,
			PCI_SLOT(pdev->devfn), PCI_FUNC(pdev->devfn));
		return -ENODEV;
	}
}

static void virtual_function_remove(struct vgpulab_function *function)
{
	struct vgpulab_card *card = function->card;

	mutex_lock(&card->lock);
	if (pci_iov_vf_id(function->pdev) + 1 == (int)card->faults.wedged_vf)
		card->faults.wedged_vf = 0;
	mutex_unlock(&card->lock);
	if (function->card->interface == VGPULAB_MDEV_VF)
		vgpulab_mdev_remove(function);
	else
		vgpulab_profile_remove(function);
}

static int vgpulab_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vgpulab_card *card = vgpulab_card_of(pdev);
	struct vgpulab_function *function;
	int ret;

	if (!card)
		return -ENODEV;
	function = kzalloc(sizeof(*function), GFP_KERNEL);
	if (!function)
		return -ENOMEM;
	function->pdev = pdev;
	function->card = card;
	pci_set_drvdata(pdev, function);
	ret = pdev->is_virtfn ? virtual_function_probe(function) : physical_function_probe(function);
	if (ret) {
		pci_set_drvdata(pdev, NULL);
		kfree(function);
	}
	return ret;
}

static void vgpulab_remove(struct pci_dev *pdev)
{
	struct vgpulab_function *function = pci_get_drvdata(pdev);

	if (pdev->is_virtfn)
		virtual_function_remove(function);
	else
		physical_function_remove(function);
	pci_set_drvdata(pdev, NULL);
	kfree(function);
}

/* No MODULE_DEVICE_TABLE: the lab inserts the module by hand, nothing shall load it by modalias. */
static const struct pci_device_id vgpulab_ids[] = {
	{
		.vendor = PCI_VENDOR_ID_NVIDIA,
		.device = PCI_ANY_ID,
		.subvendor = PCI_ANY_ID,
		.subdevice = PCI_ANY_ID,
		.class = PCI_BASE_CLASS_DISPLAY << 16,
		.class_mask = 0xff0000,
	},
	{ }
};

struct pci_driver vgpulab_pci_driver = {
	.name = "nvidia",
	.id_table = vgpulab_ids,
	.probe = vgpulab_probe,
	.remove = vgpulab_remove,
	/* Else the kernel's own claim on the IOMMU group keeps /dev/vfio/N from being opened. */
	.driver_managed_dma = true,
};
