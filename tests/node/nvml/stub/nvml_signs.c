/*
 * Signs of health, and what computes: the part of nvml_stub.c that answers what is polled. Included there, since it
 * uses what lies in that file alone.
 */

static nvml_return read_large(const struct device *device, const char *call, const char *key,
                              unsigned long long *target) {
    nvml_return result = enter(device, call);
    if (result == OK) {
        const char *value = value_at("gpu%d.%s", device->gpu, key);
        if (value)
            *target = strtoull(value, NULL, 0);
        else
            result = NOT_SUPPORTED;
    }
    return leave(result);
}

nvml_return nvmlDeviceGetTotalEccErrors(struct device *device, unsigned int type, unsigned int counter,
                                        unsigned long long *count) {
    if (type != 1) return NOT_SUPPORTED;
    return read_large(device, "nvmlDeviceGetTotalEccErrors", counter == 0 ? "ecc.volatile" : "ecc.aggregate", count);
}

nvml_return nvmlDeviceGetCurrentClocksEventReasons(struct device *device, unsigned long long *reasons) {
    return read_large(device, "nvmlDeviceGetCurrentClocksEventReasons", "clocks_event_reasons", reasons);
}

nvml_return nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *reasons) {
    return read_large(device, "nvmlDeviceGetCurrentClocksThrottleReasons", "clocks_event_reasons", reasons);
}

struct sram_status {
    unsigned int version;
    unsigned long long aggregate_parity;
    unsigned long long aggregate_secded;
    unsigned long long aggregate_corrected;
    unsigned long long volatile_parity;
    unsigned long long volatile_secded;
    unsigned long long volatile_corrected;
    unsigned long long buckets[5];
    unsigned int threshold_exceeded;
};
enum { SRAM_V1 = 0x1000068 };
_Static_assert(sizeof(struct sram_status) == (SRAM_V1 & 0xffffff), "the layout that the version names");

static unsigned long long sram_number(const struct device *device, const char *key) {
    const char *value = value_at("gpu%d.sram.%s", device->gpu, key);
    return value ? strtoull(value, NULL, 0) : 0;
}

nvml_return nvmlDeviceGetSramEccErrorStatus(struct device *device, struct sram_status *status) {
    nvml_return result = enter(device, "nvmlDeviceGetSramEccErrorStatus");
    if (result == OK && status->version != SRAM_V1) result = ARGUMENT_VERSION_MISMATCH;
    if (result == OK && !value_at("gpu%d.sram.threshold_exceeded", device->gpu)) result = NOT_SUPPORTED;
    if (result == OK) {
        status->aggregate_parity = sram_number(device, "aggregate_parity");
        status->aggregate_secded = sram_number(device, "aggregate_secded");
        status->volatile_parity = sram_number(device, "volatile_parity");
        status->volatile_secded = sram_number(device, "volatile_secded");
        status->threshold_exceeded = (unsigned int)sram_number(device, "threshold_exceeded");
    }
    return leave(result);
}

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")

struct field_value {
    unsigned int id;
    unsigned int scope;
    long long timestamp;
    long long latency;
    unsigned int type;
    nvml_return result;
    unsigned long long value;
};
enum { UNSIGNED_LONG_LONG = 3, NVLINK_STATE = 165 };

nvml_return nvmlDeviceGetFieldValues(struct device *device, int count, struct field_value *values) {
    nvml_return result = enter(device, "nvmlDeviceGetFieldValues");
    for (int i = 0; result == OK && i < count; i++) {
        const char *value;
        if (values[i].id == NVLINK_STATE && !value_at("gpu%d.field.%u", device->gpu, NVLINK_STATE))
            value = value_at("gpu%d.nvlink%u.active", device->gpu, values[i].scope);
        else if (values[i].scope && values[i].id != NVLINK_STATE)
            value = value_at("gpu%d.field.%u.%u", device->gpu, values[i].id, values[i].scope);
        else
            value = value_at("gpu%d.field.%u", device->gpu, values[i].id);
        values[i].type = UNSIGNED_LONG_LONG;
        values[i].value = value ? strtoull(value, NULL, 0) : 0;
        values[i].result = !value ? NOT_SUPPORTED : value[0] >= 'A' ? error_code(value) : OK;
    }
    return leave(result);
}

struct process {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance;
    unsigned int compute_instance;
};

static unsigned int instance_id(const char *word) {
    return word[0] == '-' ? 0xffffffffu : (unsigned int)strtoul(word, NULL, 10);
}

static nvml_return running(struct device *device, const char *call, unsigned int *count, struct process *processes) {
    char prefix[KEY_SIZE], listed[4096] = "", pid[16], memory[24], gpu[16], compute[16], *rest = NULL;
    unsigned int room = *count;
    nvml_return result = enter(device, call);
    if (result != OK) return leave(result);
    prefix_of(device, prefix);
    const char *value = value_at("%sprocesses", prefix);
    if (value) snprintf(listed, sizeof listed, "%s", value);
    *count = 0;
    for (char *each = strtok_r(listed, ",", &rest); each; each = strtok_r(NULL, ",", &rest)) {
        if (sscanf(each, "%15[^:]:%23[^:]:%15[^:]:%15s", pid, memory, gpu, compute) != 4) continue;
        if (processes && *count < room)
            processes[*count] = (struct process){(unsigned int)atoi(pid), strtoull(memory, NULL, 10), instance_id(gpu),
                                                 instance_id(compute)};
        (*count)++;
    }
    return leave(*count > room ? INSUFFICIENT_SIZE : OK);
}

nvml_return nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned int *count,
                                                    struct process *processes) {
    return running(device, "nvmlDeviceGetComputeRunningProcesses_v3", count, processes);
}

nvml_return nvmlDeviceGetComputeRunningProcesses_v2(struct device *device, unsigned int *count,
                                                    struct process *processes) {
    return running(device, "nvmlDeviceGetComputeRunningProcesses_v2", count, processes);
}
