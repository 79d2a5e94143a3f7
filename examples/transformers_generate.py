"""transformers' own `model.generate`, with drafts: one more argument, the same text."""

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ngramkit

name = ngramkit.resolve_model("demo")  # a folder; any decoder-only model on the Hub will do
model, tokenizer = AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)

prompts = ["def read_config(path):\n", "import os\nimport sys\n\n\nclass Cache:\n"]
tokenizer.padding_side = "left"
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
inputs = tokenizer(prompts, return_tensors="pt", padding=True)

plain = model.generate(**inputs, max_new_tokens=40, do_sample=False)
drafted = model.generate(
    **inputs,
    max_new_tokens=40,
    do_sample=False,
    custom_generate=ngramkit.custom_generate,
    drafter=lambda: ngramkit.load_drafter("cacheback"),  # one per row
    budget=16,
)
assert torch.equal(plain, drafted)
print(*tokenizer.batch_decode(drafted, skip_special_tokens=True), sep="\n---\n")
