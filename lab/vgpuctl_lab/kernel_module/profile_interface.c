// SPDX-License-Identifier: GPL-2.0-only
/*
 * vGPUs by NVIDIA's vendor-specific VFIO framework: the folder nvidia/ of a VF.
 * The VF stays on the driver nvidia and is itself the VFIO device.
 */
#include <linux/jiffies.h>
#include <linux/sysfs.h>

#include "vgpulab.h"

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attribute,
					 char *buffer)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	struct vgpulab_card *card = function->card;
	int length = sysfs_emit(buffer, "ID    : vGPU Name\n");
	unsigned int i;

	mutex_lock(&card->lock);
	for (i = 0; i < card->type_count; i++)
		if (vgpulab_available_locked(card, function->pdev, &card->types[i]))
			length += sysfs_emit_at(buffer, length, "%-6u: %s\n",
						card->types[i].id, card->types[i].name);
	mutex_unlock(&card->lock);
	return length;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attribute,
				      char *buffer)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	unsigned int id;

	mutex_lock(&function->card->lock);
	id = function->vgpu ? function->vgpu->type->id : 0;
	mutex_unlock(&function->card->lock);
	return sysfs_emit(buffer, "%u\n", id);
}

static int delete_vgpu_locked(struct vgpulab_function *function)
{
	struct vgpulab_vgpu *vgpu = function->vgpu;
	unsigned long delay = msecs_to_jiffies(max(READ_ONCE(vgpulab_removal_delay_ms),
						   function->card->faults.removal_delay_ms));

	/* A free VF, or one whose VFIO device counts as used. */
	if (!vgpu || vgpu->is_in_use)
		return -EPERM;
	/*
	 * The driver needs a while after a VM's end: the VFIO device still counts as used, then the plugin
	 * lives, then RM refuses. Each takes a third of the delay.
	 */
	if (vgpu->was_used && delay) {
		if (time_before(jiffies, vgpu->closed_at + delay / 3))
			return -EPERM;
		if (time_before(jiffies, vgpu->closed_at + 2 * (delay / 3)))
			return -EBUSY;
		if (time_before(jiffies, vgpu->closed_at + delay)) {
			pr_err("NVRM: Failed to add vgpu delete request: 0x%x\n", RM_BUSY_RETRY);
			return -EIO;
		}
	}
	vgpulab_vgpu_destroy_locked(vgpu);
	function->vgpu = NULL;
	return 0;
}

static int create_vgpu_locked(struct vgpulab_function *function, unsigned int id)
{
	struct vgpulab_card *card = function->card;
	struct vgpulab_vgpu *vgpu;

	if (function->vgpu)
		return -EPERM;
	vgpu = vgpulab_vgpu_create_locked(card, function->pdev, vgpulab_find_type(card, id));
	if (IS_ERR(vgpu))
		return PTR_ERR(vgpu);
	function->vgpu = vgpu;
	vgpulab_vfio_announce(&function->pdev->dev, card);
	return 0;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attribute,
				       const char *buffer, size_t count)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	unsigned int id;
	int ret;

	ret = kstrtouint(buffer, 0, &id);
	if (ret)
		return -EINVAL;
	mutex_lock(&function->card->lock);
	ret = id ? create_vgpu_locked(function, id) : delete_vgpu_locked(function);
	mutex_unlock(&function->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attribute,
				    char *buffer)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	ssize_t length = -ENXIO;

	mutex_lock(&function->card->lock);
	if (function->vgpu)
		length = sysfs_emit(buffer, "%u\n", function->vgpu->gi);	/* -1: VGPULAB_NO_GPU_INSTANCE */
	mutex_unlock(&function->card->lock);
	return length;
}

static ssize_t gpu_instance_id_store(struct device *dev, struct device_attribute *attribute,
				     const char *buffer, size_t count)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	int ret = -ENXIO;

	mutex_lock(&function->card->lock);
	if (function->vgpu)
		ret = vgpulab_vgpu_set_instance_locked(function->vgpu, buffer);
	mutex_unlock(&function->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(gpu_instance_id);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attribute, char *buffer)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	ssize_t length = -ENXIO;

	mutex_lock(&function->card->lock);
	if (function->vgpu)
		length = sysfs_emit(buffer, "%u\n", function->vgpu->placement);
	mutex_unlock(&function->card->lock);
	return length;
}

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attribute,
				  const char *buffer, size_t count)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	int ret = -ENXIO;

	mutex_lock(&function->card->lock);
	if (function->vgpu)
		ret = vgpulab_vgpu_set_placement_locked(function->vgpu, buffer);
	mutex_unlock(&function->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(placement_id);

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attribute, char *buffer)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	ssize_t length;

	mutex_lock(&function->card->lock);
	length = sysfs_emit(buffer, "%s\n", function->vgpu ? function->vgpu->params : "");
	mutex_unlock(&function->card->lock);
	return length;
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attribute,
				 const char *buffer, size_t count)
{
	struct vgpulab_function *function = dev_get_drvdata(dev);
	int ret = -ENXIO;

	mutex_lock(&function->card->lock);
	if (function->vgpu)
		ret = vgpulab_vgpu_set_params_locked(function->vgpu, buffer, count);
	mutex_unlock(&function->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(vgpu_params);

static struct attribute *profile_attributes[] = {
	&dev_attr_creatable_vgpu_types.attr,
	&dev_attr_current_vgpu_type.attr,
	&dev_attr_gpu_instance_id.attr,
	&dev_attr_placement_id.attr,
	&dev_attr_vgpu_params.attr,
	NULL
};

static const struct attribute_group profile_group = {
	.name = "nvidia",
	.attrs = profile_attributes,
};

/* Make the VF a VFIO device and give it the folder nvidia/. */
int vgpulab_profile_add(struct vgpulab_function *function)
{
	struct device *dev = &function->pdev->dev;
	struct vgpulab_vfio *vfio;
	int ret;

	vfio = vgpulab_vfio_alloc(dev, function);
	if (IS_ERR(vfio))
		return PTR_ERR(vfio);
	function->vfio = vfio;
	ret = vfio_register_group_dev(&vfio->vdev);
	if (ret)
		goto put;
	/* By hand and not by dev_groups: there an unwanted group leaves an empty folder on PFs. */
	ret = sysfs_create_group(&dev->kobj, &profile_group);
	if (ret)
		goto unregister;
	return 0;

unregister:
	vfio_unregister_group_dev(&vfio->vdev);
put:
	vfio_put_device(&vfio->vdev);
	return ret;
}

void vgpulab_profile_remove(struct vgpulab_function *function)
{
	struct vgpulab_card *card = function->card;

	if (!function->vfio)
		return;	/* never registered */
	/* First the files, so that nobody creates a vGPU on a VF that goes. */
	sysfs_remove_group(&function->pdev->dev.kobj, &profile_group);
	/* Waits until the last user has closed it. */
	vfio_unregister_group_dev(&function->vfio->vdev);
	mutex_lock(&card->lock);
	if (function->vgpu)
		vgpulab_vgpu_destroy_locked(function->vgpu);
	function->vgpu = NULL;
	mutex_unlock(&card->lock);
	vfio_put_device(&function->vfio->vdev);
}
