"""Drafts verified by a Hugging Face model: `draft -> verify -> accept -> append`.

The only part of decoding that knows torch. A request's way through it:

    options     the keywords of the call, checked
    answer      a prompt in, an Answer out; `conversation` and `generate` are the other entrances
    pending     the tokenizer, before the model; `load` then loads that
    session     the loaded model with a verifier, a budget and a drafter for each request
    loop        a pass at a time, by the protocols of `base`
    verify_*    the model's side of a pass, with its `masks` and `cache`; `verifiers` chooses one
    accept      the draft tokens that stay, by the choice of tokens in `sampling`

The package is a function as well: `ngramkit.decode("def main(")`, see `ngramkit.decode.answer`.
"""

from ngramkit.basics.public import callable_module

callable_module(__name__, "ngramkit.decode.answer", "decode")
