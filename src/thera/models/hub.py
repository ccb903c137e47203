"""Models on the Hugging Face Hub: `hf:owner/repository`."""

from __future__ import annotations

import re
from pathlib import Path

from thera.errors import InvalidInput, ModelError
from thera.optional import require

SUFFIXES = (".onnx", ".safetensors", ".pkl")  # in order of preference


def download(repository: str) -> Path:
    """The model file of a repository, downloaded once and then read from the local cache."""
    if not re.fullmatch("[^/]+/[^/]+", repository):
        raise InvalidInput(f"hf:{repository} names no repository: write hf:owner/repository.")
    hub = require("huggingface_hub", "hub", f"hf:{repository}")
    errors = require("huggingface_hub.errors", "hub", f"hf:{repository}")
    try:
        folder = hub.snapshot_download(repository, allow_patterns=[f"*{suffix}" for suffix in SUFFIXES])
    except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
        raise ModelError(f"hf:{repository} does not exist or is private: check its name.") from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"hf:{repository} cannot be reached and is not in the local cache: go online, or give a file."
        ) from error
    return model_in(Path(folder), repository)


def model_in(folder: Path, repository: str) -> Path:
    for suffix in SUFFIXES:
        if found := sorted(folder.rglob(f"*{suffix}")):
            return found[0]
    raise ModelError(f"hf:{repository} holds no model: a file must end in {', '.join(SUFFIXES)}.")
