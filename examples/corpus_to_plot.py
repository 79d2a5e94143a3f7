# %% [markdown]
# From a corpus to a picture, cell by cell: open it in an editor that knows `# %%`, or run it whole.
# The model is the embedded one and the corpus the standard library, so nothing is downloaded.

# %% What the corpus is, and tokens of it
import sys
from pathlib import Path

import numpy as np

import ngramkit
from ngramkit.decode.load import load_model
from ngramkit.demo import demo_prompts
from ngramkit.evaluate.plots import plot
from ngramkit.evaluate.records import Record, Turn
from ngramkit.evaluate.simulation import replay_drafter

out = Path(sys.argv[1] if len(sys.argv) > 1 else "corpus-to-plot")
documents, prompts = (int(n) for n in (sys.argv[2:] or [300, 6]))
corpus = ngramkit.open_corpus("python-stdlib", limit=documents)
store = ngramkit.tokenize(corpus, "demo", out / "tokens")
print(f"{store.manifest.counts['tokens']:,} tokens of {documents} files")

# %% Two artifacts
datastore = ngramkit.build_datastore(store, out / "datastore")
frozen = ngramkit.build_frozen(store, out / "frozen")

# %% What a model writes, once: replaying it needs no model
model = load_model("demo")
records = []
for where, text in demo_prompts(prompts):  # from files that the corpus does not hold
    prompt = model.tokenizer.encode_prompt(text)
    written = ngramkit.generate(model, prompt, drafter="none", max_new_tokens=80, do_sample=False)
    answer = written[0, len(prompt) :].numpy().astype(np.int32)
    records.append(Record(where, where.split("/")[0], [Turn(prompt, answer)]))

# %% Every drafter at several budgets
makers = {
    "blend": lambda: ngramkit.load_drafter("blend", datastores=[datastore], frozen_table=frozen),
    "rest": lambda: ngramkit.load_drafter("rest", datastores=[datastore]),
    "cacheback": lambda: ngramkit.load_drafter("cacheback", frozen_table=frozen),
    "context": lambda: ngramkit.load_drafter("context"),
}
results = [
    replay_drafter(name, make, records, budget)
    for name, make in makers.items()
    for budget in (4, 16, 64)
]
for result in results:
    print(f"{result.drafter:10} {result.budget:3} nodes {result.total.tokens_per_step:.2f}")

# %% The picture
plot(results, out / "replay.png")
print(out / "replay.png")
