"""GGUF files, llama.cpp's format, as models: where they are, and what their first part says."""
