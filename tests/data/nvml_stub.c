/* Stands in for NVIDIA's management library: two GPUs, of which the second has what NVML_STUB names.
 * Signatures after nvml.h; codes: 3 not supported, 9 driver not loaded, 10 timeout, 15 lost, 16 reset, 18 mismatch. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci_t;
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } event_t;
typedef struct { unsigned gpu, memory; } used_t;

static char gpus[2];
static int xids_left = 2;

static int is(const char *how) {
    const char *said = getenv("NVML_STUB");
    return said && !strcmp(said, how);
}
static int second(void *device) { return device == &gpus[1]; }

int nvmlInitWithFlags(unsigned flags) {
    while (is("hang")) sleep(1000);
    return is("mismatch") ? 18 : is("unloaded") ? 9 : 0;
}
const char *nvmlErrorString(int code) { return "an error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = is("none") ? 0 : 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &gpus[index]; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) { strncpy(name, "Stub GPU", size); return 0; }
int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, second(device) ? "00000000:9B:00.0" : "00000000:17:00.0");
    return 0;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) {
    if (second(device) && is("lost")) return 15;
    if (second(device) && is("reset")) return 16;
    *degrees = second(device) && is("hot") ? 93 : 50;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
    *count = second(device) && is("ecc") ? 3 : 0;
    return 0;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    *corrected = *uncorrected = *pending = 0;
    *failed = second(device) && is("remap");
    return 0;
}
/* Under its older name only, as drivers before 535 have it. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = second(device) && is("hot") ? 0x20 : 0x4;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, used_t *used) { used->gpu = 97; used->memory = 50; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *width) {
    *width = second(device) && is("narrow") ? 8 : 16;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *width) { *width = 16; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation) {
    *generation = second(device) && is("slow") ? 3 : 5;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation) { *generation = 5; return 0; }
int nvmlEventSetCreate(void **set) { *set = gpus; return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { return types == 8 ? 0 : 3; }
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned milliseconds) {
    if (!is("xid") || !xids_left) {
        usleep(milliseconds * 1000);
        return 10;
    }
    xids_left--;
    memset(event, 0, sizeof *event);
    event->device = &gpus[1];
    event->type = 8;
    event->data = 79;
    return 0;
}
