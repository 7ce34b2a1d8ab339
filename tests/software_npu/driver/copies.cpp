// Copies that change layout or type: format casts to and from FRACTAL_NZ, strided copies, casts, zeros.
#include <cstring>

#include "launches.hpp"

using namespace soft;

namespace {

// Calls visit(number, index per dimension) for every element of a shape.
template <typename Visit>
void each(const std::vector<int64_t>& shape, Visit visit) {
    std::vector<int64_t> at(shape.size(), 0);
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    for (int64_t number = 0; number < count; ++number) {
        visit(at);
        for (size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
    }
}

int64_t place(const aclTensor& tensor, const std::vector<int64_t>& at, size_t skipped) {
    int64_t index = tensor.offset;
    for (size_t d = 0; d < tensor.shape.size(); ++d)
        if (tensor.shape[d] != 1) index += tensor.strides[d] * at[d + skipped];
    return index;
}

void copy_strided(const aclTensor& from, const aclTensor& to) {
    const size_t size = item_size(from.dtype), skipped = to.shape.size() - from.shape.size();
    if (from.dtype == to.dtype && from.shape == to.shape && from.contiguous() && to.contiguous()) {
        std::memcpy(to.data + to.offset * size, from.data + from.offset * size, from.numel() * size);
        return;
    }
    aclTensor target = to;
    each(to.shape, [&](const std::vector<int64_t>& at) {
        const int64_t source = place(from, at, skipped), goal = place(target, at, 0);
        if (from.dtype == to.dtype) std::memcpy(to.data + goal * size, from.data + source * size, size);
        else put_float(to.data, to.dtype, goal, as_float(from.data, from.dtype, source));
    });
}

int64_t matrices(const aclTensor& tensor) {
    return tensor.shape.size() > 2 ? tensor.numel() / (tensor.dim(1) * tensor.dim(2)) : 1;
}

void copy_format(const aclTensor& from, const aclTensor& to) {
    const size_t size = item_size(from.dtype);
    if (to.nz()) {
        int64_t stored = static_cast<int64_t>(size);
        for (int64_t extent : to.storage) stored *= extent;
        std::memset(to.data, 0, static_cast<size_t>(stored));  // the padding is zero
    }
    for (int64_t matrix = 0; matrix < matrices(from); ++matrix)
        for (int64_t row = 0; row < from.dim(2); ++row)
            for (int64_t column = 0; column < from.dim(1); ++column)
                std::memcpy(to.data + element(to, matrix, row, column) * size,
                            from.data + element(from, matrix, row, column) * size, size);
}

int move(const char* api, const char* type, const aclTensor& from, const aclTensor& to,
         void (*copy)(const aclTensor&, const aclTensor&), uint64_t* workspace, aclOpExecutor** out) {
    auto* executor = new aclOpExecutor{api, type, type, "AI_VECTOR_CORE", "", {from}, {to}, nullptr, 0};
    executor->compute = [from, to, copy] { copy(from, to); };
    return prepared(executor, workspace, out);
}

}  // namespace

EXPORT int aclnnNpuFormatCastCalculateSizeAndFormat(
    const aclTensor* from, int format, int, int64_t** shape, uint64_t* rank, int* actual) {
    std::vector<int64_t> dims = from->shape;
    if (format == ACL_FORMAT_FRACTAL_NZ) {
        if (dims.size() < 2 || !item_size(from->dtype)) return refuse("NpuFormatCast: no FRACTAL_NZ for this tensor");
        const int64_t k = dims[dims.size() - 2], n = dims.back(), c0 = nz_columns(from->dtype);
        dims.resize(dims.size() - 2);
        for (int64_t extent : {(n + c0 - 1) / c0, (k + 15) / 16, int64_t{16}, c0}) dims.push_back(extent);
    }
    *shape = new int64_t[dims.size()];  // the caller ends its life with delete[]
    std::copy(dims.begin(), dims.end(), *shape);
    *rank = dims.size();
    *actual = format;
    return OK;
}
EXPORT int aclnnNpuFormatCastGetWorkspaceSize(
    const aclTensor* from, aclTensor* to, uint64_t* workspace, aclOpExecutor** out) {
    return move("aclnnNpuFormatCast", "TransData", *from, *to, copy_format, workspace, out);
}
PHASE_TWO(aclnnNpuFormatCast)

EXPORT int aclnnInplaceCopyGetWorkspaceSize(
    aclTensor* to, const aclTensor* from, uint64_t* workspace, aclOpExecutor** out) {
    return move("aclnnInplaceCopy", "ViewCopy", *from, *to, copy_strided, workspace, out);
}
PHASE_TWO(aclnnInplaceCopy)

EXPORT int aclnnCastGetWorkspaceSize(
    const aclTensor* from, int, aclTensor* to, uint64_t* workspace, aclOpExecutor** out) {
    return move("aclnnCast", "Cast", *from, *to, copy_strided, workspace, out);
}
PHASE_TWO(aclnnCast)

EXPORT int aclnnInplaceZeroGetWorkspaceSize(aclTensor* to, uint64_t* workspace, aclOpExecutor** out) {
    auto* executor = new aclOpExecutor{"aclnnInplaceZero", "ZerosLike", "ZerosLike", "AI_VECTOR_CORE", "", {*to}, {*to},
                                       nullptr, 0};
    executor->compute = [to = *to] {
        each(to.shape, [&](const std::vector<int64_t>& at) { put_float(to.data, to.dtype, place(to, at, 0), 0); });
    };
    return prepared(executor, workspace, out);
}
PHASE_TWO(aclnnInplaceZero)
