"""Export of an artifact as a Hub repository that transformers' custom_generate can load.

    custom_generate/generate.py        imports `decode.hub_generate.generate`
    custom_generate/requirements.txt   requires ngramkit
    artifact/                          the artifact's folder
    README.md                          a model card, tagged custom_generate

After a push: `model.generate(**inputs, custom_generate="USER/NAME", trust_remote_code=True)`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from ngramkit.basics.models import HUB_IDS, is_gguf
from ngramkit.formats.artifact import Artifact
from ngramkit.formats.card import (
    artifact_card,
    card_title,
    escaped_markdown,
    escaped_yaml,
    is_hub_id,
    model_name,
)
from ngramkit.formats.manifest import MANIFEST_FILE
from ngramkit.formats.outputs import ARTIFACT, CARD
from ngramkit.formats.replacing import PRIVATE, Replacement
from ngramkit.formats.safetensors import WrongFileError, sha256_of

NEEDED_VERSION = "ngramkit>=0.2.0"  # has `hub_generate`; transformers reads digits and dots only
GENERATE_CODE = '''\
"""Generates with this repository's ngramkit artifact: the same text, in fewer passes.

    model.generate(**inputs, custom_generate="USER/NAME", trust_remote_code=True)

`drafter` names another drafter than the artifact's own, `budget` bounds the draft of a pass.
"""

from ngramkit.decode.hub_generate import generate as generate
'''


def export_folder(artifact: Artifact, out: Path, *, force: bool = False) -> dict[str, int]:
    """Write the folder of an artifact that a drafter can use without others."""
    with Replacement(out, force=force, inputs=[artifact.path]) as new:
        new.empty(PRIVATE if artifact.manifest.private else 0o777)
        size = _write_export(artifact, new.partial)
        new.put_in_place()
    return {"bytes": size}


def _write_export(artifact: Artifact, folder: Path) -> int:
    code = folder / "custom_generate"
    code.mkdir()
    (code / "generate.py").write_text(GENERATE_CODE, encoding="utf-8")
    (code / "requirements.txt").write_text(NEEDED_VERSION + "\n", encoding="utf-8")
    (folder / CARD).write_text(_model_card(artifact), encoding="utf-8")
    inside = folder / ARTIFACT
    inside.mkdir()
    for name, record in artifact.manifest.files.items():
        shutil.copyfile(artifact.path / name, inside / name)
        if sha256_of(inside / name) != record.sha256:
            raise WrongFileError(artifact.path / name, "its checksum is not the listed one")
    (inside / MANIFEST_FILE).write_text(artifact.manifest.to_json(), encoding="utf-8")
    (inside / CARD).write_text(artifact_card(artifact.manifest), encoding="utf-8")
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _model_card(artifact: Artifact) -> str:
    """Return the model card, which never names a local path."""
    manifest, model = artifact.manifest, artifact.tokenizer.id
    hub_id = HUB_IDS.get(model, model)
    is_local = is_gguf(hub_id) or Path(hub_id).exists() or not is_hub_id(hub_id)
    name = model_name(model) if is_local else hub_id
    heading = card_title(replace(manifest, tokenizer=replace(manifest.tokenizer, id=name)))
    base = "" if is_local else f"base_model: {escaped_yaml(hub_id)}\n"
    return f"""---
library_name: transformers
{base}tags: ["custom_generate", "ngramkit", "{artifact.kind}"]
---

# {escaped_markdown(heading)}

Drafts tokens from the look-up table in `artifact/` and has the model check many of them in each
pass: the same text as without, in fewer passes where it drafts well. For models with the tokenizer
of {escaped_markdown(name)}.

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
