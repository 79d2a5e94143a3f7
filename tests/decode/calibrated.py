"""Made-up profiles of what passes cost."""

from ngramkit.budget.profile import Pass, Profile


def profile(node, base=1.0, contexts=(0, 100), per_context=0.0):
    """A pass costs `base` and `node` per node, and `per_context` more per token of context."""
    passes = [
        Pass(size, context, base + node * size + per_context * context)
        for context in contexts
        for size in (0, 1, 4, 16)
    ]
    return Profile("made-up", "cpu", "float32", passes)
