/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi -q` and `-q -x`: what is known of each GPU, once as text and once as XML (reference 6.3). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "smi.h"

#define INDENT 4
#define COLON_AT 42

typedef nvmlReturn_t read_detail(const struct device *device, char *text, size_t size);

/* A line of text: `label : value`. */
void tell(int indent, const char *label, const char *format, ...)
{
	va_list arguments;

	printf("%*s%-*s: ", indent, "", COLON_AT - indent, label);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

static nvmlReturn_t put_word(char *text, size_t size, nvmlReturn_t ret, const char *const *words, unsigned int count,
			     unsigned int number)
{
	if (ret == NVML_SUCCESS)
		snprintf(text, size, "%s", number < count ? words[number] : "Unknown");
	return ret;
}

static nvmlReturn_t read_architecture(const struct device *device, char *text, size_t size)
{
	static const char *const words[] = { "Unknown", "Unknown", "Kepler", "Maxwell", "Pascal",   "Volta",
					     "Turing",	"Ampere",  "Ada Lovelace", "Hopper", "Blackwell" };
	unsigned int number = 0;
	nvmlReturn_t ret = nvmlDeviceGetArchitecture(device->handle, &number);

	return put_word(text, size, ret, words, sizeof(words) / sizeof(*words), number);
}

static nvmlReturn_t read_minor(const struct device *device, char *text, size_t size)
{
	unsigned int number = 0;
	nvmlReturn_t ret = nvmlDeviceGetMinorNumber(device->handle, &number);

	snprintf(text, size, "%u", number);
	return ret;
}

static nvmlReturn_t read_virtualization(const struct device *device, char *text, size_t size)
{
	static const char *const words[] = { "None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA" };
	unsigned int number = 0;
	nvmlReturn_t ret = nvmlDeviceGetVirtualizationMode(device->handle, &number);

	return put_word(text, size, ret, words, sizeof(words) / sizeof(*words), number);
}

static nvmlReturn_t read_host_mode(const struct device *device, char *text, size_t size)
{
	static const char *const words[] = { "Non SR-IOV", "SR-IOV" };
	unsigned int number = 0;
	nvmlReturn_t ret = nvmlDeviceGetHostVgpuMode(device->handle, &number);

	return put_word(text, size, ret, words, sizeof(words) / sizeof(*words), number);
}

static nvmlReturn_t read_mixed(const struct device *device, char *text, size_t size)
{
	static const char *const words[] = { "Disabled", "Enabled" };
	nvmlVgpuHeterogeneousMode_v1_t mode = { .version = NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_v1_t, 1) };
	nvmlReturn_t ret = nvmlDeviceGetVgpuHeterogeneousMode(device->handle, &mode);

	return put_word(text, size, ret, words, sizeof(words) / sizeof(*words), mode.mode);
}

/* depth 1 is below the GPU. field: of --query-gpu, or NULL for what read tells; neither: a heading. */
static const struct detail {
	int depth;
	const char *label, *tag, *field;
	read_detail *read;
} details[] = {
	{ 1, "Product Name", "product_name", "name", NULL },
	{ 1, "Product Architecture", "product_architecture", NULL, read_architecture },
	{ 1, "Persistence Mode", "persistence_mode", "persistence_mode", NULL },
	{ 1, "MIG Mode", "mig_mode", NULL, NULL },
	{ 2, "Current", "current_mig", "mig.mode.current", NULL },
	{ 2, "Pending", "pending_mig", "mig.mode.pending", NULL },
	{ 1, "Serial Number", "serial", "serial", NULL },
	{ 1, "GPU UUID", "uuid", "uuid", NULL },
	{ 1, "Minor Number", "minor_number", NULL, read_minor },
	{ 1, "VBIOS Version", "vbios_version", "vbios_version", NULL },
	{ 1, "GPU Virtualization Mode", "gpu_virtualization_mode", NULL, NULL },
	{ 2, "Virtualization Mode", "virtualization_mode", NULL, read_virtualization },
	{ 2, "Host VGPU Mode", "host_vgpu_mode", NULL, read_host_mode },
	{ 2, "vGPU Heterogeneous Mode", "vgpu_heterogeneous_mode", NULL, read_mixed },
	{ 1, "vGPU Driver Capability", "vgpu_driver_capability", NULL, NULL },
	{ 2, "Heterogenous Multi-vGPU", "heterogenous_multivGPU", "vgpu_driver_capability.heterogenous_multivGPU", NULL },
	{ 1, "vGPU Device Capability", "vgpu_device_capability", NULL, NULL },
	{ 2, "Fractional Multi-vGPU", "fractional_multiVgpu", "vgpu_device_capability.fractional_multiVgpu", NULL },
	{ 2, "Heterogeneous Time-Slice Profiles", "heterogeneous_timeSlice_profile",
	  "vgpu_device_capability.heterogeneous_timeSlice_profile", NULL },
	{ 2, "Heterogeneous Time-Slice Sizes", "heterogeneous_timeSlice_sizes",
	  "vgpu_device_capability.heterogeneous_timeSlice_sizes", NULL },
	{ 1, "PCI", "pci", NULL, NULL },
	{ 2, "Device Id", "pci_device_id", "pci.device_id", NULL },
	{ 2, "Bus Id", "pci_bus_id", "pci.bus_id", NULL },
	{ 2, "Sub System Id", "pci_sub_system_id", "pci.sub_device_id", NULL },
	{ 1, "FB Memory Usage", "fb_memory_usage", NULL, NULL },
	{ 2, "Total", "total", "memory.total", NULL },
	{ 2, "Reserved", "reserved", "memory.reserved", NULL },
	{ 2, "Used", "used", "memory.used", NULL },
	{ 2, "Free", "free", "memory.free", NULL },
	{ 1, "Compute Mode", "compute_mode", "compute_mode", NULL },
	{ 1, "Utilization", "utilization", NULL, NULL },
	{ 2, "Gpu", "gpu_util", "utilization.gpu", NULL },
	{ 2, "Memory", "memory_util", "utilization.memory", NULL },
	{ 1, "ECC Mode", "ecc_mode", NULL, NULL },
	{ 2, "Current", "current_ecc", "ecc.mode.current", NULL },
	{ 2, "Pending", "pending_ecc", "ecc.mode.pending", NULL },
	{ 1, "ECC Errors", "ecc_errors", NULL, NULL },
	{ 2, "Volatile", "volatile", NULL, NULL },
	{ 3, "DRAM Uncorrectable", "dram_uncorrectable", "ecc.errors.uncorrected.volatile.total", NULL },
	{ 1, "Temperature", "temperature", NULL, NULL },
	{ 2, "GPU Current Temp", "gpu_temp", "temperature.gpu", NULL },
	{ 1, "GPU Power Readings", "gpu_power_readings", NULL, NULL },
	{ 2, "Power Draw", "power_draw", "power.draw", NULL },
	{ 2, "Current Power Limit", "current_power_limit", "power.limit", NULL },
};

#define COUNT (sizeof(details) / sizeof(*details))

static bool is_heading(const struct detail *detail)
{
	return !detail->field && !detail->read;
}

static void read_value(const struct device *device, const struct detail *detail, char *text, size_t size)
{
	nvmlReturn_t ret = detail->field ? read_field_with_unit(device, detail->field, text, size)
					 : detail->read(device, text, size);

	if (ret != NVML_SUCCESS)
		snprintf(text, size, "N/A");
	else if (detail->field && !strcmp(detail->field, "temperature.gpu"))
		snprintf(text + strlen(text), size - strlen(text), " C");
}

static void tell_mig_devices(nvmlDevice_t device, bool as_xml)
{
	nvmlDevice_t mig_device;
	unsigned int index = 0, gi, ci;

	for (; nvmlDeviceGetMigDeviceHandleByIndex(device, index, &mig_device) == NVML_SUCCESS; index++) {
		gi = ci = 0;
		nvmlDeviceGetGpuInstanceId(mig_device, &gi);
		nvmlDeviceGetComputeInstanceId(mig_device, &ci);
		if (as_xml) {
			printf("%s\t\t\t<mig_device>\n\t\t\t\t<index>%u</index>\n"
			       "\t\t\t\t<gpu_instance_id>%u</gpu_instance_id>\n"
			       "\t\t\t\t<compute_instance_id>%u</compute_instance_id>\n\t\t\t</mig_device>\n",
			       index ? "" : "\t\t<mig_devices>\n", index, gi, ci);
			continue;
		}
		puts("    MIG Device");
		tell(2 * INDENT, "Index", "%u", index);
		tell(2 * INDENT, "GPU Instance ID", "%u", gi);
		tell(2 * INDENT, "Compute Instance ID", "%u", ci);
	}
	if (as_xml)
		puts(index ? "\t\t</mig_devices>" : "\t\t<mig_devices>None</mig_devices>");
}

static void tell_gpu(const struct device *device)
{
	char text[256];

	printf("GPU %s\n", device->bus_id);
	for (size_t i = 0; i < COUNT; i++) {
		if (i && !strcmp(details[i - 1].tag, "pending_mig"))
			tell_mig_devices(device->handle, false);
		if (is_heading(&details[i])) {
			printf("%*s%s\n", details[i].depth * INDENT, "", details[i].label);
			continue;
		}
		read_value(device, &details[i], text, sizeof(text));
		tell(details[i].depth * INDENT, details[i].label, "%s", text);
	}
	putchar('\n');
}

static void put_tabs(int count)
{
	while (count-- > 0)
		putchar('\t');
}

static void put_gpu(const struct device *device)
{
	const char *open[8];
	int depth = 1;

	printf("\t<gpu id=\"%s\">\n", device->bus_id);
	for (size_t i = 0; i <= COUNT; i++) {
		int next = i < COUNT ? details[i].depth : 1;
		char text[256];

		for (; depth > next; depth--) {
			put_tabs(depth);
			printf("</%s>\n", open[depth - 1]);
			if (!strcmp(open[depth - 1], "mig_mode"))
				tell_mig_devices(device->handle, true);
		}
		if (i == COUNT)
			break;
		put_tabs(next + 1);
		if (is_heading(&details[i])) {
			printf("<%s>\n", details[i].tag);
			open[next] = details[i].tag;
			depth = next + 1;
			continue;
		}
		read_value(device, &details[i], text, sizeof(text));
		/* Ids are without their 0x in XML. */
		printf("<%s>%s</%s>\n", details[i].tag, text + (strncmp(text, "0x", 2) ? 0 : 2), details[i].tag);
	}
	puts("\t</gpu>");
}

int tell_details(const struct selection *selection, bool as_xml)
{
	char driver[80] = "N/A", when[64] = "";
	time_t now = time(NULL);
	unsigned int attached = 0;

	nvmlSystemGetDriverVersion(driver, sizeof(driver));
	nvmlDeviceGetCount_v2(&attached);
	strftime(when, sizeof(when), "%a %b %e %H:%M:%S %Y", localtime(&now));
	if (as_xml) {
		printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n"
		       "<nvidia_smi_log>\n\t<timestamp>%s</timestamp>\n\t<driver_version>%s</driver_version>\n"
		       "\t<cuda_version>%s</cuda_version>\n\t<attached_gpus>%u</attached_gpus>\n",
		       when, driver, cuda_version(), attached);
	} else {
		puts("\n==============NVSMI LOG==============\n");
		tell(0, "Timestamp", "%s", when);
		tell(0, "Driver Version", "%s", driver);
		tell(0, "CUDA Version", "%s\n", cuda_version());
		tell(0, "Attached GPUs", "%u", attached);
	}
	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];

		if (!device->lost)
			(as_xml ? put_gpu : tell_gpu)(device);
		else if (!as_xml)
			printf("Unable to determine the device handle for gpu %u: %s\n", device->index,
			       nvmlErrorString(device->lost));
	}
	if (as_xml)
		puts("</nvidia_smi_log>");
	return NVML_SUCCESS;
}
