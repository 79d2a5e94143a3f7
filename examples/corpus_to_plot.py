# %% [markdown]
# From a corpus to a picture, cell by cell: open it in an editor that knows `# %%`, or run it whole.
# The model is the embedded one and the corpus the standard library, so nothing is downloaded.

# %% Tokens of a corpus: here by its name; a list, a generator, a Series or a dataset does as well
import sys
from itertools import islice
from pathlib import Path

import ngramkit

out = Path(sys.argv[1] if len(sys.argv) > 1 else "corpus-to-plot")
documents, prompts = (int(n) for n in (sys.argv[2:] or [300, 6]))
store = ngramkit.tokenize("python-stdlib", "demo", out / "tokens", limit=documents)
print(f"{store.manifest.counts['tokens']:,} tokens of {documents} files")

# %% Two artifacts
datastore = ngramkit.build_datastore(store, out / "datastore")
frozen = ngramkit.build_frozen(store, out / "frozen")

# %% What a model writes, once: replaying it needs no model
model = ngramkit.load_model("demo")
held_out = ngramkit.open_corpus("python-stdlib", split="held-out")  # what the corpus does not hold
long = (document.text[:400] for document in held_out.documents() if len(document.text) > 400)
texts = list(islice(long, prompts))
answers = ngramkit.decode(texts, model, drafter="none", max_new_tokens=80)
records = [
    ngramkit.Record(
        f"prompt {number}",
        "held-out",
        [ngramkit.Turn(model.tokenizer.encode_prompt(text), answer.run.token_ids)],
    )
    for number, (text, answer) in enumerate(zip(texts, answers, strict=True))
]

# %% Every drafter at several budgets
results = ngramkit.replay(
    records,
    model=model.tokenizer,
    drafters=["blend", "rest", "cacheback", "context"],
    budgets=[4, 16, 64],
    datastores=[datastore],
    frozen_table=frozen,
)
for result in results:
    print(f"{result.drafter:10} {result.budget:3} nodes {result.total.tokens_per_step:.2f}")

# %% The picture
results.plot(out / "replay.png")
print(out / "replay.png")
