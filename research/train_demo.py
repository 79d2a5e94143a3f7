"""Train the embedded model: `python -m research.train_demo --out DIR`, from a clone.

A byte-level BPE of 4,096 and a 5.5-million-parameter Llama, both learnt from the standard
library's sources (its test suites included, where the interpreter has them) without the held-out
tenth. About an hour on a CPU. `ngramkit/demo/model` holds such a model; its README says how it was
made, and how well it does.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ngramkit.corpus.stdlib import is_held_out, stdlib_files

VOCABULARY = 4096
CONTEXT = 1024
EOS = "<|endoftext|>"


def main() -> None:
    options = arguments()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    train_text, held_out_text = corpus_texts()
    tokenizer = train_tokenizer(train_text)
    train = encode(tokenizer, train_text)
    held_out = encode(tokenizer, held_out_text)
    print(f"{len(train):,} training tokens, {len(held_out):,} held out", flush=True)

    model = saved_model(options.start) if options.start else new_model()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    fit(model, train, held_out, options)
    print(f"held-out loss {evaluate(model, held_out):.4f}")
    save(model, tokenizer, options.out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a model that this script saved, to go on from")
    parser.add_argument("--steps", type=int, default=2100)
    parser.add_argument("--tokens", type=int, default=8192, help="per step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def corpus_texts() -> tuple[list[str], list[str]]:
    train: list[str] = []
    held_out: list[str] = []
    for name, path in stdlib_files(tests=True):
        # The character tables of encodings/ are a tenth of the text and teach no Python.
        if name.startswith("encodings/") or "/cjkencodings/" in name:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        (held_out if is_held_out(name) else train).append(text)
    return train, held_out


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """Encode the documents one after another, EOS before the first and after each: uint16[n]."""
    eos = tokenizer.token_to_id(EOS)
    stream = [eos]
    for encoding in tokenizer.encode_batch_fast(texts):
        stream.extend(encoding.ids)
        stream.append(eos)
    return np.array(stream, dtype=np.uint16)


def saved_model(path: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, trust_remote_code=False)


def new_model() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )


def fit(
    model: LlamaForCausalLM, train: np.ndarray, held_out: np.ndarray, options: argparse.Namespace
) -> None:
    optimizers = new_optimizers(model, options.rate)
    random = np.random.default_rng(options.seed)
    started, seen = time.monotonic(), 0
    for step in range(options.steps):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = options.rate * rate_factor(step, options.steps)
        # Attention's backward pass is a third of a step: most of the steps see half the context.
        length = CONTEXT // 2 if step < options.steps * 0.5 else CONTEXT
        starts = random.integers(0, len(train) - length - 1, options.tokens // length)
        loss = language_loss(model, windows(train, starts, length))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seen += options.tokens
        if step % 50 == 0:
            speed = seen / (time.monotonic() - started)
            print(f"step {step:5d}  loss {loss.item():.3f}  {speed:,.0f} tokens/s", flush=True)
        if step % 500 == 499:
            print(f"step {step:5d}  held-out loss {evaluate(model, held_out, 32):.3f}", flush=True)


def new_optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    """Make Muon for the layers' matrices and AdamW for the embedding and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    matrix_ids = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]


def rate_factor(step: int, steps: int, warmup: int = 50) -> float:
    """Return the rate's factor: warm-up, a plateau for half of the steps, then a straight line to
    nothing."""
    rising = (step + 1) / warmup
    falling = (steps - step) / (steps - steps // 2)
    return min(1.0, rising, falling)


def windows(stream: np.ndarray, starts: np.ndarray, length: int = CONTEXT) -> torch.Tensor:
    """Cut windows, int64[len(starts), length + 1]."""
    return torch.from_numpy(np.stack([stream[s : s + length + 1] for s in starts]).astype(np.int64))


def language_loss(model: LlamaForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), batch[:, 1:].flatten()
        )


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, held_out: np.ndarray, at_most: int = 10**9) -> float:
    """Return the mean loss per token (nats) over disjoint windows."""
    starts = np.arange(0, len(held_out) - CONTEXT - 1, CONTEXT)
    starts = starts[:: max(1, len(starts) // at_most)]
    model.eval()
    losses = [
        language_loss(model, windows(held_out, starts[i : i + 8])).item()
        for i in range(0, len(starts), 8)
    ]
    model.train()
    return sum(losses) / len(losses)


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    model.half().save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        bos_token=EOS,
        pad_token=EOS,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(out)


if __name__ == "__main__":
    main()
