"""A stand-in device with planted truth: predicted tiling and a cost model, written as real captures."""
