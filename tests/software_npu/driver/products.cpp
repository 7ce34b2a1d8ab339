// The inner loops. A run is a stretch of columns that lie side by side in storage for one k.
#include "products.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FASTEST __attribute__((target_clones("avx2", "default")))
#else
#define FASTEST
#endif

namespace soft {
namespace {

FASTEST void add_int8(const int8_t* run, int64_t length, const int8_t* x, int64_t x_step, int32_t* acc,
                      int64_t acc_step, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
        const int32_t factor = x[row * x_step];
        int32_t* sums = acc + row * acc_step;
        for (int64_t i = 0; i < length; ++i) sums[i] += factor * run[i];
    }
}

FASTEST void add_float(const float* run, int64_t length, const float* x, int64_t x_step, float* acc,
                       int64_t acc_step, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
        const float factor = x[row * x_step];
        float* sums = acc + row * acc_step;
        for (int64_t i = 0; i < length; ++i) sums[i] += factor * run[i];
    }
}

// Calls visit(k, first column, length, element index) for every run of one matrix.
template <typename Visit>
void each_run(const aclTensor& weight, int64_t matrix, int64_t k, int64_t n, Visit visit) {
    const bool side_by_side = !weight.nz() && weight.strides.back() == 1;
    const bool nz_plain = weight.nz() && element(weight, matrix, 0, 1) - element(weight, matrix, 0, 0) == 1;
    const int64_t longest = side_by_side ? n : nz_plain ? nz_columns(weight.dtype) : 1;
    for (int64_t first = 0; first < n; first += longest) {
        const int64_t length = std::min(longest, n - first);
        for (int64_t row = 0; row < k; ++row) visit(row, first, length, element(weight, matrix, row, first));
    }
}

}  // namespace

int64_t rows_to_compute(int64_t rows) {
    static const int64_t limit = std::stoll(setting("SOFTWARE_NPU_ROWS", "0"));
    return limit ? std::min(rows, limit) : rows;
}

void multiply_int8(const aclTensor& weight, int64_t matrix, const int8_t* x, int64_t rows, int64_t k, int64_t n,
                   int32_t* acc) {
    std::fill(acc, acc + rows * n, 0);
    const auto* data = reinterpret_cast<const int8_t*>(weight.data);
    each_run(weight, matrix, k, n, [&](int64_t row, int64_t first, int64_t length, int64_t at) {
        add_int8(data + at, length, x + row, k, acc + first, n, rows);
    });
}

void multiply_float(const aclTensor& weight, int64_t matrix, const float* x, int64_t rows, int64_t k, int64_t n,
                    float* acc) {
    std::fill(acc, acc + rows * n, 0.0f);
    std::vector<float> run(static_cast<size_t>(n));
    const auto* bf16 = reinterpret_cast<const uint16_t*>(weight.data);
    each_run(weight, matrix, k, n, [&](int64_t row, int64_t first, int64_t length, int64_t at) {
        for (int64_t i = 0; i < length; ++i) {
            if (weight.dtype == ACL_BF16) {
                const uint32_t bits = static_cast<uint32_t>(bf16[at + i]) << 16;
                std::memcpy(&run[static_cast<size_t>(i)], &bits, 4);
            } else {
                run[static_cast<size_t>(i)] = as_float(weight.data, weight.dtype, at + i);
            }
        }
        add_float(run.data(), length, x + row, k, acc + first, n, rows);
    });
}

}  // namespace soft
