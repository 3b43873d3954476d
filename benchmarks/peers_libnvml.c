/* A libnvidia-ml.so.1 for benchmarks/peers.py: eight GPUs with fixed answers, and the processes that the file
 * named by PEERS_PIDS lists ("GPU PID" a line, read at init). Every program that is compared loads this one
 * library, so all read the same GPUs, and the library itself costs next to nothing. What is left out here, the
 * programs take for "not supported".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 8
#define MOST 4096
#define GIB (1ull << 30)

typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } sample;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;

static process listed[GPUS][MOST];
static unsigned counts[GPUS];

static unsigned number(void *handle) { return (unsigned)((uintptr_t)handle - 1); }

int nvmlInitWithFlags(unsigned flags)
{
    FILE *file = fopen(getenv("PEERS_PIDS"), "r");
    unsigned gpu, pid;
    (void)flags;
    memset(counts, 0, sizeof counts);
    while (file && fscanf(file, "%u %u", &gpu, &pid) == 2)
        if (gpu < GPUS && counts[gpu] < MOST) listed[gpu][counts[gpu]++] = (process){pid, GIB, ~0u, ~0u};
    if (file) fclose(file);
    return 0;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "595.45.04"); return 0; }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { snprintf(out, size, "13.595.45.04"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = (void *)(uintptr_t)(index + 1);
    return index < GPUS ? 0 : 2;
}
int nvmlDeviceGetIndex(void *handle, unsigned *index) { *index = number(handle); return 0; }
int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) { *minor = number(handle); return 0; }
int nvmlDeviceGetName(void *handle, char *out, unsigned size) { (void)handle; snprintf(out, size, "Fake H200"); return 0; }
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size)
{
    snprintf(out, size, "GPU-00000000-0000-0000-0000-%012u", number(handle));
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *pci)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", number(handle) + 1);
    return 0;
}
static unsigned long long used(void *handle) { return counts[number(handle)] * GIB; }
int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *out)
{
    *out = (memory_v1){140 * GIB, 140 * GIB - used(handle), used(handle)};
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *out)
{
    if (out->version != 0x02000028) return 25;
    *out = (memory_v2){out->version, 140 * GIB, 0, 140 * GIB - used(handle), used(handle)};
    return 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) { (void)handle; *now = *later = 0; return 0; }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { (void)handle; *mode = 1; return 0; }
int nvmlDeviceGetUtilizationRates(void *handle, rates *out) { (void)handle; *out = (rates){42, 7}; return 0; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out) { (void)handle; (void)sensor; *out = 40; return 0; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *out) { (void)handle; *out = 90000; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *out) { (void)handle; *out = 700000; return 0; }

static int give(unsigned *room, process *out, const process *from, unsigned count)
{
    unsigned had = *room;
    *room = count;
    if (count > had || (count && !out)) return 7;
    if (count) memcpy(out, from, count * sizeof *out);
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *room, process *out)
{
    return give(room, out, listed[number(handle)], counts[number(handle)]);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *room, process *out)
{
    (void)handle;
    return give(room, out, NULL, 0);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *room, process *out)
{
    (void)handle;
    return give(room, out, NULL, 0);
}
int nvmlDeviceGetProcessUtilization(void *handle, sample *out, unsigned *room, unsigned long long since)
{
    unsigned count = counts[number(handle)], had = *room;
    *room = count;
    if (!count) return 6;
    if (count > had || !out) return 7;
    for (unsigned i = 0; i < count; i++)
        out[i] = (sample){listed[number(handle)][i].pid, since + 1000000, 5, 1, 0, 0};
    return 0;
}
static int codec(unsigned *percent, unsigned *period) { *percent = 0; *period = 1000000; return 0; }
int nvmlDeviceGetEncoderUtilization(void *h, unsigned *p, unsigned *t) { (void)h; return codec(p, t); }
int nvmlDeviceGetDecoderUtilization(void *h, unsigned *p, unsigned *t) { (void)h; return codec(p, t); }

int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return 0; }
static int whole(unsigned *out, unsigned value) { *out = value; return 0; }
int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *out) { (void)h; (void)kind; return whole(out, 345); }
int nvmlDeviceGetMaxClockInfo(void *h, int kind, unsigned *out) { (void)h; (void)kind; return whole(out, 1980); }
int nvmlDeviceGetPcieThroughput(void *h, int way, unsigned *out) { (void)h; (void)way; return whole(out, 100); }
int nvmlDeviceGetComputeMode(void *h, unsigned *out) { (void)h; return whole(out, 0); }
int nvmlDeviceGetDisplayActive(void *h, unsigned *out) { (void)h; return whole(out, 0); }
int nvmlDeviceGetDisplayMode(void *h, unsigned *out) { (void)h; return whole(out, 0); }
int nvmlDeviceGetPerformanceState(void *h, unsigned *out) { (void)h; return whole(out, 0); }
int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *out) { (void)h; return whole(out, 700000); }
int nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, unsigned long long *out)
{
    (void)h; (void)kind; (void)counter;
    *out = 0;
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { (void)h; *major = 9; *minor = 0; return 0; }
/* As the driver answers on such a GPU. */
#define NOT_SUPPORTED 3
int nvmlDeviceGetFanSpeed(void *h, unsigned *out) { (void)h; (void)out; return NOT_SUPPORTED; }
int nvmlDeviceGetDriverModel(void *h, int *now, int *next) { (void)h; (void)now; (void)next; return NOT_SUPPORTED; }
int nvmlDeviceGetDriverModel_v2(void *h, int *now, int *next) { return nvmlDeviceGetDriverModel(h, now, next); }
