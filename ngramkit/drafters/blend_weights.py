"""The fitted weights of blend's mixture, on disk beside this module."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import open_arrays, write_arrays
from ngramkit.kernels.blend.mixture import GATE_FEATURES, GATES, TOKEN_FEATURES, Weights

FITTED = Path(__file__).with_name("blend_weights.safetensors")


def load_weights(path: Path = FITTED) -> Weights:
    """The fitted weights. Raises ArtifactError where the file does not have the kernel's shapes."""
    arrays = open_arrays(path)
    try:
        weights = Weights(*(np.array(arrays[name], np.float32) for name in Weights._fields))
    except KeyError as error:
        raise ArtifactError(f"{path} has no {error}", "fit the weights again") from error
    hidden, units = len(weights.gate_bias), len(weights.token_bias)
    wanted = [
        (GATE_FEATURES, hidden), (hidden,), (hidden, GATES), (GATES,),
        (TOKEN_FEATURES, units), (units,), (units + 1,),
    ]  # fmt: skip
    if [w.shape for w in weights] != wanted:
        raise ArtifactError(f"{path} is of another shape than the kernel's", "fit it again")
    return weights


def save_weights(weights: Weights, path: Path = FITTED) -> None:
    write_arrays(path, weights._asdict())
