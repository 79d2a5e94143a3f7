"""Conversion of a GGUF file's weights to a plain transformers model.

The header is checked first: its sizes must not make a model larger than its tensors.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ngramkit.basics.errors import InputError, first_line
from ngramkit.basics.machine import require_package
from ngramkit.gguf.header import EXTRA, Header, damaged_gguf, read_header
from ngramkit.gguf.model_folders import model_part, tokenizer_folder
from ngramkit.gguf.tokenizer import end_ids

MAX_FLOAT32_PARAMETERS = 2_000_000_000  # parameters: float32 up to here, bfloat16 above
MAX_METADATA_NUMBER = 1 << 24  # the maximum of any size or count in the metadata
MORE_THAN_FILED = 4  # maximum ratio of parameters to filed numbers: tied weights, buffers
log = logging.getLogger(__name__)


def model_folder(path: Path) -> Path:
    """Return a folder that transformers loads, converted from a GGUF file if it is missing.

    Raises InputError for a damaged file or an unsupported architecture, UsageError without gguf or
    accelerate.
    """
    return model_part(path, "model", lambda folder: _convert_gguf(path, folder))


def _convert_gguf(path: Path, folder: Path) -> None:
    for package in ("gguf", "accelerate"):
        require_package(package, "read the weights of a GGUF file", EXTRA)
    header = read_header(path)
    _require_sane(header)
    numbers = sum(tensor.size for tensor in header.tensors.values())
    dtype = torch.float32 if numbers <= MAX_FLOAT32_PARAMETERS else torch.bfloat16
    size = numbers * dtype.itemsize
    if shutil.disk_usage(folder).free < size * 1.1:
        raise InputError(
            f"cannot convert {path}: {folder.parent} has no room for {size / 1e9:.1f} GB",
            "Set XDG_CACHE_HOME to a folder with enough room.",
        )
    log.warning(
        "converting %s once: %.2f GB, %s, kept in %s",
        path.name,
        size / 1e9,
        str(dtype).removeprefix("torch."),
        folder.parent,
    )
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # transformers always shows a bar
            model = _plain_weights(header, dtype)
    except InputError:
        raise
    except Exception as error:  # the file is untrusted
        raise InputError(
            f"cannot convert {path}: {first_line(error):.200}",
            "Use the model's original repository.",
        ) from error
    model.save_pretrained(folder)
    for file in tokenizer_folder(path).iterdir():
        shutil.copyfile(file, folder / file.name)


def _require_sane(header: Header) -> None:
    """Raise InputError if sizes in the metadata do not fit the tensors."""
    name = header.text("general.architecture")
    sizes = {key: each for key, each in header.metadata.items() if key.startswith(f"{name}.")}
    for key, value in sizes.items():
        if isinstance(value, int) and not 0 <= value <= MAX_METADATA_NUMBER:
            raise damaged_gguf(header.path, f"{key:.80} is {value}")
        if isinstance(value, np.ndarray) and value.size > MAX_METADATA_NUMBER:
            raise damaged_gguf(header.path, f"{key:.80} lists {value.size:,} numbers")
    layers = header.whole(f"{name}.block_count")
    if not 0 < layers <= len(header.tensors):
        raise damaged_gguf(header.path, f"{layers} layers in {len(header.tensors):,} tensors")
    width, table = header.whole(f"{name}.embedding_length"), header.tensors.get("token_embd.weight")
    if table is None or table.shape[0] != width:
        raise damaged_gguf(header.path, f"embeddings of {width} numbers are not there")


@contextlib.contextmanager
def _quick_reading() -> Iterator[None]:
    """Let transformers read the header once, and make its map of tensor names once."""
    import gguf

    class Reader(gguf.GGUFReader):
        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = np.asarray(mapped)  # slices of a memmap take three times as long

    package: Any = gguf
    names, reader = package.get_tensor_name_map, package.GGUFReader
    package.get_tensor_name_map = functools.cache(names)
    package.GGUFReader = functools.cache(Reader)
    try:
        yield
    finally:
        package.get_tensor_name_map, package.GGUFReader = names, reader


def _plain_weights(header: Header, dtype: torch.dtype) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM as Auto

    models: Any = Auto
    place, file = header.path.parent, header.path.name
    with _quick_reading():
        config = AutoConfig.from_pretrained(place, gguf_file=file, trust_remote_code=False)
        with torch.device("meta"):
            skeleton = models.from_config(config, trust_remote_code=False)
        filed = sum(tensor.size for tensor in header.tensors.values())
        if sum(p.numel() for p in skeleton.parameters()) > MORE_THAN_FILED * filed:
            raise damaged_gguf(header.path, "its sizes ask for more weights than it holds")
        read, facts = models.from_pretrained(
            place,
            config=config,
            gguf_file=file,
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=False,
        )
    wrong = sorted(map(str, [*facts["missing_keys"], *facts["mismatched_keys"]]))
    if wrong:
        raise damaged_gguf(
            header.path, f"it lacks {len(wrong):,} weights, {wrong[0]:.80} among them"
        )
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = models.from_config(config, dtype=dtype, trust_remote_code=False)
    plain.load_state_dict(read.state_dict())
    plain.generation_config = read.generation_config
    plain.generation_config.eos_token_id = end_ids(header) or None
    return plain
