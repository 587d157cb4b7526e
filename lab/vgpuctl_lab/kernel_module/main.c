// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loading and unloading of vgpulab. The order of unloading is the reverse of loading,
 * with the cards' devices rescanned last so that they are ordinary QEMU devices again.
 */
#include <linux/module.h>

#include "vgpulab.h"

unsigned int vgpulab_removal_delay_ms;
module_param_named(removal_delay_ms, vgpulab_removal_delay_ms, uint, 0644);
MODULE_PARM_DESC(removal_delay_ms,
		 "Deleting a vGPU of a VF fails for so long after its last close (ms, default 0)");

char *vgpulab_driver_version = "550.127.06";
module_param_named(driver_version, vgpulab_driver_version, charp, 0444);
MODULE_PARM_DESC(driver_version, "What /proc/driver/nvidia/version says");

static int __init vgpulab_init(void)
{
	int ret;

	ret = vgpulab_log_report_init();
	if (ret)
		return ret;
	ret = mdev_register_driver(&vgpulab_mdev_driver);
	if (ret)
		goto exit_log_report;
	ret = vgpulab_character_devices_init();
	if (ret)
		goto unregister_mdev;
	ret = vgpulab_proc_init();
	if (ret)
		goto exit_character_devices;
	ret = pci_register_driver(&vgpulab_pci_driver);
	if (ret)
		goto exit_proc;
	ret = pci_register_driver(&vgpulab_intel_pci_driver);
	if (ret)
		goto unregister_pci;
	ret = pci_register_driver(&vgpulab_intel_vfio_driver);
	if (ret)
		goto unregister_intel;
	return 0;

unregister_intel:
	pci_unregister_driver(&vgpulab_intel_pci_driver);
unregister_pci:
	pci_unregister_driver(&vgpulab_pci_driver);
exit_proc:
	vgpulab_proc_stop_cards();
	vgpulab_proc_exit();
exit_character_devices:
	vgpulab_character_devices_exit();
unregister_mdev:
	mdev_unregister_driver(&vgpulab_mdev_driver);
exit_log_report:
	vgpulab_log_report_exit();
	return ret;
}

static void __exit vgpulab_exit(void)
{
	struct vgpulab_card *card;

	/* Nobody can bring new cards from here on. */
	vgpulab_proc_stop_cards();
	pci_unregister_driver(&vgpulab_intel_vfio_driver);
	pci_unregister_driver(&vgpulab_intel_pci_driver);
	pci_unregister_driver(&vgpulab_pci_driver);
	list_for_each_entry(card, vgpulab_cards(), node)
		vgpulab_overlay_remove(card);
	vgpulab_proc_exit();
	vgpulab_character_devices_exit();
	mdev_unregister_driver(&vgpulab_mdev_driver);
	vgpulab_log_report_exit();
	vgpulab_forget_cards();
}

module_init(vgpulab_init);
module_exit(vgpulab_exit);
MODULE_LICENSE("GPL");
MODULE_AUTHOR("The vgpuctl authors");
MODULE_DESCRIPTION("Emulated GPU boards with NVIDIA's vGPU host interfaces or Intel's SR-IOV, for vgpuctl's lab");
