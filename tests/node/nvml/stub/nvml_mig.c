/*
 * MIG profiles: the part of nvml_stub.c that says what can be made of a GPU. Included there, since it uses what lies in
 * that file alone.
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
