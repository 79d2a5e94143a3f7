"""SpeCache: all keys and values in CPU memory, a 1- or 2-bit copy of them on the device.

Jie, Tang, Zhang, Tian, Liu, Xu, Wu and Chen (ICML 2025, arXiv:2503.16163). Two tokens are decoded
at once: the output token, and a speculative next one whose attention over the low-bit copy says
which full-precision pairs to fetch before the next step. Not lossless against the full cache.
"""
