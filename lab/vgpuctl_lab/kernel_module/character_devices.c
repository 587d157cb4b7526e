// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/nvidiaN and /dev/nvidiactl: whoever has /dev/nvidiaN open uses the GPU, as every NVML
 * client does on a real host, and keeps its driver from being taken away.
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>

#include "vgpulab.h"

#define NVIDIA_MAJOR		195	/* NVIDIA's in Documentation/admin-guide/devices.txt */
#define NVIDIA_CONTROL_MINOR	255

static struct class *nvidia_class;
static struct cdev nvidia_cdev;

static int nvidia_open(struct inode *inode, struct file *file)
{
	struct vgpulab_process *process;
	struct vgpulab_card *card;

	if (iminor(inode) == NVIDIA_CONTROL_MINOR)
		return 0;
	card = vgpulab_card_by_index(iminor(inode));
	if (!card)
		return -ENXIO;
	process = vgpulab_process_add(card, -1);
	if (IS_ERR(process))
		return PTR_ERR(process);
	file->private_data = process;
	return 0;
}

static int nvidia_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		vgpulab_process_remove(file->private_data);
	return 0;
}

static const struct file_operations nvidia_operations = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_release,
	.llseek = noop_llseek,
};

void vgpulab_character_device_add(struct vgpulab_card *card)
{
	struct device *dev = device_create(nvidia_class, NULL, MKDEV(NVIDIA_MAJOR, card->index), NULL,
					   "nvidia%u", card->index);

	/* Nothing depends on the node but those who want to look busy. */
	if (IS_ERR(dev))
		pr_warn("vgpulab: no /dev/nvidia%u (%ld)\n", card->index, PTR_ERR(dev));
}

void vgpulab_character_device_remove(struct vgpulab_card *card)
{
	device_destroy(nvidia_class, MKDEV(NVIDIA_MAJOR, card->index));
}

int vgpulab_character_devices_init(void)
{
	struct device *control;
	int ret;

	ret = register_chrdev_region(MKDEV(NVIDIA_MAJOR, 0), NVIDIA_CONTROL_MINOR + 1, "nvidia");
	if (ret)
		return ret;
	nvidia_class = vgpulab_class_create("nvidia");
	if (IS_ERR(nvidia_class)) {
		ret = PTR_ERR(nvidia_class);
		goto unregister;
	}
	cdev_init(&nvidia_cdev, &nvidia_operations);
	nvidia_cdev.owner = THIS_MODULE;
	ret = cdev_add(&nvidia_cdev, MKDEV(NVIDIA_MAJOR, 0), NVIDIA_CONTROL_MINOR + 1);
	if (ret)
		goto destroy_class;
	control = device_create(nvidia_class, NULL, MKDEV(NVIDIA_MAJOR, NVIDIA_CONTROL_MINOR), NULL,
				"nvidiactl");
	if (IS_ERR(control)) {
		ret = PTR_ERR(control);
		goto delete_cdev;
	}
	return 0;

delete_cdev:
	cdev_del(&nvidia_cdev);
destroy_class:
	class_destroy(nvidia_class);
unregister:
	unregister_chrdev_region(MKDEV(NVIDIA_MAJOR, 0), NVIDIA_CONTROL_MINOR + 1);
	return ret;
}

void vgpulab_character_devices_exit(void)
{
	device_destroy(nvidia_class, MKDEV(NVIDIA_MAJOR, NVIDIA_CONTROL_MINOR));
	cdev_del(&nvidia_cdev);
	class_destroy(nvidia_class);
	unregister_chrdev_region(MKDEV(NVIDIA_MAJOR, 0), NVIDIA_CONTROL_MINOR + 1);
}
