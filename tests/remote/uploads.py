"""Helpers for tests of artifacts that are written to URLs."""

from __future__ import annotations

import ngramkit

OUT = "s3://bucket/out/phrases"


def build(tokens, out=OUT, shard_tokens=200, **options):
    return ngramkit.build_datastore(tokens, out, shard_tokens=shard_tokens, **options)


def puts(s3, name="shard-"):
    return [each for each in s3.requests if each.startswith("PUT") and name in each]


def there(s3):
    s3.storage.invalidate_cache()
    return sorted(each.rpartition("/")[2] for each in s3.storage.find("bucket/out"))
