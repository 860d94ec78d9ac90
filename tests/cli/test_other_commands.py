"""The commands around training, on a tiny model."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from chat_endpoint import ChatEndpoint, says
from strop.cli.runs import sparkline

Strop = Callable[..., subprocess.CompletedProcess[str]]


def test_help_and_listings_do_without_torch() -> None:
    code = (
        "import sys; from strop.cli.main import app\n"
        "for arguments in (['--help'], ['train', '--help'], ['models', 'list'], ['runs', 'list']):\n"
        "    try: app(arguments, standalone_mode=False)\n"
        "    except SystemExit: pass\n"
        "print('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_data_check_counts_rows_and_fields(strop: Strop) -> None:
    done = strop("data", "check", "rows.jsonl")
    assert done.returncode == 0
    assert "6 rows" in done.stdout


def test_data_check_reports_faults_by_line(strop: Strop, project: Path) -> None:
    (project / "bad.jsonl").write_text('{"prompt": "fine"}\n{"messages": []}\n')
    done = strop("data", "check", "bad.jsonl")
    assert done.returncode == 1
    assert "bad.jsonl:2:" in done.stderr


def test_data_check_speaks_json(strop: Strop, project: Path) -> None:
    document = json.loads(strop("data", "check", "rows.jsonl", "--json").stdout)
    assert document["rows"] == 6
    assert document["faults"] == 0


def test_models_list_names_the_default_model(strop: Strop) -> None:
    entries = json.loads(strop("models", "list", "--json").stdout)
    assert entries[0]["name"] == "smollm2-135m"
    assert {"Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-30B-A3B-Thinking-2507"} <= {e["repository"] for e in entries}


def test_a_preset_is_printed_as_a_file_to_start_from(strop: Strop) -> None:
    listed = json.loads(strop("presets", "--json").stdout)
    assert [preset["name"] for preset in listed][:2] == ["exact_match", "number_match"]
    assert strop("presets", "exact_match").stdout == listed[0]["source"]
    unknown = strop("presets", "nope")
    assert (unknown.returncode, "expected one of exact_match" in unknown.stderr) == (1, True)


def test_pulling_a_folder_prints_it(strop: Strop) -> None:
    assert strop("models", "pull", "./model").stdout.strip() == "model"


def test_runs_list_shows_state_and_curve(strop: Strop, finished: Path) -> None:
    entries = {entry["name"]: entry for entry in json.loads(strop("runs", "list", "--json").stdout)}
    assert entries["vowels"]["state"] in ("succeeded", "failed", "paused", "interrupted")
    table = strop("runs", "list").stdout
    assert str(finished) in table


def test_runs_list_of_an_empty_folder_says_how_to_start(strop: Strop) -> None:
    done = strop("runs", "list", "--in", "nothing-here")
    assert done.returncode == 0
    assert "strop train" in done.stderr


def test_runs_show_names_checkpoints_and_the_best(strop: Strop, finished: Path) -> None:
    shown = strop("runs", "show", str(finished)).stdout
    assert "succeeded, step 3 of 3" in shown
    assert "step-000003" in shown
    assert "best" in shown
    document = json.loads(strop("runs", "show", str(finished), "--json").stdout)
    assert document["checkpoints"]["latest"] == 3


def test_runs_export_writes_metrics_as_csv(strop: Strop, finished: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(strop("runs", "export", str(finished)).stdout)))
    assert [row["step"] for row in rows] == ["0", "1", "2", "3"]
    assert float(rows[3]["reward"]) >= 0


def test_runs_export_joins_all_rollouts(strop: Strop, project: Path, finished: Path) -> None:
    done = strop("runs", "export", str(finished), "--rollouts", "--out", "all.jsonl")
    assert done.returncode == 0
    lines = [json.loads(line) for line in (project / "all.jsonl").read_text().splitlines()]
    assert len(lines) == 3 * 2 * 4
    assert {line["step"] for line in lines} == {1, 2, 3}


def test_eval_measures_a_run_against_its_base(strop: Strop, finished: Path) -> None:
    arguments = ("--data", "held_out.jsonl", "--rewards", "config.toml", "--against", "model")
    done = strop("eval", str(finished), *arguments, "--json")
    document = json.loads(done.stdout)
    assert [model["model"] for model in document["models"]] == ["model", "finished step 3"]
    assert document["models"][0]["rows"] == 3
    assert document["comparison"]["before"]["mean"] == pytest.approx(document["models"][0]["metrics"]["reward"])
    assert document["models"][1]["report"]["pass_at"].keys() == {"1", "2"}


def test_eval_prints_a_table_and_answers_side_by_side(strop: Strop, finished: Path) -> None:
    arguments = ("--data", "held_out.jsonl", "--rewards", "config.toml", "--against", "model", "--show", "2")
    shown = strop("eval", str(finished), *arguments).stdout
    assert "pass@1" in shown
    assert "rows better / worse / equal" in shown
    assert "p-value of the change" in shown
    assert "reward/vowels" in shown
    assert shown.count("Say ") == 2


def test_eval_takes_a_file_with_only_rewards(strop: Strop, project: Path) -> None:
    (project / "only.toml").write_text('[[rewards]]\nname = "vowels"\nsource = "reward.py:grade"\n')
    changes = ("--set", "sampling.max_completion_tokens=4", "--set", "sampling.max_prompt_tokens=64")
    done = strop(
        "eval", "model", "--data", "held_out.jsonl", "--rewards", "only.toml", *changes, "--limit", "2", "--json"
    )
    assert json.loads(done.stdout)["models"][0]["rows"] == 2


def test_eval_writes_every_answer(strop: Strop, project: Path) -> None:
    done = strop("eval", "model", "--data", "held_out.jsonl", "--rewards", "config.toml", "--out", "answers.jsonl")
    assert done.returncode == 0
    answers = [json.loads(line) for line in (project / "answers.jsonl").read_text().splitlines()]
    assert len(answers) == 3 * 2
    assert set(answers[0]["components"]) == {"vowels", "short"}


def test_eval_asks_a_model_behind_an_endpoint(strop: Strop, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--data", "held_out.jsonl", "--rewards", "config.toml", "--json")
    monkeypatch.setenv("SOME_KEY", "sk-some")
    with ChatEndpoint(lambda asked: says(*["aeiou"] * asked.body.get("n", 1))) as endpoint:
        done = strop("eval", f"outside@{endpoint.url}", "--against", "model", "--api-key-env", "SOME_KEY", *arguments)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["models"][1]["model"] == f"outside@{endpoint.url}"
    assert document["models"][1]["metrics"]["reward/vowels"] == pytest.approx(5 / 6)
    assert document["comparison"]["rows"] == 3
    assert {asked.key for asked in endpoint.asked} == {"Bearer sk-some"}


def test_eval_without_the_key_that_was_named_says_so(strop: Strop) -> None:
    arguments = ("--data", "held_out.jsonl", "--rewards", "config.toml", "--api-key-env", "NO_SUCH_KEY")
    done = strop("eval", "outside@http://127.0.0.1:9/v1", *arguments)
    assert done.returncode == 1
    assert "the environment variable NO_SUCH_KEY is not set" in done.stderr


def test_eval_with_a_broken_reward_fails(strop: Strop, project: Path) -> None:
    (project / "raises.py").write_text("def grade(sample, item):\n    return 1 / 0\n")
    (project / "raises.toml").write_text('[[rewards]]\nname = "raises"\nsource = "raises.py:grade"\n')
    done = strop("eval", "model", "--data", "held_out.jsonl", "--rewards", "raises.toml", "--set",
                 "sampling.max_completion_tokens=4", "--set", "sampling.max_prompt_tokens=64")  # fmt: skip
    assert done.returncode == 1
    assert "3 of 3 rows could not be scored" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_export_merges_the_adapter(strop: Strop, project: Path, finished: Path) -> None:
    done = strop("export", str(finished), "--merge", "merged")
    assert done.returncode == 0, done.stderr
    model = AutoModelForCausalLM.from_pretrained(project / "merged")
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_export_of_full_weights_says_that_there_is_nothing_to_merge(strop: Strop) -> None:
    done = strop("export", "./model", "--merge", "merged-again")
    assert done.returncode == 1
    assert "no adapter" in done.stderr


def test_chat_answers_one_message(strop: Strop, finished: Path) -> None:
    done = strop("chat", str(finished), "-m", "Say one.", "--max-tokens", "6", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_chat_reads_messages_until_the_input_ends(strop: Strop) -> None:
    done = strop("chat", "./model", "--max-tokens", "4", stdin="Say one.\n/new\nSay two.\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2


def test_chat_with_a_model_that_does_not_exist_says_where_to_look(strop: Strop) -> None:
    done = strop("chat", "./nowhere", "-m", "Hello")
    assert done.returncode == 1
    assert "no model there" in done.stderr


def test_a_curve_has_one_bar_for_each_share_of_the_values() -> None:
    assert sparkline([0, 1], 10) == "▁█"
    assert sparkline([0, 0, 1, 1], 2) == "▁█"
    assert sparkline([5, 5, 5], 3) == "▁▁▁"
    assert sparkline([], 3) == ""
