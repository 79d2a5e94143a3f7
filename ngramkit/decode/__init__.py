"""Drafts verified by a Hugging Face model: `draft -> verify -> accept -> append`.

The only part of decoding that knows torch. The modules in the order of a request:

    options     the keywords of the call, checked
    answer      a prompt in, an Answer out; `conversation` and `generate` are other entrances
    pending     the tokenizer, before the model; `load` loads the model
    decoder     the loaded model with a verifier, a budget and a drafter for each request
    loop        one pass at a time, by the protocols of `base`
    verify_*    the model's side of a pass, with its `masks` and `cache`; `verifiers` chooses one
    accept      the draft tokens that stay; `sampling` chooses the tokens

The package is callable as the function of its name: `ngramkit.decode("def main(")`, see
`ngramkit.decode.answer.decode`; `help(ngramkit.DecodeOptions)` has its keywords.
"""

from ngramkit.basics.callable_package import callable_as

callable_as(__name__, "ngramkit.decode.answer:decode")
