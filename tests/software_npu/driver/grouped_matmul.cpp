// aclnnGroupedMatmulV5 and WeightNz: one x, one weight [E, K, N], rows by group list; INT8 with scales, or BF16.
#include <algorithm>

#include "launches.hpp"
#include "products.hpp"

using namespace soft;

namespace {

constexpr int64_t BLOCK_ROWS = 16;
constexpr int64_t INNER_LIMIT = 65536;
constexpr int64_t GROUP_LIMIT = 1024;

struct Call {
    aclTensor x, w, scale, row_scale, groups, out;
    int64_t split_item, group_type, list_type, act_type, hint;
};

aclTensor only(const aclTensorList* list) {
    return list && list->items.size() == 1 ? *list->items[0] : aclTensor{};
}

std::string wrong(const Call& c, const aclTensorList* x, const aclTensorList* w, bool nz) {
    if (!x || !w || x->items.size() != 1 || w->items.size() != 1) return "this driver has one x and one weight";
    if (c.split_item != 2 && c.split_item != 3) return "split_item must be 2 or 3 for one output";
    if (c.group_type != 0 || c.act_type != 0) return "this driver has group_type 0 and no activation";
    if (c.list_type != 0 && c.list_type != 1) return "group_list_type must be 0 or 1";
    if (c.x.shape.size() != 2 || c.w.shape.size() != 3 || c.x.dim(1) != c.w.dim(2)) return "K of x and weight differ";
    if (c.x.dim(1) > INNER_LIMIT || c.w.dim(1) > INNER_LIMIT) return "the inner dimension must not exceed 65536";
    if (c.w.dim(3) > GROUP_LIMIT) return "at most 1024 groups";
    if (nz != c.w.nz()) return nz ? "weight must be FRACTAL_NZ" : "weight must be ND";
    if (c.groups.dtype != ACL_INT64 || c.groups.shape != std::vector<int64_t>{c.w.dim(3)})
        return "group_list must be INT64 [E]";
    if (c.x.dtype != c.w.dtype) return "x and weight must have one type";
    if (c.hint < 0 || c.hint > c.x.dim(2)) return "Invalid tuningConfig: " + std::to_string(c.hint) +
        ", valid range: [0, " + std::to_string(c.x.dim(2)) + "]";
    if (c.x.dtype == ACL_BF16 || c.x.dtype == ACL_FLOAT16) return c.scale.given() ? "scale goes with INT8" : "";
    if (c.x.dtype != ACL_INT8) return "x must be INT8, BFLOAT16 or FLOAT16";
    if (c.scale.shape != std::vector<int64_t>{c.w.dim(3), c.w.dim(1)}) return "scale must be [E, N]";
    if (!c.row_scale.given() || c.row_scale.dtype != ACL_FLOAT) return "per_token_scale must be FLOAT [M]";
    const auto wanted = c.scale.dtype == ACL_BF16 ? ACL_BF16 : ACL_FLOAT16;
    return c.out.dtype != wanted ? "BFLOAT16 scale goes with BFLOAT16 out, FLOAT scale with FLOAT16 out" : "";
}

void block(const Call& c, int64_t expert, int64_t first, int64_t count) {
    const int64_t k = c.x.dim(1), n = c.w.dim(1);
    if (c.x.dtype == ACL_INT8) {
        std::vector<int8_t> rows(static_cast<size_t>(count * k));
        std::vector<int32_t> sums(static_cast<size_t>(count * n));
        for (int64_t i = 0; i < count * k; ++i)
            rows[static_cast<size_t>(i)] =
                reinterpret_cast<const int8_t*>(c.x.data)[element(c.x, 0, first + i / k, i % k)];
        multiply_int8(c.w, expert, rows.data(), count, k, n, sums.data());
        for (int64_t i = 0; i < count * n; ++i) {
            const float scale = as_float(c.scale.data, c.scale.dtype, c.scale.offset + expert * n + i % n);
            const float row_scale = as_float(c.row_scale.data, ACL_FLOAT, c.row_scale.offset + first + i / n);
            put_float(c.out.data, c.out.dtype, c.out.offset + first * n + i,
                      static_cast<float>(sums[static_cast<size_t>(i)]) * scale * row_scale);
        }
        return;
    }
    std::vector<float> rows(static_cast<size_t>(count * k)), sums(static_cast<size_t>(count * n));
    for (int64_t i = 0; i < count * k; ++i)
        rows[static_cast<size_t>(i)] = as_float(c.x.data, c.x.dtype, element(c.x, 0, first + i / k, i % k));
    multiply_float(c.w, expert, rows.data(), count, k, n, sums.data());
    for (int64_t i = 0; i < count * n; ++i)
        put_float(c.out.data, c.out.dtype, c.out.offset + first * n + i, sums[static_cast<size_t>(i)]);
}

// The host never reads the group list: its values are taken when the kernel runs.
void compute(const Call& c) {
    const auto* list = reinterpret_cast<const int64_t*>(c.groups.data) + c.groups.offset;
    int64_t first = 0;
    for (int64_t expert = 0; expert < c.w.dim(3); ++expert) {
        const int64_t end = c.list_type == 1 ? first + list[expert] : list[expert];
        const int64_t rows = rows_to_compute(std::min(end, c.x.dim(2)) - first);
        for (int64_t done = 0; done < rows; done += BLOCK_ROWS)
            block(c, expert, first + done, std::min(BLOCK_ROWS, rows - done));
        first = end;
    }
}

int prepare(const char* api, const Call& call, const aclTensorList* x, const aclTensorList* w, bool nz,
            uint64_t* workspace, aclOpExecutor** out) {
    const std::string fault = wrong(call, x, w, nz);
    if (!fault.empty()) return refuse(std::string(api) + ": " + fault);
    auto* executor = new aclOpExecutor{api, "GroupedMatmul", "GroupedMatmul", "MIX_AIC", "", {call.x, call.w},
                                       {call.out}, nullptr, 0};
    for (const aclTensor* more : {&call.scale, &call.groups, &call.row_scale})
        if (more->given()) executor->inputs.push_back(*more);
    executor->signature = "GroupedMatmul m=" + std::to_string(call.x.dim(2)) + " k=" + std::to_string(call.x.dim(1)) +
                          " n=" + std::to_string(call.w.dim(1)) + " e=" + std::to_string(call.w.dim(3)) +
                          " nz=" + std::to_string(nz) + " int8=" + std::to_string(call.x.dtype == ACL_INT8) +
                          " t=" + std::to_string(call.hint);
    executor->compute = [call] { compute(call); };
    return prepared(executor, workspace, out);
}

}  // namespace

#define LIST const aclTensorList*
#define TENSORS LIST x, LIST w, LIST, LIST scale, LIST, LIST, LIST, LIST row_scale, const aclTensor* groups, LIST, LIST, \
    LIST, int64_t split_item, int64_t group_type, int64_t list_type, int64_t act_type
#define CALL(HINT) Call{only(x), only(w), only(scale), only(row_scale), groups ? *groups : aclTensor{}, only(result), \
    split_item, group_type, list_type, act_type, HINT}

static int64_t first_of(const aclIntArray* hint) { return hint && !hint->values.empty() ? hint->values[0] : 0; }

// V4 has no tuning_config. The framework also takes its presence for the age of CANN.
EXPORT int aclnnGroupedMatmulV4GetWorkspaceSize(
    TENSORS, LIST result, LIST, LIST, uint64_t* workspace, aclOpExecutor** out) {
    return prepare("aclnnGroupedMatmulV4", CALL(0), x, w, false, workspace, out);
}
PHASE_TWO(aclnnGroupedMatmulV4)

EXPORT int aclnnGroupedMatmulV5GetWorkspaceSize(
    TENSORS, aclIntArray* hint, LIST result, LIST, LIST, uint64_t* workspace, aclOpExecutor** out) {
    return prepare("aclnnGroupedMatmulV5", CALL(first_of(hint)), x, w, false, workspace, out);
}
PHASE_TWO(aclnnGroupedMatmulV5)

EXPORT int aclnnGroupedMatmulWeightNzGetWorkspaceSize(
    TENSORS, aclIntArray* hint, int64_t, LIST result, LIST, LIST, uint64_t* workspace, aclOpExecutor** out) {
    return prepare("aclnnGroupedMatmulWeightNz", CALL(first_of(hint)), x, w, true, workspace, out);
}
PHASE_TWO(aclnnGroupedMatmulWeightNz)
