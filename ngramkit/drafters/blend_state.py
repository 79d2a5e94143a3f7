"""What one blend drafter holds in memory, as the flat arrays its kernels want."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngramkit.errors import ArtifactError
from ngramkit.formats.container import open_arrays, write_arrays
from ngramkit.formats.datastore import DatastoreShard
from ngramkit.kernels.blend_counts import BUFFER, CANDIDATES, COLUMNS, KEPT, Candidates, Live, Memo
from ngramkit.kernels.blend_evidence import ORDERS, SURENESS, TOPS, Opinions
from ngramkit.kernels.blend_mix import EVIDENCE, GATES, TRAITS, Weights

FITTED = Path(__file__).with_name("blend_weights.safetensors")
MEMO_ROWS = 1 << 15
MILLION = 1e6
OPINION_ROWS = 1 << 14
FIRST_TRUST = (0.3, 0.5, 0.7)  # in the last one, two and three tokens' opinions, the less the
# surer the counts are ...
ASKED = 10.0  # ... as if learnt from so many


def new_live(vocabulary: int, capacity: int) -> Live:
    return Live(
        tokens=np.empty(capacity, np.int32),
        previous=np.empty(capacity, np.int32),
        latest=np.full(vocabulary + 1, -1, np.int32),
        counts=np.zeros(vocabulary + 1, np.int32),
    )


def grown(live: Live, capacity: int) -> Live:
    """The same with room for `capacity` tokens."""
    more = capacity - len(live.tokens)
    return live._replace(
        tokens=np.concatenate([live.tokens, np.empty(more, np.int32)]),
        previous=np.concatenate([live.previous, np.empty(more, np.int32)]),
    )


def new_candidates(vocabulary: int) -> Candidates:
    return Candidates(
        tokens=np.empty(CANDIDATES, np.int32),
        counts=np.empty((CANDIDATES, COLUMNS), np.float32),
        newest=np.empty(CANDIDATES, np.int32),
        slot=np.zeros(vocabulary + 1, np.int32),
        stamp=np.zeros(vocabulary + 1, np.int32),
        totals=np.zeros(COLUMNS, np.float32),
        distinct=np.zeros(COLUMNS, np.float32),
        state=np.zeros(2, np.int64),
        positions=np.empty(BUFFER, np.int64),
        successors=np.empty(BUFFER, np.int64),
    )


def new_memo(shards: int, rows: int = MEMO_ROWS) -> Memo:
    """Pages are taken as they are touched: about 9 MB at most."""
    return Memo(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows, KEPT), np.int32),
        counts=np.zeros((rows, KEPT), np.float32),
        sizes=np.zeros((rows, 2), np.int32),
        pair_keys=np.zeros(rows, np.uint64),
        pairs=np.zeros((rows, shards, 2), np.int64),
    )


def new_opinions(rows: int = OPINION_ROWS) -> Opinions:
    opinions = Opinions(
        keys=np.zeros(rows, np.uint64),
        tokens=np.zeros((rows, TOPS), np.int32),
        p=np.zeros((rows, TOPS), np.float32),
        trust=np.zeros((ORDERS + 1, SURENESS, 2), np.float64),
    )
    forget(opinions)
    return opinions


def forget(opinions: Opinions) -> None:
    """A new request: other text, other opinions."""
    opinions.keys[:] = 0
    unsure = 1 - (np.arange(SURENESS) + 0.5) / SURENESS
    opinions.trust[1:, :, 0] = ASKED * np.outer(FIRST_TRUST, unsure)
    opinions.trust[:, :, 1] = ASKED


def log_shares(shards: Sequence[DatastoreShard], vocabulary: int) -> npt.NDArray[np.float32]:
    """float32[V + 1]: log(1 + each token's share of the datastores' tokens, in millionths)."""
    counts = np.zeros(vocabulary + 1, np.float64)
    for shard in shards:
        counts += np.diff(shard.first_token.astype(np.float64))
    counts *= MILLION / max(counts.sum(), 1)
    return np.log1p(counts).astype(np.float32)


def load_weights(path: Path = FITTED) -> Weights:
    """The fitted weights. Raises ArtifactError where the file does not have the kernel's shapes."""
    arrays = open_arrays(path)
    try:
        weights = Weights(*(np.array(arrays[name], np.float32) for name in Weights._fields))
    except KeyError as error:
        raise ArtifactError(f"{path} has no {error}", "fit the weights again") from error
    hidden, units = len(weights.gate_bias), len(weights.trait_bias)
    wanted = [
        (EVIDENCE, hidden), (hidden,), (hidden, GATES), (GATES,),
        (TRAITS, units), (units,), (units + 1,),
    ]  # fmt: skip
    if [w.shape for w in weights] != wanted:
        raise ArtifactError(f"{path} is of another shape than the kernel's", "fit it again")
    return weights


def save_weights(weights: Weights, path: Path = FITTED) -> None:
    write_arrays(path, weights._asdict())
