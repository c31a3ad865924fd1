"""The Parquet files hold what the JSONL holds."""

import json
import shutil
from pathlib import Path

from checkout import DATA
from pyarrow import parquet as reader
from trainlab.data import parquet


def test_parquet_equals_jsonl(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "data")
    files = parquet.write(tmp_path / "data")
    assert {path.relative_to(tmp_path / "data").as_posix() for path in files} >= {
        "survival/parquet/train.parquet",
        "survival/parquet/heldout.parquet",
    }
    for path in files:
        lines = [
            {**json.loads(line), "topic": file.stem}
            for file in sorted((path.parents[1] / path.stem).glob("*.jsonl"))
            for line in file.read_text(encoding="utf-8").splitlines()
        ]
        rows = reader.read_table(path).to_pylist()
        assert [{k: v for k, v in row.items() if v is not None} for row in rows] == lines
