// Streams, synchronising, errors and the identity of the device: the runtime part of libascendcl.
#include "device.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

namespace soft {
namespace {

std::mutex g_mutex;
std::string g_message;
bool g_lost = false;
int32_t g_next_stream = 2;  // the default stream is 1
thread_local int32_t t_device = -1;
thread_local std::string t_answer;
int g_context;

}  // namespace

Stream::Stream(int32_t stream_id) : id(stream_id), worker_([this] { run(); }) {}

Stream::~Stream() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
}

void Stream::push(std::function<void()> work) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(std::move(work));
    }
    changed_.notify_all();
}

void Stream::run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        auto work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        lock.unlock();
        work();
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

aclError Stream::wait(int32_t timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto done = [this] { return queue_.empty() && !busy_; };
    if (timeout_ms < 0) {
        changed_.wait(lock, done);
    } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), done)) {
        return SYNC_TIMEOUT;
    }
    if (g_lost) return DEVICE_LOST;
    aclError error = error_;
    error_ = OK;
    return error;
}

bool Stream::idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return queue_.empty() && !busy_;
}

void Stream::fail(aclError error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == OK) error_ = error;
}

namespace {

// Streams live as long as the process: a hanging worker must not block its end.
std::vector<Stream*>& streams() {
    static auto* all = new std::vector<Stream*>{new Stream(1)};
    return *all;
}

}  // namespace

Stream* stream_of(aclrtStream handle) {
    std::lock_guard<std::mutex> lock(g_mutex);
    return handle ? static_cast<Stream*>(handle) : streams().front();
}

Fault fault_of(const std::string& api) {
    static const std::string wanted = setting("SOFTWARE_NPU_FAULT", "");
    static std::map<std::string, int> launches;
    if (wanted.empty()) return Fault::none;
    std::lock_guard<std::mutex> lock(g_mutex);
    const size_t first = wanted.find(':'), second = wanted.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return Fault::none;
    const std::string kind = wanted.substr(0, first), name = wanted.substr(first + 1, second - first - 1);
    if (name != api && name != "*") return Fault::none;
    const int launch = launches[name]++, nth = std::stoi(wanted.substr(second + 1));
    if (kind == "slow") return launch >= nth ? Fault::slow : Fault::none;
    if (launch != nth) return Fault::none;
    if (kind == "fail") return Fault::fail;
    if (kind == "refuse") return Fault::refuse;
    if (kind == "hang") return Fault::hang;
    return kind == "lost" ? Fault::lost : Fault::none;
}

bool device_lost() { return g_lost; }
void lose_device() { g_lost = true; }

int64_t monotonic_raw_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

std::string setting(const char* name, const std::string& otherwise) {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
}

void say(const std::string& message) {
    std::lock_guard<std::mutex> lock(g_mutex);
    g_message = message;
}

aclError refuse(const std::string& message) {
    say(message);
    return 161002;  // ACLNN_ERR_PARAM_INVALID
}

}  // namespace soft

using namespace soft;

// What tells this device from any other. The measuring program looks for this symbol.
EXPORT const char* SOFTWARE_NPU_MARKER() {
    return "software NPU of the tests: a driver without a device; whatever it produces is simulated";
}

EXPORT aclError aclInit(const char*) { return OK; }
EXPORT aclError aclFinalize() { return OK; }
EXPORT const char* aclrtGetSocName() {
    static const std::string name = setting("SOFTWARE_NPU_SOC", "Ascend910_9391");
    return name.c_str();
}
EXPORT const char* aclGetRecentErrMsg() {
    std::lock_guard<std::mutex> lock(g_mutex);
    t_answer.swap(g_message);
    g_message.clear();
    return t_answer.empty() ? nullptr : t_answer.c_str();
}
EXPORT void aclAppLog(aclLogLevel, const char*, const char*, uint32_t, const char*, ...) {}

// Version= of share/info/<package>/version.info below ASCEND_HOME_PATH, blank where there is none: as CANN's own
// question does, with '-' and '_' of the name for each other.
static std::string installed(std::string package) {
    for (int attempt = 0; attempt < 2; ++attempt) {
        std::ifstream file(setting("ASCEND_HOME_PATH", "") + "/share/info/" + package + "/version.info");
        for (std::string line; std::getline(file, line);)
            if (line.rfind("Version=", 0) == 0) return line.substr(8);
        for (char& c : package) c = c == '-' ? '_' : c == '_' ? '-' : c;
    }
    return "";
}
EXPORT aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion* version) {
    std::memset(version, 0, sizeof(*version));
    std::string text = installed("runtime");  // CANN is the version of its runtime package
    if (const auto dash = text.find('-'); dash != std::string::npos) {
        std::string rest = text.substr(dash + 1);
        rest.erase(std::remove(rest.begin(), rest.end(), '.'), rest.end());
        text = text.substr(0, dash) + "." + rest;
    }
    if (text.empty()) text = setting("SOFTWARE_NPU_CANN", "9.1.0");
    std::strncpy(version->version, text.c_str(), sizeof(version->version) - 1);
    return OK;
}
EXPORT aclError aclsysGetVersionStr(char* package, char* text) {
    if (setting("SOFTWARE_NPU_DIES_OF", "") == package) std::abort();
    const std::string found = installed(package);
    if (found.empty()) return 100000;
    std::strcpy(text, found.c_str());
    return OK;
}

EXPORT aclError aclrtGetDeviceCount(uint32_t* count) {
    *count = 1;
    return OK;
}
EXPORT aclError aclrtSetDevice(int32_t device) {
    if (device != 0) return NO_DEVICE;
    t_device = device;
    return OK;
}
EXPORT aclError aclrtGetDevice(int32_t* device) {
    if (t_device < 0) return NO_DEVICE;
    *device = t_device;
    return OK;
}
EXPORT aclError aclrtResetDevice(int32_t) { return OK; }
EXPORT aclError aclrtResetDeviceForce(int32_t) { return OK; }
EXPORT aclError aclrtGetCurrentContext(aclrtContext* context) {
    if (t_device < 0) return NO_DEVICE;
    *context = &g_context;
    return OK;
}
EXPORT aclError aclrtSetCurrentContext(aclrtContext) {
    t_device = 0;
    return OK;
}
EXPORT aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return OK; }
EXPORT aclError aclrtSetOpExecuteTimeOut(uint32_t) { return OK; }
EXPORT aclError aclrtSetOpWaitTimeout(uint32_t) { return OK; }
EXPORT aclError aclrtGetLastError(aclrtLastErrLevel) { return g_lost ? DEVICE_LOST : OK; }
EXPORT aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return g_lost ? DEVICE_LOST : OK; }
EXPORT aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
    *can = 0;
    return OK;
}
EXPORT aclError aclSetCompileopt(aclCompileOpt, const char*) { return OK; }
EXPORT aclError aclrtSetSysParamOpt(aclSysParamOpt, int64_t) { return OK; }
EXPORT aclError aclrtCtxSetSysParamOpt(aclSysParamOpt, int64_t) { return OK; }
EXPORT aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
    *value = 0;
    return OK;
}

static int64_t l2_bytes() { return std::stoll(setting("SOFTWARE_NPU_L2_BYTES", "2097152")); }
static int64_t memory_bytes() { return std::stoll(setting("SOFTWARE_NPU_MEMORY_BYTES", "17179869184")); }

EXPORT aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo what, int64_t* value) {
    *value = what == ACL_DEVICE_INFO_L2_SIZE ? l2_bytes()
             : what == ACL_DEVICE_INFO_VECTOR_CORE_NUM ? VECTOR_CORES : CUBE_CORES;
    return OK;
}
EXPORT aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr what, int64_t* value) {
    switch (what) {
        case ACL_DEV_ATTR_AICORE_CORE_NUM:
        case ACL_DEV_ATTR_CUBE_CORE_NUM: *value = CUBE_CORES; return OK;
        case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = VECTOR_CORES; return OK;
        case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = l2_bytes(); return OK;
        case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: *value = memory_bytes(); return OK;
        default: *value = 0; return OK;
    }
}
EXPORT aclError aclrtGetDeviceResLimit(int32_t, aclrtDevResLimitType what, uint32_t* value) {
    *value = what == ACL_RT_DEV_RES_CUBE_CORE ? CUBE_CORES : VECTOR_CORES;
    return OK;
}

EXPORT aclError aclrtCreateStream(aclrtStream* stream) {
    std::lock_guard<std::mutex> lock(g_mutex);
    streams().push_back(new Stream(g_next_stream++));
    *stream = streams().back();
    return OK;
}
EXPORT aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
    return aclrtCreateStream(stream);
}
EXPORT aclError aclrtDestroyStream(aclrtStream stream) { return stream_of(stream)->wait(-1); }
EXPORT aclError aclrtDestroyStreamForce(aclrtStream) { return OK; }
EXPORT aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t) { return OK; }
EXPORT aclError aclrtSynchronizeStream(aclrtStream stream) { return stream_of(stream)->wait(-1); }
EXPORT aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout_ms) {
    return stream_of(stream)->wait(timeout_ms);
}
EXPORT aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
    std::vector<Stream*> all;
    {
        std::lock_guard<std::mutex> lock(g_mutex);
        all = streams();
    }
    for (Stream* stream : all) {
        if (aclError error = stream->wait(timeout_ms)) return error;
    }
    return OK;
}
EXPORT aclError aclrtSynchronizeDevice() { return aclrtSynchronizeDeviceWithTimeout(-1); }
EXPORT aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
    *status = stream_of(stream)->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return OK;
}
EXPORT aclError aclrtStreamGetId(aclrtStream stream, int32_t* id) {
    *id = stream_of(stream)->id;
    return OK;
}
