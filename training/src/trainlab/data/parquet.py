"""Writes each split of our data sets as one Parquet file, for tools that lack JSONL: `python -m trainlab.data.parquet DATA`.

Called when the image is built (images/trainer/Containerfile). Training itself reads the JSONL, whose errors name a
line.
"""

import sys
from operator import itemgetter
from pathlib import Path

from trainlab.data import text_files
from trainlab.errors import UserError


def write(data: Path) -> list[Path]:
    """Write SET/parquet/SPLIT.parquet for every SET/SPLIT/*.jsonl below `data`; return the files.

    Raises UserError for a line that cannot be read. The columns are the keys of the lines and `topic`, the name of the file a line came from; rows keep their order.
    """
    import pyarrow
    from pyarrow import parquet

    written = []
    for split in sorted({file.parent for file in data.glob("*/*/*.jsonl")}):
        rows = [
            {**row, "topic": file.stem}
            for file in sorted(split.glob("*.jsonl"))
            for row in map(itemgetter(1), text_files.records(file))
        ]
        path = split.parent / "parquet" / f"{split.name}.parquet"
        path.parent.mkdir(exist_ok=True)
        keys = dict.fromkeys(key for row in rows for key in row)  # pyarrow takes those of the first row
        parquet.write_table(pyarrow.Table.from_pydict({key: [row.get(key) for row in rows] for key in keys}), path)
        written.append(path)
    return written


if __name__ == "__main__":
    try:
        for one in write(Path(sys.argv[1])):
            print(one)
    except UserError as error:
        sys.exit(f"error: {error}")
