"""Results of an engine's own benchmark."""

from __future__ import annotations


def result(requests, ms, **more):
    """What `vllm bench serve --save-result` writes, in part: 128 tokens read and 128 written."""
    return {
        "model_id": "m", "max_concurrency": requests, "completed": 4 * requests, "failed": 0,
        "total_input_tokens": 512 * requests, "total_output_tokens": 512 * requests,
        "output_throughput": 0.9 * requests / ms * 1e3, "mean_tpot_ms": ms, "median_tpot_ms": ms,
        **more,
    }  # fmt: skip
