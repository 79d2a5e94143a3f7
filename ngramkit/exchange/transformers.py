"""An artifact with the code to generate with it, as transformers loads both from one repository.

    custom_generate/generate.py        ngramkit/decode/hub_generate.py as it is
    custom_generate/requirements.txt   what must be installed: ngramkit
    artifact/                          the artifact's folder
    README.md                          a card of a model repository, tagged custom_generate

Pushed to the Hub it is called as `model.generate(**inputs, custom_generate="USER/NAME",
trust_remote_code=True)`. transformers runs generate.py out of a cache of its own.
"""

from __future__ import annotations

import shutil
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from ngramkit.errors import UsageError
from ngramkit.exchange.files import refuse_existing
from ngramkit.formats import markdown
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.card import title
from ngramkit.formats.manifest import NAME

KINDS = ("datastore", "frozen-table", "model-bigram")


def export_folder(artifact: Artifact, out: Path, *, force: bool = False) -> int:
    """Writes the folder and returns its bytes. UsageError: a kind that no drafter takes alone."""
    if artifact.kind not in KINDS:
        raise UsageError(
            f"{artifact.path} is a {artifact.kind}, which no drafter uses alone",
            f"export a {' or a '.join(KINDS)}",
        )
    refuse_existing(out, force=force)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    code = partial / "custom_generate"
    code.mkdir(parents=True)
    source = files("ngramkit") / "decode" / "hub_generate.py"
    (code / "generate.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    needed = f"ngramkit>={version('ngramkit')}\n"
    (code / "requirements.txt").write_text(needed, encoding="utf-8")
    (partial / "README.md").write_text(_card(artifact), encoding="utf-8")
    (partial / "artifact").mkdir()
    for name in (*artifact.manifest.files, NAME, "README.md"):
        shutil.copyfile(artifact.path / name, partial / "artifact" / name)
    size = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file())
    if out.exists():
        shutil.rmtree(out)
    partial.rename(out)
    return size


def _card(artifact: Artifact) -> str:
    model = markdown.text(artifact.tokenizer.id)
    return f"""---
library_name: transformers
tags: ["custom_generate", "ngramkit", "{artifact.kind}"]
---

# {markdown.text(title(artifact.manifest))}

Drafts tokens from the look-up table in `artifact/` and has the model check many of them in each
pass: the same text as without, sooner. For models with the tokenizer of {model}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL)
inputs = tokenizer("...", return_tensors="pt").to(model.device)
output = model.generate(
    **inputs, custom_generate="USER/NAME", trust_remote_code=True, tokenizer=tokenizer
)
```

`drafter="..."` and `budget=...` choose another drafter and the size of a draft. Needs ngramkit.
"""
