"""The answer to the nearest training question: what a search without any model finds; a baseline for fact recall."""

from collections.abc import Sequence

from trainlab.data import scripts
from trainlab.data.chat_rows import HeldoutRow, TrainRow


def with_nearest(rows: Sequence[HeldoutRow], train: Sequence[TrainRow]) -> list[HeldoutRow]:
    """Return `rows`, with `nearest` where they ask taught facts: the answer to the closest wording of a taught fact by TF-IDF.

    Words and pairs of words, cosine similarity (scikit-learn's TfidfVectorizer); the first of equally close ones.
    """
    asked = [row for row in rows if row["kind"] == "taught"]
    if not asked:
        return list(rows)
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second: only for phases that need it

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, tokenizer=scripts.pieces, token_pattern=None)
    train = [row for row in train if row.get("taught")]
    known = vectorizer.fit_transform([row["question"] for row in train])
    closest = (vectorizer.transform([row["question"] for row in asked]) @ known.T).argmax(axis=1).ravel().tolist()[0]
    answers = {row["id"]: train[place]["answer"] for row, place in zip(asked, closest, strict=True)}
    return [{**row, "nearest": answers[row["id"]]} if row["id"] in answers else row for row in rows]
