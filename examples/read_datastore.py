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
        assert (manifest["kind"], manifest["version"]) == ("datastore", 1)
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
            shard, places = next((pair for pair in found if len(pair[1])), (None, []))
            if shard is None:
                break
            best = shard["tokens"][min(places) + size :][:width].tolist()
        return list(takewhile(lambda token: token != self.separator, best))


if __name__ == "__main__":
    print(*Datastore(sys.argv[1]).draft([int(word) for word in sys.argv[2:]]))
