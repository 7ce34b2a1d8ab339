// The opaque objects of the aclnn interface, and the step from a checked call to a launch on a stream.
#pragma once

#include "device.hpp"

struct aclTensor {
    std::vector<int64_t> shape, strides, storage;
    int64_t offset = 0;
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_ND;
    char* data = nullptr;

    int64_t dim(int from_the_end) const { return shape[shape.size() - static_cast<size_t>(from_the_end)]; }
    int64_t numel() const;
    bool given() const { return numel() > 0; }  // an optional input may come as a tensor of shape [0]
    bool nz() const { return format == ACL_FORMAT_FRACTAL_NZ; }
    bool contiguous() const;
};
struct aclTensorList { std::vector<aclTensor*> items; };
struct aclIntArray { std::vector<int64_t> values; };
struct aclScalar { aclDataType dtype; double value; };

// What phase 1 leaves for phase 2: everything by value, since the tensors are destroyed in between.
struct aclOpExecutor {
    std::string api, l0, op_type, task_type, signature;
    std::vector<aclTensor> inputs, outputs;
    std::function<void()> compute;
    uint64_t sequence = 0;
};

namespace soft {

size_t item_size(aclDataType dtype);
int64_t nz_columns(aclDataType dtype);  // C0: columns of one fractal
// Element index of (matrix, row, column) in the storage of the last two dimensions, strided or FRACTAL_NZ.
int64_t element(const aclTensor& tensor, int64_t matrix, int64_t row, int64_t column);
float as_float(const char* data, aclDataType dtype, int64_t index);
void put_float(char* data, aclDataType dtype, int64_t index, float value);

// Ends phase 1: `executor` belongs to the caller's phase 2.
int prepared(aclOpExecutor* executor, uint64_t* workspace, aclOpExecutor** out);
// Phase 2 of every operator.
int launch(aclOpExecutor* executor, aclrtStream stream);

}  // namespace soft

#define PHASE_TWO(NAME) \
    EXPORT int NAME(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) { \
        return soft::launch(executor, stream); \
    }
