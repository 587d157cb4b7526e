/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the lab's libvirtd only: lets libvirt older than 9.7 start a domain with an unmanaged VFIO VF.
 *
 * A VF with NVIDIA's vendor-specific VFIO stays on the driver `nvidia`. Before 9.7 libvirt takes
 * such a device only if its driver's name is vfio-pci ("must be manually detached from the host");
 * since 9.7 it asks whether the device has a folder vfio-dev/. libvirt finds the name by
 * realpath("/sys/bus/pci/devices/<BDF>/driver"), so that one question is answered here as 9.7 would
 * decide it: a VF on `nvidia` that is a VFIO device and carries a vGPU type counts as vfio-pci.
 * Everything else, and every other program, sees the real link.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char devices[] = "/sys/bus/pci/devices/";
static const char driver_link[] = "/driver";
static const char answer[] = "/sys/bus/pci/drivers/vfio-pci";

typedef char *(*realpath_function)(const char *, char *);

/* libvirt starts QEMU with its own LD_PRELOAD; the shim ends at libvirtd. */
__attribute__((constructor)) static void stay_in_this_process(void)
{
	unsetenv("LD_PRELOAD");
}

static int is_driver_link(const char *path)
{
	size_t length = strlen(path);

	return !strncmp(path, devices, sizeof(devices) - 1) && length > sizeof(driver_link) &&
	       !strcmp(path + length - (sizeof(driver_link) - 1), driver_link);
}

static int is_vfio_vf_with_type(const char *driver_path, const char *resolved)
{
	const char *name = strrchr(resolved, '/');
	size_t folder = strlen(driver_path) - (sizeof(driver_link) - 1);
	char path[PATH_MAX], type[16] = "";
	ssize_t length;
	int file;

	if (!name || strcmp(name, "/nvidia"))
		return 0;
	snprintf(path, sizeof(path), "%.*s/vfio-dev", (int)folder, driver_path);
	if (access(path, F_OK))
		return 0;
	snprintf(path, sizeof(path), "%.*s/nvidia/current_vgpu_type", (int)folder, driver_path);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	length = read(file, type, sizeof(type) - 1);
	close(file);
	return length > 0 && strtoul(type, NULL, 10) != 0;
}

char *realpath(const char *restrict path, char *restrict resolved)
{
	static realpath_function next;
	char *result;

	if (!next)
		next = (realpath_function)dlvsym(RTLD_NEXT, "realpath", "GLIBC_2.3");
	result = next(path, resolved);
	if (!result || !path || !is_driver_link(path) || !is_vfio_vf_with_type(path, result))
		return result;
	if (resolved)
		return strcpy(resolved, answer);
	free(result);
	return strdup(answer);
}
