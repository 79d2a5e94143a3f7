"""Random language models with the vocabularies that tables get wrong, and tokenizers for them."""

from __future__ import annotations

import torch
import transformers
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from ngramkit.corpus.tokenizer import TextTokenizer
from ngramkit.formats.tokenizer_record import TokenizerRecord, tokenizer_fingerprint

PADDED = 64  # what every model's embeddings hold
VOCABULARY = 53  # what its tokenizer does, an added token the last of it
HOLE = 40  # an id below that no token has
BOS = 1

LLAMA_LIKE = {
    "vocab_size": PADDED,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
MODELS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"tie_word_embeddings": False}),
    "tied": ("LlamaForCausalLM", "LlamaConfig", {"tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 2}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        # So low that the capped order of probabilities is far from the raw one.
        {"head_dim": 4, "query_pre_attn_scalar": 4, "final_logit_softcapping": 2.0},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32},
    ),
}


def tiny_lm(name):
    """In float64: what a batch rounds otherwise than one row alone is far below any real gap."""
    model_class, config_class, changes = MODELS[name]
    settings = {**LLAMA_LIKE, **changes}
    if name == "gpt2":
        settings = {"vocab_size": PADDED, "initializer_range": 0.5, **changes}
    config = getattr(transformers, config_class)(**settings)
    torch.manual_seed(0)
    return getattr(transformers, model_class)(config).double().eval()


def tiny_tokenizer(vocabulary=VOCABULARY, hole=HOLE, bos=BOS):
    words = {f"w{i}": i for i in range(vocabulary - 1) if i != hole}
    words["<added>"] = vocabulary - 1
    backend = Tokenizer(WordLevel(words, unk_token="w0"))
    backend.add_special_tokens([AddedToken("<added>", special=True)])
    record = TokenizerRecord("tiny", vocabulary, tokenizer_fingerprint(backend), eos=2)
    return TextTokenizer(record, backend, {} if bos is None else {"bos_token": f"w{bos}"})
