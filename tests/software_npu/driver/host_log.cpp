// plog lines of a launch in CANN's grammar. What they say of tiling comes from a table, never from here.
#include "launches.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

namespace soft {
namespace {

constexpr size_t LINE_BYTES = 1022;

const std::map<std::string, Tiling>& tilings() {
    static const auto table = [] {
        std::map<std::string, Tiling> rows;
        std::ifstream file(setting("SOFTWARE_NPU_TILINGS", "/nonexistent"));
        for (std::string line; std::getline(file, line);) {
            std::istringstream cells(line);
            std::string signature, key, blocks, mix, workspace, mode, bytes, lines;
            for (std::string* cell : {&signature, &key, &blocks, &mix, &workspace, &mode, &bytes, &lines})
                std::getline(cells, *cell, '\t');
            rows[signature] = {key, lines, std::stoll(blocks), std::stoll(mix), std::stoll(workspace),
                               std::stoll(mode), std::stoll(bytes)};
        }
        return rows;
    }();
    return table;
}

struct Log {
    std::mutex mutex;
    FILE* file = nullptr;
    bool op = false, runtime = false;

    Log() {
        const std::string levels = setting("ASCEND_MODULE_LOG_LEVEL", ""), root = setting("ASCEND_PROCESS_LOG_PATH", "");
        op = levels.find("OP=0") != std::string::npos;
        runtime = levels.find("RUNTIME=1") != std::string::npos || levels.find("RUNTIME=0") != std::string::npos;
        if (root.empty() || !(op || runtime)) return;
        for (const char* below : {"", "/debug", "/debug/plog"}) mkdir((root + below).c_str(), 0755);
        timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        char stamp[32], name[96];
        tm parts;
        std::strftime(stamp, sizeof(stamp), "%Y%m%d%H%M%S", localtime_r(&now.tv_sec, &parts));
        std::snprintf(name, sizeof(name), "/debug/plog/plog-%d_%s%03ld.log", getpid(), stamp, now.tv_nsec / 1000000);
        file = std::fopen((root + name).c_str(), "a");
        if (!file) std::fprintf(stderr, "software NPU: cannot write %s%s\n", root.c_str(), name);
    }
    void line(const char* level, const char* module, const std::string& content) {
        if (!file) return;
        timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        char stamp[40];
        tm parts;
        std::strftime(stamp, sizeof(stamp), "%Y-%m-%d-%H:%M:%S", localtime_r(&now.tv_sec, &parts));
        char head[160];
        std::snprintf(head, sizeof(head), "[%s] %s(%d,python):%s.%03ld.%03ld ", level, module, getpid(), stamp,
                      now.tv_nsec / 1000000, now.tv_nsec / 1000 % 1000);
        std::lock_guard<std::mutex> lock(mutex);
        const std::string text = (head + content).substr(0, LINE_BYTES) + "\n";
        std::fwrite(text.data(), 1, text.size(), file);
        std::fflush(file);
    }
};

Log& the_log() {
    static auto* log = new Log;
    return *log;
}

std::string opbase(const char* function, const aclOpExecutor& e) {
    return "[op_kernel.h:1][NNOP][" + std::string(function) + "][" + std::to_string(syscall(SYS_gettid)) +
           "] OpName:[" + e.api + "_" + std::to_string(e.sequence) + "_" + e.l0 + "] ";
}

}  // namespace

const Tiling* tiling_of(const std::string& signature) {
    auto found = tilings().find(signature);
    return found == tilings().end() ? nullptr : &found->second;
}

void log_tiling(aclOpExecutor& e) {
    Log& log = the_log();
    const Tiling* tiling = tiling_of(e.signature);
    if (!log.op || !tiling) return;
    log.line("INFO", "OP", opbase("CalcWorkspace", e) + "aic num: 24, aiv num: 48, deterministic level: 0, is "
                                                        "deterministic on: 0, is op dump enable: 0");
    std::istringstream lines(tiling->op_lines);
    for (std::string line; std::getline(lines, line, '\x1f');) {
        const size_t blank = line.find(' ');
        const std::string mark = "{tid}", tid = std::to_string(syscall(SYS_gettid));
        std::string content = line.substr(blank + 1);
        if (const size_t at = content.find(mark); at != std::string::npos) content.replace(at, mark.size(), tid);
        log.line(line.substr(0, blank).c_str(), "OP", content);
    }
}

void log_launch(const aclOpExecutor& e, int32_t stream, uint32_t task) {
    Log& log = the_log();
    const Tiling* tiling = tiling_of(e.signature);
    if (!tiling) return;
    const std::string blocks = std::to_string(tiling->block_dim), mode = std::to_string(tiling->schedule_mode);
    if (log.op) {
        log.line("DEBUG", "OP", opbase("DoTiling", e) + "Tiling Key: " + tiling->key + ", len: " +
                                    std::to_string(tiling->data_bytes) + ", numBlocks: " + blocks + ", Workspace Num: 1.");
        log.line("INFO", "OP", opbase("LaunchKernel", e) + "Launch kernel engine type: 1, numBlocks: " + blocks +
                                   ", scheduleMode: " + mode + ", blockDimOffset: 0, dynUBufSize: 0, funcHandle: 0x" +
                                   std::to_string(1000 + std::hash<std::string>{}(e.op_type + tiling->key) % 9000) +
                                   ", print arg result: 0");
    }
    if (log.runtime) {
        log.line("INFO", "RUNTIME", "[aix_stars.cc:27] " + std::to_string(syscall(SYS_gettid)) +
                     " LaunchKernelForStars: kernel info : device_id=0, stream_id=" + std::to_string(stream) +
                     ", task_id=" + std::to_string(task) + ", kernelAttrType=AICORE, kernel_name=" + e.op_type +
                     "_00000000000000000000000000000000_" + tiling->key + ", arg_size=200, coreDim=" + blocks +
                     ", taskRation=0, funcType=3, schemMode=" + mode);
    }
}

}  // namespace soft
