// aclnnQuantMatmulV5 (ND weight) and aclnnQuantMatmulWeightNz: INT8 · INT8 in INT32, then the scales.
#include <algorithm>

#include "launches.hpp"
#include "products.hpp"

using namespace soft;

namespace {

constexpr int64_t INNER_LIMIT = 65535;
constexpr int64_t BLOCK_ROWS = 16;

std::string wrong(const aclTensor* x, const aclTensor* w, const aclTensor* row_scale, const aclTensor* scale,
                  const aclTensor* bias, const aclTensor* out, bool nz) {
    if (x->dtype != ACL_INT8 || w->dtype != ACL_INT8) return "x1 and x2 must be INT8";
    if (x->shape.size() != 2 || w->shape.size() != 2) return "this driver has x1 and x2 of two dimensions";
    if (x->dim(1) != w->dim(2)) return "K of x1 and x2 must be equal";
    if (x->dim(1) > INNER_LIMIT || w->dim(1) > INNER_LIMIT) return "the inner dimension must not exceed 65535";
    if (nz != w->nz()) return nz ? "x2 must be FRACTAL_NZ" : "x2 must be ND";
    if (!scale || (scale->numel() != 1 && scale->numel() != w->dim(1))) return "x2Scale must be [1] or [N]";
    if (out->dtype != ACL_BF16 && out->dtype != ACL_FLOAT16) return "out must be BFLOAT16 or FLOAT16";
    if (out->dtype == ACL_BF16 && scale->dtype != ACL_BF16 && scale->dtype != ACL_FLOAT)
        return "BFLOAT16 out needs a BFLOAT16 or FLOAT x2Scale";
    if (out->dtype == ACL_FLOAT16 && scale->dtype != ACL_FLOAT) return "FLOAT16 out needs a FLOAT x2Scale";
    if (!row_scale || row_scale->dtype != ACL_FLOAT || row_scale->shape != std::vector<int64_t>{x->dim(2)})
        return "x1Scale must be FLOAT [M] in this driver";
    if (bias && bias->given()) return "bias is not in this driver";
    if (out->shape != std::vector<int64_t>{x->dim(2), w->dim(1)}) return "out must be [M, N]";
    return "";
}

void compute(const aclTensor& x, const aclTensor& w, const aclTensor& row_scale, const aclTensor& scale,
             const aclTensor& out) {
    const int64_t k = x.dim(1), n = w.dim(1), rows = rows_to_compute(x.dim(2));
    std::vector<int8_t> block(static_cast<size_t>(BLOCK_ROWS * k));
    std::vector<int32_t> sums(static_cast<size_t>(BLOCK_ROWS * n));
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS) {
        const int64_t count = std::min(BLOCK_ROWS, rows - first);
        for (int64_t r = 0; r < count; ++r)
            for (int64_t i = 0; i < k; ++i)
                block[static_cast<size_t>(r * k + i)] =
                    reinterpret_cast<const int8_t*>(x.data)[element(x, 0, first + r, i)];
        multiply_int8(w, 0, block.data(), count, k, n, sums.data());
        for (int64_t r = 0; r < count; ++r) {
            const float of_row = as_float(row_scale.data, ACL_FLOAT, row_scale.offset + first + r);
            for (int64_t i = 0; i < n; ++i) {
                const int64_t at = scale.offset + (scale.numel() == 1 ? 0 : i);
                const float of_column = as_float(scale.data, scale.dtype, at);
                const float value = static_cast<float>(sums[static_cast<size_t>(r * n + i)]) * of_column * of_row;
                put_float(out.data, out.dtype, out.offset + (first + r) * n + i, value);
            }
        }
    }
}

int prepare(const char* api, const aclTensor* x, const aclTensor* w, const aclTensor* row_scale,
            const aclTensor* scale, const aclTensor* bias, const aclTensor* result, bool nz, uint64_t* workspace,
            aclOpExecutor** out) {
    const std::string fault = wrong(x, w, row_scale, scale, bias, result, nz);
    if (!fault.empty()) return refuse(std::string(api) + ": " + fault);
    auto* executor = new aclOpExecutor{api, "QuantBatchMatmulV3", "QuantBatchMatmulV3", "MIX_AIC", "",
                                       {*x, *w, *scale, *row_scale}, {*result}, nullptr, 0};
    executor->signature = "QuantBatchMatmulV3 m=" + std::to_string(x->dim(2)) + " k=" + std::to_string(x->dim(1)) +
                          " n=" + std::to_string(w->dim(1)) + " nz=" + std::to_string(nz);
    executor->compute = [x = *x, w = *w, r = *row_scale, s = *scale, o = *result] { compute(x, w, r, s, o); };
    return prepared(executor, workspace, out);
}

}  // namespace

#define QUANT_MATMUL(API, NZ) \
    EXPORT int API##GetWorkspaceSize( \
        const aclTensor* x1, const aclTensor* x2, const aclTensor* x1_scale, const aclTensor* x2_scale, \
        const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor* bias, bool, bool, \
        int64_t, const aclTensor* out, uint64_t* workspace, aclOpExecutor** executor) { \
        return prepare(#API, x1, x2, x1_scale, x2_scale, bias, out, NZ, workspace, executor); \
    } \
    PHASE_TWO(API)

QUANT_MATMUL(aclnnQuantMatmulV5, false)
QUANT_MATMUL(aclnnQuantMatmulWeightNz, true)
