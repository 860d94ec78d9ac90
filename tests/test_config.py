"""The configuration: defaults, files, overrides, and what is refused with which words."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.config import CLIP_BOUNDS, RunConfig, dump_config, parse_config, read_config
from strop.errors import ConfigError

MINIMAL = """
name = "demo"
model = "smollm2-135m"

[data]
train = "rows.jsonl"

[[rewards]]
name = "score"
source = "reward.py:score"
"""


def tables(**changes: Any) -> dict[str, Any]:
    """A minimal configuration with some tables or keys replaced."""
    return {**tomllib.loads(MINIMAL), **changes}


def refusal(**changes: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(tables(**changes))
    return caught.value


def written(folder: Path, text: str = MINIMAL) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, *overrides: str) -> RunConfig:
    return read_config(written(folder), overrides)


# Defaults


def test_defaults_are_those_that_are_promised() -> None:
    config = parse_config(tables())
    assert config.train.batch_size == 4
    assert config.train.samples_per_prompt == 8
    assert config.train.epochs == 1
    assert config.train.kl_coefficient == 0.001
    assert config.train.loss == "dapo"
    assert config.train.method == "lora"
    assert config.advantage_scale == "group"
    assert config.train.iterations == 1
    assert config.train.learning_rate == "auto"
    assert config.train.max_steps is None
    assert config.train.save_every is None
    assert config.train.keep == 3
    assert config.train.eval_every == 0
    assert config.sampling.temperature == 1.0
    assert config.sampling.top_p == 1.0
    assert config.sampling.max_prompt_tokens == 512
    assert config.sampling.max_completion_tokens == 1024
    assert (config.lora.r, config.lora.alpha, config.lora.targets) == (16, 32.0, "all-linear")
    assert (config.eval.samples, config.eval.temperature) == (1, 0.0)
    assert config.rewards[0].weight == 1.0
    assert config.device == "auto"
    assert config.recorders == ()


def test_a_grader_file_has_two_minutes_unless_it_says_otherwise() -> None:
    graders = [{"name": "a", "source": "grader.json"}, {"name": "b", "source": "grader.json", "timeout_s": 5}]
    config = parse_config(tables(rewards=[*graders, {"name": "c", "source": "reward.py:score"}]))
    assert [reward.timeout_s for reward in config.rewards] == [120.0, 5.0, 10.0]
    assert parse_config(tomllib.loads(dump_config(config))) == config


@pytest.mark.parametrize("loss", CLIP_BOUNDS)
def test_each_loss_has_clip_bounds_of_its_own(loss: Any) -> None:
    assert parse_config(tables(train={"loss": loss})).clip_bounds == CLIP_BOUNDS[loss]


def test_a_clip_bound_that_is_given_counts() -> None:
    assert parse_config(tables(train={"clip_high": 0.4})).clip_bounds == (0.2, 0.4)
    assert parse_config(tables(train={"clip_low": 0.0, "clip_high": 0.0})).clip_bounds == (0.0, 0.0)


def test_a_configuration_cannot_be_changed() -> None:
    config = parse_config(tables())
    with pytest.raises(ValueError, match="frozen"):
        config.train.batch_size = 8  # type: ignore[misc]


def test_every_setting_says_what_it_does() -> None:
    for table in (RunConfig, *map(type, (value for _, value in parse_config(tables(lora={}))))):
        for name, field in getattr(table, "model_fields", {}).items():
            is_table = name in ("data", "environment", "rewards", "sampling", "train", "lora", "eval", "wandb")
            assert is_table or field.description, f"{table.__name__}.{name}"


# Files


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    config = parse_config(
        tables(
            seed=3,
            recorders=["tensorboard", "wandb"],
            data={"train": str(tmp_path / "rows.jsonl"), "validation": str(tmp_path / "held out.jsonl")},
            rewards=[
                {"name": "a", "source": str(tmp_path / "reward.py:a"), "weight": 0.5, "env": ["KEY"]},
                {"name": "b", "source": str(tmp_path / "reward.py:b"), "weight": -1.5, "timeout_s": 0.5},
            ],
            sampling={"stop": ["\n\n", '"""'], "template": {"enable_thinking": False, "depth": 2}, "temperature": 0.7},
            train={"method": "full", "learning_rate": 1e-5, "max_steps": 7, "clip_low": 0.1, "eval_every": 2},
            lora={"r": 4, "alpha": 8, "targets": ["q_proj", "v_proj"]},
            eval={"samples": 4, "temperature": 0.6},
        )
    )
    again = read_config(written(tmp_path, dump_config(config)))
    assert again == config
    assert dump_config(again) == dump_config(config)


def test_defaults_are_written_out_too(tmp_path: Path) -> None:
    config = read(tmp_path)
    text = dump_config(config)
    for line in ("batch_size = 4", "samples_per_prompt = 8", 'learning_rate = "auto"', 'targets = "all-linear"'):
        assert line in text.splitlines()
    assert read_config(written(tmp_path, text)) == config


floats = st.floats(1e-9, 1.0, allow_nan=False)


@given(
    rate=floats,
    temperature=floats,
    weight=st.floats(-1e6, 1e6).filter(bool),
    stop=st.lists(st.text(min_size=1), max_size=3),
)
def test_any_values_survive_the_way_through_a_file(
    rate: float, temperature: float, weight: float, stop: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("config")
    rewards = [{"name": "score", "source": str(folder / "reward.py:score"), "weight": weight}]
    config = parse_config(
        tables(
            data={"train": str(folder / "rows.jsonl")},
            rewards=rewards,
            sampling={"temperature": temperature, "stop": stop},
            train={"learning_rate": rate},
        )
    )
    assert read_config(written(folder, dump_config(config))) == config


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    (folder / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    path = written(folder, MINIMAL.replace("smollm2-135m", "models/mine"))
    for way in (path, Path("project/config.toml")):
        config = read_config(way, ["data.validation=../held.jsonl"])
        assert config.data.train == str(folder / "rows.jsonl")
        assert config.data.validation == str(tmp_path / "held.jsonl")
        assert config.rewards[0].source == str(folder / "reward.py:score")
        assert config.model == str(folder / "models" / "mine")


@pytest.mark.parametrize("model", ["smollm2-135m", "Qwen/Qwen3-0.6B"])
def test_a_model_that_is_no_folder_keeps_its_name(model: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"model={model}").model == model


@pytest.mark.parametrize("model", ["./mine", "../mine", "/opt/mine"])
def test_a_model_that_reads_like_a_path_is_one(model: str, tmp_path: Path) -> None:
    assert read(tmp_path, f"model={model}").model == str((tmp_path / model).resolve())


def test_defaults_stand_in_for_tables_that_the_file_lacks(tmp_path: Path) -> None:
    text = '[[rewards]]\nname = "score"\nsource = "reward.py:score"\n'
    config = read_config(written(tmp_path, text), defaults={"name": "eval", "model": "m", "data": {"train": "rows"}})
    assert (config.name, config.model) == ("eval", "m")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        read_config(tmp_path / "nowhere.toml")


def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.toml: not valid TOML: .*line 2"):
        read_config(written(tmp_path, "name = 'demo'\nmodel = \n"))


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes("name = 'dé'".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"config\.toml: not valid TOML"):
        read_config(tmp_path / "config.toml")


def test_errors_of_a_file_begin_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "train.batch_size=0", "train.epochs=0")
    path = tmp_path / "config.toml"
    assert [line.startswith(f"{path}: train.") for line in caught.value.message.splitlines()] == [True, True]


# Unknown keys


@pytest.mark.parametrize(
    ("change", "key", "nearest"),
    [
        ({"sede": 3}, "sede", "seed"),
        ({"train": {"batchsize": 4}}, "train.batchsize", "batch_size"),
        ({"train": {"learning_rates": 1e-5}}, "train.learning_rates", "learning_rate"),
        ({"sampling": {"max_tokens": 5}}, "sampling.max_tokens", "max_prompt_tokens"),
        ({"rewards": [{"name": "a", "source": "r.py:f", "wieght": 1}]}, "rewards.0.wieght", "weight"),
        ({"lora": {"rr": 8}}, "lora.rr", "r"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_that_exists(change: Any, key: str, nearest: str) -> None:
    error = refusal(**change)
    assert error.message == f"configuration: {key}: unknown key; did you mean {nearest!r}?"
    assert error.param == key


def test_an_unknown_key_without_a_likeness_is_refused_with_all_that_exist() -> None:
    assert refusal(eval={"xyzzy": 1}).message == (
        "configuration: eval.xyzzy: unknown key; expected one of samples, temperature, pass_threshold"
    )


def test_template_options_are_any() -> None:
    template = {"enable_thinking": False, "nested": {"a": [1, 2]}}
    assert parse_config(tables(sampling={"template": template})).sampling.template == template


# Values


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("train", "batch_size", 0),
        ("train", "batch_size", 2.5),
        ("train", "batch_size", "many"),
        ("train", "samples_per_prompt", 1),
        ("train", "epochs", 0),
        ("train", "max_steps", 0),
        ("train", "iterations", 17),
        ("train", "learning_rate", "fast"),
        ("train", "learning_rate", -1e-5),
        ("train", "learning_rate", 0),
        ("train", "learning_rate", float("nan")),
        ("train", "learning_rate", float("inf")),
        ("train", "kl_coefficient", -0.1),
        ("train", "kl_coefficient", float("inf")),
        ("train", "warmup_ratio", 1.0),
        ("train", "schedule", "wavy"),
        ("train", "loss", "ppo"),
        ("train", "method", "qlora"),
        ("train", "advantage_scale", "rows"),
        ("train", "max_grad_norm", 0),
        ("train", "clip_low", -0.1),
        ("train", "keep", 0),
        ("train", "max_failed_groups", 1.5),
        ("sampling", "temperature", 0),
        ("sampling", "temperature", 2.5),
        ("sampling", "top_p", 0),
        ("sampling", "max_completion_tokens", 0),
        ("sampling", "stop", 3),
        ("lora", "r", 0),
        ("lora", "alpha", 0),
        ("lora", "targets", "every-linear"),
        ("eval", "temperature", -1),
        ("data", "train", 5),
    ],
)
def test_a_wrong_value_is_refused_by_key_and_value(table: str, key: str, value: Any) -> None:
    error = refusal(**{table: {**tables().get(table, {}), key: value}})
    lines = error.message.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"configuration: {table}.{key}: ")
    assert lines[0].endswith(f", found {value!r}")
    assert error.param == f"{table}.{key}"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"train": {"learning_rate": -1}}, "train.learning_rate: Input should be greater than 0 or 'auto', found -1"),
        ({"lora": {"targets": "every"}}, "lora.targets: Input should be a list or 'all-linear', found 'every'"),
        ({"data": "rows.jsonl"}, "data: Input should be a table, found 'rows.jsonl'"),
        ({"sampling": {"stop": [""]}}, "sampling.stop.0: String should have at least 1 character, found ''"),
        ({"sampling": {"stop": ["a", 3]}}, "sampling.stop.1: Input should be a valid string, found 3"),
    ],
)
def test_a_refusal_speaks_of_toml_and_of_every_form_that_a_value_may_have(change: Any, line: str) -> None:
    assert refusal(**change).message == f"configuration: {line}"


@pytest.mark.parametrize("name", ["", "../evil", "a b", ".hidden", "a/b"])
def test_a_name_must_do_as_a_folder(name: str) -> None:
    assert refusal(name=name).param == "name"


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5])
def test_a_seed_is_a_whole_number_that_every_library_takes(seed: Any) -> None:
    assert refusal(seed=seed).param == "seed"


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"rewards": [{"name": "a"}]})
    assert set(caught.value.message.splitlines()) == {
        f"configuration: {key}: missing" for key in ("name", "model", "data", "rewards.0.source")
    }


def test_no_reward_is_too_few() -> None:
    assert refusal(rewards=[]).param == "rewards"


def test_all_faults_are_told_at_once() -> None:
    message = refusal(train={"batch_size": 0, "los": "dapo"}, seed=-1).message
    assert len(message.splitlines()) == 3


# Combinations


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"rewards": [{"name": "a", "source": "r.py:f"}] * 2}, "rewards", "two reward functions are named 'a'"),
        ({"rewards": [{"name": "a", "source": "r.py:f", "weight": 0}]}, "rewards", "every weight is 0"),
        ({"sampling": {"top_p": 0.9}}, "sampling.top_p", "biases the gradient"),
        ({"train": {"eval_every": 5}}, "train.eval_every", "requires data.validation"),
        ({"eval": {"samples": 4}}, "eval.samples", "greedy decoding gives identical completions"),
        ({"train": {"clip_low": 1.5}}, "train.clip_low", "below 0"),
        ({"lora": {"targets": ["q_proj", "lm_head"]}}, "lora.targets", "lm_head"),
    ],
)
def test_a_combination_that_cannot_work_is_refused_with_the_reason(change: Any, key: str, words: str) -> None:
    error = refusal(**change)
    assert error.message.startswith(f"configuration: {key}: ")
    assert words in error.message
    assert error.param == key


def test_what_is_refused_for_one_method_is_fine_for_another() -> None:
    config = parse_config(tables(train={"method": "full"}, lora={"targets": ["lm_head"]}))
    assert config.train.method == "full"


def test_rewards_of_weight_zero_beside_others_are_logged_only() -> None:
    rewards = [{"name": "a", "source": "r.py:f"}, {"name": "b", "source": "r.py:g", "weight": 0}]
    assert parse_config(tables(rewards=rewards)).rewards[1].weight == 0


# Overrides


@pytest.mark.parametrize(
    ("override", "table", "key", "value"),
    [
        ("train.learning_rate=1e-5", "train", "learning_rate", 1e-5),
        ("train.learning_rate=auto", "train", "learning_rate", "auto"),
        ('train.learning_rate="auto"', "train", "learning_rate", "auto"),
        ("train.batch_size = 16", "train", "batch_size", 16),
        ("train.gradient_checkpointing=true", "train", "gradient_checkpointing", True),
        ("train.loss=gspo", "train", "loss", "gspo"),
        ('sampling.stop=["\\n\\n", "END"]', "sampling", "stop", ("\n\n", "END")),
        ("sampling.stop=[]", "sampling", "stop", ()),
        ("sampling.template.enable_thinking=false", "sampling", "template", {"enable_thinking": False}),
        ("sampling.template={depth = 2}", "sampling", "template", {"depth": 2}),
        ('lora.targets=["q_proj"]', "lora", "targets", ("q_proj",)),
    ],
)
def test_an_override_sets_one_value(override: str, table: str, key: str, value: Any, tmp_path: Path) -> None:
    assert getattr(getattr(read(tmp_path, override), table), key) == value


def test_overrides_of_the_top_level(tmp_path: Path) -> None:
    config = read(tmp_path, "name=other", "seed=5", 'recorders=["tensorboard"]')
    assert (config.name, config.seed, config.recorders) == ("other", 5, ("tensorboard",))


def test_an_override_may_hold_an_equals_sign(tmp_path: Path) -> None:
    assert read(tmp_path, 'sampling.stop=["a=b"]').sampling.stop == ("a=b",)
    assert read(tmp_path, "data.train=a=b.jsonl").data.train == str(tmp_path / "a=b.jsonl")


def test_an_override_reaches_into_a_list_by_number(tmp_path: Path) -> None:
    config = read(tmp_path, "rewards.0.weight=0.5", 'rewards.0.env=["KEY"]')
    assert (config.rewards[0].weight, config.rewards[0].env) == (0.5, ("KEY",))


def test_of_two_overrides_of_a_key_the_later_counts(tmp_path: Path) -> None:
    assert read(tmp_path, "seed=1", "seed=2").seed == 2


def test_an_override_with_a_name_that_looks_like_a_number_is_a_name(tmp_path: Path) -> None:
    assert read(tmp_path, 'name="2026"').name == "2026"
    with pytest.raises(ConfigError, match=r"name: .*string.*found 2026"):
        read(tmp_path, "name=2026")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.batch_size", "expected key=value"),
        ("=5", "expected key=value"),
        ("rewards.1.weight=0.5", "rewards has length 1; indices start at 0"),
        ("rewards.first.weight=0.5", "rewards is a list"),
        ("rewards.first=0.5", "rewards is a list"),
        ("name.first=a", "name is a value, not a table"),
        ("model.size.big=1", "model is a value, not a table"),
    ],
)
def test_an_override_that_fits_nowhere_is_refused(override: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, override)
    assert caught.value.message.startswith(f"--set {override}: ")
    assert words in caught.value.message


def test_an_override_is_checked_like_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.batchsize: unknown key; did you mean 'batch_size'"):
        read(tmp_path, "train.batchsize=4")
    with pytest.raises(ConfigError, match=r"trian: unknown key; did you mean 'train'"):
        read(tmp_path, "trian.batch_size=4")


@pytest.mark.parametrize(
    ("train", "scale"),
    [({}, "group"), ({"loss": "dr_grpo"}, "none"), ({"loss": "dr_grpo", "advantage_scale": "batch"}, "batch")],
)
def test_dr_grpo_divides_deviations_by_nothing_unless_told(train: dict[str, Any], scale: str) -> None:
    assert parse_config(tables(train=train)).advantage_scale == scale
