"""SpeCache: all keys and values in CPU memory, a 1- or 2-bit copy of them on the device.

Jie et al. (ICML 2025, arXiv:2503.16163). A speculative next token's attention over the low-bit copy
selects the full-precision pairs to fetch for the next pass. Not lossless.
"""
