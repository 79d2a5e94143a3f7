import os
from dataclasses import replace

from ngramkit.formats.newest import newest


def test_the_newest_of_kind_and_tokenizer(token_store, tmp_path):
    stores = [token_store([[1, 2]], 10), token_store([[1, 3]], 10), token_store([[1, 2]], 20)]
    record = stores[0].tokenizer
    assert newest("tokens", record, tmp_path) is None
    for age, store in enumerate(stores):
        path = tmp_path / f"store-{age}"
        store.path.rename(path)
        os.utime(path / "manifest.json", (1000 - age, 1000 - age))
    assert newest("tokens", record, tmp_path) == tmp_path / "store-0"
    os.utime(tmp_path / "store-1" / "manifest.json", (2000, 2000))
    assert newest("tokens", record, tmp_path) == tmp_path / "store-1"
    assert newest("datastore", record, tmp_path) is None
    # A name decides nothing, the fingerprint does.
    assert newest("tokens", replace(record, id="other"), tmp_path) == tmp_path / "store-1"


def test_what_is_unfinished_or_damaged_does_not_count(token_store, tmp_path):
    store = token_store([[1, 2]], 10)
    record = store.tokenizer
    store.path.rename(tmp_path / "store.partial")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    assert newest("tokens", record, tmp_path) is None
