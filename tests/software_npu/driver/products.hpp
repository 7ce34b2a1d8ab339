// Matrix products over weights as they lie, strided or FRACTAL_NZ, a block of rows at a time.
#pragma once

#include "tensors.hpp"

namespace soft {

// Rows that an operator (or each of its groups) really computes; the rest keeps the poison of fresh memory.
int64_t rows_to_compute(int64_t rows);

// acc[rows, n] = x[rows, k] (contiguous INT8) · weight matrix, in INT32.
void multiply_int8(const aclTensor& weight, int64_t matrix, const int8_t* x, int64_t rows, int64_t k, int64_t n,
                   int32_t* acc);
// acc[rows, n] = x[rows, k] (contiguous float) · weight matrix, in float.
void multiply_float(const aclTensor& weight, int64_t matrix, const float* x, int64_t rows, int64_t k, int64_t n,
                    float* acc);

}  // namespace soft
