"""A round: who has which place, what was written, what became of the job; kept as JSON so that a killed room goes on."""

import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from trainlab import files
from trainlab.errors import UserError
from trainlab.room.cards import NAME_LENGTH, OWN, Card, Refused, clean, own_row
from trainlab.room.interface import Decision, Status

State = Literal["lobby", "active", "locked", "reveal"]


class Kept(BaseModel):
    """Base of what is written to the state file."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Place(Kept):
    """One visitor's place. `row` is what is trained, None until a card is filled."""

    owner: str
    device: str
    name: str
    card: str = ""
    row: dict[str, Any] | None = None
    hidden: bool = False


class Round(Kept):
    """One round. `run` is None until its job is started; `problem` says why it could not be."""

    id: str
    number: int
    state: State = "lobby"
    places: dict[str, Place] = {}
    run: str | None = None
    status: Status = Status("queued")
    problem: str = ""

    @classmethod
    def new(cls, number: int) -> "Round":
        """Return a round that nobody has joined; its id is never used twice."""
        return cls(id=f"r{number}-{secrets.token_hex(4)}", number=number)

    def of(self, device: str | None) -> Place | None:
        """Return the place of a device."""
        return next((place for place in self.places.values() if place.device == device), None)

    def rows(self) -> list[dict[str, Any]]:
        """Return what is trained: the row of each place that has one and is not hidden."""
        return [place.row for place in self.places.values() if place.row and not place.hidden]

    def decision(self, owner: str) -> Decision | None:
        """Return what the gate decided about a visitor, None before it has."""
        return self.status.decided.get(owner)


class Ended(Kept):
    """What is kept of a round: numbers, and the losses and decisions of its job without anybody's words."""

    number: int
    places: int
    trained: int
    promoted: int
    run: str | None
    votes: dict[str, int] = {}


class Answer(Kept):
    """A complete answer to a prepared question."""

    label: str
    text: str
    tokens: int
    seconds: float


class Book(Kept):
    """The state file."""

    round: Round = Round(id="", number=0)
    ended: list[Ended] = []
    good: Status | None = None
    good_number: int = 0
    frozen: bool = False
    answers: dict[str, list[Answer]] = {}
    """prepared question -> the last complete answers, which a frozen room shows."""
    hidden_cards: list[str] = []
    ballots: dict[str, dict[str, str]] = {}
    """device -> digest of a question -> vote, of this round's blind comparison."""
    base: str = "base"
    """Label of the model that learned nothing here, as it was at the last vote."""
    blind_revealed: bool = False
    key: str = ""
    """Digest of the key that signed the places' cookies."""


class Rounds:
    """The room's book and what visitors and presenter do with it; each method that changes it writes it first."""

    def __init__(self, folder: Path, cards: Mapping[str, Card], seats: int) -> None:
        self.cards, self.seats, self.folder = dict(cards), seats, folder
        self._path = folder / "room.json"
        self.book = self._read()
        if not self.book.round.id:
            self.book.round = Round.new(1)
            self.save()

    @property
    def round(self) -> Round:
        """The round that is on."""
        return self.book.round

    def of_key(self, digest: str) -> None:
        """Begin the next round where another key signed the cookies: nobody can have a place of this one any more."""
        if self.book.key and self.book.key != digest:
            self.next()
        if self.book.key != digest:
            self.book.key = digest
            self.save()

    def save(self) -> None:
        """Write the book. Raises UserError where it cannot be."""
        try:
            files.write_text(self._path, self.book.model_dump_json(indent=1) + "\n")
            self._path.chmod(0o600)  # visitors' words
        except OSError as error:
            raise UserError(f"{self._path}: {error.strerror}; give --state a folder that can be written") from None

    def offered(self) -> list[Card]:
        """Return the cards that visitors may choose."""
        return [card for card in self.cards.values() if card.id not in self.book.hidden_cards]

    def claim(self, device: str, name: str = "") -> Place:
        """Return the place of a device, a new one if it has none. Raises Refused."""
        if place := self.round.of(device):
            return place
        if self.round.state not in ("lobby", "active"):
            raise Refused("This round is closed; wait for the next one.")
        if len(self.round.places) >= self.seats:
            raise Refused(f"All {self.seats} places are taken; wait for the next round.")
        owner = next(o for n in range(1, self.seats + 1) if (o := f"p{n:02}") not in self.round.places)
        name = clean(name, "Your name", NAME_LENGTH) if name.strip() else owner
        place = self.round.places[owner] = Place(owner=owner, device=device, name=name)
        self.save()
        return place

    def fill(self, device: str, card: str, values: Mapping[str, str], wordings: Sequence[str] = ()) -> Place:
        """Keep what a visitor wrote; before the round is closed also again. Raises Refused."""
        place = self.round.of(device)
        if place is None:
            raise Refused("Take a place first.")
        if self.round.state == "lobby":
            raise Refused("The round has not been opened yet; wait a moment.")
        if self.round.state != "active":
            raise Refused("The round is closed; what you wrote before counts.")
        if card == OWN and OWN not in self.book.hidden_cards:
            others = [text for each in self.cards.values() for text in each.of_examples()]
            row = own_row(place.owner, values.get("answer", ""), wordings, values.get("held_out", ""), others)
        elif card in {offered.id for offered in self.offered()}:
            row = self.cards[card].row(place.owner, values)
        else:
            raise Refused("This card is not offered; choose another.")
        place.card, place.row = card, row
        self.save()
        return place

    def open(self) -> str:
        """Let visitors fill their cards; return a sentence. Raises Refused."""
        if self.round.state == "active":
            return f"Round {self.round.number} is open already."
        self._must_be("lobby", "begin the next round first")
        self.round.state = "active"
        self.save()
        return f"Round {self.round.number} is open."

    def close(self) -> str:
        """Take no more cards; the job starts. Return a sentence. Raises Refused."""
        if self.round.state in ("locked", "reveal"):
            return f"Round {self.round.number} is closed already."
        self._must_be("active", "open the round first")
        if not self.round.rows():
            raise Refused("Nobody has filled a card; wait, or begin the next round.")
        self.round.state = "locked"
        self.save()
        count = len(self.round.rows())
        return f"Round {self.round.number} is closed with {count} card{'s' * (count != 1)}."

    def reveal(self) -> str:
        """Show what the gate decided; return a sentence. Raises Refused."""
        if self.round.state == "reveal":
            return f"Round {self.round.number} is revealed already."
        self._must_be("locked", "close the round first")
        if self.round.status.state != "done":
            raise Refused("The job has not ended; reveal when it has.")
        self.round.state = "reveal"
        self.book.good, self.book.good_number = self.round.status, self.round.number
        self.save()
        return f"Round {self.round.number} is revealed."

    def again(self) -> str:
        """Have the job started once more after a problem; return a sentence. Raises Refused."""
        if not self.round.rows():
            raise Refused("All cards are hidden; show one, or begin the next round.")
        self.round.problem = ""
        self.save()
        return "The room tries again."

    def next(self, after: str = "") -> str:
        """Begin the round after `after`, the id of one, empty for that which is on; of that only numbers stay. Return a sentence."""
        old = self.round
        if after and after != old.id:
            return f"Round {old.number} has begun already."
        votes = dict(Counter(vote for ballot in self.book.ballots.values() for vote in ballot.values()))
        if old.state != "lobby" or votes:
            promoted = sum(decision.promoted for decision in old.status.decided.values())
            counts = {"places": len(old.places), "trained": len(old.rows()), "promoted": promoted}
            self.book.ended = [*self.book.ended, Ended(number=old.number, run=old.run, votes=votes, **counts)]
        self.book.ballots, self.book.blind_revealed = {}, False
        self.book.round = Round.new(old.number + 1)
        self.save()
        return f"Round {self.round.number}: visitors take new places."

    def hide(self, owner: str, hidden: bool) -> str:
        """Hide a visitor's words and name, or show them again; before the end of a round they are not trained. Raises Refused."""
        place = self.round.places.get(owner)
        if place is None:
            raise Refused("There is no such place in this round.")
        # a start that failed may have written the rows under the id that the round had
        if place.hidden != hidden and self.round.problem and self.round.run is None:
            self.round.id = Round.new(self.round.number).id
        place.hidden = hidden
        self.save()
        return f"{owner} is {'hidden' if hidden else 'shown'}."

    def free(self, owner: str) -> str:
        """Take a place away before the round is closed, for another visitor. Raises Refused."""
        if self.round.state not in ("lobby", "active") or owner not in self.round.places:
            raise Refused("A place can be freed until the round is closed.")
        del self.round.places[owner]
        self.save()
        return f"{owner} is free."

    def hide_card(self, card: str, hidden: bool) -> str:
        """Offer a card no longer, or again. Raises Refused."""
        if card not in {*self.cards, OWN}:
            raise Refused("There is no such card.")
        others = [each for each in self.book.hidden_cards if each != card]
        self.book.hidden_cards = [*others, card] if hidden else others
        self.save()
        return f"The card {card} is {'no longer offered' if hidden else 'offered again'}."

    def freeze(self, frozen: bool) -> str:
        """Show the last good run and ask the job nothing, or go on. Raises Refused."""
        if frozen and self.book.good is None and not self.book.answers:
            raise Refused("No round has been revealed and no prepared question answered; there is nothing to freeze.")
        self.book.frozen = frozen
        self.save()
        return "The room shows the last good run." if frozen else "The room is live again."

    def reveal_votes(self, revealed: bool) -> str:
        """Show the votes of the blind comparison and take no more, or take more and show none."""
        self.book.blind_revealed = revealed
        self.save()
        return "The votes are on the board; voting is closed." if revealed else "Voting is open again."

    def keep(self, question: str, answers: list[Answer]) -> None:
        """Keep the complete answers to a prepared question; another time that they took is no reason to write."""
        before = [(answer.label, answer.text) for answer in self.book.answers.get(question, [])]
        if not self.book.frozen and before != [(answer.label, answer.text) for answer in answers]:
            self.book.answers = {**self.book.answers, question: answers}
            self.save()

    def started(self, round_id: str, run: str) -> None:
        """Note the run of a round, if that is still on."""
        if self.round.id == round_id:
            self.round.run, self.round.problem = run, ""
            self.save()

    def update_status(self, round_id: str, status: Status) -> bool:
        """Note what the runner says of a round's run; return whether anything changed. Steps alone are not written."""
        now = self.round
        finite = {owner: [loss for loss in losses if math.isfinite(loss)] for owner, losses in status.losses.items()}
        status = replace(status, losses=finite, fraction=min(max(status.fraction, 0.0), 1.0))
        if now.id != round_id or (now.status == status and not now.problem):
            return False
        written = (now.status.state, now.status.decided) != (status.state, status.decided) or now.problem
        now.status, now.problem = status, ""
        if written:
            self.save()
        return True

    def failed(self, round_id: str, problem: str) -> bool:
        """Note why the job cannot be started or asked; return whether that is new."""
        if self.round.id != round_id or self.round.problem == problem:
            return False
        self.round.problem = problem
        self.save()
        return True

    def _must_be(self, state: State, remedy: str) -> None:
        if self.round.state != state:
            raise Refused(f"Round {self.round.number} is {self.round.state}; {remedy}.")

    def _read(self) -> Book:
        if not self._path.exists():
            return Book()
        try:
            return Book.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError) as error:
            raise UserError(
                f"{self._path}: is not a room's state ({str(error).splitlines()[0]}); move it away"
            ) from None
