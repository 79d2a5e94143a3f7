"""GGUF files, llama.cpp's model format: names, headers, tokenizers, model folders."""
