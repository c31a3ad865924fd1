"""What the tests of `trainlab prepare` share."""

from pathlib import Path

import pytest
from corpora import make_tokenizer
from trainlab.data.prepare.options import Options


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small tokenizer."""
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def options(tokenizer: Path) -> Options:
    """Small blocks and shards: about twelve documents in a shard."""
    return Options(tokenizer, block_length=64, shard_chars=9000)
