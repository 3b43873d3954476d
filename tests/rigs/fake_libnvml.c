/* A fake libnvidia-ml.so.1: every answer comes from the file named by FAKE_NVML_STATE, one
 * "key=value" a line, read anew at each call. Every init and shutdown is written to
 * FAKE_NVML_LOG. NO_MEMORY_V2, NO_FIELDS and NO_COMPUTE_V3 leave a symbol out, as old libraries do.
 *
 * Keys: init, driver, count; for each GPU "N.handle", "N.uuid", "N.name", "N.pci", "N.minor",
 * "N.memory" (return code), "N.total", "N.used", "N.reserved", "N.mig_code", "N.mig", "N.persistence_code",
 * "N.persistence", "N.utilisation_code", "N.utilisation", "N.compute", "N.graphics", "N.mps" ("PID:BYTES[:GI:CI],...",
 * BYTES -1: not available), "N.compute_code" and so on, "N.field_call", "N.field_code", "N.field_type", "N.field".
 * "N.samples" ("PID:SM[:SECONDS_AGO[:ENCODER]],..."), "N.samples_code" (of the call that asks for room), "N.samples_grow"
 * (so many more in the first call that fills). NO_SAMPLES leaves it out.
 * For a reset, each with its "_code": "N.arch", "N.link3" (state; "N.links" is the code of the others),
 * "N.link3_type", "N.link3_pci", "N.fabric", "N.fabric_status", "N.virtual", "N.display", "N.drain", "N.mig_pending",
 * "N.ecc", "N.rows" (corrected:uncorrected:pending:failed), "N.limit", "N.default_limit", "N.compute_mode",
 * "N.accounting", "N.clock", "N.memory_clock", "N.default_clock". NO_RESET_CALLS leaves them all out.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { unsigned pid; unsigned long long used; unsigned gi; unsigned ci; } process_v3;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } process_sample;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_info;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    unsigned value_type, code;
    union { double d; unsigned u; unsigned long ul; unsigned long long ull; } value;
} field_value;

static int lookup(const char *key, char *value, size_t size)
{
    FILE *file = fopen(getenv("FAKE_NVML_STATE"), "r");
    char line[4096];
    size_t length = strlen(key);
    int found = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static long long number(const char *key, long long fallback)
{
    char value[4096];
    return lookup(key, value, sizeof value) ? strtoll(value, NULL, 10) : fallback;
}

static const char *of(void *handle, const char *name)
{
    static char key[64];
    snprintf(key, sizeof key, "%d.%s", (int)(intptr_t)handle - 1, name);
    return key;
}

static void text(void *handle, const char *name, const char *fallback, char *out, unsigned size)
{
    if (!lookup(of(handle, name), out, size)) snprintf(out, size, fallback, (int)(intptr_t)handle - 1);
}

static void note(const char *word)
{
    FILE *file = fopen(getenv("FAKE_NVML_LOG"), "a");
    if (file) { fprintf(file, "%s\n", word); fclose(file); }
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; note("init"); return (int)number("init", 0); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { note("shutdown"); return 0; }
const char *nvmlErrorString(int code) { (void)code; note("errorstring"); return "a text that nobody may compare"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    if (!lookup("driver", out, size)) snprintf(out, size, "595.45.04");
    return (int)number("driver_code", 0);
}

int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("count", 1); return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    char word[96];
    *handle = (void *)(intptr_t)(index + 1);
    /* "stale_once": the first handle after that init fails with this code, as after a driver upgrade */
    snprintf(word, sizeof word, "%lld", number("stale_until_init", 0));
    if (strcmp(word, "0") != 0) {
        FILE *file = fopen(getenv("FAKE_NVML_LOG"), "r");
        char line[64];
        long long inits = 0;
        while (file && fgets(line, sizeof line, file)) inits += strcmp(line, "init\n") == 0;
        if (file) fclose(file);
        if (inits < number("stale_until_init", 0)) return (int)number("stale_code", 18);
    }
    return (int)number(of(*handle, "handle"), 0);
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) { text(handle, "uuid", "GPU-%d", out, size); return 0; }
int nvmlDeviceGetName(void *handle, char *out, unsigned size) { text(handle, "name", "Fake %d", out, size); return 0; }
int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
    *minor = (unsigned)number(of(handle, "minor"), (intptr_t)handle - 1);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *pci)
{
    memset(pci, 0, sizeof *pci);
    text(handle, "pci", "00000000:3B:0%d.0", pci->bus_id, sizeof pci->bus_id);
    return 0;
}

#ifndef NO_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory)
{
    if (memory->version != 0x02000028) return 25;
    memory->total = (unsigned long long)number(of(handle, "total"), 1000);
    memory->used = (unsigned long long)number(of(handle, "used"), 100);
    memory->reserved = (unsigned long long)number(of(handle, "reserved"), 10);
    memory->free = memory->total - memory->used - memory->reserved;
    return (int)number(of(handle, "memory"), 0);
}
#endif

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    *current = (unsigned)number(of(handle, "mig"), 0);
    *pending = (unsigned)number(of(handle, "mig_pending"), *current);
    return (int)number(of(handle, "mig_code"), 0);
}

int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode)
{
    *mode = (unsigned)number(of(handle, "persistence"), 1);
    return (int)number(of(handle, "persistence_code"), 0);
}

int nvmlDeviceGetUtilizationRates(void *handle, utilisation *rates)
{
    rates->gpu = (unsigned)number(of(handle, "utilisation"), 42);
    rates->memory = 7;
    return (int)number(of(handle, "utilisation_code"), 0);
}

#ifndef NO_SAMPLES
int nvmlDeviceGetProcessUtilization(void *handle, process_sample *out, unsigned *count, unsigned long long since)
{
    static int fills;
    char value[4096] = "";
    unsigned room = *count, found = 0;
    struct timespec now;
    int code = (int)number(of(handle, "samples_code"), 0);
    if (code) return code;
    if (out && fills++ < number(of(handle, "samples_grow"), 0)) return 7;
    if (!lookup(of(handle, "samples"), value, sizeof value) || !*value) { *count = 0; return 0; }
    clock_gettime(CLOCK_REALTIME, &now);
    for (char *rest = value, *word; (word = strsep(&rest, ","));) {
        unsigned pid, sm, encoder = 0;
        double ago = 0;
        if (sscanf(word, "%u:%u:%lf:%u", &pid, &sm, &ago, &encoder) < 2) return 999;
        unsigned long long at = (unsigned long long)((now.tv_sec + now.tv_nsec / 1e9 - ago) * 1e6);
        if (out && found < room) out[found] = (process_sample){pid, at, sm, 0, encoder, 0};
        found++;
    }
    (void)since;
    *count = found;
    return out ? 0 : 7;
}
#endif

static int processes(void *handle, const char *name, unsigned *count, process_v3 *out)
{
    char value[4096] = "", key[64];
    unsigned room = *count, found = 0;
    snprintf(key, sizeof key, "%s_code", name);
    int code = (int)number(of(handle, key), 0);
    if (code) return code;
    if (!lookup(of(handle, name), value, sizeof value) || !*value) { *count = 0; return 0; }
    for (char *rest = value, *word; (word = strsep(&rest, ","));) {
        unsigned pid, gi = 0xFFFFFFFF, ci = 0xFFFFFFFF;
        long long used;
        if (sscanf(word, "%u:%lld:%u:%u", &pid, &used, &gi, &ci) < 2) return 999;
        if (out && found < room) out[found] = (process_v3){pid, (unsigned long long)used, gi, ci};
        found++;
    }
    *count = found;
    return found > room ? 7 : 0;
}

#ifndef NO_COMPUTE_V3
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_v3 *out)
{
    return processes(handle, "compute", count, out);
}
#endif
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_v3 *out)
{
    return processes(handle, "graphics", count, out);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, process_v3 *out)
{
    return processes(handle, "mps", count, out);
}

#ifndef NO_FIELDS
int nvmlDeviceGetFieldValues(void *handle, int count, field_value *values)
{
    for (int i = 0; i < count; i++) {
        values[i].code = values[i].field == 230 ? (unsigned)number(of(handle, "field_code"), 0) : 2;
        values[i].value_type = (unsigned)number(of(handle, "field_type"), 1);
        values[i].value.ull = (unsigned long long)number(of(handle, "field"), 0);
    }
    return (int)number(of(handle, "field_call"), 0);
}
#endif

#ifndef NO_RESET_CALLS
/* The value of "N.name" goes to *out, and the code of "N.name_code" is returned. */
static int plain(void *handle, const char *name, long long fallback, unsigned *out)
{
    char code[64];
    snprintf(code, sizeof code, "%s_code", name);
    *out = (unsigned)number(of(handle, name), fallback);
    return (int)number(of(handle, code), 0);
}

static int of_link(void *handle, unsigned link, const char *what, long long fallback, unsigned *out)
{
    char name[48];
    snprintf(name, sizeof name, "link%u%s", link, what);
    return plain(handle, name, fallback, out);
}

int nvmlDeviceGetArchitecture(void *handle, unsigned *out) { return plain(handle, "arch", 9, out); }

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out)
{
    char name[48], value[64];
    int code = of_link(handle, link, "", 0, out);
    snprintf(name, sizeof name, "link%u", link);
    return lookup(of(handle, name), value, sizeof value) ? code
        : code ? code : (int)number(of(handle, "links"), 3);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, unsigned *out)
{
    return of_link(handle, link, "_type", 2, out);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, pci_info *pci)
{
    char name[48];
    unsigned unused;
    memset(pci, 0, sizeof *pci);
    snprintf(name, sizeof name, "link%u_pci", link);
    text(handle, name, "00000000:FF:0%d.0", pci->bus_id, sizeof pci->bus_id);
    return of_link(handle, link, "_pci", 0, &unused);
}

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned status;
    uint32_t clique;
    unsigned char state;
    uint32_t health;
} fabric_v2;

int nvmlDeviceGetGpuFabricInfoV(void *handle, fabric_v2 *fabric)
{
    unsigned state;
    int code = plain(handle, "fabric", 3, &state);
    if (fabric->version != 0x02000024) return 25;
    fabric->state = (unsigned char)state;
    fabric->status = (unsigned)number(of(handle, "fabric_status"), 0);
    return code;
}

int nvmlDeviceGetVirtualizationMode(void *handle, unsigned *out) { return plain(handle, "virtual", 0, out); }
int nvmlDeviceGetDisplayActive(void *handle, unsigned *out) { return plain(handle, "display", 0, out); }

int nvmlDeviceQueryDrainState(pci_info *pci, unsigned *out)
{
    for (intptr_t index = 0; index < number("count", 1); index++) {
        pci_info own;
        nvmlDeviceGetPciInfo_v3((void *)(index + 1), &own);
        if (strcmp(own.bus_id, pci->bus_id) == 0) return plain((void *)(index + 1), "drain", 0, out);
    }
    return 6;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *out)
{
    unsigned count;
    int code = plain(handle, "ecc", 0, &count);
    *out = count;
    return type == 1 && counter == 1 ? code : 2;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    char value[64] = "0:0:0:0";
    lookup(of(handle, "rows"), value, sizeof value);
    sscanf(value, "%u:%u:%u:%u", corrected, uncorrected, pending, failed);
    return (int)number(of(handle, "rows_code"), 0);
}

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *out) { return plain(handle, "limit", 700000, out); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *out)
{
    return plain(handle, "default_limit", 700000, out);
}
int nvmlDeviceGetComputeMode(void *handle, unsigned *out) { return plain(handle, "compute_mode", 0, out); }
int nvmlDeviceGetAccountingMode(void *handle, unsigned *out) { return plain(handle, "accounting", 0, out); }
int nvmlDeviceGetApplicationsClock(void *handle, int type, unsigned *out)
{
    return type == 2 ? plain(handle, "memory_clock", 3201, out) : plain(handle, "clock", 1980, out);
}
int nvmlDeviceGetDefaultApplicationsClock(void *handle, int type, unsigned *out)
{
    return plain(handle, "default_clock", type == 2 ? 3201 : 1980, out);
}
#endif
