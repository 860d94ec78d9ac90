"""Providers: endpoints with a name."""

from __future__ import annotations

import pytest

from strop.errors import InvalidRequest, NotFound
from strop.store.db import Database
from strop.store.providers import ProviderStore


@pytest.fixture
def store(database: Database) -> ProviderStore:
    return ProviderStore(database)


def test_a_provider_is_kept_by_its_name(store: ProviderStore) -> None:
    made = store.set("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
    other = store.set("local", "http://127.0.0.1:8000/v1")
    assert store.get("openai") == made
    assert store.list() == [other, made]
    assert other.api_key_env is None


def test_setting_again_replaces_it(store: ProviderStore) -> None:
    first = store.set("openai", "https://old.example/v1", "OLD_KEY")
    second = store.set("openai", "https://api.openai.com/v1")
    assert (second.base_url, second.api_key_env) == ("https://api.openai.com/v1", None)
    assert second.created_at == first.created_at
    assert store.list() == [second]


def test_an_unknown_one_is_not_found(store: ProviderStore) -> None:
    store.set("openai", "https://api.openai.com/v1")
    store.delete("openai")
    assert store.list() == []
    for missing in (lambda: store.get("openai"), lambda: store.delete("openai")):
        with pytest.raises(NotFound, match="no provider 'openai'"):
            missing()


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", ".x", "x" * 65, "ä"])
def test_a_name_fits_into_an_address(store: ProviderStore, name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a valid provider name"):
        store.set(name, "https://api.openai.com/v1")
