// Making and destroying aclnn objects; numbers in and out of device storage.
#include "tensors.hpp"

#include <cmath>
#include <cstring>

using namespace soft;

int64_t aclTensor::numel() const {
    if (!data) return 0;
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return count;
}

bool aclTensor::contiguous() const {
    int64_t expected = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != expected) return false;
        expected *= shape[i];
    }
    return true;
}

namespace soft {

size_t item_size(aclDataType dtype) {
    switch (dtype) {
        case ACL_INT8: case ACL_UINT8: case ACL_BOOL: return 1;
        case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: return 2;
        case ACL_FLOAT: case ACL_INT32: return 4;
        case ACL_INT64: case ACL_DOUBLE: return 8;
        default: return 0;
    }
}

int64_t nz_columns(aclDataType dtype) { return 32 / static_cast<int64_t>(item_size(dtype)); }

int64_t element(const aclTensor& tensor, int64_t matrix, int64_t row, int64_t column) {
    const size_t rank = tensor.shape.size();
    if (!tensor.nz()) {
        const int64_t outer = rank > 2 ? tensor.strides[rank - 3] * matrix : 0;
        return tensor.offset + outer + tensor.strides[rank - 2] * row + tensor.strides[rank - 1] * column;
    }
    const int64_t c0 = nz_columns(tensor.dtype);
    const size_t depth = tensor.storage.size();
    const int64_t k1 = tensor.storage[depth - 3], n1 = tensor.storage[depth - 4];
    const bool transposed = rank >= 2 && tensor.strides[rank - 2] == 1 && tensor.strides[rank - 1] != 1;
    const int64_t k = transposed ? column : row, n = transposed ? row : column;
    return ((matrix * n1 + n / c0) * k1 + k / 16) * 16 * c0 + (k % 16) * c0 + n % c0;
}

static float from_half(uint16_t bits) {
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    return exponent ? sign * std::ldexp(1.0f + mantissa / 1024.0f, exponent - 15)
                    : sign * std::ldexp(static_cast<float>(mantissa), -24);
}

static uint16_t to_half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const float size = std::fabs(value);
    if (std::isnan(value)) return 0x7E00;
    if (size >= 65520.0f) return sign | 0x7C00;
    if (size < 6.103515625e-05f) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
    int exponent;
    const float fraction = std::frexp(size, &exponent);
    const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11))) - 1024;
    return sign | static_cast<uint16_t>(((exponent + 14) << 10) + mantissa);
}

float as_float(const char* data, aclDataType dtype, int64_t index) {
    switch (dtype) {
        case ACL_FLOAT: return reinterpret_cast<const float*>(data)[index];
        case ACL_FLOAT16: return from_half(reinterpret_cast<const uint16_t*>(data)[index]);
        case ACL_BF16: {
            const uint32_t bits = static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(data)[index]) << 16;
            float value;
            std::memcpy(&value, &bits, 4);
            return value;
        }
        case ACL_INT8: return reinterpret_cast<const int8_t*>(data)[index];
        case ACL_UINT8: case ACL_BOOL: return reinterpret_cast<const uint8_t*>(data)[index];
        case ACL_INT32: return static_cast<float>(reinterpret_cast<const int32_t*>(data)[index]);
        case ACL_INT64: return static_cast<float>(reinterpret_cast<const int64_t*>(data)[index]);
        case ACL_DOUBLE: return static_cast<float>(reinterpret_cast<const double*>(data)[index]);
        default: return NAN;
    }
}

void put_float(char* data, aclDataType dtype, int64_t index, float value) {
    switch (dtype) {
        case ACL_FLOAT: reinterpret_cast<float*>(data)[index] = value; return;
        case ACL_FLOAT16: reinterpret_cast<uint16_t*>(data)[index] = to_half(value); return;
        case ACL_BF16: {
            uint32_t bits;
            std::memcpy(&bits, &value, 4);
            bits += 0x7FFF + ((bits >> 16) & 1);  // half to even
            reinterpret_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(bits >> 16);
            return;
        }
        case ACL_INT8: reinterpret_cast<int8_t*>(data)[index] = static_cast<int8_t>(value); return;
        case ACL_UINT8: reinterpret_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(value); return;
        case ACL_BOOL: reinterpret_cast<uint8_t*>(data)[index] = value != 0; return;
        case ACL_INT32: reinterpret_cast<int32_t*>(data)[index] = static_cast<int32_t>(value); return;
        case ACL_INT64: reinterpret_cast<int64_t*>(data)[index] = static_cast<int64_t>(value); return;
        case ACL_DOUBLE: reinterpret_cast<double*>(data)[index] = value; return;
        default: return;
    }
}

}  // namespace soft

EXPORT aclTensor* aclCreateTensor(
    const int64_t* dims, uint64_t rank, aclDataType dtype, const int64_t* strides, int64_t offset,
    aclFormat format, const int64_t* storage, uint64_t storage_rank, void* data) {
    auto* tensor = new aclTensor;
    tensor->shape.assign(dims, dims + rank);
    tensor->strides.assign(strides, strides + rank);
    tensor->storage.assign(storage, storage + storage_rank);
    tensor->offset = offset;
    tensor->dtype = dtype;
    tensor->format = format;
    tensor->data = static_cast<char*>(data);
    return tensor;
}
EXPORT int aclDestroyTensor(const aclTensor* tensor) {
    delete tensor;
    return OK;
}
EXPORT aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t count) {
    auto* list = new aclTensorList;
    for (uint64_t i = 0; i < count; ++i) list->items.push_back(const_cast<aclTensor*>(tensors[i]));
    return list;
}
EXPORT int aclDestroyTensorList(const aclTensorList* list) {
    for (aclTensor* tensor : list->items) delete tensor;
    delete list;
    return OK;
}
EXPORT aclScalar* aclCreateScalar(void* value, aclDataType dtype) {
    return new aclScalar{dtype, as_float(static_cast<char*>(value), dtype, 0)};
}
EXPORT int aclDestroyScalar(const aclScalar* scalar) {
    delete scalar;
    return OK;
}
EXPORT aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
    return new aclIntArray{std::vector<int64_t>(values, values + count)};
}
EXPORT int aclDestroyIntArray(const aclIntArray* array) {
    delete array;
    return OK;
}
