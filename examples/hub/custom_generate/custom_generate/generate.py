"""Drafts for transformers' `model.generate`: the same text, in fewer passes.

    model.generate(**inputs, custom_generate="OWNER/NAME", trust_remote_code=True)

`artifact` is a datastore or a frozen table of the model's tokenizer, hf://USER/NAME or a folder;
without one, drafts come from the text itself. `drafter` names another drafter than blend, and
`budget` is the most draft nodes per pass (default: what pays on this machine).
"""

import ngramkit


def generate(
    model, inputs=None, *, artifact=None, drafter="blend", budget=None, input_ids=None, **options
):
    tokenizer = ngramkit.load_tokenizer(model.name_or_path).record
    artifacts = [] if artifact is None else [ngramkit.open_artifact(artifact)]
    return ngramkit.generate(
        model,
        input_ids if inputs is None else inputs,
        drafter=lambda: ngramkit.load_drafter(drafter, artifacts, tokenizer=tokenizer),
        budget=budget,
        **{name: value for name, value in options.items() if value is not None},
    )
