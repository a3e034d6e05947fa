/*
 * A management library that serves a described node instead of hardware, with the symbols and the struct layouts that
 * the Python binding uses.
 *
 * The environment variable NVML_STUB_HARDWARE names the description: a text file of lines "key value". It is read again
 * whenever its inode, size or time of change differs, so hardware can change while a process lives. Without the file
 * the driver counts as not loaded.
 *
 * Of two lines with one key the later counts.
 *
 *   init ERROR                     nvmlInit fails
 *   count 8                        number of GPUs
 *   driver_version, nvml_version, cuda_driver_version
 *   gpu0.KEY                       bus_id, uuid, name, ...: see the functions below; absent means NOT_SUPPORTED
 *   gpu0.nvlink3.active 1          also .remote_type (number), .remote_bus_id
 *   gpu0.ancestor.1 20             common ancestor level with GPU 1
 *   gpu0.fabric.uuid 32 hex digits, also .clique, .state, .status, .health_mask, .health_summary
 *   fabric_versions 3              the newest layout of nvmlDeviceGetGpuFabricInfoV that the driver knows (2 or 3)
 *   gpu0.sram.threshold_exceeded 0 also .volatile_parity, .volatile_secded, .aggregate_parity, .aggregate_secded
 *   gpu0.compute_mode 0            what nvmlDeviceSetComputeMode changes
 *   gpu0.mig2.KEY                  a MIG device; indices without one are holes
 *   gpu0.profile9.KEY              a GPU instance profile by NVML's constant: profile_id, name, slices, instances,
 *                                  multiprocessors, ..., memory_mib, placements 0:2,2:2 (start:size)
 *   gpu0.ecc.volatile 3            uncorrectable errors; also .aggregate
 *   gpu0.field.230 1               a field value; gpu0.field.161.4: of scope 4. A word is that value's own error
 *   gpu0.processes 12:4096:1:0,..  pid, bytes, GPU instance, compute instance ("-" for all); also of a MIG device
 *   gpu0.event_types 8             what events it has
 *   error.CALL ERROR               a call fails; also gpu0.error.CALL and gpu0.mig2.error.CALL. CALL may be "*" for
 *                                  all calls, ERROR may be OK for none. GPU before all GPUs, CALL before "*".
 *
 *   hang.CALL 1                    a call does not return until the line is gone; also gpu0.hang.CALL
 *   delay.CALL 20                  a call takes so many milliseconds; <description>.delays has "CALL microseconds" of each
 *   gpu0.held 1                    some other program holds the GPU, so that it cannot be reset
 *   gpu0.vm 1                      a virtual machine that cannot reset its GPU
 *
 * CALL is the binding's function name (no version suffix, but that of nvmlDeviceGetComputeRunningProcesses), ERROR
 * NVML's name without NVML_ERROR_, or ERROR_4711 for a number that has no name.
 *
 * MIG mode and instances change by calls. What they are then is kept in the file <description>.mig, so that they outlive
 * the process as hardware does; see nvml_mig.c. With NVML_STUB_PROC in the environment, the driver's capability files
 * below that folder follow. With NVML_STUB_KILL=N in it, the process dies by SIGKILL at the Nth point, counted from when
 * the variable is set: every call has one before it does anything, and one before it returns.
 *
 * Events are the lines of the file <description>.events, "GPU TYPE DATA GPU-INSTANCE COMPUTE-INSTANCE" in numbers; an
 * event set sees those that are appended after it was made, and a wait sleeps until one is. What a driver would suffer
 * from (a session ended around an event set, a set freed while it is waited on) is noted in <description>.violations;
 * every registration of a GPU makes <description>.registered one byte longer; <description>.hanging names what hangs.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int nvml_return;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    FUNCTION_NOT_FOUND = 13,
    RESET_REQUIRED = 16,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

static const struct {
    const char *name;
    nvml_return code;
} ERRORS[] = {
    {"OK", 0},
    {"UNINITIALIZED", 1},
    {"INVALID_ARGUMENT", 2},
    {"NOT_SUPPORTED", 3},
    {"NO_PERMISSION", 4},
    {"ALREADY_INITIALIZED", 5},
    {"NOT_FOUND", 6},
    {"INSUFFICIENT_SIZE", 7},
    {"INSUFFICIENT_POWER", 8},
    {"DRIVER_NOT_LOADED", 9},
    {"TIMEOUT", 10},
    {"IRQ_ISSUE", 11},
    {"LIBRARY_NOT_FOUND", 12},
    {"FUNCTION_NOT_FOUND", 13},
    {"CORRUPTED_INFOROM", 14},
    {"GPU_IS_LOST", 15},
    {"RESET_REQUIRED", 16},
    {"OPERATING_SYSTEM", 17},
    {"LIB_RM_VERSION_MISMATCH", 18},
    {"IN_USE", 19},
    {"MEMORY", 20},
    {"NO_DATA", 21},
    {"VGPU_ECC_NOT_SUPPORTED", 22},
    {"INSUFFICIENT_RESOURCES", 23},
    {"FREQ_NOT_SUPPORTED", 24},
    {"ARGUMENT_VERSION_MISMATCH", 25},
    {"DEPRECATED", 26},
    {"NOT_READY", 27},
    {"GPU_NOT_FOUND", 28},
    {"INVALID_STATE", 29},
    {"RESET_TYPE_NOT_SUPPORTED", 30},
    {"UNKNOWN", 999},
};

enum { MAX_GPUS = 64, MAX_MIGS = 16, MAX_LINKS = 36, KEY_SIZE = 128, PATH_SIZE = 4096 };

/* Handles are pointers to these; mig is -1 for the GPU itself. */
struct device {
    int gpu;
    int mig;
};
static struct device devices[MAX_GPUS][MAX_MIGS + 1];

struct line {
    char *key;
    char *value;
};
static struct line *lines;
static size_t line_count;
static char *text;
static struct stat text_stat;
static struct stat state_stat;
static int present;
static int initialised;
static int sessions;
static int event_sets;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int by_key(const void *left, const void *right) {
    return strcmp(((const struct line *)left)->key, ((const struct line *)right)->key);
}

/* Keys lie in the text in the order of their lines. */
static int by_key_and_line(const void *left, const void *right) {
    int order = by_key(left, right);
    if (order) return order;
    return ((const struct line *)left)->key < ((const struct line *)right)->key ? -1 : 1;
}

/* Also when the library is unloaded: a process that does so often must not grow by it. */
__attribute__((destructor)) static void forget(void) {
    free(lines);
    free(text);
    lines = NULL;
    text = NULL;
    line_count = 0;
    present = 0;
}

/* Whether the GPU of a key is described by what calls have made of it, and not by the description. */
static int taken_by_state(const char *key, const int *taken) {
    int gpu, used = 0;
    if (sscanf(key, "gpu%d.mig%n", &gpu, &used) != 1 || !used || gpu < 0 || gpu >= MAX_GPUS || !taken[gpu]) return 0;
    return !strstr(key, ".error.") && !strstr(key, ".processes") && !strstr(key, ".hang.");
}

/* The lines of the description and, after state_at, those of the state of MIG. */
static void parse(const char *state_at) {
    int taken[MAX_GPUS] = {0}, gpu, used;
    for (const char *at = strstr(state_at, "gpu"); at; at = strstr(at + 1, "gpu"))
        if (used = 0, sscanf(at, "gpu%d.taken %n", &gpu, &used) == 1 && used && gpu < MAX_GPUS) taken[gpu] = 1;
    size_t room = 1;
    for (const char *at = text; *at; at++) room += *at == '\n';
    lines = calloc(room, sizeof *lines);
    char *rest = NULL;
    for (char *each = strtok_r(text, "\n", &rest); each; each = strtok_r(NULL, "\n", &rest)) {
        char *space = strchr(each, ' ');
        if (each[0] == '#' || !space) continue;
        *space = '\0';
        if (each < state_at && taken_by_state(each, taken)) continue;
        lines[line_count].key = each;
        lines[line_count++].value = space + 1;
    }
    qsort(lines, line_count, sizeof *lines, by_key_and_line);
    size_t kept = 0;
    for (size_t i = 0; i < line_count; i++)
        if (i + 1 == line_count || by_key(&lines[i], &lines[i + 1])) lines[kept++] = lines[i];
    line_count = kept;
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The whole file after what stands in the buffer; a file that is not there has nothing. */
static size_t append_file(FILE *file, char **buffer, size_t length, struct stat *status) {
    memset(status, 0, sizeof *status);
    if (!file || fstat(fileno(file), status) != 0) return length;
    *buffer = realloc(*buffer, length + (size_t)status->st_size + 2);
    return length + fread(*buffer + length, 1, (size_t)status->st_size, file);
}

static void refresh(void) {
    const char *path = getenv("NVML_STUB_HARDWARE");
    char state[PATH_SIZE];
    struct stat now, state_now;
    if (!path || stat(path, &now) != 0) {
        forget();
        return;
    }
    snprintf(state, sizeof state, "%s.mig", path);
    if (stat(state, &state_now) != 0) memset(&state_now, 0, sizeof state_now);
    if (present && same_file(&now, &text_stat) && same_file(&state_now, &state_stat)) return;
    forget();
    FILE *file = fopen(path, "r"), *changed = fopen(state, "r");
    if (file) {
        char *read = calloc(1, 2);
        size_t length = append_file(file, &read, 0, &text_stat);
        read[length++] = '\n';
        size_t state_at = length;
        length = append_file(changed, &read, length, &state_stat);
        read[length] = '\0';
        text = read;
        parse(text + state_at);
        present = 1;
        fclose(file);
    }
    if (changed) fclose(changed);
}

static const char *value_of(const char *key) {
    struct line wanted = {(char *)key, NULL};
    const struct line *found = lines ? bsearch(&wanted, lines, line_count, sizeof *lines, by_key) : NULL;
    return found ? found->value : NULL;
}

static const char *value_at(const char *format, ...) {
    char key[KEY_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    return value_of(key);
}

static nvml_return error_code(const char *name) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (strcmp(ERRORS[i].name, name) == 0) return ERRORS[i].code;
    if (strncmp(name, "ERROR_", 6) == 0) return (nvml_return)atoi(name + 6);
    return UNKNOWN;
}

/* "gpu0." or "gpu0.mig2.", empty for what concerns no GPU. */
static void prefix_of(const struct device *device, char *prefix) {
    if (!device)
        prefix[0] = '\0';
    else if (device->mig < 0)
        snprintf(prefix, KEY_SIZE, "gpu%d.", device->gpu);
    else
        snprintf(prefix, KEY_SIZE, "gpu%d.mig%d.", device->gpu, device->mig);
}

static nvml_return described_error(const struct device *device, const char *call) {
    char prefixes[3][KEY_SIZE] = {"", "", ""};
    const char *name = NULL;
    int count = 0;
    if (device) {
        if (device->mig >= 0) prefix_of(device, prefixes[count++]);
        snprintf(prefixes[count++], KEY_SIZE, "gpu%d.", device->gpu);
    }
    for (int i = 0; i <= count && !name; i++) {
        name = value_at("%serror.%s", prefixes[i], call);
        if (!name) name = value_at("%serror.*", prefixes[i]);
    }
    return name ? error_code(name) : OK;
}

/* A file beside the description. */
static FILE *beside(const char *suffix, const char *mode) {
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s.%s", getenv("NVML_STUB_HARDWARE") ? getenv("NVML_STUB_HARDWARE") : "", suffix);
    return fopen(path, mode);
}

static void note(const char *suffix, const char *what) {
    FILE *file = beside(suffix, "a");
    if (!file) return;
    fputs(what, file);
    fclose(file);
}

static int described_hang(const struct device *device, const char *call) {
    if (device && value_at("gpu%d.hang.%s", device->gpu, call)) return 1;
    return value_at("hang.%s", call) != NULL;
}

/* A point at which the process may be told to die. */
static long passed;
static void (*on_point)(void);
static void point(void) {
    const char *wanted = getenv("NVML_STUB_KILL");
    if (!wanted) {
        passed = 0;
        return;
    }
    if (on_point) on_point();
    if (++passed == atol(wanted)) raise(SIGKILL);
}

/* Calls the function at every point from when the variable is set; not NVML's, for those who want to try all of them. */
void nvml_stub_on_point(void (*function)(void)) { on_point = function; }

static void delay(const char *call) {
    const char *milliseconds = value_at("delay.%s", call);
    if (!milliseconds) return;
    long long time = atoll(milliseconds) * 1000;
    struct timespec began, ended;
    char taken[128];
    pthread_mutex_unlock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &began);
    usleep((useconds_t)time);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    pthread_mutex_lock(&lock);
    snprintf(taken, sizeof taken, "%s %lld\n", call,
             (ended.tv_sec - began.tv_sec) * 1000000LL + (ended.tv_nsec - began.tv_nsec) / 1000);
    note("delays", taken);
    refresh();
}

/* Every call starts here: with the lock held, the description fresh, and the error that is described for it. */
static nvml_return enter(const struct device *device, const char *call) {
    pthread_mutex_lock(&lock);
    point();
    refresh();
    delay(call);
    for (int told = 0; described_hang(device, call); told = 1) {
        if (!told) note("hanging", call);
        pthread_mutex_unlock(&lock);
        usleep(1000);
        pthread_mutex_lock(&lock);
        refresh();
    }
    if (!initialised) return UNINITIALIZED;
    if (!present) return DRIVER_NOT_LOADED;
    return described_error(device, call);
}

static nvml_return leave(nvml_return result) {
    point();
    pthread_mutex_unlock(&lock);
    return result;
}

static nvml_return copy(char *target, size_t size, const char *value) {
    if (!value) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(target, value);
    return OK;
}

static nvml_return read_text(const struct device *device, const char *call, const char *key, char *target,
                             unsigned int size) {
    char prefix[KEY_SIZE];
    nvml_return result = enter(device, call);
    prefix_of(device, prefix);
    if (result == OK) result = copy(target, size, value_at("%s%s", prefix, key));
    return leave(result);
}

static nvml_return read_number(const struct device *device, const char *call, const char *key, unsigned int *target) {
    char prefix[KEY_SIZE];
    nvml_return result = enter(device, call);
    if (result == OK) {
        prefix_of(device, prefix);
        const char *value = value_at("%s%s", prefix, key);
        if (value)
            *target = (unsigned int)strtoul(value, NULL, 10);
        else
            result = NOT_SUPPORTED;
    }
    return leave(result);
}

/* Sets the numbers at the keys (NULL ends them); NOT_SUPPORTED unless the first one is described. */
static nvml_return read_numbers(const struct device *device, const char *call, ...) {
    char prefix[KEY_SIZE];
    nvml_return result = enter(device, call);
    prefix_of(device, prefix);
    va_list arguments;
    va_start(arguments, call);
    const char *key = va_arg(arguments, const char *);
    if (result == OK && !value_at("%s%s", prefix, key)) result = NOT_SUPPORTED;
    for (; result == OK && key; key = va_arg(arguments, const char *)) {
        const char *value = value_at("%s%s", prefix, key);
        *va_arg(arguments, unsigned int *) = value ? (unsigned int)strtoul(value, NULL, 10) : 0;
    }
    va_end(arguments);
    return leave(result);
}

/* ---- NvmlSession ---- */

nvml_return nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    refresh();
    const char *error = value_of("init");
    nvml_return result = !present ? DRIVER_NOT_LOADED : error ? error_code(error) : OK;
    if (result == OK && initialised++ == 0) sessions++;
    return leave(result);
}

nvml_return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvml_return nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    if (!initialised) return leave(UNINITIALIZED);
    if (--initialised == 0 && event_sets > 0) note("violations", "nvmlShutdown around an event set\n");
    return leave(OK);
}

const char *nvmlErrorString(nvml_return code) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) return ERRORS[i].name;
    return "an error that the stub does not know";
}

nvml_return nvmlSystemGetDriverVersion(char *version, unsigned int size) {
    return read_text(NULL, "nvmlSystemGetDriverVersion", "driver_version", version, size);
}

nvml_return nvmlSystemGetNVMLVersion(char *version, unsigned int size) {
    return read_text(NULL, "nvmlSystemGetNVMLVersion", "nvml_version", version, size);
}

nvml_return nvmlSystemGetCudaDriverVersion(int *version) {
    return read_number(NULL, "nvmlSystemGetCudaDriverVersion", "cuda_driver_version", (unsigned int *)version);
}

nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* ---- Handles ---- */

static int described_count(void) {
    const char *count = value_of("count");
    int number = count ? atoi(count) : 0;
    return number > MAX_GPUS ? MAX_GPUS : number;
}

nvml_return nvmlDeviceGetCount_v2(unsigned int *count) {
    nvml_return result = enter(NULL, "nvmlDeviceGetCount");
    if (result == OK) *count = (unsigned int)described_count();
    return leave(result);
}

nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **handle) {
    if (index >= MAX_GPUS) return INVALID_ARGUMENT;
    struct device *device = &devices[index][0];
    device->gpu = (int)index;
    device->mig = -1;
    nvml_return result = enter(device, "nvmlDeviceGetHandleByIndex");
    if (result == OK && (int)index >= described_count()) result = INVALID_ARGUMENT;
    if (result == OK) *handle = device;
    return leave(result);
}

static nvml_return handle_by(const char *call, const char *key, const char *wanted, struct device **handle) {
    nvml_return result = enter(NULL, call);
    if (result != OK) return leave(result);
    result = NOT_FOUND;
    for (int gpu = 0; gpu < described_count() && result == NOT_FOUND; gpu++) {
        const char *value = value_at("gpu%d.%s", gpu, key);
        if (!value || strcasecmp(value, wanted) != 0) continue;
        devices[gpu][0] = (struct device){gpu, -1};
        *handle = &devices[gpu][0];
        result = described_error(*handle, call);
    }
    return leave(result);
}

static int mig_exists(int gpu, int mig);

nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, struct device **handle) {
    const char *call = "nvmlDeviceGetHandleByUUID";
    nvml_return result = handle_by(call, "uuid", uuid, handle);
    if (result != NOT_FOUND || strncmp(uuid, "MIG-", 4) != 0) return result;
    result = enter(NULL, call);
    if (result != OK) return leave(result);
    for (int gpu = 0; gpu < described_count(); gpu++)
        for (int mig = 0; mig < MAX_MIGS; mig++) {
            const char *value = value_at("gpu%d.mig%d.uuid", gpu, mig);
            if (!value || strcmp(value, uuid) != 0 || !mig_exists(gpu, mig)) continue;
            devices[gpu][mig + 1] = (struct device){gpu, mig};
            *handle = &devices[gpu][mig + 1];
            return leave(OK);
        }
    return leave(NOT_FOUND);
}

nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct device **handle) {
    return handle_by("nvmlDeviceGetHandleByPciBusId", "bus_id", bus_id, handle);
}

nvml_return nvmlDeviceGetIndex(struct device *device, unsigned int *index) {
    nvml_return result = enter(device, "nvmlDeviceGetIndex");
    if (result == OK) *index = (unsigned int)device->gpu;
    return leave(result);
}

/* ---- One GPU (some of these also answer for a MIG device) ---- */

struct pci_info {
    char bus_id_legacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pci_device_id;
    unsigned int pci_subsystem_id;
    char bus_id[32];
};

static nvml_return fill_pci(struct pci_info *info, const char *bus_id) {
    unsigned int function;
    memset(info, 0, sizeof *info);
    nvml_return result = copy(info->bus_id, sizeof info->bus_id, bus_id);
    if (result != OK) return result;
    sscanf(bus_id, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff);
    return OK;
}

nvml_return nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info) {
    nvml_return result = enter(device, "nvmlDeviceGetPciInfo");
    if (result == OK) result = fill_pci(info, value_at("gpu%d.bus_id", device->gpu));
    return leave(result);
}

#define TEXT(symbol, key)                                                                   \
    nvml_return symbol(struct device *device, char *target, unsigned int size) {            \
        return read_text(device, #symbol, key, target, size);                               \
    }
#define NUMBER(symbol, key)                                                                 \
    nvml_return symbol(struct device *device, unsigned int *target) {                       \
        return read_number(device, #symbol, key, target);                                   \
    }

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetModuleId, "module_id")
NUMBER(nvmlDeviceGetVirtualizationMode, "virtualization_mode")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig_max_devices")
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance")

struct addressing_mode {
    unsigned int version;
    unsigned int value;
};

nvml_return nvmlDeviceGetAddressingMode(struct device *device, struct addressing_mode *mode) {
    if (mode->version != 0x1000008) return ARGUMENT_VERSION_MISMATCH;
    return read_number(device, "nvmlDeviceGetAddressingMode", "addressing_mode", &mode->value);
}

nvml_return nvmlDeviceGetCudaComputeCapability(struct device *device, int *major, int *minor) {
    return read_numbers(device, "nvmlDeviceGetCudaComputeCapability", "compute_major", (unsigned int *)major,
                        "compute_minor", (unsigned int *)minor, NULL);
}

struct memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

nvml_return nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    nvml_return result = enter(device, "nvmlDeviceGetMemoryInfo");
    if (result == OK) {
        const char *total = value_at("gpu%d.memory_bytes", device->gpu);
        if (!total) return leave(NOT_SUPPORTED);
        memory->total = memory->free = strtoull(total, NULL, 10);
        memory->used = 0;
    }
    return leave(result);
}

nvml_return nvmlDeviceGetEccMode(struct device *device, unsigned int *current, unsigned int *pending) {
    return read_numbers(device, "nvmlDeviceGetEccMode", "ecc_mode", current, "ecc_mode", pending, NULL);
}

nvml_return nvmlDeviceGetRemappedRows(struct device *device, unsigned int *correctable, unsigned int *uncorrectable,
                                      unsigned int *pending, unsigned int *failed) {
    *correctable = *uncorrectable = 0;
    return read_numbers(device, "nvmlDeviceGetRemappedRows", "remapped_rows_pending", pending, "remapped_rows_failed",
                        failed, NULL);
}

/* ---- Fabric ---- */

struct fabric_v1 {
    unsigned char uuid[16];
    nvml_return status;
    unsigned int clique;
    unsigned int state;
};
struct fabric_v3 {
    unsigned int version;
    struct fabric_v1 membership;
    unsigned int health_mask;
    unsigned char health_summary; /* from here on not in version 2 */
};
enum { FABRIC_V2 = 0x2000024, FABRIC_V3 = 0x3000028 };

static nvml_return fill_fabric(struct device *device, const char *call, struct fabric_v1 *fabric) {
    nvml_return result = read_numbers(device, call, "fabric.state", &fabric->state, "fabric.clique", &fabric->clique,
                                      "fabric.status", &fabric->status, NULL);
    if (result != OK) return result;
    pthread_mutex_lock(&lock);
    const char *uuid = value_at("gpu%d.fabric.uuid", device->gpu);
    for (int i = 0; i < 16; i++) {
        unsigned int byte = 0;
        if (uuid && strlen(uuid) >= 32) sscanf(uuid + 2 * i, "%2x", &byte);
        fabric->uuid[i] = (unsigned char)byte;
    }
    return leave(OK);
}

nvml_return nvmlDeviceGetGpuFabricInfo(struct device *device, struct fabric_v1 *fabric) {
    return fill_fabric(device, "nvmlDeviceGetGpuFabricInfo", fabric);
}

static unsigned int fabric_number(const struct device *device, const char *key) {
    const char *value = value_at("gpu%d.fabric.%s", device->gpu, key);
    return value ? (unsigned int)strtoul(value, NULL, 0) : 0;
}

nvml_return nvmlDeviceGetGpuFabricInfoV(struct device *device, struct fabric_v3 *fabric) {
    nvml_return result = fill_fabric(device, "nvmlDeviceGetGpuFabricInfoV", &fabric->membership);
    if (result != OK) return result;
    pthread_mutex_lock(&lock);
    /* A node whose fabric is described without health has a driver from before the call. */
    if (!value_at("gpu%d.fabric.health_mask", device->gpu)) return leave(FUNCTION_NOT_FOUND);
    const char *newest = value_of("fabric_versions");
    if (fabric->version != FABRIC_V2 && (fabric->version != FABRIC_V3 || (newest && newest[0] == '2')))
        return leave(ARGUMENT_VERSION_MISMATCH);
    fabric->health_mask = fabric_number(device, "health_mask");
    if (fabric->version == FABRIC_V3) fabric->health_summary = (unsigned char)fabric_number(device, "health_summary");
    return leave(OK);
}

/* ---- NVLink and topology ---- */

static nvml_return enter_link(struct device *device, const char *call, unsigned int link) {
    nvml_return result = enter(device, call);
    if (result != OK || value_at("gpu%d.nvlink%u.active", device->gpu, link)) return result;
    /* A GPU without NVLink says so at each link; one with links knows no number beyond its last. */
    for (unsigned int other = 0; other < MAX_LINKS; other++)
        if (value_at("gpu%d.nvlink%u.active", device->gpu, other)) return INVALID_ARGUMENT;
    return NOT_SUPPORTED;
}

nvml_return nvmlDeviceGetNvLinkState(struct device *device, unsigned int link, unsigned int *active) {
    nvml_return result = enter_link(device, "nvmlDeviceGetNvLinkState", link);
    if (result == OK) *active = (unsigned int)atoi(value_at("gpu%d.nvlink%u.active", device->gpu, link));
    return leave(result);
}

nvml_return nvmlDeviceGetNvLinkRemoteDeviceType(struct device *device, unsigned int link, unsigned int *type) {
    nvml_return result = enter_link(device, "nvmlDeviceGetNvLinkRemoteDeviceType", link);
    if (result == OK) {
        const char *value = value_at("gpu%d.nvlink%u.remote_type", device->gpu, link);
        if (value)
            *type = (unsigned int)atoi(value);
        else
            result = NOT_SUPPORTED;
    }
    return leave(result);
}

nvml_return nvmlDeviceGetNvLinkRemotePciInfo_v2(struct device *device, unsigned int link, struct pci_info *info) {
    nvml_return result = enter_link(device, "nvmlDeviceGetNvLinkRemotePciInfo", link);
    if (result == OK) result = fill_pci(info, value_at("gpu%d.nvlink%u.remote_bus_id", device->gpu, link));
    return leave(result);
}

nvml_return nvmlDeviceGetTopologyCommonAncestor(struct device *first, struct device *second, unsigned int *level) {
    nvml_return result = enter(first, "nvmlDeviceGetTopologyCommonAncestor");
    if (result == OK) result = described_error(second, "nvmlDeviceGetTopologyCommonAncestor");
    if (result == OK) {
        const char *value = value_at("gpu%d.ancestor.%d", first->gpu, second->gpu);
        if (!value) value = value_at("gpu%d.ancestor.%d", second->gpu, first->gpu);
        if (value)
            *level = (unsigned int)atoi(value);
        else
            result = NOT_SUPPORTED;
    }
    return leave(result);
}

/* ---- MIG ---- */

static int mig_exists(int gpu, int mig) {
    char prefix[KEY_SIZE];
    int length = snprintf(prefix, sizeof prefix, "gpu%d.mig%d.", gpu, mig);
    if (value_at("gpu%d.taken", gpu)) return value_at("%sexists", prefix) != NULL;
    for (size_t i = 0; i < line_count; i++)
        if (strncmp(lines[i].key, prefix, (size_t)length) == 0) return 1;
    return 0;
}

nvml_return nvmlDeviceGetMigDeviceHandleByIndex(struct device *parent, unsigned int index, struct device **handle) {
    if (index >= MAX_MIGS) return INVALID_ARGUMENT;
    struct device *device = &devices[parent->gpu][index + 1];
    device->gpu = parent->gpu;
    device->mig = (int)index;
    nvml_return result = enter(device, "nvmlDeviceGetMigDeviceHandleByIndex");
    if (result == OK && !mig_exists(parent->gpu, (int)index)) result = NOT_FOUND;
    if (result == OK) *handle = device;
    return leave(result);
}

nvml_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *device, struct device **parent) {
    nvml_return result = enter(device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    devices[device->gpu][0] = (struct device){device->gpu, -1};
    if (result == OK) *parent = &devices[device->gpu][0];
    return leave(result);
}

struct attributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines, gpu_slices,
        compute_slices;
    unsigned long long memory_mib;
};

nvml_return nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *attributes) {
    nvml_return result = read_numbers(
        device, "nvmlDeviceGetAttributes", "multiprocessors", &attributes->multiprocessors, "copy_engines",
        &attributes->copy_engines, "decoders", &attributes->decoders, "encoders", &attributes->encoders,
        "jpeg_engines", &attributes->jpeg_engines, "ofa_engines", &attributes->ofa_engines, "gpu_slices",
        &attributes->gpu_slices, "compute_slices", &attributes->compute_slices, NULL);
    if (result != OK) return result;
    pthread_mutex_lock(&lock);
    const char *memory = value_at("gpu%d.mig%d.memory_mib", device->gpu, device->mig);
    attributes->memory_mib = memory ? strtoull(memory, NULL, 10) : 0;
    return leave(OK);
}

#include "nvml_mig.c"
#include "nvml_signs.c"
#include "nvml_events.c"
