// SPDX-License-Identifier: GPL-2.0-only
/*
 * The board's identity in configuration space.
 *
 * QEMU's device keeps its own ids. Rewriting struct pci_dev would leave /sys/.../config, lspci -x,
 * the SR-IOV capability and what vfio-pci shows a guest telling another story. So reads of the
 * card's bus go through our pci_ops, which put the board's ids over the real bytes; after the
 * operations are in place the devices are removed and scanned again, and every part of the kernel
 * learns the same identity.
 */
#include <linux/slab.h>

#include "vgpulab.h"

struct vgpulab_overlay {
	struct pci_ops ops;
	struct pci_ops *original;
	struct pci_bus *bus;
	const struct vgpulab_card *card;
	int sriov_position;	/* of the PF's SR-IOV capability, 0 if none */
};

static const struct vgpulab_identity *identity_of(const struct vgpulab_card *card, unsigned int devfn)
{
	unsigned int i;

	for (i = 0; i < card->function_count; i++)
		if (card->functions[i].devfn == devfn)
			return &card->functions[i];
	/* The bus is the card's own, so whatever else answers there is one of its VFs (see below). */
	return card->total_vfs ? &card->identity : NULL;
}

/* The byte the board has at this place, or -1 where the real device shall speak. */
static int overlay_byte(const struct vgpulab_overlay *overlay, unsigned int devfn, int where)
{
	const struct vgpulab_card *card = overlay->card;
	const struct vgpulab_identity *identity = identity_of(card, devfn);
	int sriov = devfn == card->identity.devfn ? overlay->sriov_position : 0;

	if (!identity)
		return -1;
	/* A VF has no ids of its own: they read as ones, and the PCI core takes them from the PF. */
	if (identity == &card->identity && where < PCI_COMMAND)
		return -1;
	switch (where) {
	case PCI_VENDOR_ID:
		return identity->vendor & 0xff;
	case PCI_VENDOR_ID + 1:
		return identity->vendor >> 8;
	case PCI_DEVICE_ID:
		return identity->device & 0xff;
	case PCI_DEVICE_ID + 1:
		return identity->device >> 8;
	case PCI_REVISION_ID:
		return identity->revision;
	case PCI_CLASS_PROG:
		return identity->class & 0xff;
	case PCI_CLASS_DEVICE:
		return identity->class >> 8 & 0xff;
	case PCI_CLASS_DEVICE + 1:
		return identity->class >> 16 & 0xff;
	case PCI_SUBSYSTEM_VENDOR_ID:
		return identity->subsystem_vendor & 0xff;
	case PCI_SUBSYSTEM_VENDOR_ID + 1:
		return identity->subsystem_vendor >> 8;
	case PCI_SUBSYSTEM_ID:
		return identity->subsystem_device & 0xff;
	case PCI_SUBSYSTEM_ID + 1:
		return identity->subsystem_device >> 8;
	}
	if (!sriov)
		return -1;
	switch (where - sriov) {
	/* Both totals: the PCI core refuses a capability whose InitialVFs differs from TotalVFs. */
	case PCI_SRIOV_INITIAL_VF:
	case PCI_SRIOV_TOTAL_VF:
		return card->total_vfs & 0xff;
	case PCI_SRIOV_INITIAL_VF + 1:
	case PCI_SRIOV_TOTAL_VF + 1:
		return card->total_vfs >> 8;
	case PCI_SRIOV_VF_DID:
		return identity->device & 0xff;
	case PCI_SRIOV_VF_DID + 1:
		return identity->device >> 8;
	}
	return -1;
}

/* Nobody answers on the bus of a card that fell off it, as some tester asked for (faults.c). */
static bool has_fallen(const struct vgpulab_overlay *overlay)
{
	return READ_ONCE(overlay->card->faults.is_fallen);
}

static int overlay_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct vgpulab_overlay *overlay = container_of(bus->ops, struct vgpulab_overlay, ops);
	int ret = overlay->original->read(bus, devfn, where, size, value);
	bool is_present_known = false;
	int i, byte;
	u32 class_revision;

	if (has_fallen(overlay)) {
		PCI_SET_ERROR_RESPONSE(value);
		return 0;
	}
	if (ret)
		return ret;
	for (i = 0; i < size; i++) {
		byte = overlay_byte(overlay, devfn, where + i);
		if (byte < 0)
			continue;
		if (!is_present_known) {
			/* Not the vendor, which is all ones on a VF that is there, too. */
			ret = overlay->original->read(bus, devfn, PCI_CLASS_REVISION, 4,
						      &class_revision);
			if (ret || PCI_POSSIBLE_ERROR(class_revision))
				return ret;
			is_present_known = true;
		}
		*value &= ~(0xffU << 8 * i);
		*value |= (u32)byte << 8 * i;
	}
	return 0;
}

static int overlay_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct vgpulab_overlay *overlay = container_of(bus->ops, struct vgpulab_overlay, ops);

	return has_fallen(overlay) ? 0 : overlay->original->write(bus, devfn, where, size, value);
}

static struct pci_dev *device_of(const struct vgpulab_card *card, unsigned int devfn)
{
	return pci_get_domain_bus_and_slot(card->domain, card->bus, devfn);
}

/* Refuse a table that names devices this machine does not have, before anything is changed. */
int vgpulab_check_devices(struct list_head *cards)
{
	struct vgpulab_card *card;
	unsigned int i;

	list_for_each_entry(card, cards, node) {
		for (i = 0; i < card->function_count; i++) {
			unsigned int devfn = card->functions[i].devfn;
			struct pci_dev *pdev = device_of(card, devfn);
			int ret = 0;

			if (!pdev)
				ret = -ENODEV;
			else if (pci_is_root_bus(pdev->bus))
				ret = -EXDEV;	/* its neighbours would be taken for its functions */
			else if (!i && card->total_vfs > pci_sriov_get_totalvfs(pdev))
				ret = -ERANGE;
			pci_dev_put(pdev);
			if (ret) {
				pr_err("vgpulab: %04x:%02x:%02x.%u cannot be the %s of the table (%d)\n",
				       card->domain, card->bus, PCI_SLOT(devfn), PCI_FUNC(devfn),
				       card->name, ret);
				return ret;
			}
		}
	}
	return 0;
}

/* Take the card's functions off the bus, the card itself last. */
static void remove_functions(struct vgpulab_card *card)
{
	unsigned int i;

	for (i = card->function_count; i-- > 0;) {
		struct pci_dev *pdev = device_of(card, card->functions[i].devfn);

		if (!pdev)
			continue;
		/* The PCI core does not survive a PF that goes while its VFs stay (sriov_release). */
		if (pdev->is_physfn && pci_num_vf(pdev))
			pci_disable_sriov(pdev);
		pci_stop_and_remove_bus_device_locked(pdev);
		pci_dev_put(pdev);
	}
}

static void rescan(struct pci_bus *bus)
{
	pci_lock_rescan_remove();
	pci_rescan_bus(bus);
	pci_unlock_rescan_remove();
}

/* Give the card its identity; its driver probes it before this returns. */
int vgpulab_overlay_install(struct vgpulab_card *card)
{
	struct vgpulab_overlay *overlay;
	struct pci_dev *pdev = device_of(card, card->identity.devfn);

	if (!pdev)
		return -ENODEV;
	overlay = kzalloc(sizeof(*overlay), GFP_KERNEL);
	if (!overlay) {
		pci_dev_put(pdev);
		return -ENOMEM;
	}
	overlay->bus = pdev->bus;
	get_device(&overlay->bus->dev);
	overlay->card = card;
	overlay->sriov_position = card->total_vfs ?
		pci_find_ext_capability(pdev, PCI_EXT_CAP_ID_SRIOV) : 0;
	pci_dev_put(pdev);

	remove_functions(card);
	overlay->original = overlay->bus->ops;
	overlay->ops = *overlay->original;
	overlay->ops.read = overlay_read;
	overlay->ops.write = overlay_write;
	card->overlay = overlay;
	pci_bus_set_ops(overlay->bus, &overlay->ops);
	rescan(overlay->bus);
	return 0;
}

void vgpulab_overlay_remove(struct vgpulab_card *card)
{
	struct vgpulab_overlay *overlay = card->overlay;

	if (!overlay)
		return;
	/* With its devices gone nobody reads the bus, so the operations can be taken away. */
	remove_functions(card);
	pci_bus_set_ops(overlay->bus, overlay->original);
	synchronize_rcu();
	rescan(overlay->bus);
	put_device(&overlay->bus->dev);
	card->overlay = NULL;
	kfree(overlay);
}
