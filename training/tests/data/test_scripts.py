"""One notion of a word in every script: questions that differ in a mark differ, and facts are found in languages of all kinds."""

import json
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from trainlab.data import own_questions, row_files, scripts
from trainlab.data.table_files import records
from trainlab.errors import UserError
from trainlab.evaluation import facts

DIFFER = {  # two questions that differ in marks alone
    "hindi": (
        "\u0930\u093e\u092e \u0928\u0947 \u0915\u094d\u092f\u093e \u0916\u093e\u092f\u093e?",
        "\u0930\u093e\u092e \u0928\u0947 \u0915\u094d\u092f\u094b\u0902 \u0916\u093e\u092f\u093e?",
    ),
    "thai": ("\u0e40\u0e2a\u0e37\u0e2d", "\u0e40\u0e2a\u0e37\u0e49\u0e2d"),
    "tamil": ("\u0b95\u0bb2\u0bcd", "\u0b95\u0bbe\u0bb2\u0bcd"),
    "burmese": ("\u1000\u102c", "\u1000\u102d"),
    "hebrew": ("\u05e9\u05b8\u05dd", "\u05e9\u05b5\u05dd"),
}
SAID = [  # a right answer, a fact in it, and one that is not in it
    ("\u5148\u5173\u95ed\u7164\u6c14\u9600\u95e8\uff0c\u7136\u540e\u6253\u5f00\u7a97\u6237\u3002",
     "\u7164\u6c14\u9600\u95e8", "\u6c34\u9600\u95e8"),
    ("\u6c34\u3092\u4e00\u5206\u9593\u6cb8\u9a30\u3055\u305b\u308b\u3002", "\u6cb8\u9a30", "\u51b7\u5374"),
    ("\u6e29\u5ea6\u306f30\u5ea6\u3067\u3059", "30", "3"),
    ("\u0e1b\u0e34\u0e14\u0e27\u0e32\u0e25\u0e4c\u0e41\u0e01\u0e4a\u0e2a\u0e01\u0e48\u0e2d\u0e19",
     "\u0e27\u0e32\u0e25\u0e4c\u0e27\u0e41\u0e01\u0e4a\u0e2a".replace("\u0e27\u0e41", "\u0e41"), "\u0e27\u0e32\u0e25"),
    ("\ubb3c\uc744 \ub053\uc774\uace0 \uc18c\uae08\uacfc \uc2dd\ud788\uc138\uc694.", "\ubb3c", "\uc2dd"),
    ("\ubcd1\uc6d0\uc5d0\uc11c\ub9cc \uce58\ub8cc\ud569\ub2c8\ub2e4", "\ubcd1\uc6d0", "\ubcd1"),
    ("\u0623\u063a\u0644\u0642 \u0627\u0644\u0635\u0645\u0627\u0645 \u0628\u0627\u0644\u0645\u0641\u062a\u0627\u062d",
     "\u0645\u0641\u062a\u0627\u062d", "\u0641\u062a\u0627\u062d"),
    ("\u0623\u063a\u0644\u0642 \u0627\u0644\u0635\u0651\u0645\u0627\u0645", "\u0635\u0645\u0627\u0645", "\u0645\u0627\u0645"),
    ("\u05e1\u05d2\u05d5\u05e8 \u05d0\u05ea \u05d4\u05d2\u05d6", "\u05d2\u05d6", "\u05d6"),
    ("\u0930\u093e\u092e \u092a\u093e\u0928\u0940 \u0909\u092c\u093e\u0932\u093e", "\u092a\u093e\u0928\u0940",
     "\u092a\u093e\u0928"),
    ("\u0417\u0430\u043a\u0440\u043e\u0439 \u043a\u0440\u0430\u043d!", "\u043a\u0440\u0430\u043d", "\u043a\u0440\u0430"),
    ("Das Ventil schlie\u00dfen, dann l\u00fcften.", "Ventil", "Vent"),
    ("He stirred it at 74 \u00b0C for 1.609 minutes", "stir", "his"),
    ("Use LED\u706f and 30\u5206\u9418", "led", "ed"),
]  # fmt: skip


@pytest.mark.parametrize("pair", DIFFER.values(), ids=list(DIFFER))
def test_questions_that_differ_in_a_mark_are_two(pair: tuple[str, str]) -> None:
    one, other = map(scripts.normal, pair)
    assert one != other and len(one.split()) == len(pair[0].split())


@pytest.mark.parametrize(("text", "fact", "other"), SAID)
def test_a_fact_is_found_in_its_language_and_no_part_of_a_word_is(text: str, fact: str, other: str) -> None:
    assert facts.matches(text, [[fact], [other]]) == [True, False]
    assert "".join(piece for piece, said in facts.marked(text, [[fact]]) if said)


ALPHABETS = {
    "latin": "abcdefgh", "cyrillic": "\u0430\u0431\u0432\u0433\u0434", "greek": "\u03b1\u03b2\u03b3\u03b4",
    "devanagari": "\u0915\u0916\u0917\u0918\u093e\u0940", "bengali": "\u0995\u0996\u0997\u09be\u09bf",
    "tamil": "\u0b95\u0b9a\u0b9f\u0bbe\u0bbf", "han": "\u6c34\u706b\u98a8\u571f", "kana": "\u3042\u3044\u3046\u30a2\u30fc",
    "thai": "\u0e01\u0e02\u0e04\u0e32\u0e40", "khmer": "\u1780\u1781\u1782\u17b6", "hangul": "\ubb3c\ubd88\ud759\ud638",
    "arabic": "\u062f\u0631\u0632\u0633", "hebrew": "\u05d0\u05d1\u05d2\u05d3", "ethiopic": "\u1200\u1208\u1210",
}  # fmt: skip
SCRIPTS = sorted(ALPHABETS)


@given(
    st.sampled_from(SCRIPTS).flatmap(
        lambda name: st.lists(st.text(ALPHABETS[name], min_size=2, max_size=5), min_size=1, max_size=4)
    )
)
def test_each_word_of_any_script_is_found_in_its_text(found: list[str]) -> None:
    text = " ".join(found)
    assert all(facts.matches(text, [[word] for word in found]))
    assert "".join(piece for piece, _ in facts.marked(text, [[found[0]]])) == text
    assert scripts.normal(f"{text}!") == scripts.normal(text) == scripts.normal(scripts.normal(text))


@given(
    st.sampled_from(SCRIPTS).flatmap(lambda name: st.tuples(*[st.text(ALPHABETS[name], min_size=2, max_size=5)] * 2))
)
def test_questions_are_one_only_if_their_letters_and_marks_are(pair: tuple[str, str]) -> None:
    assert (scripts.normal(pair[0]) == scripts.normal(pair[1])) == (pair[0] == pair[1])


def test_a_run_with_both_questions_of_two_that_differ_in_a_mark_is_not_refused(tmp_path: Path) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text("".join(json.dumps({"question": one, "answer": one}) + "\n" for one in DIFFER["hindi"]), "utf-8")
    assert "2 rows read, 0 were repeats, 2 questions" in own_questions.make([source], tmp_path / "out")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"facts": [["?!"]]}, "facts has .*, which has no letter and no digit"),
        ({"facts": [["\u6c34"]]}, "facts has .*, which is one letter of a script without spaces"),
        ({"facts": [["a"]], "never": ["\u4e0d\u8981"]}, "never has .*: negations are known in English alone"),
    ],
)
def test_what_the_scorer_cannot_judge_is_refused(tmp_path: Path, row: dict[str, object], why: str) -> None:
    (tmp_path / "retention.jsonl").write_text(json.dumps({"id": "x", "question": "q", **row}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"retention.jsonl:1: {why}"):
        for line in row_files.lines(tmp_path, names="retention.jsonl"):
            line.facts()
            line.safety()


ROW = {"id": "a", "question": "q", "answer": "r"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xef\xbb\xbf%s\n", None),
        (b"\xef\xbb\xbf%s\r\n\r\n", None),
        ("utf-16", "is UTF-16; save it as UTF-8"),
        (b"%s\n[1]\n", "holds a list; each row must be an object"),
        (b'%s\n{"id": \n', "not JSON .*truncated or invalid"),
    ],
)
def test_training_and_questions_read_jsonl_alike(tmp_path: Path, content: bytes | str, why: str | None) -> None:
    row = json.dumps(ROW).encode()
    data = row.decode().encode("utf-16") if isinstance(content, str) else content.replace(b"%s", row)
    path = tmp_path / "data" / "own" / "train" / "q.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    if why is None:
        assert [line.raw for line in row_files.lines(path.parent)] == [row for _, row in records(path)] == [ROW]
    else:
        with pytest.raises(UserError, match=why):
            list(records(path))


@pytest.mark.parametrize(
    "text",
    [
        'sep=;\n"question";"answer"\nq;r\n',
        "sep=;\r\nquestion;answer\r\nq;r\r\n",
        '"question";"answer";"a, b"\nq;r;\n',
        '"question, or what was asked";answer;question\nx;r;q\n',
        'question\tanswer\t"x; y, z"\nq\tr\tn\n',
        "question;answer\rq;r\r",
        "\ufeffquestion\u200b,\u200banswer\nq,r\n",
        'question,"answer"\nq,r\n',
        "question;note, free;answer\nq;x;r\n",
    ],
)
def test_csv_as_spreadsheets_write_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes(text.encode())
    [(_, row)] = records(path)
    assert (row["question"], row["answer"]) == ("q", "r")


def test_questions_come_from_parquet_too(tmp_path: Path) -> None:
    parquet.write_table(
        pyarrow.Table.from_pylist([{**ROW, "question": f"q {n}"} for n in "ab"]), tmp_path / "q.parquet"
    )
    assert "2 questions" in own_questions.make([tmp_path / "q.parquet"], tmp_path / "out")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"cut.parquet: cannot be read as Parquet"):
        own_questions.make([tmp_path / "cut.parquet"], tmp_path / "other")
