/* SPDX-License-Identifier: Apache-2.0 */
/* NVLinks, the NVSwitch fabric, and the places on the baseboard, of the card table; see ../interconnect.py. */
#include <stdio.h>
#include <string.h>

#include "fabric_state.h"
#include "lab.h"

#define REMOTE_GPU 0
#define REMOTE_SWITCH 2
#define IN_PROGRESS 2
#define COMPLETED 3
#define MOST_PEERS 16

static const char *const error_counters[] = { "replay", "recovery", "crc-flit", "crc-data", "ecc-data" };

/* Look at a link of a GPU; a board without links does not know the question. */
static nvmlReturn_t view_link(struct view *view, nvmlDevice_t device, unsigned int link, const void *wanted)
{
	nvmlReturn_t ret = wanted ? view_gpu(view, device) : NVML_ERROR_INVALID_ARGUMENT;
	unsigned int count;

	if (ret != NVML_SUCCESS)
		return ret;
	count = lab_number(view->gpu->card, "nvlinks", 0);
	if (!count)
		return NVML_ERROR_NOT_SUPPORTED;
	return link < count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* The links lead to the peers in turn. */
static void peer_of(const struct gpu *gpu, unsigned int link, char *address, size_t size)
{
	char peers[MOST_PEERS * 16], *rest = peers, *words[MOST_PEERS];
	unsigned int count = 0;

	lab_word(gpu->card, "nvlink_peers", peers, sizeof(peers));
	while (count < MOST_PEERS && (words[count] = strsep(&rest, ",")))
		count++;
	snprintf(address, size, "%s", words[link % count]);
}

/* A scenario may play how many are up; none is that failed, or whose peer fell off the bus. */
API nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *is_active)
{
	VIEW(view);
	nvmlReturn_t ret = view_link(&view, device, link, is_active);
	char peer[16];
	double played;

	if (ret != NVML_SUCCESS)
		return ret;
	peer_of(view.gpu, link, peer, sizeof(peer));
	*is_active = !lab_number(lab_card_line(&view.state, peer), "fallen", 0) &&
		     link >= fabric_failed_links(view.gpu->address);
	if (gpu_curve(&view, "nvlink_active_links", &played) && link >= played)
		*is_active = 0;
	return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
	VIEW(view);
	nvmlReturn_t ret = view_link(&view, device, link, version);

	if (ret == NVML_SUCCESS)
		*version = lab_number(view.gpu->card, "nvlink_version", 0);
	return ret;
}

API nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type)
{
	VIEW(view);
	nvmlReturn_t ret = view_link(&view, device, link, type);

	if (ret == NVML_SUCCESS)
		*type = lab_number(view.gpu->card, "nvlink_switch", 0) ? REMOTE_SWITCH : REMOTE_GPU;
	return ret;
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info)
{
	VIEW(view);
	nvmlReturn_t ret = view_link(&view, device, link, info);
	char peer[16];

	if (ret != NVML_SUCCESS)
		return ret;
	memset(info, 0, sizeof(*info));
	peer_of(view.gpu, link, peer, sizeof(peer));
	sscanf(peer, "%x:%x:%x", &info->domain, &info->bus, &info->device);
	snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.0", info->domain, info->bus & 0xff,
		 info->device & 0x1f);
	snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.0", info->domain & 0xffff,
		 info->bus & 0xff, info->device & 0x1f);
	return NVML_SUCCESS;
}

/* Those of a scenario are all on the first link. */
API nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
				    unsigned long long *errors)
{
	VIEW(view);
	nvmlReturn_t ret = view_link(&view, device, link, errors);
	char measure[64];

	if (ret != NVML_SUCCESS)
		return ret;
	if (counter >= sizeof(error_counters) / sizeof(error_counters[0]))
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(measure, sizeof(measure), "nvlink_errors/%s", error_counters[counter]);
	*errors = link ? 0 : (unsigned long long)gpu_curve_or(&view, measure, 0);
	return NVML_SUCCESS;
}

/* The bytes over all links of a GPU; false without links. */
bool links_bytes(struct view *view, const char *direction, unsigned long long *bytes)
{
	char measure[64];

	snprintf(measure, sizeof(measure), "nvlink_bytes/%s", direction);
	*bytes = (unsigned long long)gpu_curve_or(view, measure, 0);
	return lab_number(view->gpu->card, "nvlinks", 0) != 0;
}

API nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module)
{
	VIEW(view);
	nvmlReturn_t ret = module ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*module = lab_number(view.gpu->card, "module", 0);
	return *module ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* In the modes with partitions a GPU is set up while a partition with it is active. */
static unsigned int fabric_state_of(unsigned int module)
{
	struct fabric_state state;
	unsigned int mode = fabric_mode();

	fabric_read(&state);
	if (mode != FABRIC_SHARED && mode != FABRIC_VGPU)
		return state.starting_until > fabric_now() ? IN_PROGRESS : COMPLETED;
	for (unsigned int i = 0; i < state.count; i++)
		if (state.active[i].modules >> (module - 1) & 1)
			return COMPLETED;
	return IN_PROGRESS;
}

/* A host of its own has the cluster of all zeros. */
API nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
	VIEW(view);
	nvmlReturn_t ret = info ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!lab_number(view.gpu->card, "fabric", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	memset(info, 0, sizeof(*info));
	info->state = fabric_state_of(lab_number(view.gpu->card, "module", 1));
	return NVML_SUCCESS;
}

API nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info)
{
	nvmlGpuFabricInfo_t told;
	nvmlReturn_t ret;

	if (info && info->version != NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	ret = info ? nvmlDeviceGetGpuFabricInfo(device, &told) : NVML_ERROR_INVALID_ARGUMENT;
	if (ret == NVML_SUCCESS)
		*info = (nvmlGpuFabricInfo_v2_t){ .version = info->version, .state = told.state };
	return ret;
}
