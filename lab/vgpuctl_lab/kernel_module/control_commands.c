// SPDX-License-Identifier: GPL-2.0-only
/* The commands of /proc/vgpulab/control; README.md has them. Each runs under its card's lock. */
#include "control.h"

int control_number(const struct command *command, unsigned int index, unsigned int *value)
{
	if (index >= command->count || kstrtouint(command->words[index], 0, value))
		return -EINVAL;
	return 0;
}

/* A number, or `-` for -1. */
static int number_or_none(const struct command *command, unsigned int index, int *value)
{
	if (index < command->count && !strcmp(command->words[index], "-")) {
		*value = -1;
		return 0;
	}
	return index >= command->count || kstrtoint(command->words[index], 0, value) || *value < 0 ? -EINVAL : 0;
}

/* The value of a last word `gi=ID`, -1 without. */
static int optional_gi(const struct command *command, unsigned int index, int *gi)
{
	*gi = -1;
	if (index >= command->count)
		return 0;
	if (strncmp(command->words[index], "gi=", 3) || kstrtoint(command->words[index] + 3, 0, gi) || *gi < 0)
		return -EINVAL;
	return 0;
}

/* `A,B,C`, or `-` when nothing was said since. */
static void say_none_if_empty(struct control *control, size_t before)
{
	if (control->length == before)
		control_say(control, "-");
}

static void say_item(struct control *control, size_t before, unsigned int item)
{
	control_say(control, "%s%u", control->length == before ? "" : ",", item);
}

static int run_mig_mode(struct command *command)
{
	struct vgpulab_card *card = command->card;
	unsigned int mode;
	int activation;
	int ret = control_number(command, 2, &mode);

	if (ret || mode > 1)
		return -EINVAL;
	ret = vgpulab_set_mig_mode_locked(card, mode, &activation);
	if (!ret)
		control_say(command->control, " current=%d pending=%d activation=%d", card->mig->mode,
		    card->mig->pending, activation);
	return ret;
}

static int run_reset(struct command *command)
{
	return vgpulab_reset_locked(command->card);
}

static int run_gi_create(struct command *command)
{
	struct vgpulab_gpu_instance *created;
	unsigned int profile;
	int start, ret;

	if (control_number(command, 2, &profile) || number_or_none(command, 3, &start))
		return -EINVAL;
	ret = vgpulab_create_instance_locked(command->card, profile, start, &created);
	if (!ret)
		control_say(command->control, " id=%u start=%u", created->id, created->start);
	return ret;
}

static int run_gi_destroy(struct command *command)
{
	unsigned int id;

	return control_number(command, 2, &id) ?: vgpulab_destroy_instance_locked(command->card, id);
}

static int run_ci_create(struct command *command)
{
	struct vgpulab_compute_instance *created;
	unsigned int gi, profile;
	int start, ret;

	if (control_number(command, 2, &gi) || control_number(command, 3, &profile) || number_or_none(command, 4, &start))
		return -EINVAL;
	ret = vgpulab_create_compute_locked(command->card, gi, profile, start, &created);
	if (!ret)
		control_say(command->control, " id=%u start=%u", created->id, created->start);
	return ret;
}

static int run_ci_destroy(struct command *command)
{
	unsigned int gi, id;

	if (control_number(command, 2, &gi) || control_number(command, 3, &id))
		return -EINVAL;
	return vgpulab_destroy_compute_locked(command->card, gi, id);
}

/* How many more of a profile fit, and where one could begin. */
static int say_remaining(struct control *control, const struct mig_space *space, unsigned int id)
{
	const struct mig_profile *profile = vgpulab_find_profile(space, id);
	size_t before;
	unsigned int i;

	if (!profile)
		return NVML_INVALID_ARGUMENT;
	control_say(control, " count=%u starts=", mig_remaining(space, profile));
	before = control->length;
	for (i = 0; i < profile->start_count; i++)
		if (mig_fits_at(space, profile, profile->starts[i]))
			say_item(control, before, profile->starts[i]);
	say_none_if_empty(control, before);
	return 0;
}

static int run_gi_remaining(struct command *command)
{
	struct vgpulab_mig *mig = command->card->mig;
	struct mig_space space;
	unsigned int profile;

	if (control_number(command, 2, &profile))
		return -EINVAL;
	if (!mig || !mig->mode)
		return NVML_NOT_SUPPORTED;
	vgpulab_gpu_space_locked(mig, &space);
	return say_remaining(command->control, &space, profile);
}

static int run_ci_remaining(struct command *command)
{
	struct vgpulab_mig *mig = command->card->mig;
	struct vgpulab_gpu_instance *instance;
	struct mig_space space;
	unsigned int gi, profile;

	if (control_number(command, 2, &gi) || control_number(command, 3, &profile))
		return -EINVAL;
	if (!mig || !mig->mode)
		return NVML_NOT_SUPPORTED;
	instance = vgpulab_find_instance_locked(command->card, gi);
	if (!instance)
		return NVML_NOT_FOUND;
	vgpulab_instance_space(mig, instance, &space);
	return say_remaining(command->control, &space, profile);
}

static int find_pool(const struct command *command, int gi, const struct rules_pool **pool)
{
	const struct rules_gpu *rules = vgpulab_rules_locked(command->card);
	unsigned int i;

	*pool = &rules->pool;
	if (gi < 0)
		return 0;
	for (i = 0; i < rules->instance_count; i++) {
		*pool = &rules->instances[i].pool;
		if ((int)rules->instances[i].id == gi)
			return 0;
	}
	return NVML_NOT_FOUND;
}

/* Types that some function could take if it is free; of one instance, or of all. */
static int run_creatable(struct command *command)
{
	struct vgpulab_card *card = command->card;
	struct vgpulab_gpu_instance *instance;
	const struct rules_instance *chosen;
	const struct rules_pool *pool;
	const struct rules_gpu *rules;
	unsigned int i;
	size_t before;
	int gi, ret;

	if (optional_gi(command, 2, &gi))
		return -EINVAL;
	ret = find_pool(command, gi, &pool);
	if (ret)
		return ret;
	rules = &card->rules;
	instance = gi < 0 ? NULL : vgpulab_find_instance_locked(card, gi);
	control_say(command->control, " types=");
	before = command->control->length;
	for (i = 0; i < card->type_count; i++) {
		const struct rules_type *type = &card->types[i].rules;
		bool is_creatable = instance ? type->gi_profile == (int)instance->profile->id &&
					       pool_status(pool, type) == RM_OK :
					       gpu_status(rules, type, &chosen) == RM_OK;

		if (is_creatable)
			say_item(command->control, before, card->types[i].id);
	}
	say_none_if_empty(command->control, before);
	return 0;
}

static void say_placements(struct control *control, const struct placement_set *set,
			   const struct rules_pool *pool, unsigned int size)
{
	size_t before = control->length;
	unsigned int i;

	for (i = 0; i < PLACEMENT_MAX_REGION; i++)
		if (placement_in(set, i) && (!pool || pool_placement_is_free(pool, i, size)))
			say_item(control, before, i);
	say_none_if_empty(control, before);
}

/* Where a type may begin in mixed-size mode, and where it can now. */
static int run_placements(struct command *command)
{
	const struct vgpulab_type *type;
	const struct rules_pool *pool;
	struct placement_set set;
	unsigned int id;
	int gi, ret;

	if (control_number(command, 2, &id) || optional_gi(command, 3, &gi))
		return -EINVAL;
	type = vgpulab_find_type(command->card, id);
	if (!type)
		return NVML_INVALID_ARGUMENT;
	if (!command->card->has_heterogeneous || (gi < 0) != (type->rules.gi_profile < 0))
		return NVML_NOT_SUPPORTED;
	ret = find_pool(command, gi, &pool);
	if (ret)
		return ret;
	pool_supported(pool, &type->rules, &set);
	control_say(command->control, " size=%u supported=", type->rules.placement_size);
	say_placements(command->control, &set, NULL, 0);
	control_say(command->control, " creatable=");
	say_placements(command->control, &set, pool, type->rules.placement_size);
	return 0;
}

static int run_heterogeneous(struct command *command)
{
	unsigned int mode;
	int gi;

	if (control_number(command, 2, &mode) || mode > 1 || optional_gi(command, 3, &gi))
		return -EINVAL;
	return vgpulab_set_heterogeneous_locked(command->card, mode, gi);
}

static int run_scheduler(struct command *command)
{
	struct vgpulab_scheduler wanted = command->card->scheduler;
	unsigned int i;

	for (i = 2; i < command->count; i++) {
		char *value = command->words[i];
		char *key = strsep(&value, "=");
		unsigned int *field = NULL;

		if (!strcmp(key, "policy"))
			field = &wanted.policy;
		else if (!strcmp(key, "arr"))
			field = &wanted.arr;
		else if (!strcmp(key, "slice_us"))
			field = &wanted.slice_us;
		else if (!strcmp(key, "frequency"))
			field = &wanted.frequency;
		if (!field || !value || kstrtouint(value, 0, field))
			return -EINVAL;
	}
	return vgpulab_set_scheduler_locked(command->card, &wanted);
}

static int run_fault(struct command *command)
{
	unsigned int value;

	if (control_number(command, 3, &value))
		return -EINVAL;
	return vgpulab_set_fault_locked(command->card, command->words[2], value);
}

const struct control_command control_commands[] = {
	{ "mig-mode", run_mig_mode, true },
	{ "reset", run_reset, true },
	{ "gi-create", run_gi_create, true },
	{ "gi-destroy", run_gi_destroy, true },
	{ "gi-remaining", run_gi_remaining },
	{ "ci-create", run_ci_create, true },
	{ "ci-destroy", run_ci_destroy, true },
	{ "ci-remaining", run_ci_remaining },
	{ "creatable", run_creatable },
	{ "placements", run_placements },
	{ "heterogeneous", run_heterogeneous, true },
	{ "scheduler", run_scheduler, true },
	{ "fault", run_fault, true, true },
	{ }
};
