// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keys of the card table's lines; README.md has the format.
 *
 * A key that is not known here is for another reader of the table, such as NVML's library.
 */
#include <linux/ctype.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "vgpulab.h"

static int parse_identity_pair(const char *value, u16 *first, u16 *second)
{
	return sscanf(value, "%4hx:%4hx", first, second) == 2 ? 0 : -EINVAL;
}

int vgpulab_parse_address(const char *value, int *domain, u8 *bus, unsigned int *devfn)
{
	unsigned int number, bus_number, slot, function;

	if (sscanf(value, "%4x:%2x:%2x.%1u", &number, &bus_number, &slot, &function) != 4)
		return -EINVAL;
	if (slot > 0x1f || function > 7)
		return -EINVAL;
	*domain = number;
	*bus = bus_number;
	*devfn = PCI_DEVFN(slot, function);
	return 0;
}

/* Cut the next `key=value` off a line; the value of `name` is the rest of the line. */
bool vgpulab_next_pair(char **line, char **key, char **value)
{
	char *text = *line ? skip_spaces(*line) : NULL;
	char *equals = text ? strchr(text, '=') : NULL;

	if (!equals)
		return false;
	*equals = '\0';
	*key = text;
	*value = equals + 1;
	if (!strcmp(*key, "name")) {
		*line = NULL;
		return true;
	}
	*line = *value;
	strsep(line, " \t");
	return true;
}

/* Store a copy, in place of one that an earlier key left. */
static int copy_text(const char **where, const char *value)
{
	kfree(*where);
	*where = kstrdup(value, GFP_KERNEL);
	return *where ? 0 : -ENOMEM;
}

static int parse_identity_key(struct vgpulab_identity *identity, const char *key, const char *value)
{
	if (!strcmp(key, "device"))
		return parse_identity_pair(value, &identity->vendor, &identity->device);
	if (!strcmp(key, "subsystem"))
		return parse_identity_pair(value, &identity->subsystem_vendor,
					   &identity->subsystem_device);
	if (!strcmp(key, "class"))
		return kstrtou32(value, 16, &identity->class);
	if (!strcmp(key, "revision"))
		return kstrtou8(value, 16, &identity->revision);
	return 0;
}

static enum placement_layout layout_of(const char *architecture)
{
	if (!strcmp(architecture, "ada") || !strcmp(architecture, "hopper"))
		return PLACEMENT_HALVES_ADA;
	return strcmp(architecture, "blackwell") ? PLACEMENT_HALVES : PLACEMENT_EVEN;
}

static struct vgpulab_mig *mig_of(struct vgpulab_card *card)
{
	if (!card->mig) {
		card->mig = kvzalloc(sizeof(*card->mig), GFP_KERNEL);
		if (card->mig)
			INIT_LIST_HEAD(&card->mig->instances);
	}
	return card->mig;
}

/* Keys of MIG; -ENOENT for another key. A board with mig=0 may have them all the same. */
static int parse_mig_key(struct vgpulab_card *card, const char *key, const char *value)
{
	bool is_slots = !strcmp(key, "slots"), is_slices = !strcmp(key, "slices");
	bool is_reset = !strcmp(key, "mig_reset"), is_mode = !strcmp(key, "mig_mode");
	struct vgpulab_mig *mig;
	int ret;

	if (!is_slots && !is_slices && !is_reset && !is_mode)
		return -ENOENT;
	mig = mig_of(card);
	if (!mig)
		return -ENOMEM;
	if (is_slots)
		return kstrtouint(value, 10, &mig->slots);
	if (is_slices)
		return kstrtouint(value, 10, &mig->slices);
	if (is_reset)
		return kstrtobool(value, &mig->needs_reset);
	ret = kstrtobool(value, &mig->mode);
	mig->pending = mig->mode;
	return ret;
}

static int parse_card_key(struct vgpulab_card *card, const char *key, const char *value)
{
	int ret = parse_mig_key(card, key, value);

	if (ret != -ENOENT)
		return ret;
	if (!strcmp(key, "framebuffer"))
		return kstrtouint(value, 10, &card->framebuffer_mib);
	if (!strcmp(key, "vfs"))
		return kstrtouint(value, 10, &card->total_vfs);
	if (!strcmp(key, "hetero"))
		return kstrtobool(value, &card->has_heterogeneous);
	if (!strcmp(key, "architecture"))
		card->layout = layout_of(value);
	if (!strcmp(key, "uuid"))
		return copy_text(&card->uuid, value);
	if (!strcmp(key, "name"))
		return copy_text(&card->name, value);
	if (!strcmp(key, "interface")) {
		for (card->interface = 0; card->interface <= VGPULAB_VF; card->interface++)
			if (!strcmp(value, vgpulab_interface_name(card->interface)))
				return 0;
		return -EINVAL;
	}
	return parse_identity_key(&card->identity, key, value);
}

int vgpulab_parse_card_keys(struct vgpulab_card *card, char *line)
{
	char *key, *value;
	bool has_mig = false;
	int ret = 0;

	while (!ret && vgpulab_next_pair(&line, &key, &value))
		ret = strcmp(key, "mig") ? parse_card_key(card, key, value) :
					   kstrtobool(value, &has_mig);
	if (!ret && has_mig && !mig_of(card))
		ret = -ENOMEM;
	if (!has_mig) {
		kvfree(card->mig);
		card->mig = NULL;
	}
	return ret;
}

int vgpulab_parse_companion_keys(struct vgpulab_identity *identity, char *line)
{
	char *key, *value;
	int ret = 0;

	while (!ret && vgpulab_next_pair(&line, &key, &value))
		ret = parse_identity_key(identity, key, value);
	return ret;
}

static int parse_type_key(struct vgpulab_type *type, const char *key, const char *value)
{
	if (!strcmp(key, "framebuffer"))
		return kstrtouint(value, 10, &type->rules.framebuffer_mib);
	if (!strcmp(key, "max"))
		return kstrtouint(value, 10, &type->rules.max_instances);
	if (!strcmp(key, "placement"))
		return kstrtouint(value, 10, &type->rules.placement_size);
	if (!strcmp(key, "gi"))
		return kstrtoint(value, 10, &type->rules.gi_profile);
	if (!strcmp(key, "per_gi"))
		return kstrtouint(value, 10, &type->rules.per_gi);
	if (!strcmp(key, "heads"))
		return kstrtouint(value, 10, &type->heads);
	if (!strcmp(key, "frl"))
		return kstrtouint(value, 10, &type->frame_rate_limit);
	if (!strcmp(key, "resolution"))
		return sscanf(value, "%ux%u", &type->width, &type->height) == 2 ? 0 : -EINVAL;
	if (!strcmp(key, "vdev"))
		return parse_identity_pair(value, &type->guest_device, &type->guest_subsystem);
	return strcmp(key, "name") ? 0 : copy_text(&type->name, value);
}

int vgpulab_parse_type_keys(struct vgpulab_type *type, char *line)
{
	struct rules_type *rules = &type->rules;
	char *key, *value;
	int ret = 0;

	rules->gi_profile = -1;
	while (!ret && vgpulab_next_pair(&line, &key, &value))
		ret = parse_type_key(type, key, value);
	if (ret)
		return ret;
	if (!rules->framebuffer_mib || !rules->max_instances || (rules->gi_profile >= 0 && !rules->per_gi))
		return -EINVAL;
	if (!rules->placement_size)
		rules->placement_size = max(rules->framebuffer_mib / 1024, 1U);
	return 0;
}

static int parse_starts(struct mig_profile *profile, char *value)
{
	char *word;

	while ((word = strsep(&value, ","))) {
		unsigned int *start = &profile->starts[profile->start_count];

		if (profile->start_count == MIG_MAX_STARTS || kstrtouint(word, 10, start))
			return -EINVAL;
		if (profile->start_count++ && start[0] <= start[-1])
			return -EINVAL;
	}
	return 0;
}

/* gi: where the key of this name goes, NULL for a line that has none. */
static int parse_profile(struct mig_profile *profile, char *line, unsigned int *gi)
{
	char *number = strsep(&line, " \t");
	char *key, *value;
	int ret = kstrtouint(number, 10, &profile->id);

	while (!ret && vgpulab_next_pair(&line, &key, &value)) {
		if (!strcmp(key, "slices"))
			ret = kstrtouint(value, 10, &profile->slices);
		else if (!strcmp(key, "size"))
			ret = kstrtouint(value, 10, &profile->size);
		else if (!strcmp(key, "max"))
			ret = kstrtouint(value, 10, &profile->max);
		else if (!strcmp(key, "base"))
			ret = kstrtouint(value, 10, &profile->base);
		else if (!strcmp(key, "me"))
			ret = kstrtobool(value, &profile->takes_media);
		else if (!strcmp(key, "starts"))
			ret = parse_starts(profile, value);
		else if (!strcmp(key, "gi") && gi)
			ret = kstrtouint(value, 10, gi);
	}
	if (!profile->size)
		profile->size = profile->slices;
	if (!ret && (!profile->slices || !profile->max || !profile->start_count))
		ret = -EINVAL;
	return ret;
}

static int find_profile(const struct mig_profile *profiles, unsigned int count, unsigned int id)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (profiles[i].id == id)
			return i;
	return -1;
}

int vgpulab_parse_gi(struct vgpulab_card *card, char *line)
{
	struct vgpulab_mig *mig = card->mig;
	struct mig_profile *profile;
	int ret;

	if (!mig)
		return -EINVAL;
	if (mig->profile_count == VGPULAB_MAX_GI_PROFILES)
		return -ENOSPC;
	profile = &mig->profiles[mig->profile_count];
	ret = parse_profile(profile, line, NULL);
	if (ret)
		return ret;
	if (find_profile(mig->profiles, mig->profile_count, profile->id) >= 0)
		return -EEXIST;
	mig->profile_count++;
	return 0;
}

int vgpulab_parse_ci(struct vgpulab_card *card, char *line)
{
	struct vgpulab_mig *mig = card->mig;
	struct mig_profile profile = { };
	unsigned int gi = UINT_MAX;
	int ret, index;

	ret = parse_profile(&profile, line, &gi);
	if (ret)
		return ret;
	index = mig ? find_profile(mig->profiles, mig->profile_count, gi) : -1;
	if (index < 0)
		return -EINVAL;
	if (mig->compute_count[index] == VGPULAB_MAX_CI_PROFILES)
		return -ENOSPC;
	if (find_profile(mig->compute[index], mig->compute_count[index], profile.id) >= 0)
		return -EEXIST;
	mig->compute[index][mig->compute_count[index]++] = profile;
	return 0;
}
