// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the driver `xe` lets an administrator say of the PF and of each VF, in the PF's folder sriov_admin.
 *
 * Source: Linux Documentation/ABI/testing/sysfs-driver-intel-xe-sriov. The values are kept and read back, and schedule
 * nothing; those of a VF end with it. A stopped VF goes on here: nothing works on it. The link `device` is missing.
 */
#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "vgpulab.h"

struct intel_profile {
	struct kobject kobj;		/* .../vfN/profile */
	struct kobject *folder;		/* .../pf, .../vfN */
	struct vgpulab_card *card;
	unsigned int number;		/* 0 for the PF */
	unsigned int exec_quantum_ms;
	unsigned int preempt_timeout_us;
	unsigned int sched_priority;	/* an index of priorities[] */
	u64 vram_quota;
	bool has_quota;			/* somebody has said vram_quota */
};

struct vgpulab_intel_admin {
	struct kobject *folder;
	struct intel_profile *of_pf;
	struct kobject bulk;		/* .bulk_profile */
	bool has_bulk;
	bool quotas_by_hand;		/* of the VFs that are there; the driver divides nothing then */
	unsigned int count;
	struct intel_profile *profiles[];
};

static struct intel_profile *profile_of(struct kobject *kobj)
{
	return container_of(kobj, struct intel_profile, kobj);
}

/* Shown and stored as a number. */
struct number_attribute {
	struct kobj_attribute base;
	size_t offset;
	unsigned int most;		/* taken for more; from memory: nobody has looked */
};

static unsigned int *number_of(struct kobject *kobj, struct kobj_attribute *attr)
{
	return (void *)profile_of(kobj) + container_of(attr, struct number_attribute, base)->offset;
}

static ssize_t number_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(*number_of(kobj, attr)));
}

static ssize_t number_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	unsigned int value;
	int ret = kstrtouint(buf, 0, &value);

	if (ret)
		return ret == -ERANGE ? -EINVAL : ret;
	WRITE_ONCE(*number_of(kobj, attr), min(value, container_of(attr, struct number_attribute, base)->most));
	return count;
}

#define NUMBER(name, max)								\
	static struct number_attribute name##_attr = {					\
		.base = __ATTR(name, 0644, number_show, number_store),			\
		.offset = offsetof(struct intel_profile, name),				\
		.most = max,								\
	}

NUMBER(exec_quantum_ms, 100000);
NUMBER(preempt_timeout_us, 100000000);

static const char *const priorities[] = { "low", "normal", "high" };

static ssize_t sched_priority_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	unsigned int now = READ_ONCE(profile_of(kobj)->sched_priority);

	return sysfs_emit(buf, "%s\n", now == 0 ? "[low] normal high" : now == 1 ? "low [normal] high" : "low normal [high]");
}

static ssize_t sched_priority_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	int found = sysfs_match_string(priorities, buf);

	if (found < 0)
		return found;
	WRITE_ONCE(profile_of(kobj)->sched_priority, found);
	return count;
}

/* The driver lets nobody change the priority of a single VF: see profile_visible(). */
static struct kobj_attribute sched_priority_attr = __ATTR_RW(sched_priority);

/* Each VF has an equal part of the card's memory, unless somebody has divided it. */
static u64 quota_of(struct intel_profile *profile)
{
	struct vgpulab_card *card = profile->card;
	unsigned int vfs = card->pdev ? pci_num_vf(card->pdev) : 0;

	if (profile->has_quota)
		return profile->vram_quota;
	if (!vfs || profile->number > vfs || (card->admin && card->admin->quotas_by_hand))
		return 0;
	return div_u64((u64)card->framebuffer_mib << 20, vfs);
}

static ssize_t vram_quota_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct intel_profile *profile = profile_of(kobj);
	u64 quota;

	mutex_lock(&profile->card->lock);
	quota = quota_of(profile);
	mutex_unlock(&profile->card->lock);
	return sysfs_emit(buf, "%llu\n", quota);
}

/* Gives some VFs this memory each; more than the card has is refused. The card is locked. */
static int set_quotas(struct vgpulab_card *card, unsigned int first, unsigned int last, u64 quota)
{
	struct vgpulab_intel_admin *admin = card->admin;
	u64 all = (u64)card->framebuffer_mib << 20, used = 0;
	unsigned int i;

	if (!admin)
		return -ENODEV;
	for (i = 1; i <= admin->count; i++) {
		u64 part = i < first || i > last ? quota_of(admin->profiles[i - 1]) : quota;

		if (part > all - used)
			return -EIO;
		used += part;
	}
	for (i = first; i <= last && i <= admin->count; i++) {
		admin->profiles[i - 1]->vram_quota = quota;
		admin->profiles[i - 1]->has_quota = true;
	}
	return 0;
}

static ssize_t vram_quota_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	struct intel_profile *profile = profile_of(kobj);
	u64 quota;
	int ret = kstrtou64(buf, 0, &quota);

	if (ret)
		return ret == -ERANGE ? -EINVAL : ret;
	mutex_lock(&profile->card->lock);
	ret = set_quotas(profile->card, profile->number, profile->number, quota);
	mutex_unlock(&profile->card->lock);
	return ret ? ret : count;
}

static struct kobj_attribute vram_quota_attr = __ATTR_RW(vram_quota);

static struct attribute *profile_attrs[] = {
	&exec_quantum_ms_attr.base.attr,
	&preempt_timeout_us_attr.base.attr,
	&sched_priority_attr.attr,
	&vram_quota_attr.attr,
	NULL
};

static umode_t profile_visible(struct kobject *kobj, struct attribute *attr, int n)
{
	bool is_pf = profile_of(kobj)->number == 0;

	if (attr == &vram_quota_attr.attr)
		return is_pf ? 0 : attr->mode;
	if (attr == &sched_priority_attr.attr)
		return is_pf ? attr->mode : 0444;
	return attr->mode;
}

static const struct attribute_group profile_group = { .attrs = profile_attrs, .is_visible = profile_visible };
__ATTRIBUTE_GROUPS(profile);

/* Work of a VF ends at once, until the VF is reset. */
static ssize_t stop_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	bool is_wanted;
	int ret = kstrtobool(buf, &is_wanted);

	if (ret)
		return ret;
	return is_wanted ? count : -EINVAL;
}

static struct kobj_attribute stop_attr = __ATTR_WO(stop);

/* .bulk_profile: the same for all VFs. */
static ssize_t bulk_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	struct vgpulab_intel_admin *admin = container_of(kobj, struct vgpulab_intel_admin, bulk);
	unsigned int i;
	ssize_t ret = admin->count ? 0 : -ENODEV;

	for (i = 0; i < admin->count; i++) {
		struct kobject *one = &admin->profiles[i]->kobj;

		if (!strcmp(attr->attr.name, "exec_quantum_ms"))
			ret = number_store(one, &exec_quantum_ms_attr.base, buf, count);
		else if (!strcmp(attr->attr.name, "preempt_timeout_us"))
			ret = number_store(one, &preempt_timeout_us_attr.base, buf, count);
		else
			ret = sched_priority_store(one, &sched_priority_attr, buf, count);
		if (ret < 0)
			break;
	}
	return ret;
}

static ssize_t bulk_quota_store(struct kobject *kobj, struct kobj_attribute *attr, const char *buf, size_t count)
{
	struct vgpulab_intel_admin *admin = container_of(kobj, struct vgpulab_intel_admin, bulk);
	struct vgpulab_card *card = admin->of_pf->card;
	u64 quota;
	int ret = kstrtou64(buf, 0, &quota);

	if (ret)
		return ret == -ERANGE ? -EINVAL : ret;
	mutex_lock(&card->lock);
	ret = card->pdev ? set_quotas(card, 1, pci_num_vf(card->pdev), quota) : -ENODEV;
	mutex_unlock(&card->lock);
	return ret ? ret : count;
}

static struct kobj_attribute bulk_quantum_attr = __ATTR(exec_quantum_ms, 0200, NULL, bulk_store);
static struct kobj_attribute bulk_timeout_attr = __ATTR(preempt_timeout_us, 0200, NULL, bulk_store);
static struct kobj_attribute bulk_priority_attr = __ATTR(sched_priority, 0200, NULL, bulk_store);
static struct kobj_attribute bulk_quota_attr = __ATTR(vram_quota, 0200, NULL, bulk_quota_store);

static struct attribute *bulk_attrs[] = {
	&bulk_quantum_attr.attr,
	&bulk_timeout_attr.attr,
	&bulk_priority_attr.attr,
	&bulk_quota_attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(bulk);

/* Lies in the admin, which frees it. */
static void bulk_release(struct kobject *kobj)
{
}

static struct kobj_type bulk_type = {
	.release = bulk_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = bulk_groups,
};

static void profile_release(struct kobject *kobj)
{
	kfree(profile_of(kobj));
}

static struct kobj_type profile_type = {
	.release = profile_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = profile_groups,
};

static struct intel_profile *add_profile(struct vgpulab_card *card, struct kobject *parent, unsigned int number)
{
	struct intel_profile *profile = kzalloc(sizeof(*profile), GFP_KERNEL);
	char name[16];

	if (!profile)
		return NULL;
	if (number)
		snprintf(name, sizeof(name), "vf%u", number);
	else
		snprintf(name, sizeof(name), "pf");
	profile->card = card;
	profile->number = number;
	profile->folder = kobject_create_and_add(name, parent);
	if (!profile->folder) {
		kfree(profile);
		return NULL;
	}
	if (kobject_init_and_add(&profile->kobj, &profile_type, profile->folder, "profile")) {
		kobject_put(profile->folder);
		kobject_put(&profile->kobj);
		return NULL;
	}
	if (number && sysfs_create_file(profile->folder, &stop_attr.attr))
		pr_warn("vgpulab: vf%u has no file stop\n", number);
	return profile;
}

/* The folder of all VFs that the card can have. NULL if there is no memory for it: the driver binds without. */
struct vgpulab_intel_admin *vgpulab_intel_admin_add(struct vgpulab_card *card, struct pci_dev *pdev)
{
	struct vgpulab_intel_admin *admin = kzalloc(struct_size(admin, profiles, card->total_vfs), GFP_KERNEL);

	if (!admin)
		return NULL;
	admin->folder = kobject_create_and_add("sriov_admin", &pdev->dev.kobj);
	if (!admin->folder)
		return admin;
	admin->of_pf = add_profile(card, admin->folder, 0);
	if (admin->of_pf) {
		admin->has_bulk = true;
		if (kobject_init_and_add(&admin->bulk, &bulk_type, admin->folder, ".bulk_profile"))
			pr_warn("vgpulab: sriov_admin has no folder .bulk_profile\n");
	}
	while (admin->count < card->total_vfs) {
		admin->profiles[admin->count] = add_profile(card, admin->folder, admin->count + 1);
		if (!admin->profiles[admin->count])
			break;
		admin->count++;
	}
	return admin;
}

/* The driver's own values, as after its VFs have gone. */
void vgpulab_intel_admin_reset(struct vgpulab_intel_admin *admin)
{
	unsigned int i;

	for (i = 0; admin && i < admin->count; i++) {
		WRITE_ONCE(admin->profiles[i]->exec_quantum_ms, 0);
		WRITE_ONCE(admin->profiles[i]->preempt_timeout_us, 0);
		WRITE_ONCE(admin->profiles[i]->sched_priority, 0);
		admin->profiles[i]->has_quota = false;
	}
	if (admin)
		admin->quotas_by_hand = false;
}

static void remove_profile(struct intel_profile *profile)
{
	struct kobject *folder = profile->folder;

	kobject_put(&profile->kobj);
	kobject_put(folder);
}

void vgpulab_intel_admin_remove(struct vgpulab_intel_admin *admin)
{
	if (!admin)
		return;
	if (admin->has_bulk)
		kobject_put(&admin->bulk);
	while (admin->count)
		remove_profile(admin->profiles[--admin->count]);
	if (admin->of_pf)
		remove_profile(admin->of_pf);
	kobject_put(admin->folder);
	kfree(admin);
}

/* Called before VFs are enabled: memory that somebody has divided by then, the driver leaves as it is. */
void vgpulab_intel_admin_enable(struct vgpulab_intel_admin *admin)
{
	unsigned int i;

	for (i = 0; admin && i < admin->count; i++)
		admin->quotas_by_hand |= admin->profiles[i]->has_quota;
}
