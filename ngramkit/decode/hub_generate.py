"""Generation with the artifact of a Hub repository, which transformers calls:

model.generate(**inputs, custom_generate="USER/NAME", trust_remote_code=True)
"""

import functools
import inspect
from pathlib import Path
from typing import Any

from ngramkit.basics.errors import ArtifactError
from ngramkit.corpus.tokenizer import tokenizer_digests
from ngramkit.decode.generate import custom_generate
from ngramkit.decode.generation import with_stop_strings
from ngramkit.drafters.create import load_drafter
from ngramkit.formats.tokenizer_record import TokenizerRecord
from ngramkit.inspection import open_artifact

ARTIFACT_FOLDER = "artifact"
DRAFTER_BY_KIND = {"datastore": "blend", "frozen-table": "cacheback", "model-bigram": "ngrammys"}


def generate(
    model: Any,
    inputs: Any = None,
    streamer: Any = None,
    *,
    artifact: str | Path | None = None,
    drafter: str | None = None,
    budget: int | None = None,
    revision: str | None = None,
    tokenizer: Any = None,
    stop_strings: Any = None,
    **options: Any,
) -> Any:
    """Return the text of `model.generate` in fewer passes.

    `artifact` is a folder in place of the repository's; `budget` bounds the draft nodes per pass.
    """
    if artifact is None:
        # transformers does not pass the repository of the code.
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        artifact = _fetch_artifact(
            caller.f_locals.get("custom_generate") if caller else None, revision
        )
    given = {"stop_strings": stop_strings, "tokenizer": tokenizer, **options}
    opened = open_artifact(artifact)
    _require_same_ids(opened, model, tokenizer)
    name = drafter or DRAFTER_BY_KIND[opened.kind]
    return model.generate(
        inputs,
        streamer=streamer,
        custom_generate=functools.partial(custom_generate, streamer=streamer),
        drafter=lambda: load_drafter(name, opened),
        budget=budget,
        **with_stop_strings(
            {key: value for key, value in given.items() if value is not None},
            model.generation_config,
        ),
    )


def _fetch_artifact(home: Any, revision: str | None) -> Path:
    if home is None:
        raise ValueError("artifact must be given outside custom_generate, like artifact=FOLDER")
    if Path(home).is_dir():
        return Path(home) / ARTIFACT_FOLDER
    from huggingface_hub import snapshot_download

    wanted = f"{ARTIFACT_FOLDER}/*"
    return Path(snapshot_download(home, revision=revision, allow_patterns=wanted)) / ARTIFACT_FOLDER


def _require_same_ids(artifact: Any, model: Any, tokenizer: Any) -> None:
    """Raise ArtifactError if the ids differ; certain only with `tokenizer`."""
    record = artifact.tokenizer
    vocabulary = model.config.get_text_config().vocab_size
    if record.vocabulary > vocabulary:
        raise ArtifactError(
            f"the artifact's tokenizer must be the model's, got that of {record.id} "
            f"({record.vocabulary:,} tokens, the model has {vocabulary:,})"
        )
    if tokenizer is not None:
        given = TokenizerRecord("", **tokenizer_digests(tokenizer.backend_tokenizer)._asdict())
        if not record.is_same_tokenizer(given):
            raise ArtifactError(
                f"the artifact's tokenizer must be the model's, got that of {record.id}"
            )
