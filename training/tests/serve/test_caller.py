"""A token is sent where it is asked for, and only under TLS."""

from pathlib import Path

import pytest
from trainlab.errors import UserError
from trainlab.serve import caller


def test_the_token_is_sent_over_https_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(caller.options("https://models.example/v1")) == {"trust_env"}
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    monkeypatch.setenv(caller.TOKEN, str(tmp_path / "token"))
    assert caller.options("https://models.example/v1")["headers"] == {"Authorization": "Bearer secret"}
    assert "headers" not in caller.options("http://models.example/v1")


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caller.TOKEN, str(tmp_path / "token"))
    with pytest.raises(UserError, match=r"TRAINLAB_TOKEN_FILE is .*token: No such file or directory; name a file"):
        caller.options("https://models.example/v1")
    monkeypatch.delenv(caller.TOKEN)
    (tmp_path / "ca").write_text("no certificate", encoding="utf-8")
    monkeypatch.setenv(caller.CA, str(tmp_path / "ca"))
    with pytest.raises(UserError, match=r"TRAINLAB_CA_FILE is .*ca: holds no certificate; name a file of PEM"):
        caller.options("https://models.example/v1")
