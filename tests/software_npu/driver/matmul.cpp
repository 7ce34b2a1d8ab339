// aclnnMm, aclnnMatmul and aclnnMatmulWeightNz: BF16, FP16 or FP32 products in float.
#include <algorithm>

#include "launches.hpp"
#include "products.hpp"

using namespace soft;

namespace {

constexpr int64_t BLOCK_ROWS = 16;

std::string wrong(const aclTensor* x, const aclTensor* w, const aclTensor* out) {
    if (x->shape.size() != 2 || w->shape.size() != 2) return "this driver has matrices of two dimensions";
    if (x->dim(1) != w->dim(2)) return "K of self and mat2 must be equal";
    if (x->dtype != w->dtype || (x->dtype != ACL_BF16 && x->dtype != ACL_FLOAT16 && x->dtype != ACL_FLOAT))
        return "self and mat2 must both be BFLOAT16, FLOAT16 or FLOAT";
    return out->shape != std::vector<int64_t>{x->dim(2), w->dim(1)} ? "out must be [M, N]" : "";
}

void compute(const aclTensor& x, const aclTensor& w, const aclTensor& out) {
    const int64_t k = x.dim(1), n = w.dim(1), rows = rows_to_compute(x.dim(2));
    std::vector<float> block(static_cast<size_t>(BLOCK_ROWS * k)), sums(static_cast<size_t>(BLOCK_ROWS * n));
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS) {
        const int64_t count = std::min(BLOCK_ROWS, rows - first);
        for (int64_t i = 0; i < count * k; ++i)
            block[static_cast<size_t>(i)] = as_float(x.data, x.dtype, element(x, 0, first + i / k, i % k));
        multiply_float(w, 0, block.data(), count, k, n, sums.data());
        for (int64_t i = 0; i < count * n; ++i)
            put_float(out.data, out.dtype, out.offset + first * n + i, sums[static_cast<size_t>(i)]);
    }
}

int prepare(const char* api, const aclTensor* x, const aclTensor* w, const aclTensor* result, uint64_t* workspace,
            aclOpExecutor** out) {
    const std::string fault = wrong(x, w, result);
    if (!fault.empty()) return refuse(std::string(api) + ": " + fault);
    auto* executor = new aclOpExecutor{api, "MatMulV3Common", "MatMulV3", "AI_CORE", "", {*x, *w}, {*result}, nullptr, 0};
    executor->signature = "MatMulV3 m=" + std::to_string(x->dim(2)) + " k=" + std::to_string(x->dim(1)) +
                          " n=" + std::to_string(w->dim(1)) + " nz=" + std::to_string(w->nz());
    executor->compute = [x = *x, w = *w, o = *result] { compute(x, w, o); };
    return prepared(executor, workspace, out);
}

}  // namespace

#define MATMUL(API) \
    EXPORT int API##GetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, const aclTensor* result, int8_t, \
                                     uint64_t* workspace, aclOpExecutor** out) { \
        return prepare(#API, self, mat2, result, workspace, out); \
    } \
    PHASE_TWO(API)

MATMUL(aclnnMm)
MATMUL(aclnnMatmul)
MATMUL(aclnnMatmulWeightNz)
