// SPDX-License-Identifier: GPL-2.0-only
/*
 * The card table: which PCI device is which board. Boards are data, written by the lab
 * from its catalogue; README.md has the format.
 */
#include <linux/ctype.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "vgpulab.h"

/* Filled once, emptied when the module goes: readers need no lock once cards are published. */
static LIST_HEAD(published_cards);

static const char * const interface_names[] = {
	[VGPULAB_NONE] = "none",
	[VGPULAB_MDEV_PF] = "mdev-pf",
	[VGPULAB_MDEV_VF] = "mdev-vf",
	[VGPULAB_VF_PROFILE] = "vf-profile",
	[VGPULAB_VF] = "vf",
};

const char *vgpulab_interface_name(enum vgpulab_interface interface)
{
	return interface_names[interface];
}

static bool has_vfs(const struct vgpulab_card *card)
{
	return card->interface == VGPULAB_MDEV_VF || card->interface == VGPULAB_VF_PROFILE ||
	       card->interface == VGPULAB_VF;
}

/* The driver that the card's PF belongs on. */
const char *vgpulab_driver_name(const struct vgpulab_card *card)
{
	return card->interface == VGPULAB_VF ? vgpulab_intel_pci_driver.name : vgpulab_pci_driver.name;
}

static struct vgpulab_card *new_card(void)
{
	struct vgpulab_card *card = kzalloc(sizeof(*card), GFP_KERNEL);

	if (!card)
		return NULL;
	card->types = kcalloc(VGPULAB_MAX_TYPES, sizeof(*card->types), GFP_KERNEL);
	if (!card->types) {
		kfree(card);
		return NULL;
	}
	mutex_init(&card->lock);
	INIT_LIST_HEAD(&card->vgpus);
	INIT_LIST_HEAD(&card->processes);
	card->scheduler = (struct vgpulab_scheduler){ .policy = 1, .slice_us = 2000, .frequency = 480 };
	init_waitqueue_head(&card->idle);
	return card;
}

static int parse_card(char *line, struct list_head *cards)
{
	struct vgpulab_card *card = new_card();
	struct vgpulab_card *other;
	char *address = strsep(&line, " \t");
	int ret;

	if (!card)
		return -ENOMEM;
	/* On the list at once: what was allocated is freed with the list, whatever goes wrong. */
	list_add_tail(&card->node, cards);
	ret = vgpulab_parse_address(address, &card->domain, &card->bus, &card->identity.devfn);
	if (!ret)
		ret = vgpulab_parse_card_keys(card, line);
	if (ret)
		return ret;
	if (!card->name || !card->identity.vendor || !card->identity.class)
		return -EINVAL;
	if (has_vfs(card) != (card->total_vfs != 0))
		return -EINVAL;
	if (card->mig && (!card->mig->slots || !card->mig->slices))
		return -EINVAL;
	/* Drivers choose by vendor, so an interface belongs to one. */
	if ((card->interface == VGPULAB_VF) != (card->identity.vendor == PCI_VENDOR_ID_INTEL))
		return -EINVAL;
	list_for_each_entry(other, cards, node) {
		if (other == card)
			break;
		/* One card a bus: the overlay takes every other function there for a VF of it. */
		if (other->domain == card->domain && other->bus == card->bus)
			return -EEXIST;
		if (other->interface != VGPULAB_VF)
			card->index++;
	}
	if (card->index >= VGPULAB_MAX_CARDS)
		return -ENOSPC;
	card->functions[0] = card->identity;
	card->function_count = 1;
	return 0;
}

static int parse_type(char *line, struct vgpulab_card *card)
{
	struct vgpulab_type *type;
	char *number = strsep(&line, " \t");
	unsigned int i;
	int ret;

	if (card->interface == VGPULAB_NONE || card->interface == VGPULAB_VF)
		return -EINVAL;
	if (card->type_count == VGPULAB_MAX_TYPES)
		return -ENOSPC;
	type = &card->types[card->type_count++];
	type->heads = 1;
	type->frame_rate_limit = 60;
	type->guest_device = card->identity.device;
	type->guest_subsystem = card->identity.subsystem_device;
	ret = kstrtouint(number, 10, &type->id);
	if (!ret)
		ret = vgpulab_parse_type_keys(type, line);
	if (ret)
		return ret;
	if (!type->id || !type->name)
		return -EINVAL;
	for (i = 0; i + 1 < card->type_count; i++)
		if (card->types[i].id == type->id)
			return -EEXIST;
	return 0;
}

static int parse_companion(char *line, struct vgpulab_card *card)
{
	struct vgpulab_identity *identity;
	char *address = strsep(&line, " \t");
	int domain, ret;
	u8 bus;

	/* Functions of one slot; a card with VFs has those at the neighbouring addresses. */
	if (card->total_vfs || card->function_count == VGPULAB_MAX_FUNCTIONS)
		return -EINVAL;
	identity = &card->functions[card->function_count];
	ret = vgpulab_parse_address(address, &domain, &bus, &identity->devfn);
	if (!ret)
		ret = vgpulab_parse_companion_keys(identity, line);
	if (ret)
		return ret;
	if (domain != card->domain || bus != card->bus || !identity->vendor || !identity->class)
		return -EINVAL;
	card->function_count++;
	return 0;
}

static int compare_types(const void *left, const void *right)
{
	const struct vgpulab_type *a = left, *b = right;

	return a->id < b->id ? -1 : a->id > b->id;
}

/* Parse the whole table. On failure the log names the line, and *cards holds what to free. */
int vgpulab_parse_cards(char *text, struct list_head *cards)
{
	struct vgpulab_card *card;
	unsigned int number = 0;
	char *line;
	int ret = 0;

	while (!ret && (line = strsep(&text, "\n"))) {
		struct vgpulab_card *last = list_empty(cards) ? NULL :
			list_last_entry(cards, struct vgpulab_card, node);
		char *word;

		number++;
		line = strim(line);
		if (!*line || *line == '#')
			continue;
		word = strsep(&line, " \t");
		if (!line)
			ret = -EINVAL;
		else if (!strcmp(word, "card"))
			ret = parse_card(skip_spaces(line), cards);
		else if (!strcmp(word, "type") && last)
			ret = parse_type(skip_spaces(line), last);
		else if (!strcmp(word, "companion") && last)
			ret = parse_companion(skip_spaces(line), last);
		else if (!strcmp(word, "gi") && last)
			ret = vgpulab_parse_gi(last, skip_spaces(line));
		else if (!strcmp(word, "ci") && last)
			ret = vgpulab_parse_ci(last, skip_spaces(line));
		else
			ret = -EINVAL;
	}
	if (ret) {
		pr_err("vgpulab: line %u of the card table is wrong (%d)\n", number, ret);
		return ret == -ENOMEM ? ret : -EINVAL;
	}
	list_for_each_entry(card, cards, node)
		sort(card->types, card->type_count, sizeof(*card->types), compare_types, NULL);
	return 0;
}

void vgpulab_free_cards(struct list_head *cards)
{
	struct vgpulab_card *card, *next;
	unsigned int i;

	list_for_each_entry_safe(card, next, cards, node) {
		list_del(&card->node);
		for (i = 0; i < card->type_count; i++)
			kfree(card->types[i].name);
		kfree(card->types);
		kfree(card->name);
		kfree(card->uuid);
		vgpulab_forget_instances_locked(card);
		kvfree(card->mig);
		mutex_destroy(&card->lock);
		kfree(card);
	}
}

/* Make the cards known to the driver's probe. Called under the lock of /proc/vgpulab/cards. */
int vgpulab_publish_cards(struct list_head *cards)
{
	if (!list_empty(&published_cards))
		return -EBUSY;
	list_splice_tail_init(cards, &published_cards);
	return 0;
}

void vgpulab_forget_cards(void)
{
	vgpulab_free_cards(&published_cards);
}

struct list_head *vgpulab_cards(void)
{
	return &published_cards;
}

/* The card of a PF, or of a VF through its PF; NULL for a device that is not in the table. */
struct vgpulab_card *vgpulab_card_of(struct pci_dev *pdev)
{
	struct pci_dev *physical = pci_physfn(pdev);
	struct vgpulab_card *card;

	list_for_each_entry(card, &published_cards, node)
		if (card->domain == pci_domain_nr(physical->bus) &&
		    card->bus == physical->bus->number &&
		    card->identity.devfn == physical->devfn)
			return card;
	return NULL;
}

/* The card of /dev/nvidiaN. */
struct vgpulab_card *vgpulab_card_by_index(unsigned int index)
{
	struct vgpulab_card *card;

	list_for_each_entry(card, &published_cards, node)
		if (card->interface != VGPULAB_VF && card->index == index)
			return card;
	return NULL;
}

/* The card of a PF's address as sysfs writes it. */
struct vgpulab_card *vgpulab_card_by_name(const char *address)
{
	struct vgpulab_card *card;
	unsigned int devfn;
	int domain;
	u8 bus;

	if (vgpulab_parse_address(address, &domain, &bus, &devfn))
		return NULL;
	list_for_each_entry(card, &published_cards, node)
		if (card->domain == domain && card->bus == bus && card->identity.devfn == devfn)
			return card;
	return NULL;
}

const struct vgpulab_type *vgpulab_find_type(const struct vgpulab_card *card, unsigned int id)
{
	unsigned int i;

	for (i = 0; i < card->type_count; i++)
		if (card->types[i].id == id)
			return &card->types[i];
	return NULL;
}
