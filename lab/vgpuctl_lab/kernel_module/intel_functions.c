// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI driver `xe`: binds physical functions and VFs of the Intel cards in the table.
 *
 * It has sriov_configure, as Intel's drivers have: VFs come by writing sriov_numvfs, and the PCI
 * core answers wrong counts. There are no vGPU types: a VF is what a VM is given, through vfio-pci.
 */
#include <linux/module.h>

#include "vgpulab.h"

static int intel_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vgpulab_card *card = vgpulab_card_of(pdev);

	if (!card)
		return -ENODEV;
	if (pdev->is_virtfn)
		return 0;
	mutex_lock(&card->lock);
	card->is_bound = true;
	card->pdev = pdev;
	mutex_unlock(&card->lock);
	card->admin = vgpulab_intel_admin_add(card, pdev);
	return 0;
}

static void intel_remove(struct pci_dev *pdev)
{
	struct vgpulab_card *card = vgpulab_card_of(pdev);

	if (pdev->is_virtfn)
		return;
	/* VFs do not outlive the driver of their PF; one that a VM holds is waited for (vfio-pci). */
	if (pci_num_vf(pdev))
		pci_disable_sriov(pdev);
	vgpulab_intel_admin_remove(card->admin);
	card->admin = NULL;
	mutex_lock(&card->lock);
	card->is_bound = false;
	card->pdev = NULL;
	mutex_unlock(&card->lock);
}

/* Called with 0, or with a count that is in range while there are no VFs: the PCI core refuses the rest. */
static int intel_sriov_configure(struct pci_dev *pdev, int count)
{
	int ret;

	if (!count) {
		pci_disable_sriov(pdev);
		vgpulab_intel_admin_reset(vgpulab_card_of(pdev)->admin);
		return 0;
	}
	vgpulab_intel_admin_enable(vgpulab_card_of(pdev)->admin);
	ret = pci_enable_sriov(pdev, count);
	return ret ?: count;
}

static const struct pci_device_id intel_ids[] = {
	{
		.vendor = PCI_VENDOR_ID_INTEL,
		.device = PCI_ANY_ID,
		.subvendor = PCI_ANY_ID,
		.subdevice = PCI_ANY_ID,
		.class = PCI_BASE_CLASS_DISPLAY << 16,
		.class_mask = 0xff0000,
	},
	{ }
};

struct pci_driver vgpulab_intel_pci_driver = {
	.name = "xe",
	.id_table = intel_ids,
	.probe = intel_probe,
	.remove = intel_remove,
	.sriov_configure = intel_sriov_configure,
};
