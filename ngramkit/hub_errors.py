"""What the Hub's client libraries raise, as errors that say what to do. One place for all of them.

huggingface_hub, datasets, fsspec and transformers wrap each other's exceptions, so the whole chain
of causes is looked through. Knows nothing of what was being fetched but its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ngramkit.errors import InputError, NetworkError, NgramkitError, causes

AGAIN = {
    "dataset": "check the network, then run the same command again: finished shards are kept",
    "model": "check the network, or give a model that is on this machine",
    "list": "check the network, then run the same command again",
}
RETRIED_LATER = {429: "too many requests", 500: "an internal error", 503: "it is unavailable"}


@contextmanager
def hub_errors(name: str, what: str = "dataset") -> Iterator[None]:
    """Inside, errors of the Hub's clients about `name` become NetworkError or InputError.

    `what` is a kind of repository: dataset or model. Other errors pass unchanged.
    """
    try:
        yield
    except NgramkitError:
        raise
    except Exception as error:
        known = as_known(error, name, what)
        if known is None:
            raise
        raise known from error


def as_known(error: BaseException, name: str, what: str = "dataset") -> NgramkitError | None:
    """The error to show instead of `error`; None where it does not come from the Hub."""
    from huggingface_hub import errors as hub
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    def caused(*kinds: type[BaseException]) -> BaseException | None:
        return next((cause for cause in causes(error) if isinstance(cause, kinds)), None)

    page = f"hf.co/{'datasets/' if what == 'dataset' else ''}{name}"
    if caused(hub.OfflineModeIsEnabled):
        return NetworkError(f"{name} cannot be fetched: the Hub is off", "unset HF_HUB_OFFLINE")
    if caused(hub.GatedRepoError):
        return NetworkError(
            f"{name} is gated", f"accept its terms at {page}, then run: hf auth login"
        )
    if caused(hub.RevisionNotFoundError):
        return InputError(f"{name} has no such revision", f"see {page}/tree/main")
    if caused(hub.RepositoryNotFoundError):
        return InputError(
            f"there is no {what} {name} on the Hub, or it is private",
            "check the id; for a private one run: hf auth login",
        )
    if caused(hub.HFValidationError):
        return InputError(f"{name} is not an id of the Hub", "an id is owner/name")
    refused = caused(hub.HfHubHTTPError, httpx.HTTPStatusError)
    if refused is not None:
        return _refused(refused, name, what)
    if caused(httpx.TransportError, ConnectionError, TimeoutError):
        return NetworkError(f"the Hub could not be reached for {name}", AGAIN[what])
    return None


def _refused(error: BaseException, name: str, what: str) -> NgramkitError:
    response = getattr(error, "response", None)
    status = response.status_code if response is not None else 0
    if status == 404:
        return InputError(f"the Hub knows nothing of {name}", "check the id: owner/name")
    if status in (401, 403):
        return NetworkError(f"the Hub refuses access to {name}", _who(name, status))
    said = RETRIED_LATER.get(status, "an error")
    return NetworkError(f"the Hub answers {status} for {name}: {said}", AGAIN[what])


def _who(name: str, status: int) -> str:
    """What helps depends on whether somebody is logged in at all, by a token that is known."""
    from huggingface_hub import get_token

    if status == 401 or get_token() is None:
        return "run: hf auth login"
    owner = name.partition("/")[0]
    return f"log in as somebody who may use {owner}'s repositories, or choose your own namespace"
