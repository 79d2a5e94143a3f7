"""Drafts inside serving engines: llama.cpp, vLLM, SGLang, TensorRT-LLM.

- An adapter, a module named after its engine, maps its calls to a `BatchDrafter` (`engines.batch`).
- A session (`engines.sessions`) is what is known of a running request, by the engine's name of it.
- A request (`engines.blend_source`) is a live context; each thread has a workspace.
- A source (`engines.source`): artifacts and a history (`engines.growing_history`).

Same inputs give the same drafts on every rank, unless a clock is configured.
"""
