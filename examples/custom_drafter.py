"""A drafter of your own: what followed the last token whenever it came before, most often first.

Anything with these four methods is a drafter; whatever it drafts, the text stays the model's own.
"""

from collections import Counter, defaultdict

import numpy as np

import ngramkit


class Followers:
    def start(self, prompt):  # int32[n]: a new request
        self.after, self.last = defaultdict(Counter), int(prompt[0])
        self.accept(prompt[1:])

    def draft(self, budget):  # at most `budget` nodes, here all children of the root
        ranked = self.after[self.last].most_common(budget)
        total = sum(self.after[self.last].values())
        ids = np.array([token for token, _ in ranked], np.int32)
        shares = np.array([count / total for _, count in ranked], np.float32)
        source = np.full(len(ids), ngramkit.Source.CONTEXT, np.uint8)
        return ngramkit.DraftTree(ids, np.full(len(ids), -1, np.int32), shares, source)

    def accept(self, tokens, evidence=None):  # what the model wrote
        for token in tokens.tolist():
            self.after[self.last][token] += 1
            self.last = token

    def finish(self):  # the request is over: a drafter that learns does it here
        pass


if __name__ == "__main__":
    model = ngramkit.load_model("demo")
    prompt = model.tokenizer.encode_prompt("def read_config(path):\n")
    options = {"max_new_tokens": 60, "do_sample": False}
    drafted = ngramkit.generate(model, prompt, drafter=Followers(), budget=8, **options)
    alone = ngramkit.generate(model, prompt, drafter="none", **options)
    assert drafted.tolist() == alone.tolist()
    print(model.tokenizer.decode(drafted[0].tolist()))
