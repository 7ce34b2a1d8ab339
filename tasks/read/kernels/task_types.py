"""Which device tasks are kernels: those that kernel_details lists; others wait, record, copy or fill."""

from __future__ import annotations

KERNEL_TYPES = (
    "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "COMMUNICATION", "HCCL",
    "KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", "KERNEL_AICPU", "Other",
)  # fmt: skip
"""Task types of rows that kernel_details and op_summary list, and how task_time and timelines spell them
(``Other`` in timelines of 2023, which hold no task but kernels)."""

NO_KERNEL = rf"(?!(?:{'|'.join(KERNEL_TYPES)})$).+"
"""A regular expression of every other task type."""
