"""Drafters: artifacts and the context in, draft trees out.

The package is callable: `ngramkit.drafters()` lists the drafters.
"""

from ngramkit.basics.callable_package import callable_as

callable_as(__name__, "ngramkit.drafters.registry:drafters")
