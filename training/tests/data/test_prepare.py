"""trainlab prepare: counts, duplicates, blocks that give documents back, a killed run, memory."""

import pickle
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from corpora import child, made, make_tokenizer, nearly, text, write_rows
from slow import but_the_first
from trainlab import files
from trainlab.data.pack import Packer, load_tokenizer
from trainlab.data.prepare import clean, duplicates, ingest, pipeline
from trainlab.data.prepare.blocks import Blocks
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.workers import Workers
from trainlab.errors import UserError

SPELLED = text(900) + " <|endoftext|> is spelled here"
DISTINCT = [*(text(seed) for seed in range(60)), SPELLED]
PLANTED = [
    *DISTINCT,
    *(one.replace("\n", "\r\n") + "  " for one in DISTINCT[:5]),  # equal after cleaning
    *(nearly(one) for one in DISTINCT[5:12]),
    "short",
    " \n ",
    "+-- 12 | 34 " * 20,
    "\n".join(["one line of words that comes again"] * 9),
]

RUN = """
import os, signal, sys
from pathlib import Path
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.pipeline import prepare
from trainlab.progress import Progress
source, out, tokenizer, stop = sys.argv[1:]
left, real = int(stop), Path.replace
def replace(self, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, target)
Path.replace = replace
prepare([source], Path(out), Options(Path(tokenizer), block_length=64, shard_chars=9000), Progress(speaks=False))
"""

# VmHWM is the peak of resident memory; 5 in clear_refs sets it back to what is resident now (man 5 proc).
MEMORY = """
import sys
from pathlib import Path
from trainlab.data.prepare import duplicates
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.pipeline import prepare
from trainlab.progress import Progress
duplicates.ENTRIES = 1 << 13
tokenizer, folder, *sources = map(Path, sys.argv[1:])
for source in sources:
    Path("/proc/self/clear_refs").write_text("5")
    options = Options(tokenizer, block_length=64, shard_chars=1 << 18)
    prepare([str(source)], folder / source.stem, options, Progress(speaks=False))
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def documents(blocks: Blocks, tokenizer: Path) -> list[str]:
    """Return the texts that the blocks hold, the last one cut where the blocks end."""
    starts = blocks.starts().tolist()
    assert starts[0] == 0
    found = [blocks.tokens(*bounds).tolist() for bounds in pairwise([*starts, blocks.index["tokens"]])]
    assert [token for tokens in found for token in tokens] == [token for block in blocks for token in block.tolist()]
    assert all(one[-1] == blocks.eos and blocks.eos not in one[:-1] for one in found[:-1])
    backend = load_tokenizer(tokenizer).backend
    return [backend.decode(one[:-1] if one[-1] == blocks.eos else one) for one in found]


def test_counts_add_up_and_the_blocks_give_every_document_back(
    tmp_path: Path, tokenizer: Path, options: Options
) -> None:
    report = made(write_rows(tmp_path / "a.jsonl", PLANTED), tmp_path / "out", options)
    counts = report["documents"]
    assert counts["dropped"] == {"empty": 1, "letters": 1, "repeated_lines": 1, "short": 1}
    assert (counts["exact_duplicates"], counts["near_duplicates"]) == (5, 7)
    assert counts["kept"] == len(DISTINCT)
    assert report["plan"]["format"] == 3  # a folder of before has other files
    left = counts["bad"] + sum(counts["dropped"].values()) + counts["exact_duplicates"] + counts["near_duplicates"]
    assert counts["read"] == len(PLANTED) == left + counts["kept"]
    assert report["characters"]["kept"] == sum(map(len, DISTINCT))
    assert len(report["bad_rows"]) == 0

    blocks = Blocks(tmp_path / "out")
    blocks.verify()
    assert len(blocks.index["shards"]) > 3 and blocks.index["dtype"] == "uint16"
    tokens = report["tokens"]
    assert blocks.index["tokens"] == tokens["packed"] == 64 * len(blocks) == tokens["made"] - tokens["remainder"]
    assert 0 <= tokens["remainder"] < 64
    found = documents(blocks, tokenizer)
    assert found[:-1] == DISTINCT[: len(found) - 1]
    assert DISTINCT[len(found) - 1].startswith(found[-1].rstrip("\ufffd")) and len(found) >= len(DISTINCT) - 1
    assert not (tmp_path / "out/work").exists()


def test_without_near_only_equal_texts_go(tmp_path: Path, tokenizer: Path) -> None:
    report = made(
        write_rows(tmp_path / "a.jsonl", PLANTED), tmp_path / "out", Options(tokenizer, block_length=64, near=0)
    )
    assert report["documents"]["exact_duplicates"] == 5 and report["documents"]["kept"] == len(DISTINCT) + 7


def test_a_bos_stands_before_each_document_and_special_tokens_in_a_text_stay_text(tmp_path: Path) -> None:
    folder = make_tokenizer(tmp_path / "bos", bos=True)
    tokens = load_tokenizer(folder)
    assert SPELLED in DISTINCT and not {0, 1} & set(tokens.encode([SPELLED, "<|begin|>"])[0])
    assert tokens.backend.decode(tokens.encode(["<|begin|> a"])[0]) == "<|begin|> a"
    made(write_rows(tmp_path / "a.jsonl", DISTINCT), tmp_path / "out", Options(folder, block_length=64))
    blocks = Blocks(tmp_path / "out")
    stored = blocks.tokens(0, blocks.index["tokens"])
    assert np.flatnonzero(stored == 1).tolist() == blocks.starts().tolist()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """A folder with the rows, and what a run that nobody killed makes of them."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    made(
        write_rows(folder / "a.jsonl", PLANTED), folder / "whole", Options(tokenizer, block_length=64, shard_chars=9000)
    )
    return folder


@pytest.mark.parametrize(("stop", "cleaned"), but_the_first([(27, True), (2, False), (8, False), (41, True)]))
@pytest.mark.slow
def test_a_killed_run_goes_on_and_leaves_the_same_bytes(
    stop: int, cleaned: bool, uninterrupted: Path, tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the file number `stop` gets its name; where all was cleaned by then, nothing is cleaned again."""
    source = uninterrupted / "a.jsonl"
    killed = child(RUN, str(source), str(tmp_path / "killed"), str(options.tokenizer), str(stop))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.raises(UserError, match=r"no index.json; run `trainlab prepare"):
        Blocks(tmp_path / "killed")
    assert list((tmp_path / "killed").rglob(".*.bin.*")) or list((tmp_path / "killed").rglob(".*.json.*"))
    if cleaned:
        monkeypatch.setattr(ingest, "cleaned", lambda *_: pytest.fail("cleaned again"))
    made(source, tmp_path / "killed", options)
    whole, again = (
        {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
        for folder in (uninterrupted / "whole", tmp_path / "killed")
    )
    assert whole == again


@pytest.mark.rest
def test_more_processes_make_the_same_bytes(
    uninterrupted: Path, tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches of few rows; the bad row is found in its turn."""
    monkeypatch.setattr(pipeline, "WORTH", 0)
    monkeypatch.setattr(pipeline, "cores", lambda: 2)
    monkeypatch.setattr(ingest, "GROUP", 1000)
    started: list[int] = []
    end = Workers.__exit__

    def watched(own: Workers, *_: object) -> None:
        assert own._pool
        started.append(len(own._pool._processes))
        end(own)

    monkeypatch.setattr(Workers, "__exit__", watched)
    report = made(uninterrupted / "a.jsonl", tmp_path / "out", options)
    assert started == [2]
    for path in (uninterrupted / "whole").glob("blocks-*.bin"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    whole = files.read_json(uninterrupted / "whole" / "report.json")
    assert {**whole, "plan": None} == {**report, "plan": None}
    rows = (uninterrupted / "a.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "b.jsonl").write_text("\n".join([*rows[:40], "no JSON", *rows[40:], "nor this"]), encoding="utf-8")
    with pytest.raises(UserError, match=r"b.jsonl:41: not JSON"):
        made(tmp_path / "b.jsonl", tmp_path / "bad", options)


@pytest.mark.slow
def test_a_process_that_is_killed_is_an_error_that_says_so() -> None:
    with Workers(2) as workers, pytest.raises(UserError, match=r"was killed.*site\.prepare\.memory"):
        list(workers.map(signal.raise_signal, [(None, signal.SIGKILL)] * 3))


@pytest.mark.rest
def test_memory_does_not_grow_with_the_input(tmp_path: Path, tokenizer: Path) -> None:
    """In one process, whose imports take a hundred times of it, and more or less by chance."""
    sources = [
        write_rows(tmp_path / f"{name}.jsonl", [text(seed, 150) for seed in range(size)])
        for name, size in (("first", 2000), ("small", 2000), ("large", 20000))
    ]
    done = child(MEMORY, str(tokenizer), str(tmp_path), *map(str, sources))
    assert done.returncode == 0, done.stderr
    peaks = [int(line) / 1024 for line in done.stdout.split()]  # MiB
    grown = sources[2].stat().st_size - sources[1].stat().st_size
    assert grown > 18e6 and peaks[2] - max(peaks[:2]) < 12, peaks


def test_the_parts_of_a_search_do_not_change_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text(seed) for seed in range(300)] + [nearly(text(seed)) for seed in range(0, 300, 7)]
    (tmp_path / "s.bin").write_bytes(duplicates.minhashes([duplicates.grams(one) for one in texts]).tobytes())
    found = []
    for entries in (1 << 20, 500):
        monkeypatch.setattr(duplicates, "ENTRIES", entries)
        signatures = duplicates.Signatures([tmp_path / "s.bin"], duplicates.WIDTH)
        found.append(duplicates.duplicates(signatures, duplicates.min_bands(0.8), 0.8))
    assert found[0].tolist() == found[1].tolist() == [False] * 300 + [True] * 43
    assert duplicates.min_bands(0.8) == 16 and duplicates.min_bands(0.5) == 64


def test_a_document_goes_when_it_is_like_any_earlier_one_in_whatever_order_bands_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains: each document differs from the one before in 1 of 16 numbers, from the first of its chain in up to 4."""
    draw = np.random.default_rng(0)
    documents = []
    for _ in range(50):
        row = draw.integers(0, 1 << 32, 16, dtype=np.uint32)
        for place in (0, 5, 10, 15):
            documents.append(row.copy())
            row[place] += 1
        documents.append(row)
    (tmp_path / "s.bin").write_bytes(np.stack(documents).astype("<u4").tobytes())
    for entries in (1 << 20, 97, 31):
        monkeypatch.setattr(duplicates, "ENTRIES", entries)
        signatures = duplicates.Signatures([tmp_path / "s.bin"], 16)
        found = duplicates.duplicates(signatures, 8, 0.9)
        assert found.tolist() == [False, True, True, True, True] * 50


def test_a_packer_fed_in_pieces_makes_the_same_blocks() -> None:
    given = [list(range(n)) for n in (5, 1, 17, 8, 30, 2)]
    blocks = Packer(8).add(given)
    packer, parts = Packer(8), []
    for one in given:
        parts.append(packer.add([one]))
        packer = Packer(8, packer.rest.tolist())
    assert np.concatenate(parts).tolist() == blocks.tolist() and packer.rest.tolist() == given[4][-5:] + given[5]
    assert [pipeline.dtype(size) for size in (1 << 16, (1 << 16) + 1)] == ["uint16", "uint32"]


def test_blocks_say_when_files_are_not_what_was_written(tmp_path: Path, options: Options) -> None:
    made(write_rows(tmp_path / "a.jsonl", DISTINCT), tmp_path / "out", options)
    blocks = Blocks(tmp_path / "out")
    last = blocks[-1]
    assert last.dtype == np.int64 and last.tolist() == pickle.loads(pickle.dumps(blocks))[len(blocks) - 1].tolist()
    with pytest.raises(IndexError):
        blocks[len(blocks)]
    path = tmp_path / "out" / blocks.index["shards"][0]["file"]
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(UserError, match=r"blocks-00000.bin: does not match index.json"):
        Blocks(tmp_path / "out").verify()
    path.write_bytes(data[:-1])
    with pytest.raises(UserError, match=r"blocks-00000.bin: \d+ bytes, index.json says \d+"):
        Blocks(tmp_path / "out")


def test_cleaning_keeps_what_is_written_and_drops_what_is_not() -> None:
    assert clean.normalize("\ufeffa\r\n  b \t\r\r\n\n\n\x00c\n") == "a\n  b\n\nc"
    assert clean.normalize("e\u0301") == "\u00e9"
    assert clean.dropped_by("x" * 60, 50) == "word_length" and clean.dropped_by("x" * 60, 50, ("word_length",)) is None
    assert clean.dropped_by(text(1) + "\ufffd" * 3, 50) == "broken"


def test_the_manual_of_python_goes_through(tmp_path: Path, tokenizer: Path) -> None:
    report = made("pydoc:topics", tmp_path / "out", Options(tokenizer, block_length=256))
    assert report["documents"]["read"] > 60 and report["blocks"] > 100
