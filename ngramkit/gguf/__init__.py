"""GGUF files, the models' format of llama.cpp: names, headers, tokenizers, and model folders."""
