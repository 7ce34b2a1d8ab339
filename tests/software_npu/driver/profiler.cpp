// aclprof: kernels that run between start and stop become lines of a file that our `msprof` exports.
#include "launches.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>

#include <acl/acl_prof.h>
#include <profiling/aprof_pub.h>

namespace soft {
namespace {

std::atomic<bool> g_on{false};
std::mutex g_mutex;
std::string g_root;
FILE* g_rows = nullptr;
int64_t g_realtime_minus_raw_ns = 0;

int64_t realtime_ns() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void folder(const std::string& path) {
    for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
        mkdir(path.substr(0, slash).c_str(), 0755);
    mkdir(path.c_str(), 0755);
}

void write(const std::string& path, const std::string& text) {
    if (FILE* file = std::fopen(path.c_str(), "w")) {
        std::fputs(text.c_str(), file);
        std::fclose(file);
    }
}

const char* type_name(aclDataType dtype) {
    switch (dtype) {
        case ACL_FLOAT: return "FLOAT";
        case ACL_FLOAT16: return "FLOAT16";
        case ACL_BF16: return "DT_BF16";
        case ACL_INT8: return "INT8";
        case ACL_INT32: return "INT32";
        case ACL_INT64: return "INT64";
        default: return "UNDEFINED";
    }
}

std::string shapes(const std::vector<aclTensor>& tensors) {
    std::string text;
    for (const aclTensor& tensor : tensors) {
        if (!text.empty()) text += ';';
        const auto& dims = tensor.nz() ? tensor.storage : tensor.shape;
        for (size_t d = 0; d < dims.size(); ++d) text += (d ? "," : "") + std::to_string(dims[d]);
    }
    return text;
}

template <typename Name>
std::string words(const std::vector<aclTensor>& tensors, Name name) {
    std::string text;
    for (const aclTensor& tensor : tensors) text += (text.empty() ? "" : ";") + std::string(name(tensor));
    return text;
}

const char* dtype_of(const aclTensor& tensor) { return type_name(tensor.dtype); }
const char* format_of(const aclTensor& tensor) { return tensor.nz() ? "FRACTAL_NZ" : "ND"; }

}  // namespace

bool profiling() { return g_on; }

void profiled(const aclOpExecutor& e, int32_t stream, uint32_t task, const KernelTime& time) {
    const Tiling* tiling = tiling_of(e.signature);
    std::lock_guard<std::mutex> lock(g_mutex);
    if (!g_rows) return;
    std::fprintf(
        g_rows, "%s_%s_%s\t%s\t%s\t%d\t%u\t%lld\t%lld\t%lld\t%lld\t%lld\t%s\t%s\t%s\t%s\t%s\t%s\t%ld\n", e.api.c_str(),
        e.l0.c_str(), e.op_type.c_str(), e.op_type.c_str(), e.task_type.c_str(), stream, task,
        static_cast<long long>(time.launch_ns + g_realtime_minus_raw_ns),
        static_cast<long long>(time.start_ns + g_realtime_minus_raw_ns),
        static_cast<long long>(time.end_ns - time.start_ns), static_cast<long long>(tiling ? tiling->block_dim : 0),
        static_cast<long long>(tiling ? tiling->mix_block_dim : 0), shapes(e.inputs).c_str(),
        words(e.inputs, dtype_of).c_str(), words(e.inputs, format_of).c_str(), shapes(e.outputs).c_str(),
        words(e.outputs, dtype_of).c_str(), words(e.outputs, format_of).c_str(), static_cast<long>(getpid()));
}

}  // namespace soft

using namespace soft;

struct aclprofConfig { int unused; };

EXPORT aclError aclprofInit(const char* path, size_t length) {
    g_root.assign(path, length);
    return OK;
}
EXPORT aclprofConfig* aclprofCreateConfig(
    uint32_t*, uint32_t, aclprofAicoreMetrics, const aclprofAicoreEvents*, uint64_t) {
    return new aclprofConfig{0};
}
EXPORT aclError aclprofDestroyConfig(const aclprofConfig* config) {
    delete config;
    return OK;
}
EXPORT aclError aclprofStart(const aclprofConfig*) {
    const int64_t raw_ns = monotonic_raw_ns(), real_ns = realtime_ns();
    g_realtime_minus_raw_ns = real_ns - raw_ns;
    static int number = 0;
    char name[96];
    std::snprintf(name, sizeof(name), "/PROF_%06d_%lld_%08dSOFTNPU", ++number,
                  static_cast<long long>(real_ns / 1000000), static_cast<int>(getpid()));
    const std::string root = g_root + name;
    folder(root + "/host/data");
    folder(root + "/device_0/data");
    write(root + "/host/start_info", "{\"collectionTimeBegin\":\"" + std::to_string(real_ns / 1000) +
                                         "\",\"clockMonotonicRaw\":\"" + std::to_string(raw_ns) + "\"}");
    write(root + "/SOFTWARE_NPU", std::string("simulated: written by the software NPU of the tests\n"));
    std::lock_guard<std::mutex> lock(g_mutex);
    g_rows = std::fopen((root + "/device_0/data/kernels.tsv").c_str(), "w");
    g_on = true;
    return g_rows ? OK : INVALID;
}
EXPORT aclError aclprofStop(const aclprofConfig*) {
    aclrtSynchronizeDevice();
    std::lock_guard<std::mutex> lock(g_mutex);
    g_on = false;
    if (g_rows) std::fclose(g_rows);
    g_rows = nullptr;
    return OK;
}
EXPORT aclError aclprofFinalize() { return OK; }

EXPORT int32_t MsprofRegisterCallback(uint32_t, ProfCommandHandle) { return 0; }
EXPORT int32_t MsprofReportApi(uint32_t, const MsprofApi*) { return 0; }
EXPORT int32_t MsprofReportCompactInfo(uint32_t, const VOID_PTR, uint32_t) { return 0; }
EXPORT int32_t MsprofReportAdditionalInfo(uint32_t, const VOID_PTR, uint32_t) { return 0; }
EXPORT uint64_t MsprofGetHashId(const char* text, size_t length) {
    return std::hash<std::string>{}(std::string(text, length));
}
EXPORT uint64_t MsprofSysCycleTime() { return static_cast<uint64_t>(monotonic_raw_ns()); }

EXPORT int32_t halGetDeviceInfo(uint32_t, int32_t, int32_t, int64_t*) { return 1; }
EXPORT int32_t halGetAPIVersion(int32_t* version) {
    *version = 0;
    return 0;
}
