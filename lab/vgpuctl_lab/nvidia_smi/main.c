/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. What this nvidia-smi does not have it refuses, as the real one refuses what it does not know. */
#include <stdio.h>
#include <string.h>

#include "smi.h"

static const char usage[] =
	"nvidia-smi of the vgpuctl lab: the part of NVIDIA's that the lab plays.\n\n"
	"    nvidia-smi                                a summary\n"
	"    nvidia-smi -L                             GPUs and MIG devices\n"
	"    nvidia-smi [-i ID] -mig 0|1               set the MIG mode\n"
	"    nvidia-smi [-i ID] --gpu-reset\n"
	"    nvidia-smi [-i ID] -pm 0|1                said and forgotten: no daemon keeps the GPUs open here\n"
	"    nvidia-smi [-i ID] --query-gpu=FIELDS --format=csv[,noheader][,nounits]\n"
	"    nvidia-smi [-i ID] -q [-x]                all that is known of each GPU\n"
	"    nvidia-smi vgpu [-i ID] [-q | -s [-v] | -c [-v] | -ss | -shm 0|1] [-gi ID]\n"
	"    nvidia-smi mig [-i ID] -lgip | -lgipp | -lgi | -lci | -cgi LIST [-C] | -dgi | -dci\n"
	"                   [-gi IDS] [-ci IDS]\n";

const char *cuda_version(void)
{
	char nvml[80] = "N/A";

	nvmlSystemGetNVMLVersion(nvml, sizeof(nvml));
	return strncmp(nvml, "13", 2) ? "12.4" : "13.0";
}

static int run_top_level(const struct options *options)
{
	static const char *const known[] = { "-i", "-L", "-mig", "--gpu-reset", "-pm", "--query-gpu", "--format", "-q",
					     "-x", NULL };
	const char *strange = unknown_option(options, known);
	struct selection selection;
	int ret;

	if (strange) {
		printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	ret = select_devices(&selection, option(options, "-i"));
	if (ret)
		return ret;
	if (has_option(options, "-L"))
		return list_devices(&selection);
	if (has_option(options, "-mig"))
		return set_mig_mode(&selection, option(options, "-mig"));
	if (has_option(options, "--gpu-reset"))
		return reset_devices(&selection);
	if (has_option(options, "-pm"))
		return set_persistence(&selection, option(options, "-pm"));
	if (has_option(options, "--query-gpu"))
		return query_devices(&selection, option(options, "--query-gpu"),
				     option(options, "--format"));
	if (has_option(options, "-q"))
		return tell_details(&selection, has_option(options, "-x"));
	return summarise_devices(&selection);
}

int main(int count, char **words)
{
	struct options options = { count - 1, words + 1 };
	int ret;

	if (has_option(&options, "-h") || has_option(&options, "--help")) {
		fputs(usage, stdout);
		return NVML_SUCCESS;
	}
	ret = nvmlInit_v2();
	if (ret == NVML_ERROR_DRIVER_NOT_LOADED) {
		puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
		     "latest NVIDIA driver is installed and running.\n");
		return ret;
	}
	if (ret) {
		printf("Failed to initialize NVML: %s\n", nvmlErrorString(ret));
		return ret;
	}
	if (count > 1 && !strcmp(words[1], "vgpu"))
		ret = vgpu_command(&(struct options){ count - 2, words + 2 });
	else if (count > 1 && !strcmp(words[1], "mig"))
		ret = mig_command(&(struct options){ count - 2, words + 2 });
	else
		ret = run_top_level(&options);
	nvmlShutdown();
	return ret;
}
