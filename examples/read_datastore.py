"""Draft from a datastore with numpy and safetensors only, as another engine can.

python examples/read_datastore.py DATASTORE TOKEN-ID TOKEN-ID ...
"""

import json
import sys
from bisect import bisect_left, bisect_right
from itertools import takewhile
from pathlib import Path

from safetensors.numpy import load_file


class Datastore:
    def __init__(self, folder):
        manifest = json.loads((Path(folder) / "manifest.json").read_text(encoding="utf-8"))
        assert (manifest["kind"], manifest["version"]) == ("datastore", 1), "no datastore"
        self.separator = manifest["tokenizer"]["vocabulary"]  # ends every document
        self.shards = [load_file(Path(folder) / name) for name in sorted(manifest["files"])]

    def places(self, shard, phrase):
        """Return the positions in the shard's tokens at which the phrase begins."""
        tokens, order = shard["tokens"], shard["suffix_array"]
        low, high = map(int, shard["first_token"][[phrase[0], phrase[0] + 1]])
        for depth, token in enumerate(phrase[1:], 1):
            rows, of = range(low, high), {"key": lambda row, at=depth: tokens[order[row] + at]}
            low, high = low + bisect_left(rows, token, **of), low + bisect_right(rows, token, **of)
        return order[low:high]

    def draft(self, context, width=8, longest=64):
        """Return what follows the longest match of the context's end, at its first place."""
        best = []
        for size in range(1, min(len(context), longest) + 1):
            found = ((shard, self.places(shard, context[-size:])) for shard in self.shards)
            texts = (shard["tokens"][min(at) + size :] for shard, at in found if len(at))
            best = next(texts, best)
        return list(takewhile(lambda token: token != self.separator, map(int, best[:width])))


if __name__ == "__main__":
    try:
        print(*Datastore(sys.argv[1]).draft([int(word) for word in sys.argv[2:]]))
    except Exception as error:  # a wrong folder, or ids that the tokenizer does not have
        sys.exit(f"{type(error).__name__}: {error}\nusage: {__doc__.splitlines()[2]}")
