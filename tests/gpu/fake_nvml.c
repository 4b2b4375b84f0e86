// A libnvidia-ml.so.1 whose GPUs are told by the environment, for the real callers of NVML. tests/gpu/fake_nvml.py
// writes FAKE_NVML: a part for every GPU, ended by ';', of pairs "key=value,". A key that is a function's name
// without "nvmlDevice", "Name" as in nvmlDeviceGetName and so on, is the error which that function returns for this
// GPU; with "Mig" before it, for the slices of this GPU. FAKE_NVML_INIT is the error of nvmlInit, which with
// FAKE_NVML_HANGS never returns.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Return;
typedef char *Device;  // a number: 1 + GPU + 256 * (1 + slice, or 0 for the GPU itself)
enum { SUCCESS = 0, INVALID = 2, NOT_FOUND = 6, TOO_SMALL = 7 };

static int gpu_of(Device device) { return (int)((size_t)device & 255) - 1; }
static int slice_of(Device device) { return (int)((size_t)device >> 8) - 1; }
static Device device_of(int gpu, int slice) { return (Device)(size_t)(gpu + 1 + 256 * (slice + 1)); }

static const char *part(int gpu) {
    const char *at = getenv("FAKE_NVML");
    for (; at && *at && gpu; gpu--) at = strchr(at, ';') + 1;
    return at && *at ? at : NULL;
}

// The value of a key of a GPU, up to the next comma; whether it has one.
static int text(int gpu, const char *key, char *value, unsigned room) {
    size_t length = strlen(key);
    for (const char *at = part(gpu); at && *at != ';'; at = strchr(at, ',') + 1)
        if (!strncmp(at, key, length) && at[length] == '=') {
            snprintf(value, room, "%.*s", (int)strcspn(at + length + 1, ","), at + length + 1);
            return 1;
        }
    return 0;
}

static double number(int gpu, const char *key, double otherwise) {
    char value[64];
    return text(gpu, key, value, sizeof value) ? atof(value) : otherwise;
}

static Return error_of(Device device, const char *function) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", slice_of(device) < 0 ? "" : "Mig", function);
    return (Return)number(gpu_of(device), key, SUCCESS);
}

static int gpus(void) {
    int count = 0;
    while (part(count)) count++;
    return count;
}

#define FAILS(device, function) do { Return error = error_of(device, function); if (error) return error; } while (0)

Return nvmlInit_v2(void) {
    if (getenv("FAKE_NVML_HANGS")) pause();
    return getenv("FAKE_NVML_INIT") ? atoi(getenv("FAKE_NVML_INIT")) : SUCCESS;
}
Return nvmlInit(void) { return nvmlInit_v2(); }
Return nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
Return nvmlShutdown(void) { return SUCCESS; }
Return nvmlDeviceGetCount_v2(unsigned *count) {
    FAILS(device_of(0, -1), "Count");
    *count = gpus();
    return SUCCESS;
}

const char *nvmlErrorString(Return error) {
    static char said[32];
    snprintf(said, sizeof said, "NVML error %d", error);
    return said;
}

Return nvmlSystemGetDriverVersion(char *version, unsigned room) {
    snprintf(version, room, "580.95.05");
    return SUCCESS;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    if ((int)index >= gpus()) return INVALID;
    *device = device_of(index, -1);
    FAILS(*device, "Handle");
    return SUCCESS;
}

Return nvmlDeviceGetUUID(Device device, char *uuid, unsigned room) {
    FAILS(device, "UUID");
    const char *kind = slice_of(device) < 0 ? "GPU" : "MIG";
    snprintf(uuid, room, "%s-%08x-0000-0000-0000-%012x", kind, gpu_of(device), slice_of(device) + 1);
    return SUCCESS;
}

Return nvmlDeviceGetHandleByUUID(const char *wanted, Device *device) {
    char uuid[96];
    for (int gpu = 0; gpu < gpus(); gpu++)
        for (int slice = -1; slice < number(gpu, "slices", 0); slice++) {
            *device = device_of(gpu, slice);
            nvmlDeviceGetUUID(*device, uuid, sizeof uuid);
            if (!strcmp(uuid, wanted)) { FAILS(*device, "Handle"); return SUCCESS; }
        }
    return NOT_FOUND;
}

Return nvmlDeviceGetName(Device device, char *name, unsigned room) {
    FAILS(device, "Name");
    text(gpu_of(device), "name", name, room);
    if (slice_of(device) >= 0) strncat(name, " MIG 1g", room - strlen(name) - 1);
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } Memory;
Return nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    FAILS(device, "MemoryInfo");
    double share = slice_of(device) < 0 ? 1 : 1 / (number(gpu_of(device), "slices", 1) + 1);
    memory->total = (unsigned long long)(number(gpu_of(device), "gib", 8) * share * (1ull << 30));
    memory->used = (unsigned long long)(number(gpu_of(device), "used_gib", 0) * (1ull << 30));
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

Return nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    FAILS(device, "CudaComputeCapability");
    *major = (int)number(gpu_of(device), "major", 8);
    *minor = (int)number(gpu_of(device), "minor", 9);
    return SUCCESS;
}

Return nvmlDeviceGetComputeMode(Device device, int *mode) {
    FAILS(device, "ComputeMode");
    *mode = (int)number(gpu_of(device), "mode", 0);
    return SUCCESS;
}

Return nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    FAILS(device, "MigMode");
    *current = *pending = number(gpu_of(device), "slices", -1) >= 0;
    return SUCCESS;
}

Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    FAILS(device, "MaxMigDeviceCount");
    *count = 7;
    return SUCCESS;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *slice) {
    FAILS(device, "MigDeviceHandle");
    if (index >= number(gpu_of(device), "slices", 0)) return NOT_FOUND;
    *slice = device_of(gpu_of(device), index);
    return SUCCESS;
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device *device) {
    *device = device_of(gpu_of(slice), -1);
    return SUCCESS;
}

// The processes on a GPU, and by how many percent each keeps it busy: "pid", and "others" as "PID:PERCENT PID:PERCENT".
typedef struct { unsigned pid, busy; } User;
enum { MOST = 8 };
static unsigned users(int gpu, User *found) {
    char others[128] = "", *rest;
    found[0] = (User){(unsigned)number(gpu, "pid", 0), (unsigned)number(gpu, "busy", 50)};
    unsigned count = found[0].pid != 0;
    text(gpu, "others", others, sizeof others);
    for (char *one = strtok_r(others, " ", &rest); one && count < MOST; one = strtok_r(NULL, " ", &rest))
        count += sscanf(one, "%u:%u", &found[count].pid, &found[count].busy) == 2;
    return count;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *processes) {
    FAILS(device, "ComputeRunningProcesses");
    User found[MOST];
    unsigned long long used = (unsigned long long)(number(gpu_of(device), "used_gib", 0) * (1ull << 30));
    unsigned room = *count;
    *count = users(gpu_of(device), found);
    if (room < *count) return TOO_SMALL;
    for (unsigned i = 0; i < *count; i++) processes[i] = (Process){found[i].pid, used, 0, 0};
    return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Sample;
Return nvmlDeviceGetProcessUtilization(Device device, Sample *samples, unsigned *count, unsigned long long since) {
    FAILS(device, "ProcessUtilization");
    User found[MOST];
    unsigned room = samples ? *count : 0;
    *count = users(gpu_of(device), found);
    if (!*count) return NOT_FOUND;
    if (room < *count) return TOO_SMALL;
    for (unsigned i = 0; i < *count; i++) samples[i] = (Sample){found[i].pid, since, found[i].busy, 0, 0, 0};
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } Rates;
Return nvmlDeviceGetUtilizationRates(Device device, Rates *rates) {
    FAILS(device, "UtilizationRates");
    *rates = (Rates){(unsigned)number(gpu_of(device), "busy", 50), 10};
    return SUCCESS;
}

Return nvmlDeviceGetTemperature(Device device, int sensor, unsigned *celsius) {
    (void)sensor;
    FAILS(device, "Temperature");
    *celsius = 60;
    return SUCCESS;
}

Return nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
    FAILS(device, "PowerUsage");
    *milliwatts = 150000;
    return SUCCESS;
}

Return nvmlDeviceGetClockInfo(Device device, int type, unsigned *mhz) {
    (void)type;
    FAILS(device, "ClockInfo");
    *mhz = 1500;
    return SUCCESS;
}

Return nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *reasons) {
    FAILS(device, "CurrentClocksEventReasons");
    *reasons = (unsigned long long)number(gpu_of(device), "reasons", 0);
    return SUCCESS;
}

Return nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long *millijoules) {
    static unsigned long long total = 0;
    FAILS(device, "TotalEnergyConsumption");
    *millijoules = total += 1000;
    return SUCCESS;
}
