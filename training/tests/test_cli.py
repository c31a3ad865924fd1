"""The command line: quick without torch, errors as sentences, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from trainlab import cli

FULL = str(ROOT / "values/survival.yaml")


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(args)
    return int(caught.value.code or 0)


def test_check_and_help_do_not_import_torch() -> None:
    code = (
        "import sys\nfrom trainlab import cli\n"
        "for args in (['check', sys.argv[1]], ['schema'], ['--help']):\n"
        "    try: cli.main(args)\n"
        "    except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code, FULL],
        check=True,
        capture_output=True,
        env={"PYTHONPATH": str(ROOT / "training/src")},
    )


def test_check_says_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", FULL) == 0
    assert "valid: phase survival (sft, 4 ranks, 64 rows per step)" in capsys.readouterr().out


def test_check_prints_one_line_per_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "o.yaml").write_text("phase: {train: {epoch: 1}, sed: 2}")
    assert run("check", FULL, "-f", str(tmp_path / "o.yaml")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith("error: ") and "unknown key" in line for line in lines)


def test_check_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", FULL, "--json") == 0
    good = json.loads(capsys.readouterr().out)
    assert good["ok"] and good["world_size"] == 4 and good["phase"]["train"]["epochs"] == 4
    assert "accessMode" in good["site"]["storage"]["models"]
    assert run("check", str(tmp_path / "none.yaml"), "--json") == 2
    assert json.loads(capsys.readouterr().out) == {"ok": False, "errors": [f"{tmp_path}/none.yaml: no such file"]}


def test_run_without_model_names_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", FULL, "--models", str(tmp_path), "--out", str(tmp_path / "o")) == 2
    assert "run `trainlab fetch` with the same --models" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_run_without_out_names_the_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", FULL, "--models", str(tmp_path)) == 2
    assert "set OUTPUT_DIR" in capsys.readouterr().err


def test_gate_of_a_directory_without_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gate", str(tmp_path)) == 2
    assert "eval_before.json: no such file" in capsys.readouterr().err
