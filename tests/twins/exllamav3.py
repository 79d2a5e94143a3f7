"""An independent reader of ExLlamaV3's frozen suffix automaton, and the automaton's definition.

The reader checks what ExLlamaV3 1.6.5 checks when it loads a file, and drafts as it does.
"""

from __future__ import annotations

import hashlib
import json
import struct
from itertools import pairwise
from pathlib import Path

import zstandard

SECTIONS = [
    "link", "max_len", "min_end", "edge_offsets", "edge_token", "edge_to", "root", "corpus",
    "document_ends",
]  # fmt: skip


class FrozenAutomaton:
    def __init__(self, path, model, vocabulary):
        raw = Path(path).read_bytes()
        magic, version, size, payload = struct.unpack_from("<8sIIQ", raw)
        assert (magic, version) == (b"EXL3SAM\0", 1)
        self.header = json.loads(raw[24 : 24 + size])
        expected = {
            "format": "exllamav3.frozen_sam", "version": 1, "layout": "csr", "compression": "zstd",
            "separator": -1, "payload_bytes": payload,
        }  # fmt: skip
        assert expected.items() <= self.header.items()
        self._check_tokenizer(Path(model))
        frame = zstandard.ZstdDecompressor().decompressobj()
        plain = frame.decompress(raw[24 + size :])
        assert frame.eof
        assert not frame.unused_data
        assert len(plain) == payload
        assert [section["name"] for section in self.header["sections"]] == SECTIONS
        self.arrays, end = {}, 0
        for section in self.header["sections"]:
            begin, count = section["offset"], section["count"]
            assert begin >= end
            assert begin % 64 == 0
            assert (section["dtype"], section["encoding"]) == ("<i4", "byte_planes")
            end = begin + 4 * count
            planes = [plain[begin + i * count : begin + (i + 1) * count] for i in range(4)]
            words = zip(*planes, strict=True)
            self.arrays[section["name"]] = [
                int.from_bytes(bytes(word), "little", signed=True) for word in words
            ]
        assert end == payload
        self._check_graph(vocabulary)

    def _check_tokenizer(self, folder):
        listed = self.header["tokenizer"]["files"]
        assert "tokenizer.json" in listed
        for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json"):
            file = folder / name
            there = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None
            assert listed.get(name) == there

    def _check_graph(self, vocabulary):
        link, longest, ends, offsets, labels, targets, root, corpus, boundaries = (
            self.arrays[name] for name in SECTIONS
        )
        states, edges = self.header["state_count"], self.header["edge_count"]
        tokens = self.header["token_count"]
        assert [len(link), len(longest), len(ends), len(offsets)] == [states] * 3 + [states + 1]
        assert len(labels) == len(targets) == edges
        assert (len(corpus), len(boundaries)) == (tokens, self.header["document_count"])
        assert (link[0], longest[0]) == (-1, 0)
        for state in range(1, states):
            assert 0 <= link[state] < states
            assert longest[link[state]] < longest[state] <= ends[state] + 1 <= tokens
        assert (offsets[0], offsets[-1]) == (0, edges)
        for state in range(states):
            mine = labels[offsets[state] : offsets[state + 1]]
            assert all(a < b for a, b in pairwise(mine))
        assert all(0 <= target < states for target in targets)
        assert len(root) <= 1 << 20
        first = dict(zip(labels[: offsets[1]], targets, strict=False))
        assert root == [first.get(token, -1) for token in range(len(root))]
        raw = b"".join(token.to_bytes(4, "little", signed=True) for token in corpus)
        assert hashlib.sha256(raw).hexdigest() == self.header["corpus_sha256"]
        assert all(-1 <= token < vocabulary for token in corpus)
        assert boundaries == [i for i, token in enumerate(corpus) if token == -1]
        assert boundaries[-1] == tokens - 1

    def draft(self, history, minimum, length):
        """Return the length of the match, and the tokens after its first place."""
        link, longest, ends = (self.arrays[name] for name in SECTIONS[:3])
        state = matched = 0
        for token in history:
            while state and self._target(state, token) < 0:
                state = link[state]
                matched = min(matched, longest[state])
            target = self._target(state, token)
            state, matched = (0, 0) if target < 0 else (target, matched + 1)
        corpus, drafted = self.arrays["corpus"], []
        begin = ends[state] + 1 if matched >= minimum else len(corpus)
        for token in corpus[begin : begin + length]:
            if token < 0:
                break
            drafted.append(token)
        return matched, drafted

    def _target(self, state, token):
        if state == 0 and token < len(self.arrays["root"]):
            return self.arrays["root"][token]
        offsets = self.arrays["edge_offsets"]
        for edge in range(offsets[state], offsets[state + 1]):
            if self.arrays["edge_token"][edge] == token:
                return self.arrays["edge_to"][edge]
        return -1


def automaton(corpus):
    """{longest substring: (its suffix link, its first end, {token: longest of the target})}.

    A state holds the substrings that end at the same places.
    """
    text = tuple(corpus)
    places = {(): frozenset(range(len(text) + 1))}
    for begin in range(len(text)):
        for end in range(begin + 1, len(text) + 1):
            part = text[begin:end]
            size = len(part)
            places.setdefault(
                part,
                frozenset(i for i in range(size, len(text) + 1) if text[i - size : i] == part),
            )
    states = {}  # by places, the longest
    for part, where in places.items():
        if where not in states or len(part) > len(states[where]):
            states[where] = part
    found = {}
    for where, part in states.items():
        link = next(
            (
                states[places[part[i:]]]
                for i in range(1, len(part) + 1)
                if places[part[i:]] != where
            ),
            None,
        )
        edges = {
            token: states[places[(*part, token)]]
            for token in sorted(set(text))
            if (*part, token) in places
        }
        found[part] = (link, min(where) - 1, edges)
    return found
