// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the driver `xe` lets an administrator say of each VF, in sriov_admin/vfN/profile of the PF.
 *
 * Source: Linux Documentation/ABI/testing/sysfs-driver-intel-xe-sriov. The values are kept and read back, and schedule
 * nothing; those of a VF end with it. bulk_profile, stop and the PF's own folder do not exist here.
 */
#include <linux/kobject.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "vgpulab.h"

struct intel_profile {
	struct kobject kobj;		/* .../vfN/profile */
	struct kobject *folder;		/* .../vfN */
	struct vgpulab_card *card;
	unsigned int exec_quantum_ms;
	unsigned int preempt_timeout_us;
};

struct vgpulab_intel_admin {
	struct kobject *folder;
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

/* The driver lets nobody change the priority of a VF. */
static ssize_t sched_priority_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "[low] normal high\n");
}

static struct kobj_attribute sched_priority_attr = __ATTR_RO(sched_priority);

/* Each VF has an equal part of the card's memory, and none of it can be moved here. */
static ssize_t vram_quota_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct vgpulab_card *card = profile_of(kobj)->card;
	unsigned int vfs;

	mutex_lock(&card->lock);
	vfs = card->pdev ? pci_num_vf(card->pdev) : 0;
	mutex_unlock(&card->lock);
	return sysfs_emit(buf, "%llu\n", vfs ? div_u64((u64)card->framebuffer_mib << 20, vfs) : 0);
}

static struct kobj_attribute vram_quota_attr = __ATTR_RO(vram_quota);

static struct attribute *profile_attrs[] = {
	&exec_quantum_ms_attr.base.attr,
	&preempt_timeout_us_attr.base.attr,
	&sched_priority_attr.attr,
	&vram_quota_attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(profile);

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
	snprintf(name, sizeof(name), "vf%u", number);
	profile->card = card;
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
	return profile;
}

/* The folder of all VFs that the card can have. NULL if there is no memory for it: the driver binds without. */
struct vgpulab_intel_admin *vgpulab_intel_admin_add(struct vgpulab_card *card, struct pci_dev *pdev)
{
	struct vgpulab_intel_admin *admin = kzalloc(struct_size(admin, profiles, card->total_vfs), GFP_KERNEL);

	if (!admin)
		return NULL;
	admin->folder = kobject_create_and_add("sriov_admin", &pdev->dev.kobj);
	while (admin->folder && admin->count < card->total_vfs) {
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
	}
}

void vgpulab_intel_admin_remove(struct vgpulab_intel_admin *admin)
{
	if (!admin)
		return;
	while (admin->count) {
		struct intel_profile *profile = admin->profiles[--admin->count];
		struct kobject *folder = profile->folder;

		kobject_put(&profile->kobj);
		kobject_put(folder);
	}
	kobject_put(admin->folder);
	kfree(admin);
}
