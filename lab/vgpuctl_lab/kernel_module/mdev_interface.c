// SPDX-License-Identifier: GPL-2.0-only
/* vGPUs as mediated devices: types under mdev_supported_types of a PF or a VF. */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "vgpulab.h"

static struct vgpulab_function *function_of(struct mdev_type *mdev_type)
{
	return container_of(mdev_type->parent, struct vgpulab_function, parent);
}

static const struct vgpulab_type *type_of(struct mdev_type *mdev_type)
{
	return container_of(mdev_type, struct vgpulab_mdev_type, mdev)->type;
}

static unsigned int get_available(struct mdev_type *mdev_type)
{
	struct vgpulab_function *function = function_of(mdev_type);

	return vgpulab_available(function->card, function->pdev, type_of(mdev_type));
}

static ssize_t show_description(struct mdev_type *mdev_type, char *buffer)
{
	const struct vgpulab_type *type = type_of(mdev_type);

	return sysfs_emit(buffer,
			  "num_heads=%u, frl_config=%u, framebuffer=%uM, max_resolution=%ux%u, max_instance=%u\n",
			  type->heads, type->frame_rate_limit, type->rules.framebuffer_mib,
			  type->width, type->height, type->rules.max_instances);
}

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attribute, char *buffer)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(dev);
	ssize_t length;

	mutex_lock(&vfio->vgpu->card->lock);
	length = sysfs_emit(buffer, "%s\n", vfio->vgpu->params);
	mutex_unlock(&vfio->vgpu->card->lock);
	return length;
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attribute,
				 const char *buffer, size_t count)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(dev);
	int ret;

	mutex_lock(&vfio->vgpu->card->lock);
	ret = vgpulab_vgpu_set_params_locked(vfio->vgpu, buffer, count);
	mutex_unlock(&vfio->vgpu->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(vgpu_params);

static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attribute,
				    char *buffer)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(dev);
	ssize_t length;

	mutex_lock(&vfio->vgpu->card->lock);
	length = sysfs_emit(buffer, "%u\n", vfio->vgpu->gi);	/* -1: VGPULAB_NO_GPU_INSTANCE */
	mutex_unlock(&vfio->vgpu->card->lock);
	return length;
}

static ssize_t gpu_instance_id_store(struct device *dev, struct device_attribute *attribute,
				     const char *buffer, size_t count)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(dev);
	int ret;

	mutex_lock(&vfio->vgpu->card->lock);
	ret = vgpulab_vgpu_set_instance_locked(vfio->vgpu, buffer);
	mutex_unlock(&vfio->vgpu->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(gpu_instance_id);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attribute, char *buffer)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(dev);
	ssize_t length;

	mutex_lock(&vfio->vgpu->card->lock);
	length = sysfs_emit(buffer, "%u\n", vfio->vgpu->placement);
	mutex_unlock(&vfio->vgpu->card->lock);
	return length;
}

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attribute,
				  const char *buffer, size_t count)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(dev);
	int ret;

	mutex_lock(&vfio->vgpu->card->lock);
	ret = vgpulab_vgpu_set_placement_locked(vfio->vgpu, buffer);
	mutex_unlock(&vfio->vgpu->card->lock);
	return ret ?: count;
}
static DEVICE_ATTR_RW(placement_id);

static struct attribute *mdev_attributes[] = {
	&dev_attr_gpu_instance_id.attr,
	&dev_attr_placement_id.attr,
	&dev_attr_vgpu_params.attr,
	NULL
};

static const struct attribute_group mdev_group = {
	.name = "nvidia",
	.attrs = mdev_attributes,
};

static const struct attribute_group *mdev_groups[] = {
	&mdev_group,
	NULL
};

static int vgpulab_mdev_probe(struct mdev_device *mdev)
{
	struct vgpulab_function *function = function_of(mdev->type);
	struct vgpulab_card *card = function->card;
	struct vgpulab_vfio *vfio;
	struct vgpulab_vgpu *vgpu;
	int ret;

	mutex_lock(&card->lock);
	vgpu = vgpulab_vgpu_create_locked(card, function->pdev, type_of(mdev->type));
	if (!IS_ERR(vgpu))
		snprintf(vgpu->uuid, sizeof(vgpu->uuid), "%pUl", &mdev->uuid);
	mutex_unlock(&card->lock);
	if (IS_ERR(vgpu)) {
		ret = PTR_ERR(vgpu);
		pr_err("vGPU creation failed on device 0x%x. %d\n", pci_dev_id(function->pdev), ret);
		return ret;
	}

	vfio = vgpulab_vfio_alloc(&mdev->dev, function);
	if (IS_ERR(vfio)) {
		ret = PTR_ERR(vfio);
		goto destroy;
	}
	vfio->vgpu = vgpu;
	/* Before registration: the attributes and an open can come right after it. */
	dev_set_drvdata(&mdev->dev, vfio);
	ret = vfio_register_emulated_iommu_dev(&vfio->vdev);
	if (ret)
		goto put;
	vgpulab_vfio_announce(&mdev->dev, card);
	return 0;

put:
	vfio_put_device(&vfio->vdev);
destroy:
	mutex_lock(&card->lock);
	vgpulab_vgpu_destroy_locked(vgpu);
	mutex_unlock(&card->lock);
	return ret;
}

static void vgpulab_mdev_device_remove(struct mdev_device *mdev)
{
	struct vgpulab_vfio *vfio = dev_get_drvdata(&mdev->dev);
	struct vgpulab_card *card = vfio->vgpu->card;

	/* Waits until the last user has closed it. */
	vfio_unregister_group_dev(&vfio->vdev);
	mutex_lock(&card->lock);
	vgpulab_vgpu_destroy_locked(vfio->vgpu);
	mutex_unlock(&card->lock);
	vfio_put_device(&vfio->vdev);
}

struct mdev_driver vgpulab_mdev_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.driver = {
		.name = "nvidia-vgpu-vfio",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
		.dev_groups = mdev_groups,
	},
	.probe = vgpulab_mdev_probe,
	.remove = vgpulab_mdev_device_remove,
	.get_available = get_available,
	.show_description = show_description,
};

/* Offer the card's types on this function. */
int vgpulab_mdev_add(struct vgpulab_function *function)
{
	struct vgpulab_card *card = function->card;
	unsigned int i;
	int ret;

	if (!card->type_count)
		return 0;
	/* struct mdev_type belongs to one parent, so every function has its own. */
	function->mdev_types = kcalloc(card->type_count, sizeof(*function->mdev_types), GFP_KERNEL);
	function->mdev_type_pointers =
		kcalloc(card->type_count, sizeof(*function->mdev_type_pointers), GFP_KERNEL);
	if (!function->mdev_types || !function->mdev_type_pointers) {
		ret = -ENOMEM;
		goto free;
	}
	for (i = 0; i < card->type_count; i++) {
		struct vgpulab_mdev_type *mdev_type = &function->mdev_types[i];

		mdev_type->type = &card->types[i];
		snprintf(mdev_type->sysfs_name, sizeof(mdev_type->sysfs_name), "%u",
			 mdev_type->type->id);
		mdev_type->mdev.sysfs_name = mdev_type->sysfs_name;
		mdev_type->mdev.pretty_name = mdev_type->type->name;
		function->mdev_type_pointers[i] = &mdev_type->mdev;
	}
	ret = mdev_register_parent(&function->parent, &function->pdev->dev, &vgpulab_mdev_driver,
				   function->mdev_type_pointers, card->type_count);
	if (!ret)
		return 0;
free:
	kfree(function->mdev_type_pointers);
	kfree(function->mdev_types);
	function->mdev_types = NULL;
	return ret;
}

void vgpulab_mdev_remove(struct vgpulab_function *function)
{
	if (!function->mdev_types)
		return;
	mdev_unregister_parent(&function->parent);
	kfree(function->mdev_type_pointers);
	kfree(function->mdev_types);
}
