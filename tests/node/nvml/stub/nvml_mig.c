/*
 * MIG: the part of nvml_stub.c that says what can be made of a GPU, and makes it. Included there, since it uses what lies
 * in that file alone.
 *
 * What calls have changed is the file <description>.mig, in lines like those of the description:
 *
 *   gpu0.taken 1                   MIG of this GPU is what stands here, and no longer what the description says
 *   gpu0.mig_mode 1                also .mig_pending, .mig_max_devices
 *   gpu0.gi7.profile_id 19         a GPU instance; also .start, .size
 *   gpu0.mig0.KEY                  a MIG device, one for each compute instance
 *
 * Every change writes the file whole under a lock, so several processes see one hardware, and a process that is killed
 * leaves it as it is.
 */

enum { MAX_PROFILES = 18, MAX_PLACEMENTS = 16, PROFILE_INFO_V2 = 0x2000098 };

struct placement {
    unsigned int start;
    unsigned int size;
};

struct profile_info {
    unsigned int id;
    unsigned int p2p;
    unsigned int slices;
    unsigned int instances;
    unsigned int multiprocessors;
    unsigned int copy_engines;
    unsigned int decoders;
    unsigned int encoders;
    unsigned int jpeg_engines;
    unsigned int ofa_engines;
    unsigned long long memory_mib;
};

struct profile_info_v2 {
    unsigned int version;
    unsigned int id;
    unsigned int p2p;
    unsigned int slices;
    unsigned int instances;
    unsigned int multiprocessors;
    unsigned int copy_engines;
    unsigned int decoders;
    unsigned int encoders;
    unsigned int jpeg_engines;
    unsigned int ofa_engines;
    unsigned long long memory_mib;
    char name[96];
};
_Static_assert(sizeof(struct profile_info_v2) == (PROFILE_INFO_V2 & 0xffffff), "the layout that the version names");

static unsigned int profile_number(int gpu, unsigned int index, const char *key) {
    const char *value = value_at("gpu%d.profile%u.%s", gpu, index, key);
    return value ? (unsigned int)strtoul(value, NULL, 10) : 0;
}

static int profile_exists(int gpu, unsigned int index) {
    return value_at("gpu%d.profile%u.profile_id", gpu, index) != NULL;
}

/* NVML's constant for a profile by the GPU's own id, -1 for none. */
static int profile_of(int gpu, unsigned int id) {
    for (unsigned int index = 0; index < MAX_PROFILES; index++)
        if (profile_exists(gpu, index) && profile_number(gpu, index, "profile_id") == id) return (int)index;
    return -1;
}

static nvml_return enter_profile(struct device *device, unsigned int index) {
    nvml_return result = enter(device, "nvmlDeviceGetGpuInstanceProfileInfo");
    if (result == OK && index >= MAX_PROFILES) result = INVALID_ARGUMENT;
    if (result == OK && !profile_exists(device->gpu, index)) result = NOT_SUPPORTED;
    return result;
}

static void fill_profile(int gpu, unsigned int index, struct profile_info *info) {
    *info = (struct profile_info){
        .id = profile_number(gpu, index, "profile_id"),
        .slices = profile_number(gpu, index, "slices"),
        .instances = profile_number(gpu, index, "instances"),
        .multiprocessors = profile_number(gpu, index, "multiprocessors"),
        .copy_engines = profile_number(gpu, index, "copy_engines"),
        .decoders = profile_number(gpu, index, "decoders"),
        .encoders = profile_number(gpu, index, "encoders"),
        .jpeg_engines = profile_number(gpu, index, "jpeg_engines"),
        .ofa_engines = profile_number(gpu, index, "ofa_engines"),
        .memory_mib = profile_number(gpu, index, "memory_mib"),
    };
}

nvml_return nvmlDeviceGetGpuInstanceProfileInfo(struct device *device, unsigned int index, struct profile_info *info) {
    nvml_return result = enter_profile(device, index);
    if (result == OK) fill_profile(device->gpu, index, info);
    return leave(result);
}

nvml_return nvmlDeviceGetGpuInstanceProfileInfoV(struct device *device, unsigned int index,
                                                 struct profile_info_v2 *info) {
    nvml_return result = enter_profile(device, index);
    if (result == OK && info->version != PROFILE_INFO_V2) result = ARGUMENT_VERSION_MISMATCH;
    if (result == OK) {
        struct profile_info found;
        const char *name = value_at("gpu%d.profile%u.name", device->gpu, index);
        fill_profile(device->gpu, index, &found);
        *info = (struct profile_info_v2){
            .version = PROFILE_INFO_V2,
            .id = found.id,
            .p2p = found.p2p,
            .slices = found.slices,
            .instances = found.instances,
            .multiprocessors = found.multiprocessors,
            .copy_engines = found.copy_engines,
            .decoders = found.decoders,
            .encoders = found.encoders,
            .jpeg_engines = found.jpeg_engines,
            .ofa_engines = found.ofa_engines,
            .memory_mib = found.memory_mib,
        };
        if (name) copy(info->name, sizeof info->name, name);
    }
    return leave(result);
}

/* The placements of a profile; how many there are. */
static unsigned int placements_of(int gpu, int index, struct placement *placements) {
    char listed[256] = "", *rest = NULL;
    unsigned int count = 0;
    const char *value = value_at("gpu%d.profile%d.placements", gpu, index);
    if (value) copy(listed, sizeof listed, value);
    for (char *each = strtok_r(listed, ",", &rest); each; each = strtok_r(NULL, ",", &rest))
        if (count < MAX_PLACEMENTS && sscanf(each, "%u:%u", &placements[count].start, &placements[count].size) == 2)
            count++;
    return count;
}

nvml_return nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct device *device, unsigned int id,
                                                          struct placement *placements, unsigned int *count) {
    struct placement found[MAX_PLACEMENTS];
    nvml_return result = enter(device, "nvmlDeviceGetGpuInstancePossiblePlacements");
    int index = profile_of(device->gpu, id);
    if (result == OK && index < 0) result = NOT_SUPPORTED;
    if (result == OK) {
        unsigned int room = *count;
        *count = placements_of(device->gpu, index, found);
        if (placements && room < *count) result = INSUFFICIENT_SIZE;
        if (placements && result == OK) memcpy(placements, found, *count * sizeof *found);
    }
    return leave(result);
}

/* ---- Instances ---- */

/* Handles of GPU instances (ci is -1) and compute instances, never freed: they may be used after their end. */
struct instance {
    int gpu;
    int gi;
    int ci;
};
enum { MAX_HANDLES = 4096 };
static struct instance *handles[MAX_HANDLES];
static int handle_count;

static struct instance *handle_of(int gpu, int gi, int ci) {
    for (int i = 0; i < handle_count; i++)
        if (handles[i]->gpu == gpu && handles[i]->gi == gi && handles[i]->ci == ci) return handles[i];
    if (handle_count == MAX_HANDLES) abort();
    handles[handle_count] = calloc(1, sizeof **handles);
    *handles[handle_count] = (struct instance){gpu, gi, ci};
    return handles[handle_count++];
}

static int number_at(int gpu, const char *kind, int index, const char *key) {
    const char *value = value_at("gpu%d.%s%d.%s", gpu, kind, index, key);
    return value ? atoi(value) : -1;
}

/* The MIG device of a compute instance, of any of the GPU instance for -1; -1 for none. */
static int mig_of(int gpu, int gi, int ci) {
    for (int mig = 0; mig < MAX_MIGS; mig++)
        if (mig_exists(gpu, mig) && number_at(gpu, "mig", mig, "gpu_instance") == gi &&
            (ci < 0 || number_at(gpu, "mig", mig, "compute_instance") == ci))
            return mig;
    return -1;
}

/* A number of a GPU instance: profile_id, start or size; -1 where it does not exist. */
static int instance_number(int gpu, int gi, const char *key) {
    if (value_at("gpu%d.taken", gpu)) return number_at(gpu, "gi", gi, key);
    int mig = mig_of(gpu, gi, -1);
    if (mig < 0) return -1;
    if (strcmp(key, "profile_id") == 0) return number_at(gpu, "mig", mig, "gpu_instance_profile");
    return number_at(gpu, "mig", mig, strcmp(key, "start") == 0 ? "placement_start" : "placement_size");
}

static int instance_exists(int gpu, int gi) {
    return value_at("gpu%d.taken", gpu) ? number_at(gpu, "gi", gi, "profile_id") >= 0 : mig_of(gpu, gi, -1) >= 0;
}

/* An instance's errors are those of its first MIG device, or of its GPU. */
static nvml_return enter_instance(const struct instance *instance, const char *call) {
    nvml_return result = enter(&devices[instance->gpu][0], call);
    int mig = mig_of(instance->gpu, instance->gi, instance->ci);
    struct device device = {instance->gpu, mig};
    return result == OK && mig >= 0 ? described_error(&device, call) : result;
}

static int in_mig_mode(int gpu) {
    const char *mode = value_at("gpu%d.mig_mode", gpu);
    return mode && atoi(mode) == 1;
}

/* Whether processes run on an instance (-1: any of them, or the whole GPU). */
static int has_processes(int gpu, int gi, int ci) {
    char listed[4096] = "", of_gi[16], of_ci[16], *rest = NULL;
    const char *value = value_at("gpu%d.processes", gpu);
    if (value) copy(listed, sizeof listed, value);
    for (char *each = strtok_r(listed, ",", &rest); each; each = strtok_r(NULL, ",", &rest)) {
        if (sscanf(each, "%*[^:]:%*[^:]:%15[^:]:%15s", of_gi, of_ci) != 2) continue;
        if (gi < 0 || of_gi[0] == '-') return 1;
        if (atoi(of_gi) == gi && (ci < 0 || of_ci[0] == '-' || atoi(of_ci) == ci)) return 1;
    }
    for (int mig = 0; mig < MAX_MIGS; mig++)
        if (value_at("gpu%d.mig%d.processes", gpu, mig) &&
            (gi < 0 || (number_at(gpu, "mig", mig, "gpu_instance") == gi &&
                        (ci < 0 || number_at(gpu, "mig", mig, "compute_instance") == ci))))
            return 1;
    return 0;
}

/* ---- Changes ---- */

static int state_lock = -1;
static char *state;
static size_t state_length;

static void put(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    state = realloc(state, state_length + (size_t)length + 1);
    memcpy(state + state_length, line, (size_t)length);
    state_length += (size_t)length;
    state[state_length] = '\0';
}

/* Take away the lines whose keys begin so. */
static void drop(const char *format, ...) {
    char prefix[KEY_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    char *old = state, *rest = NULL;
    state = NULL;
    state_length = 0;
    for (char *each = strtok_r(old, "\n", &rest); each; each = strtok_r(NULL, "\n", &rest))
        if (strncmp(each, prefix, strlen(prefix)) != 0) put("%s", each);
    free(old);
}

/* What the description says of the GPU's MIG becomes state, which calls may change. */
static void take(int gpu) {
    char prefix[KEY_SIZE];
    if (value_at("gpu%d.taken", gpu)) return;
    snprintf(prefix, sizeof prefix, "gpu%d.mig", gpu);
    for (size_t i = 0; i < line_count; i++)
        if (strncmp(lines[i].key, prefix, strlen(prefix)) == 0 && !strstr(lines[i].key, ".error.") &&
            !strstr(lines[i].key, ".processes") && !strstr(lines[i].key, ".hang."))
            put("%s %s", lines[i].key, lines[i].value);
    for (int mig = 0; mig < MAX_MIGS; mig++) {
        int gi = mig_exists(gpu, mig) ? number_at(gpu, "mig", mig, "gpu_instance") : -1;
        if (gi < 0 || mig_of(gpu, gi, -1) != mig) continue;
        put("gpu%d.gi%d.profile_id %d", gpu, gi, instance_number(gpu, gi, "profile_id"));
        put("gpu%d.gi%d.start %d", gpu, gi, instance_number(gpu, gi, "start"));
        put("gpu%d.gi%d.size %d", gpu, gi, instance_number(gpu, gi, "size"));
    }
    put("gpu%d.taken 1", gpu);
}

static void state_path(char *path, const char *suffix) {
    snprintf(path, PATH_SIZE, "%s.mig%s", getenv("NVML_STUB_HARDWARE"), suffix);
}

/* Begin a change of a GPU's MIG: nobody else changes anything until commit or abandon. */
static void begin(int gpu) {
    char path[PATH_SIZE];
    state_path(path, ".lock");
    state_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(state_lock, LOCK_EX);
    refresh();
    state_path(path, "");
    FILE *file = fopen(path, "r");
    struct stat status;
    free(state);
    state = NULL;
    state_length = append_file(file, &state, 0, &status);
    if (file) fclose(file);
    state = realloc(state, state_length + 1);
    state[state_length] = '\0';
    take(gpu);
}

static void abandon(void) {
    close(state_lock);
    state_lock = -1;
}

static void commit(void) {
    char path[PATH_SIZE], temporary[PATH_SIZE];
    state_path(path, "");
    state_path(temporary, ".new");
    FILE *file = fopen(temporary, "w");
    if (!file || fwrite(state, 1, state_length, file) != state_length) abort();
    fclose(file);
    rename(temporary, path);
    abandon();
    refresh();
}

/* ---- The driver's capability files ---- */

static int capability_folder(char *path, int gpu, int gi, int ci) {
    const char *proc = getenv("NVML_STUB_PROC"), *minor = value_at("gpu%d.minor", gpu);
    if (!proc) return 0;
    int length = snprintf(path, PATH_SIZE - 16, "%s/driver/nvidia/capabilities/gpu%s/mig/gi%d", proc,
                          minor ? minor : "0", gi);
    if (ci >= 0) snprintf(path + length, PATH_SIZE - 16 - (size_t)length, "/ci%d", ci);
    return 1;
}

static void add_capability(int gpu, int gi, int ci) {
    char path[PATH_SIZE];
    const char *minor = value_at("gpu%d.minor", gpu);
    if (!capability_folder(path, gpu, gi, ci)) return;
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0755);
        *at = '/';
    }
    mkdir(path, 0755);
    strcat(path, "/access");
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "DeviceFileMinor: %d\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
            3 + (minor ? atoi(minor) : 0) * 135 + gi * 9 + (ci < 0 ? 0 : 1 + ci));
    fclose(file);
}

static void remove_capability(int gpu, int gi, int ci) {
    char path[PATH_SIZE], access[PATH_SIZE];
    if (!capability_folder(path, gpu, gi, ci)) return;
    snprintf(access, sizeof access, "%.4080s/access", path);
    unlink(access);
    rmdir(path);
}

/* ---- MIG mode ---- */

nvml_return nvmlDeviceGetMigMode(struct device *device, unsigned int *current, unsigned int *pending) {
    return read_numbers(device, "nvmlDeviceGetMigMode", "mig_mode", current, "mig_pending", pending, NULL);
}

/* The most MIG devices: as many as compute slices. */
static int most_devices(int gpu) {
    int most = 0;
    for (unsigned int index = 0; index < MAX_PROFILES; index++)
        if (profile_exists(gpu, index) && (int)profile_number(gpu, index, "slices") > most)
            most = (int)profile_number(gpu, index, "slices");
    return most;
}

static void forget_instances(int gpu) {
    for (int mig = 0; mig < MAX_MIGS; mig++)
        if (mig_exists(gpu, mig))
            remove_capability(gpu, number_at(gpu, "mig", mig, "gpu_instance"),
                              number_at(gpu, "mig", mig, "compute_instance"));
    for (int gi = 0; gi < MAX_MIGS; gi++)
        if (instance_exists(gpu, gi)) remove_capability(gpu, gi, -1);
    for (int index = 0; index < MAX_MIGS; index++) drop("gpu%d.mig%d.", gpu, index);
    for (int gi = 0; gi < MAX_MIGS; gi++) drop("gpu%d.gi%d.", gpu, gi);
}

enum { HOPPER = 9 };

/* Hopper and newer change over at once; older ones are reset, which everybody who has them open prevents. */
static nvml_return activation(int gpu) {
    const char *architecture = value_at("gpu%d.architecture", gpu);
    int at_once = architecture && atoi(architecture) >= HOPPER;
    if (has_processes(gpu, -1, -1)) return IN_USE;
    if (!at_once && value_at("gpu%d.vm", gpu)) return RESET_REQUIRED;
    if (!at_once && value_at("gpu%d.held", gpu)) return IN_USE;
    return OK;
}

nvml_return nvmlDeviceSetMigMode(struct device *device, unsigned int mode, nvml_return *activation_status) {
    nvml_return result = enter(device, "nvmlDeviceSetMigMode");
    int gpu = device->gpu;
    if (result == OK && !value_at("gpu%d.mig_mode", gpu)) result = NOT_SUPPORTED;
    if (result == OK && mode > 1) result = INVALID_ARGUMENT;
    if (result != OK) return leave(result);
    begin(gpu);
    int same = in_mig_mode(gpu) == (int)mode;
    *activation_status = same ? OK : activation(gpu);
    drop("gpu%d.mig_pending ", gpu);
    put("gpu%d.mig_pending %u", gpu, mode);
    if (!same && *activation_status == OK) {
        /* The reset takes all instances with it, whoever made them. */
        forget_instances(gpu);
        drop("gpu%d.mig_mode ", gpu);
        drop("gpu%d.mig_max_devices ", gpu);
        put("gpu%d.mig_mode %u", gpu, mode);
        put("gpu%d.mig_max_devices %d", gpu, mode ? most_devices(gpu) : 0);
    }
    commit();
    return leave(OK);
}

nvml_return nvmlDeviceSetComputeMode(struct device *device, unsigned int mode) {
    nvml_return result = enter(device, "nvmlDeviceSetComputeMode");
    int gpu = device->gpu;
    if (result == OK && !value_at("gpu%d.compute_mode", gpu)) result = NOT_SUPPORTED;
    if (result == OK && mode > 3) result = INVALID_ARGUMENT;
    if (result != OK) return leave(result);
    begin(gpu);
    drop("gpu%d.compute_mode ", gpu);
    put("gpu%d.compute_mode %u", gpu, mode);
    commit();
    return leave(OK);
}

/* ---- GPU instances ---- */

static const char *const SHARED[] = {"multiprocessors", "copy_engines", "decoders",
                                     "encoders",        "jpeg_engines", "ofa_engines"};

/* Whether one more instance of the profile has its placement, its engines and its place among those of its kind. */
static int has_room(int gpu, int index, struct placement wanted) {
    int taken[6] = {0}, largest[6] = {0}, alike = 0;
    for (int gi = 0; gi < MAX_MIGS; gi++) {
        if (!instance_exists(gpu, gi)) continue;
        int start = instance_number(gpu, gi, "start"), size = instance_number(gpu, gi, "size");
        int of = profile_of(gpu, (unsigned int)instance_number(gpu, gi, "profile_id"));
        if ((int)wanted.start < start + size && start < (int)(wanted.start + wanted.size)) return 0;
        alike += of == index;
        for (int i = 0; i < 6 && of >= 0; i++) taken[i] += (int)profile_number(gpu, (unsigned int)of, SHARED[i]);
    }
    if (alike >= (int)profile_number(gpu, (unsigned int)index, "instances")) return 0;
    for (int i = 0; i < 6; i++) {
        for (unsigned int each = 0; each < MAX_PROFILES; each++)
            if (profile_exists(gpu, each) && (int)profile_number(gpu, each, SHARED[i]) > largest[i])
                largest[i] = (int)profile_number(gpu, each, SHARED[i]);
        if (taken[i] + (int)profile_number(gpu, (unsigned int)index, SHARED[i]) > largest[i]) return 0;
    }
    return 1;
}

static nvml_return enter_partitioned(struct device *device, const char *call, unsigned int id, int *index) {
    nvml_return result = enter(device, call);
    *index = profile_of(device->gpu, id);
    if (result == OK && !in_mig_mode(device->gpu)) result = NOT_SUPPORTED;
    if (result == OK && *index < 0) result = INVALID_ARGUMENT;
    return result;
}

nvml_return nvmlDeviceGetGpuInstanceRemainingCapacity(struct device *device, unsigned int id, unsigned int *count) {
    struct placement found[MAX_PLACEMENTS];
    int index;
    nvml_return result = enter_partitioned(device, "nvmlDeviceGetGpuInstanceRemainingCapacity", id, &index);
    if (result != OK) return leave(result);
    unsigned int placements = placements_of(device->gpu, index, found), end = 0, alike = 0;
    for (int gi = 0; gi < MAX_MIGS; gi++)
        alike += instance_exists(device->gpu, gi) && instance_number(device->gpu, gi, "profile_id") == (int)id;
    *count = 0;
    for (unsigned int i = 0; i < placements; i++)
        if (alike + *count < profile_number(device->gpu, (unsigned int)index, "instances") &&
            found[i].start >= end && has_room(device->gpu, index, found[i])) {
            end = found[i].start + found[i].size;
            (*count)++;
        }
    return leave(OK);
}

/* All memory slices of the GPU. */
static unsigned int memory_slices(int gpu) {
    struct placement found[MAX_PLACEMENTS];
    unsigned int most = 0;
    for (int index = 0; index < MAX_PROFILES; index++)
        for (unsigned int i = placements_of(gpu, index, found); i > 0; i--)
            if (found[i - 1].start + found[i - 1].size > most) most = found[i - 1].start + found[i - 1].size;
    return most;
}

/* The driver's numbers: 0 for the whole GPU, 1 and 2 for its halves, and so on; -1 for none that is free. */
static int free_instance(int gpu, struct placement placement) {
    int first = (int)(memory_slices(gpu) / placement.size) - 1 + (int)(placement.start / placement.size);
    for (int gi = first < 0 ? 0 : first; gi < MAX_MIGS; gi++)
        if (!instance_exists(gpu, gi)) return gi;
    return -1;
}

nvml_return nvmlDeviceCreateGpuInstanceWithPlacement(struct device *device, unsigned int id,
                                                     const struct placement *placement, struct instance **instance) {
    struct placement found[MAX_PLACEMENTS];
    int index, gpu = device->gpu, legal = 0;
    nvml_return result = enter_partitioned(device, "nvmlDeviceCreateGpuInstanceWithPlacement", id, &index);
    if (result != OK) return leave(result);
    for (unsigned int i = placements_of(gpu, index, found); i > 0; i--)
        legal |= found[i - 1].start == placement->start && found[i - 1].size == placement->size;
    if (!legal) return leave(INVALID_ARGUMENT);
    begin(gpu);
    int gi = has_room(gpu, index, *placement) ? free_instance(gpu, *placement) : -1;
    if (gi < 0) {
        abandon();
        return leave(INSUFFICIENT_RESOURCES);
    }
    put("gpu%d.gi%d.profile_id %u", gpu, gi, id);
    put("gpu%d.gi%d.start %u", gpu, gi, placement->start);
    put("gpu%d.gi%d.size %u", gpu, gi, placement->size);
    commit();
    add_capability(gpu, gi, -1);
    *instance = handle_of(gpu, gi, -1);
    return leave(OK);
}

nvml_return nvmlDeviceGetGpuInstances(struct device *device, unsigned int id, struct instance **instances,
                                      unsigned int *count) {
    int index;
    nvml_return result = enter_partitioned(device, "nvmlDeviceGetGpuInstances", id, &index);
    if (result != OK) return leave(result);
    *count = 0;
    for (int gi = 0; gi < MAX_MIGS; gi++)
        if (instance_exists(device->gpu, gi) && instance_number(device->gpu, gi, "profile_id") == (int)id)
            instances[(*count)++] = handle_of(device->gpu, gi, -1);
    return leave(OK);
}

nvml_return nvmlDeviceGetGpuInstanceById(struct device *parent, unsigned int id, struct instance **instance) {
    const char *call = "nvmlDeviceGetGpuInstanceById";
    nvml_return result = enter(parent, call);
    if (result == OK && !in_mig_mode(parent->gpu)) result = NOT_SUPPORTED;
    if (result == OK && !instance_exists(parent->gpu, (int)id)) result = NOT_FOUND;
    if (result == OK) {
        int mig = mig_of(parent->gpu, (int)id, -1);
        struct device device = {parent->gpu, mig};
        if (mig >= 0) result = described_error(&device, call);
        *instance = handle_of(parent->gpu, (int)id, -1);
    }
    return leave(result);
}

struct instance_info {
    struct device *device;
    unsigned int id;
    unsigned int profile;
    struct placement placement;
};

nvml_return nvmlGpuInstanceGetInfo(struct instance *instance, struct instance_info *info) {
    nvml_return result = enter_instance(instance, "nvmlGpuInstanceGetInfo");
    int gpu = instance->gpu, gi = instance->gi;
    if (result == OK && !instance_exists(gpu, gi)) result = INVALID_ARGUMENT;
    if (result == OK) {
        devices[gpu][0] = (struct device){gpu, -1};
        if (instance_number(gpu, gi, "profile_id") < 0) return leave(NOT_SUPPORTED);
        *info = (struct instance_info){
            &devices[gpu][0],
            (unsigned int)gi,
            (unsigned int)instance_number(gpu, gi, "profile_id"),
            {(unsigned int)instance_number(gpu, gi, "start"), (unsigned int)instance_number(gpu, gi, "size")},
        };
    }
    return leave(result);
}

nvml_return nvmlGpuInstanceDestroy(struct instance *instance) {
    nvml_return result = enter_instance(instance, "nvmlGpuInstanceDestroy");
    int gpu = instance->gpu, gi = instance->gi;
    if (result != OK) return leave(result);
    begin(gpu);
    if (!instance_exists(gpu, gi))
        result = NOT_FOUND;
    else if (mig_of(gpu, gi, -1) >= 0 || has_processes(gpu, gi, -1))
        result = IN_USE;
    if (result != OK) {
        abandon();
        return leave(result);
    }
    drop("gpu%d.gi%d.", gpu, gi);
    commit();
    remove_capability(gpu, gi, -1);
    return leave(OK);
}

/* ---- Compute instances ---- */

enum { COMPUTE_PROFILES = 9, COMPUTE_INFO_V2 = 0x2000088 };
static const int COMPUTE_SLICES[COMPUTE_PROFILES] = {1, 2, 3, 4, 7, 0, 0, 0, 0};

struct compute_profile_info {
    unsigned int id;
    unsigned int slices;
    unsigned int instances;
    unsigned int multiprocessors;
    unsigned int copy_engines;
    unsigned int decoders;
    unsigned int encoders;
    unsigned int jpeg_engines;
    unsigned int ofa_engines;
};

struct compute_profile_info_v2 {
    unsigned int version;
    struct compute_profile_info info;
    char name[96];
};
_Static_assert(sizeof(struct compute_profile_info_v2) == (COMPUTE_INFO_V2 & 0xffffff), "as the version names it");

static int slices_of(int gpu, int index) { return (int)profile_number(gpu, (unsigned int)index, "slices"); }

/* The GPU instance's profile, if compute instances of this profile fit into it; -1 otherwise. */
static int whole_of(const struct instance *instance, unsigned int profile) {
    int index = profile_of(instance->gpu, (unsigned int)instance_number(instance->gpu, instance->gi, "profile_id"));
    if (index < 0 || profile >= COMPUTE_PROFILES || !COMPUTE_SLICES[profile]) return -1;
    int whole = slices_of(instance->gpu, index), part = COMPUTE_SLICES[profile];
    return part == whole || part == 1 || part == 2 || (part < whole && whole == 7) ? (part <= whole ? index : -1) : -1;
}

static nvml_return compute_profile(struct instance *instance, unsigned int profile, unsigned int engines,
                                   struct compute_profile_info *info) {
    nvml_return result = enter_instance(instance, "nvmlGpuInstanceGetComputeInstanceProfileInfo");
    int gpu = instance->gpu, index;
    if (result == OK && !instance_exists(gpu, instance->gi)) result = INVALID_ARGUMENT;
    if (result == OK && (profile >= COMPUTE_PROFILES || engines > 0)) result = INVALID_ARGUMENT;
    if (result == OK && (index = whole_of(instance, profile)) < 0) result = NOT_SUPPORTED;
    if (result == OK) {
        unsigned int of = (unsigned int)index, whole = profile_number(gpu, of, "slices");
        unsigned int part = (unsigned int)COMPUTE_SLICES[profile];
        *info = (struct compute_profile_info){
            .id = profile,
            .slices = part,
            .instances = whole / part,
            .multiprocessors = profile_number(gpu, of, "multiprocessors") * part / whole,
            .copy_engines = profile_number(gpu, of, "copy_engines"),
            .decoders = profile_number(gpu, of, "decoders"),
            .encoders = profile_number(gpu, of, "encoders"),
            .jpeg_engines = profile_number(gpu, of, "jpeg_engines"),
            .ofa_engines = profile_number(gpu, of, "ofa_engines"),
        };
    }
    return leave(result);
}

nvml_return nvmlGpuInstanceGetComputeInstanceProfileInfo(struct instance *instance, unsigned int profile,
                                                         unsigned int engines, struct compute_profile_info *info) {
    return compute_profile(instance, profile, engines, info);
}

nvml_return nvmlGpuInstanceGetComputeInstanceProfileInfoV(struct instance *instance, unsigned int profile,
                                                          unsigned int engines, struct compute_profile_info_v2 *info) {
    if (info->version != COMPUTE_INFO_V2) return ARGUMENT_VERSION_MISMATCH;
    return compute_profile(instance, profile, engines, &info->info);
}

/* The driver makes a MIG device's UUID of the GPU and the numbers, so the next one in a place has the same. */
static void make_uuid(char *uuid, size_t size, int gpu, int gi, int ci) {
    unsigned long long hash[2] = {14695981039346656037ull, 1099511628211ull};
    const char *of = value_at("gpu%d.uuid", gpu);
    char named[160];
    snprintf(named, sizeof named, "%s/%d/%d", of ? of : "", gi, ci);
    for (int part = 0; part < 2; part++)
        for (const char *at = named; *at; at++) hash[part] = (hash[part] ^ (unsigned char)*at) * 1099511628211ull;
    snprintf(uuid, size, "MIG-%08llx-%04llx-5%03llx-8%03llx-%012llx", hash[0] & 0xffffffff, hash[0] >> 32 & 0xffff,
             hash[0] >> 48 & 0xfff, hash[1] >> 48 & 0xfff, hash[1] & 0xffffffffffff);
}

static void put_device(int gpu, int gi, int ci, int index, int profile, int start) {
    char uuid[64], part[8] = "";
    int mig = 0, slices = COMPUTE_SLICES[profile], whole = slices_of(gpu, index);
    while (mig < MAX_MIGS && mig_exists(gpu, mig)) mig++;
    const char *name = value_at("gpu%d.name", gpu), *of = value_at("gpu%d.profile%d.name", gpu, index);
    make_uuid(uuid, sizeof uuid, gpu, gi, ci);
    if (slices != whole) snprintf(part, sizeof part, "%dc.", slices);
    put("gpu%d.mig%d.exists 1", gpu, mig);
    put("gpu%d.mig%d.uuid %s", gpu, mig, uuid);
    put("gpu%d.mig%d.name %s MIG %s%s", gpu, mig, name ? name : "", part, of && strlen(of) > 4 ? of + 4 : "");
    put("gpu%d.mig%d.gpu_instance %d", gpu, mig, gi);
    put("gpu%d.mig%d.compute_instance %d", gpu, mig, ci);
    put("gpu%d.mig%d.compute_profile %d", gpu, mig, profile);
    put("gpu%d.mig%d.compute_start %d", gpu, mig, start);
    put("gpu%d.mig%d.gpu_instance_profile %d", gpu, mig, instance_number(gpu, gi, "profile_id"));
    put("gpu%d.mig%d.placement_start %d", gpu, mig, instance_number(gpu, gi, "start"));
    put("gpu%d.mig%d.placement_size %d", gpu, mig, instance_number(gpu, gi, "size"));
    put("gpu%d.mig%d.gpu_slices %d", gpu, mig, whole);
    put("gpu%d.mig%d.compute_slices %d", gpu, mig, slices);
    put("gpu%d.mig%d.memory_mib %u", gpu, mig, profile_number(gpu, (unsigned int)index, "memory_mib"));
    for (int i = 0; i < 6; i++) {
        int all = (int)profile_number(gpu, (unsigned int)index, SHARED[i]);
        put("gpu%d.mig%d.%s %d", gpu, mig, SHARED[i], i == 0 ? all * slices / whole : all);
    }
}

nvml_return nvmlGpuInstanceCreateComputeInstance(struct instance *instance, unsigned int profile,
                                                 struct instance **made) {
    nvml_return result = enter_instance(instance, "nvmlGpuInstanceCreateComputeInstance");
    int gpu = instance->gpu, gi = instance->gi, index = -1, start = -1, ci = 0;
    if (result == OK && !instance_exists(gpu, gi)) result = INVALID_ARGUMENT;
    if (result == OK && (index = whole_of(instance, profile)) < 0) result = NOT_SUPPORTED;
    if (result != OK) return leave(result);
    begin(gpu);
    int slices = COMPUTE_SLICES[profile], whole = slices_of(gpu, index);
    for (int at = 0; at + slices <= whole && start < 0; at++) {
        int overlaps = 0;
        for (int mig = 0; mig < MAX_MIGS; mig++) {
            if (!mig_exists(gpu, mig) || number_at(gpu, "mig", mig, "gpu_instance") != gi) continue;
            int other = number_at(gpu, "mig", mig, "compute_start");
            other = other < 0 ? 0 : other;
            overlaps |= at < other + number_at(gpu, "mig", mig, "compute_slices") && other < at + slices;
        }
        if (!overlaps) start = at;
    }
    if (start < 0) {
        abandon();
        return leave(INSUFFICIENT_RESOURCES);
    }
    while (mig_of(gpu, gi, ci) >= 0) ci++;
    put_device(gpu, gi, ci, index, (int)profile, start);
    commit();
    add_capability(gpu, gi, ci);
    *made = handle_of(gpu, gi, ci);
    return leave(OK);
}

nvml_return nvmlGpuInstanceGetComputeInstances(struct instance *instance, unsigned int profile,
                                               struct instance **found, unsigned int *count) {
    nvml_return result = enter_instance(instance, "nvmlGpuInstanceGetComputeInstances");
    int gpu = instance->gpu, gi = instance->gi;
    if (result == OK && !instance_exists(gpu, gi)) result = INVALID_ARGUMENT;
    if (result == OK && whole_of(instance, profile) < 0) result = NOT_SUPPORTED;
    if (result != OK) return leave(result);
    *count = 0;
    for (int mig = 0; mig < MAX_MIGS; mig++)
        if (mig_exists(gpu, mig) && number_at(gpu, "mig", mig, "gpu_instance") == gi &&
            number_at(gpu, "mig", mig, "compute_slices") == COMPUTE_SLICES[profile])
            found[(*count)++] = handle_of(gpu, gi, number_at(gpu, "mig", mig, "compute_instance"));
    return leave(OK);
}

nvml_return nvmlGpuInstanceGetComputeInstanceById(struct instance *instance, unsigned int id,
                                                  struct instance **found) {
    nvml_return result = enter_instance(instance, "nvmlGpuInstanceGetComputeInstanceById");
    if (result == OK && mig_of(instance->gpu, instance->gi, (int)id) < 0) result = NOT_FOUND;
    if (result == OK) *found = handle_of(instance->gpu, instance->gi, (int)id);
    return leave(result);
}

struct compute_info {
    struct device *device;
    struct instance *instance;
    unsigned int id;
    unsigned int profile;
    struct placement placement;
};

nvml_return nvmlComputeInstanceGetInfo_v2(struct instance *instance, struct compute_info *info) {
    nvml_return result = enter_instance(instance, "nvmlComputeInstanceGetInfo");
    int gpu = instance->gpu, mig = mig_of(gpu, instance->gi, instance->ci);
    if (result == OK && mig < 0) result = INVALID_ARGUMENT;
    if (result == OK) {
        int profile = number_at(gpu, "mig", mig, "compute_profile"), start = number_at(gpu, "mig", mig, "compute_start");
        devices[gpu][mig + 1] = (struct device){gpu, mig};
        *info = (struct compute_info){
            &devices[gpu][mig + 1],
            handle_of(gpu, instance->gi, -1),
            (unsigned int)instance->ci,
            (unsigned int)(profile < 0 ? 0 : profile),
            {(unsigned int)(start < 0 ? 0 : start), (unsigned int)number_at(gpu, "mig", mig, "compute_slices")},
        };
    }
    return leave(result);
}

nvml_return nvmlComputeInstanceDestroy(struct instance *instance) {
    nvml_return result = enter_instance(instance, "nvmlComputeInstanceDestroy");
    int gpu = instance->gpu;
    if (result != OK) return leave(result);
    begin(gpu);
    int mig = mig_of(gpu, instance->gi, instance->ci);
    if (mig < 0)
        result = NOT_FOUND;
    else if (has_processes(gpu, instance->gi, instance->ci))
        result = IN_USE;
    if (result != OK) {
        abandon();
        return leave(result);
    }
    drop("gpu%d.mig%d.", gpu, mig);
    commit();
    remove_capability(gpu, instance->gi, instance->ci);
    return leave(OK);
}
