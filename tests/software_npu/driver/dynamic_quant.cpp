// aclnnDynamicQuantV2, per token: scale = max|x·smooth| / 127, y = x·smooth / scale rounded half to even.
#include <cmath>

#include "launches.hpp"
#include "products.hpp"

using namespace soft;

namespace {

std::string wrong(const aclTensor* x, const aclTensor* smooth, const aclTensor* group, int dst,
                  const aclTensor* y, const aclTensor* scale) {
    if (x->dtype != ACL_FLOAT16 && x->dtype != ACL_BF16) return "x must be FLOAT16 or BFLOAT16";
    if (x->shape.size() < 2) return "the rank of x must be greater than 1";
    if (dst != ACL_INT8 || y->dtype != ACL_INT8) return "y must be INT8 on this device";
    if (y->shape != x->shape) return "y must have the shape of x";
    if (scale->dtype != ACL_FLOAT || scale->numel() * x->dim(1) != x->numel()) return "scale must be FLOAT, one a row";
    if (group && group->given()) return "group_index is not in this driver";
    if (smooth && smooth->given() && (smooth->shape != std::vector<int64_t>{x->dim(1)} || smooth->dtype != x->dtype))
        return "smooth_scales must be [K] of the type of x";
    if (!x->contiguous()) return "x must be contiguous in this driver";
    return "";
}

void quantise(const aclTensor& x, const aclTensor& smooth, const aclTensor& y, const aclTensor& scale) {
    const int64_t k = x.dim(1), rows = rows_to_compute(x.numel() / k);
    auto* out = reinterpret_cast<int8_t*>(y.data) + y.offset;
    auto* scales = reinterpret_cast<float*>(scale.data) + scale.offset;
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t r = 0; r < rows; ++r) {
        float largest = 0;
        for (int64_t i = 0; i < k; ++i) {
            float value = as_float(x.data, x.dtype, x.offset + r * k + i);
            if (smooth.given()) value *= as_float(smooth.data, smooth.dtype, smooth.offset + i);
            row[static_cast<size_t>(i)] = value;
            largest = std::max(largest, std::fabs(value));
        }
        scales[r] = largest / 127.0f;
        for (int64_t i = 0; i < k; ++i) {
            const float value = largest == 0 ? 0 : std::nearbyint(row[static_cast<size_t>(i)] / scales[r]);
            out[r * k + i] = static_cast<int8_t>(std::max(-128.0f, std::min(127.0f, value)));
        }
    }
}

}  // namespace

EXPORT int aclnnDynamicQuantV2GetWorkspaceSize(
    const aclTensor* x, const aclTensor* smooth, const aclTensor* group, int64_t dst_type, const aclTensor* y,
    const aclTensor* scale, const aclTensor*, uint64_t* workspace, aclOpExecutor** out) {
    // The caller passes an enum: the upper half of the register is not defined.
    const std::string fault = wrong(x, smooth, group, static_cast<int32_t>(dst_type), y, scale);
    if (!fault.empty()) return refuse("aclnnDynamicQuantV2: " + fault);
    auto* executor = new aclOpExecutor{"aclnnDynamicQuantV2", "DynamicQuant", "DynamicQuant", "AI_VECTOR_CORE", "",
                                       {*x}, {*y, *scale}, nullptr, 0};
    executor->signature = "DynamicQuant m=" + std::to_string(x->numel() / x->dim(1)) + " k=" + std::to_string(x->dim(1));
    executor->compute = [x = *x, s = smooth ? *smooth : aclTensor{}, y = *y, c = *scale] { quantise(x, s, y, c); };
    return prepared(executor, workspace, out);
}
PHASE_TWO(aclnnDynamicQuantV2)
