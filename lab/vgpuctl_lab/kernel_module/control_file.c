// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/vgpulab/control: one command line in, one answer out. README.md has the commands.
 *
 * Every command runs under its card's lock, so two tools never see half of what a third does.
 */
#include <linux/capability.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "control.h"

#define MOST_TEXT	160

void control_say(struct control *control, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	control->length += vscnprintf(control->answer + control->length,
				      sizeof(control->answer) - control->length, format, arguments);
	va_end(arguments);
}

static const char *text_of(int code)
{
	switch (code) {
	case NVML_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_NO_PERMISSION:
		return "Insufficient Permissions";
	case NVML_NOT_FOUND:
		return "Not Found";
	case NVML_GPU_IS_LOST:
		return "GPU is lost";
	case NVML_IN_USE:
		return "In use by another client";
	case NVML_INSUFFICIENT_RESOURCES:
		return "Insufficient Resources";
	case NVML_GPU_NOT_FOUND:
		return "GPU not found";
	default:
		return "Unknown Error";
	}
}

/* Use a GPU instance until the file closes or another is used. It takes the card's lock itself. */
static int attach(struct command *command)
{
	struct vgpulab_process *process;
	unsigned int gi;

	if (control_number(command, 2, &gi))
		return -EINVAL;
	process = vgpulab_process_add(command->card, gi);
	if (IS_ERR(process)) {
		switch (PTR_ERR(process)) {
		case -ENXIO:
			return NVML_NOT_FOUND;
		case -EBUSY:
			return NVML_IN_USE;
		case -ENODEV:
			return NVML_GPU_NOT_FOUND;
		case -EIO:
			return NVML_GPU_IS_LOST;
		default:
			return PTR_ERR(process);
		}
	}
	if (command->control->attached)
		vgpulab_process_remove(command->control->attached);
	command->control->attached = process;
	return 0;
}

static int run(struct command *command, const struct control_command *wanted)
{
	struct vgpulab_card *card = command->card;
	int ret;

	if (wanted->changes && !capable(CAP_SYS_ADMIN))
		return NVML_NO_PERMISSION;
	mutex_lock(&card->lock);
	if (card->interface == VGPULAB_VF)
		ret = NVML_GPU_NOT_FOUND;	/* Intel's */
	else if (!card->is_bound && !wanted->works_when_lost)
		ret = NVML_GPU_NOT_FOUND;
	else if (card->faults.is_fallen && !wanted->works_when_lost)
		ret = NVML_GPU_IS_LOST;
	else
		ret = wanted->run(command);
	mutex_unlock(&card->lock);
	return ret;
}

static int dispatch(struct control *control, char *line)
{
	struct command command = { .control = control };
	const struct control_command *wanted;
	char *word;

	while ((word = strsep(&line, " \t"))) {
		if (!*word)
			continue;
		if (command.count == CONTROL_MOST_WORDS)
			return -EINVAL;
		command.words[command.count++] = word;
	}
	if (command.count < 2)
		return -EINVAL;
	mutex_lock(&vgpulab_table_lock);
	command.card = vgpulab_card_by_name(command.words[1]);
	mutex_unlock(&vgpulab_table_lock);
	if (!strcmp(command.words[0], "attach"))
		return command.card ? attach(&command) : -ENODEV;
	for (wanted = control_commands; wanted->name; wanted++)
		if (!strcmp(command.words[0], wanted->name))
			return command.card ? run(&command, wanted) : -ENODEV;
	return -EINVAL;
}

static ssize_t control_write(struct file *file, const char __user *buffer, size_t count, loff_t *position)
{
	struct control *control = file->private_data;
	char line[MOST_TEXT];
	int ret;

	if (!count || count >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, buffer, count))
		return -EFAULT;
	line[count] = '\0';
	mutex_lock(&control->lock);
	control->length = 0;
	control_say(control, "ok");
	ret = dispatch(control, strim(line));
	if (ret) {
		control->length = 0;
		if (ret > 0)
			control_say(control, "error %d %s", ret, text_of(ret));
	}
	if (ret >= 0)
		control_say(control, "\n");
	/* The answer is read from its beginning. */
	*position = 0;
	mutex_unlock(&control->lock);
	return ret < 0 ? ret : count;
}

static ssize_t control_read(struct file *file, char __user *buffer, size_t count, loff_t *position)
{
	struct control *control = file->private_data;
	ssize_t ret;

	mutex_lock(&control->lock);
	ret = simple_read_from_buffer(buffer, count, position, control->answer, control->length);
	mutex_unlock(&control->lock);
	return ret;
}

static int control_open(struct inode *inode, struct file *file)
{
	struct control *control = kvzalloc(sizeof(*control), GFP_KERNEL);

	if (!control)
		return -ENOMEM;
	mutex_init(&control->lock);
	file->private_data = control;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	struct control *control = file->private_data;

	if (control->attached)
		vgpulab_process_remove(control->attached);
	mutex_destroy(&control->lock);
	kvfree(control);
	return 0;
}

const struct proc_ops vgpulab_control_operations = {
	.proc_open = control_open,
	.proc_read = control_read,
	.proc_write = control_write,
	.proc_lseek = noop_llseek,
	.proc_release = control_release,
};
