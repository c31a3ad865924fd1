"""Writes each split of our data sets as one Parquet file, for tools that lack JSONL: `python -m trainlab.data.parquet DATA`.

Called when the image is built (images/trainer/Containerfile). Training itself reads the JSONL, whose errors name a
line.
"""

import json
import sys
from pathlib import Path


def write(data: Path) -> list[Path]:
    """Write SET/parquet/SPLIT.parquet for every SET/SPLIT/*.jsonl below `data`; return the files.

    The columns are the keys of the lines and `topic`, the name of the file a line came from; rows keep their order.
    """
    import pyarrow
    from pyarrow import parquet

    written = []
    for split in sorted({file.parent for file in data.glob("*/*/*.jsonl")}):
        rows = [
            {**json.loads(line), "topic": file.stem}
            for file in sorted(split.glob("*.jsonl"))
            for line in file.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
        path = split.parent / "parquet" / f"{split.name}.parquet"
        path.parent.mkdir(exist_ok=True)
        keys = dict.fromkeys(key for row in rows for key in row)  # pyarrow takes those of the first row
        parquet.write_table(pyarrow.Table.from_pydict({key: [row.get(key) for row in rows] for key in keys}), path)
        written.append(path)
    return written


if __name__ == "__main__":
    for one in write(Path(sys.argv[1])):
        print(one)
