// From a prepared call to a kernel on a stream, with the fault that a test asked for.
#include "launches.hpp"

#include <atomic>

namespace soft {

namespace {

std::atomic<uint64_t> g_sequence{0};
constexpr int REFUSED_AT_LAUNCH = 561103;
constexpr int SLOW_FACTOR = 4;

void run(const aclOpExecutor& executor, Stream* stream, uint32_t task, int64_t launch_ns, Fault fault) {
    while (fault == Fault::hang) std::this_thread::sleep_for(std::chrono::seconds(3600));
    if (fault == Fault::lost) lose_device();
    if (fault == Fault::fail) {
        say("[ERROR] AI Core kernel execution failed, " + executor.op_type + " on the software NPU");
        stream->fail(KERNEL_FAILED);
    }
    if (device_lost() || fault == Fault::fail) return;
    const int64_t start_ns = monotonic_raw_ns();
    executor.compute();
    if (fault == Fault::slow) {
        const int64_t spent_ns = monotonic_raw_ns() - start_ns;
        std::this_thread::sleep_for(std::chrono::nanoseconds((SLOW_FACTOR - 1) * spent_ns));
    }
    if (profiling()) profiled(executor, stream->id, task, {launch_ns, start_ns, monotonic_raw_ns()});
}

}  // namespace

int prepared(aclOpExecutor* executor, uint64_t* workspace, aclOpExecutor** out) {
    executor->sequence = g_sequence++;
    log_tiling(*executor);
    const Tiling* tiling = tiling_of(executor->signature);
    *workspace = tiling ? static_cast<uint64_t>(tiling->workspace_bytes) : 0;
    *out = executor;
    return OK;
}

int launch(aclOpExecutor* raw, aclrtStream handle) {
    std::shared_ptr<aclOpExecutor> executor(raw);
    const Fault fault = fault_of(executor->api);
    if (fault == Fault::refuse) {
        say(executor->api + " was refused at launch, as a test asked for");
        return REFUSED_AT_LAUNCH;
    }
    if (device_lost()) return DEVICE_LOST;
    Stream* stream = stream_of(handle);
    const uint32_t task = stream->next_task();
    const int64_t launch_ns = monotonic_raw_ns();
    log_launch(*executor, stream->id, task);
    stream->push([executor, stream, task, launch_ns, fault] { run(*executor, stream, task, launch_ns, fault); });
    return OK;
}

}  // namespace soft
