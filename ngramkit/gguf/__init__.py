"""GGUF files, llama.cpp's model format."""
