"""Weights and trainer state on disk: what is written, what is read, what is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoTokenizer

from models import (
    SUPPORTED,
    TEMPLATE,
    packed_logprobs,
    plain_logprobs,
    plain_model,
    random_ids,
    sample,
    save_tiny_model,
    tiny_lora_policy,
    tiny_policy,
)
from strop.errors import CheckpointError, ModelError
from strop.policy.checkpoint import (
    TRAINER_STATE,
    export_merged,
    load_state,
    save_state,
    save_weights,
)
from strop.policy.model import load_policy

CPU = torch.device("cpu")
GROUP = sample(random_ids(7, 1), [random_ids(9, 2)])


def stored(folder: Path, name: str) -> set[str]:
    """Names of the tensors in a safetensors file."""
    with safe_open(folder / name, "pt") as file:
        return set(file.keys())


def test_full_weights_are_stored_as_they_are_without_masters(tmp_path: Path) -> None:
    policy = tiny_policy("qwen3", tmp_path / "start", torch.bfloat16)
    save_weights(policy, tmp_path / "saved")
    loaded = plain_model(tmp_path / "saved", torch.bfloat16)
    for name, weight in policy.model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), weight), name
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "bfloat16"


def test_masters_are_stored_in_fp32_whatever_the_model_computes_in(tmp_path: Path) -> None:
    policy = tiny_policy("qwen2", tmp_path / "start", torch.bfloat16)
    masters = {name: weight.float() + 1e-4 for name, weight in policy.model.named_parameters()}
    before = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    save_weights(policy, tmp_path / "saved", masters)
    loaded = plain_model(tmp_path / "saved")
    for name, weight in loaded.named_parameters():
        assert torch.equal(weight, masters[name]), name
    for name, weight in policy.model.named_parameters():
        assert weight.dtype == torch.bfloat16 and torch.equal(weight, before[name]), name


def test_a_saved_model_says_what_transformers_wrote_of_it(tmp_path: Path) -> None:
    policy = tiny_policy("llama", tmp_path / "start")
    save_weights(policy, tmp_path / "saved", dict(policy.model.named_parameters()))
    start, saved = (json.loads((tmp_path / f / "config.json").read_text()) for f in ("start", "saved"))
    assert saved == start
    assert "strop" not in json.dumps(saved)


def test_an_adapter_is_stored_alone_with_its_base_by_name(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path / "start")
    save_weights(policy, tmp_path / "saved")
    names = stored(tmp_path / "saved", "adapter_model.safetensors")
    assert len(names) == 28 and all("lora_" in name for name in names)
    assert not (tmp_path / "saved" / "model.safetensors").exists()
    config = json.loads((tmp_path / "saved" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "start")
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (4, 8.0, "LORA")


def test_no_file_names_a_class_of_strop(tmp_path: Path) -> None:
    save_weights(tiny_lora_policy("llama", tmp_path / "start"), tmp_path / "saved")
    for file in (tmp_path / "saved").glob("*.json"):
        assert "LoraLinear" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", SUPPORTED)
def test_merged_weights_give_what_base_and_adapter_give(tmp_path: Path, kind: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path / "base")
    save_weights(policy, tmp_path / "adapter")
    export_merged(str(tmp_path / "adapter"), "tuned", tmp_path / "merged")
    with torch.no_grad():
        expected = packed_logprobs(policy, [GROUP])[0]
        plain = plain_logprobs(plain_model(tmp_path / "base"), GROUP.prompt_ids, GROUP.segments[0].token_ids_T)
    merged = plain_model(tmp_path / "merged")
    found = plain_logprobs(merged, GROUP.prompt_ids, GROUP.segments[0].token_ids_T)
    torch.testing.assert_close(found, expected, atol=5e-5, rtol=0)
    assert float((found - plain).abs().max()) > 0.02
    assert merged.dtype == torch.float32
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template == TEMPLATE


def test_merging_leaves_base_and_adapter_as_they_were(tmp_path: Path) -> None:
    save_weights(tiny_lora_policy("llama", tmp_path / "base"), tmp_path / "adapter")
    files = [*(tmp_path / "base").iterdir(), *(tmp_path / "adapter").iterdir()]
    before = {file: file.read_bytes() for file in files}
    export_merged(str(tmp_path / "adapter"), "tuned", tmp_path / "merged")
    assert {file: file.read_bytes() for file in files} == before


def test_there_is_nothing_to_merge_in_full_weights(tmp_path: Path) -> None:
    save_tiny_model("llama", tmp_path / "model")
    with pytest.raises(ModelError, match="mine has no adapter to merge: it already contains full weights"):
        export_merged(str(tmp_path / "model"), "mine", tmp_path / "merged")


def test_peft_and_strop_load_a_saved_adapter_over_a_bf16_base_in_fp32(tmp_path: Path) -> None:
    policy = tiny_lora_policy("llama", tmp_path / "base", torch.bfloat16)
    save_weights(policy, tmp_path / "adapter")
    loaded = load_policy(str(tmp_path / "adapter"), "tuned", CPU, torch.bfloat16)
    assert isinstance(loaded.model, PeftModel)
    saved = {name: w for name, w in policy.model.named_parameters() if "lora_" in name}
    for name, weight in loaded.model.named_parameters():
        if "lora_" in name:
            assert torch.equal(weight.float(), saved[name]), name


# Trainer state


def test_trainer_state_comes_back_as_it_was(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    state: dict[str, Any] = {
        "optimizer": optimizer.state_dict(),
        "order": {"epoch": 1, "seed": 17},
        "rng": torch.get_rng_state(),
    }
    save_state(tmp_path / TRAINER_STATE, state)
    loaded = load_state(tmp_path / TRAINER_STATE)
    assert loaded["order"] == state["order"]
    assert torch.equal(loaded["rng"], state["rng"])
    assert torch.equal(loaded["optimizer"]["state"][0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"])


class Bomb:
    """Leaves a marker wherever it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def torch_bomb(path: Path, marker: Path) -> None:
    torch.save({"optimizer": Bomb(marker)}, path)


def old_torch_bomb(path: Path, marker: Path) -> None:
    torch.save({"optimizer": Bomb(marker)}, path, _use_new_zipfile_serialization=False)


def plain_bomb(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(marker), protocol=2))


@pytest.mark.parametrize("write", [torch_bomb, old_torch_bomb, plain_bomb])
def test_code_in_a_checkpoint_is_never_run(tmp_path: Path, write: Callable[[Path, Path], None]) -> None:
    marker = tmp_path / "marker"
    write(tmp_path / TRAINER_STATE, marker)
    with pytest.raises(CheckpointError, match=f"{TRAINER_STATE}: cannot be read"):
        load_state(tmp_path / TRAINER_STATE)
    assert not marker.exists()


def test_the_code_would_have_run(tmp_path: Path) -> None:
    torch_bomb(tmp_path / TRAINER_STATE, tmp_path / "marker")
    torch.load(tmp_path / TRAINER_STATE, weights_only=False)
    assert (tmp_path / "marker").exists()


def nothing(path: Path) -> None:
    """No file at all."""


def empty(path: Path) -> None:
    path.touch()


def cut_off(path: Path) -> None:
    torch.save({"a": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:700])


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 4)


def text(path: Path) -> None:
    path.write_text("not a checkpoint", encoding="utf-8")


def folder(path: Path) -> None:
    path.mkdir()


def a_list(path: Path) -> None:
    torch.save([1, 2], path)


@pytest.mark.parametrize("write", [nothing, empty, cut_off, noise, text, folder, a_list])
def test_a_damaged_state_is_named(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / TRAINER_STATE)
    with pytest.raises(CheckpointError) as caught:
        load_state(tmp_path / TRAINER_STATE)
    assert caught.value.message.startswith(str(tmp_path / TRAINER_STATE))
