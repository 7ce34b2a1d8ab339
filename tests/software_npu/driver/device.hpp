// The software device: streams with one worker each, events, memory, faults, and the identity that marks it.
// It is test equipment. Nothing it produces says anything about an NPU; see SOFTWARE_NPU_MARKER.
#pragma once

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace soft {

constexpr aclError OK = 0;
constexpr aclError INVALID = 100000;
constexpr aclError NO_DEVICE = 107002;
constexpr aclError OUT_OF_MEMORY = 207001;
constexpr aclError SYNC_TIMEOUT = 107020;
constexpr aclError KERNEL_FAILED = 507015;
constexpr aclError DEVICE_LOST = 507899;
constexpr int64_t CUBE_CORES = 24;
constexpr int64_t VECTOR_CORES = 48;

// Work of one stream runs in order on its own thread.
class Stream {
public:
    explicit Stream(int32_t id);
    ~Stream();
    void push(std::function<void()> work);
    aclError wait(int32_t timeout_ms);  // -1 waits for ever; gives the stream's error once
    bool idle();
    void fail(aclError error);
    const int32_t id;
    uint32_t next_task() { return task_++; }

private:
    void run();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    bool busy_ = false, stop_ = false;
    aclError error_ = OK;
    uint32_t task_ = 0;
    std::thread worker_;
};

Stream* stream_of(aclrtStream handle);

// A fault that a test asked for in SOFTWARE_NPU_FAULT: "<kind>:<operator>:<nth launch>".
enum class Fault { none, fail, refuse, hang, lost, slow };
Fault fault_of(const std::string& api);
bool device_lost();
void lose_device();

int64_t monotonic_raw_ns();
std::string setting(const char* name, const std::string& otherwise);
void say(const std::string& message);          // becomes aclGetRecentErrMsg
aclError refuse(const std::string& message);   // an argument check that failed

}  // namespace soft
