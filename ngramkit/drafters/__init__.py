"""Artifacts and the live context in, draft trees out.

The package is a function as well: `ngramkit.drafters()`, see `ngramkit.drafters.registry.drafters`.
"""

from ngramkit.basics.public import callable_module

callable_module(__name__, "ngramkit.drafters.registry", "drafters")
