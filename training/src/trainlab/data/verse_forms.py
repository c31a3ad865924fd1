"""Verse forms: which ones there are, and how well a text adheres to one (lines, rhyme, syllables). Pure text, no model.

Used by chat_rows.py (a row names its form), answer_score.py (form adherence per item) and by the contract test of
data/verses, so the data set and the models are judged by the same rules. The rules know spelling, not sound: they treat
love and move as a rhyme, and miscount compounds (something) by one. Base and tuned model are judged alike, so a
difference is meaningful; the share itself is an estimate.
"""

import re
from itertools import combinations

# Lines with the same letter rhyme.
RHYMED = {"couplet": "AA", "tercet": "AAA", "quatrain_aabb": "AABB", "quatrain_abab": "ABAB", "limerick": "AABBA"}
COUNTED = {"haiku": (5, 7, 5), "cinquain": (2, 4, 6, 8, 2)}  # syllables of each line
FORMS = sorted([*RHYMED, *COUNTED])

# Spellings of a word's end, from its last vowel on, that sound alike somewhere in data/verses; one group per sound.
# Equal spellings need no entry. Each group was compared with the CMU pronouncing dictionary when it was added.
SOUNDS = [
    set(group.split())
    for group in """
    ew o oe oo ough ou u ue you|o oe ough ow|e ea ee ey i ie y|i igh ie y ye|ay et ey
    air are ayer ear ere|ar are|ear eer ere year|ares e's|oar oor ore our or|oor ore our ure
    ire oir igher yre er|ire er|oir er|oir yre|er yre|er ir ur|art eart|earth orth|earned urned
    awn one|on one ohn|one own|one un on|ome um umb|oon une|and anned|ain ane|ain en|ean een in ene
    ait ate eight|ead ed aid|aid ade ayed|ide ied yde|ild iled|ind ined|end iend|ign ine|ile yle|oud owd|ewed oad
    eace eas eece eese ese ease|ease eys|ees eeze|ies ise ize|ews oes|eal eel|oal oul|eaf ief
    eath eth|aught ought|eat eet|ut ute|oat ote|eave eeve|oast ost|eaps eeps|as ass|east yeast
    """.replace("\n", "|").split("|")
]


def words(text: str) -> list[str]:
    """Return the lower-case words of a text without punctuation; apostrophes inside a word stay."""
    return [word.strip("'") for word in re.findall(r"[a-z']+", text.lower()) if word.strip("'")]


def lines(text: str) -> list[str]:
    """Return the lines of a text that hold a word; empty lines between them do not count."""
    return [line.strip() for line in text.splitlines() if words(line)]


def rhymes(first: str, second: str) -> bool:
    """Say whether two words rhyme by their spelling; a word rhymes with itself here."""
    a, b = tail(first), tail(second)
    return a == b or any(a in sound and b in sound for sound in SOUNDS)


def tail(word: str) -> str:
    """Return the spelling that carries the rhyme: from the last vowel on, a silent -e, -es or -ed included."""
    sounded = re.sub(r"([qg])u(?=[aeiou])", r"\1", word)  # the u of queen and guest is not a vowel
    match = re.search(r"[aeiouy]+[^aeiouy]*(?:e|es|ed)?$", sounded)
    return match.group() if match else word


def syllables(line: str) -> int:
    """Estimate the syllables of a line: vowel groups, less the silent -e, -es and -ed."""
    total = 0
    for word in words(line):
        text = word.replace("'", "")
        if re.search(r"[^aeiouyl]e$|[aeiouy]le$", text):
            text = text[:-1]
        elif re.search(r"[^aeiouy]es$", text) and not re.search(r"([szxcg]|[cs]h|[^aeiouy]l)es$", text):
            text = text[:-2] + "s"
        elif re.search(r"[^aeiouy]ed$", text) and not re.search(r"[td]ed$", text):
            text = text[:-2] + "d"
        total += max(1, len(re.findall(r"[aeiouy]+", text)))
    return total


def line_count(form: str) -> int:
    """Return the number of lines of a form."""
    return len(RHYMED.get(form) or COUNTED[form])


def should_rhyme(form: str) -> list[tuple[int, int]]:
    """Return the pairs of lines (from 0) that rhyme in a form; none in syllable-counting forms."""
    pattern = RHYMED.get(form, "")
    return [(i, j) for i, j in combinations(range(len(pattern)), 2) if pattern[i] == pattern[j]]


def parts(text: str, form: str) -> dict[str, float]:
    """Return how well `text` adheres to `form`, each 0 to 1: `lines`, and `rhyme` or `syllables`.

    The number of lines is all or nothing. The other is the share of line pairs that rhyme as they should (a repeated word
    is not a rhyme), or of lines with exactly their syllables; a missing line fails, extra lines are ignored. Raises
    KeyError for a form that is not in FORMS.
    """
    verse, wanted = lines(text), line_count(form)
    if form in RHYMED:
        name, right = "rhyme", [_rhyming(verse, i, j) for i, j in should_rhyme(form)]
    else:
        name = "syllables"
        right = [place < len(verse) and syllables(verse[place]) == n for place, n in enumerate(COUNTED[form])]
    return {"lines": float(len(verse) == wanted), name: sum(right) / len(right)}


def adherence(text: str, form: str) -> float:
    """Return the mean of the two `parts`."""
    return sum(parts(text, form).values()) / 2


def _rhyming(verse: list[str], i: int, j: int) -> bool:
    if max(i, j) >= len(verse):
        return False
    first, second = words(verse[i])[-1], words(verse[j])[-1]
    return first != second and rhymes(first, second)
