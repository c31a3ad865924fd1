"""The compare page and the blind comparison, over real connections to a scripted engine."""

from pathlib import Path

from room_parts import opened, Phone


def test_smoke(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, room, engine):
        phone = Phone(address)
        print(phone.get("/").text)
        r = phone.post("/ask", question="Hi <b>there</b>?")
        print(r.headers, r.text)
        for p in ("/me", "/board", "/blind", "/health", "/nope"):
            r = phone.get(p)
            print(p, r.status_code, len(r.text))
