/*
 * Event sets: the part of nvml_stub.c that waits. Included there, since it uses what lies in that file alone.
 */

struct event_set {
    int session;
    int waiting;
    int notices;
    long offset;
    unsigned long long types[MAX_GPUS];
};

struct event {
    struct device *device;
    unsigned long long type;
    unsigned long long data;
    unsigned int gpu_instance;
    unsigned int compute_instance;
};

enum { USUAL_TYPES = 0xc09f };

/* Notices of whatever happens in the description's folder: it and the events lie there. */
static int watch_folder(void) {
    char folder[PATH_SIZE];
    snprintf(folder, sizeof folder, "%s", getenv("NVML_STUB_HARDWARE"));
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    int notices = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    inotify_add_watch(notices, slash ? folder : ".", IN_MODIFY | IN_MOVED_TO | IN_DELETE | IN_CREATE);
    return notices;
}

nvml_return nvmlEventSetCreate(struct event_set **set) {
    nvml_return result = enter(NULL, "nvmlEventSetCreate");
    if (result == OK) {
        *set = calloc(1, sizeof **set);
        (*set)->session = sessions;
        (*set)->notices = watch_folder();
        FILE *file = beside("events", "r");
        if (file) {
            fseek(file, 0, SEEK_END);
            (*set)->offset = ftell(file);
            fclose(file);
        }
        event_sets++;
    }
    return leave(result);
}

/* Frees whatever error is described: what is left of it is what counts. */
nvml_return nvmlEventSetFree(struct event_set *set) {
    nvml_return result = enter(NULL, "nvmlEventSetFree");
    if (set->waiting) note("violations", "nvmlEventSetFree during a wait\n");
    if (!initialised || set->session != sessions) note("violations", "nvmlEventSetFree after the session of the set\n");
    close(set->notices);
    event_sets--;
    free(set);
    return leave(result);
}

nvml_return nvmlDeviceGetSupportedEventTypes(struct device *device, unsigned long long *types) {
    nvml_return result = enter(device, "nvmlDeviceGetSupportedEventTypes");
    if (result == OK) {
        const char *value = value_at("gpu%d.event_types", device->gpu);
        *types = value ? strtoull(value, NULL, 0) : USUAL_TYPES;
    }
    return leave(result);
}

nvml_return nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, struct event_set *set) {
    nvml_return result = enter(device, "nvmlDeviceRegisterEvents");
    if (result == OK) {
        set->types[device->gpu] |= types;
        note("registered", ".");
    }
    return leave(result);
}

/* The next event that was registered; a line without its end is still being written. */
static int next_event(struct event_set *set, struct event *event) {
    char line[256];
    int gpu, found = 0;
    FILE *file = beside("events", "r");
    if (!file) return 0;
    fseek(file, set->offset, SEEK_SET);
    while (!found && fgets(line, sizeof line, file) && strchr(line, '\n')) {
        set->offset = ftell(file);
        if (sscanf(line, "%d %llu %llu %u %u", &gpu, &event->type, &event->data, &event->gpu_instance,
                   &event->compute_instance) != 5)
            continue;
        if (gpu < 0 || gpu >= MAX_GPUS || !(set->types[gpu] & event->type)) continue;
        devices[gpu][0] = (struct device){gpu, -1};
        event->device = &devices[gpu][0];
        found = 1;
    }
    fclose(file);
    return found;
}

/* A set with a lost GPU says so at once, and again and again. */
static int loses_gpu(const struct event_set *set) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        struct device device = {gpu, -1};
        if (set->types[gpu] && described_error(&device, "nvmlEventSetWait") == GPU_IS_LOST) return 1;
    }
    return 0;
}

static long long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

nvml_return nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned int timeout) {
    long long deadline = milliseconds() + timeout;
    for (;;) {
        char drained[4096];
        nvml_return result = enter(NULL, "nvmlEventSetWait");
        if (result == OK && set->session != sessions) result = UNINITIALIZED;
        if (result == OK && loses_gpu(set)) result = GPU_IS_LOST;
        if (result != OK || next_event(set, event)) return leave(result);
        struct pollfd notices = {set->notices, POLLIN, 0};
        set->waiting = 1;
        pthread_mutex_unlock(&lock);
        long long rest = deadline - milliseconds();
        int woken = rest > 0 ? poll(&notices, 1, (int)rest) : 0;
        pthread_mutex_lock(&lock);
        set->waiting = 0;
        if (woken <= 0) return leave(TIMEOUT);
        while (read(set->notices, drained, sizeof drained) > 0) continue;
        pthread_mutex_unlock(&lock);
    }
}
