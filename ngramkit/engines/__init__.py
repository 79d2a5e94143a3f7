"""Drafts inside serving engines: llama.cpp, vLLM, SGLang, TensorRT-LLM.

From an engine's side down to the artifacts:

- An adapter, a module named after its engine, maps the engine's calls to a batch's. It reads its
  configuration (`engines.config`) from NGRAMKIT_DRAFT.
- `BatchDrafter` (`engines.batch`): rows of token ids in, drafts out, on threads. Acceptance of the
  last drafts decides which requests pause (`budget.pause`) and where chains end
  (`budget.batch`), and is counted (`engines.metrics`).
  `TimedDrafter` (`engines.timed_drafter`) decides both by time, for one text at a time.
- A session (`engines.sessions`) is a request found by its row of token ids, always compared, so an
  engine may reorder rows and need not name them.
- A request (`engines.workspace`): a live context, begun with a prompt, extended, rewound. A
  workspace drafts for it; each thread has its own.
- A source (`engines.source`): artifacts, opened once and read only, and a history
  (`engines.growth`), which finished requests join between two steps and a thread writes.

Same inputs give the same drafts on every rank: nothing depends on time (unless a clock is asked
for), and past requests grow in the steps that all ranks see. Knows token ids only: no text (but
what a grammar of llama.cpp forces, `engines.llama_grammar`), no model, no tensors, and nothing of
ngramkit's own decoding.
"""
