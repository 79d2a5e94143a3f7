"""Drafts inside serving engines: llama.cpp, vLLM, SGLang, TensorRT-LLM.

The seam, from the artifacts to an engine:

- `DraftSource` (`engines.source`): artifacts, tables, past requests. Opened once, shared by all
  requests and threads, read only. Where a thread counts, grows trees and remembers what it sampled
  is its desk: one for each thread, so nothing that is written is shared, and drafts do not depend
  on which thread makes them.
- A request (`engines.workspace`, `engines.workspace`): its live context and what was
  learnt of its opinions. Made with a prompt, extended, rewound; gives a tree or a chain.
- A session (`engines.sessions`): a request, found by the row of token ids that an engine hands
  over, always compared. Engines that reorder rows or give no ids need nothing else.
- `BatchDrafter` (`engines.batch`): rows in, drafts out, on threads; what became of the last drafts
  decides which requests go on being drafted for (`engines.gate`) and is counted
  (`engines.metrics`).
- An adapter, a module named after its engine: the engine's calls, put as those. Each reads its
  configuration (`engines.config`) from NGRAMKIT_DRAFT.

Same inputs, same drafts, on every rank: no clock decides (unless one is asked for), no history
grows unnoticed. Knows token ids only: no text, no model, no tensors, and nothing of ngramkit's
own decoding.
"""
