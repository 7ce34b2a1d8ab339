// What a launch leaves behind besides its result: a row for the profiler and lines in the host log.
#pragma once

#include "tensors.hpp"

namespace soft {

struct Tiling {
    std::string key, op_lines;
    int64_t block_dim = 0, mix_block_dim = 0, workspace_bytes = 0, schedule_mode = 0, data_bytes = 0;
};

// The tiling that the table of SOFTWARE_NPU_TILINGS gives for a call; nullptr where it has none.
const Tiling* tiling_of(const std::string& signature);

void log_tiling(aclOpExecutor& executor);
void log_launch(const aclOpExecutor& executor, int32_t stream, uint32_t task);

bool profiling();
struct KernelTime { int64_t launch_ns, start_ns, end_ns; };
void profiled(const aclOpExecutor& executor, int32_t stream, uint32_t task, const KernelTime& time);

}  // namespace soft
