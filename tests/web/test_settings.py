"""Settings in a browser: the theme, providers with a real endpoint, secrets, keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from browser import Watched, violations
from chat_endpoint import ChatEndpoint, fails, lists
from server_process import ServerProcess, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.fixture
def settings(page: Page, server: ServerProcess) -> Page:
    page.goto(f"{server.url}/settings")
    page.get_by_role("heading", name="Providers").wait_for()
    return page


def _add_provider(page: Page, name: str, address: str, key: str | None = None) -> None:
    page.get_by_role("button", name="Add provider").click()
    dialog = page.get_by_role("dialog", name="New provider")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Base URL").fill(address)
    if key is not None:
        dialog.get_by_label("Key").click()
        page.get_by_role("option", name=key).click()
    dialog.get_by_role("button", name="Save").click()


def test_a_provider_is_added_checked_and_deleted(settings: Page) -> None:
    page = settings
    page.get_by_label("Name, such as OPENAI_API_KEY").fill("PROVIDER_KEY")
    page.get_by_label("Value").fill("rosebud")
    page.locator("section", has=page.get_by_role("heading", name="Secrets")).get_by_role("button", name="Save").click()
    page.get_by_role("cell", name="PROVIDER_KEY").wait_for()
    page.reload()
    with ChatEndpoint(lambda _: lists("large", "small")) as endpoint:
        _add_provider(page, "one", endpoint.url, "PROVIDER_KEY")
        row = page.get_by_role("row", name="one", exact=False)
        expect(row).to_contain_text("not checked")
        row.get_by_role("button", name="Check one").click()
        expect(row).to_contain_text("2: large, small")
    assert [asked.key for asked in endpoint.asked] == ["Bearer rosebud"]
    row.get_by_role("button", name="Check one").click()
    expect(row.get_by_role("alert")).to_contain_text("127.0.0.1")
    assert "rosebud" not in page.content()
    assert violations(page) == []
    row.get_by_role("button", name="Delete one").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No providers yet.")).to_be_visible()


def test_what_is_wrong_with_a_provider_stands_at_its_field(settings: Page) -> None:
    _add_provider(settings, "one", "api.openai.com")
    dialog = settings.get_by_role("dialog", name="New provider")
    expect(dialog.get_by_text("must begin with http:// or https://")).to_be_visible()
    dialog.get_by_label("Base URL").fill("https://api.openai.com/v1")
    dialog.get_by_label("Name").fill("of two words")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("is not a valid provider name")).to_be_visible()


def test_an_evaluation_offers_the_models_of_a_provider(page: Page, server: ServerProcess) -> None:
    with ChatEndpoint(lambda _: lists("large", "small")) as endpoint:
        httpx.put(f"{server.url}/v1/strop/providers/two", json={"base_url": endpoint.url}).raise_for_status()
        page.goto(f"{server.url}/evaluate")
        page.get_by_text("Use a model behind").click()
        page.get_by_label("Provider").click()
        page.get_by_role("option", name="two").click()
        expect(page.get_by_text("2 models available")).to_be_visible()
    assert violations(page) == []


def test_a_provider_that_refuses_is_said_in_the_form(page: Page, server: ServerProcess) -> None:
    with ChatEndpoint(lambda _: fails(401, "who are you?")) as endpoint:
        httpx.put(f"{server.url}/v1/strop/providers/three", json={"base_url": endpoint.url}).raise_for_status()
        page.goto(f"{server.url}/evaluate")
        page.get_by_text("Use a model behind").click()
        page.get_by_label("Provider").click()
        page.get_by_role("option", name="three").click()
        expect(page.get_by_role("alert")).to_contain_text(
            "the server refuses a request without a key; set api_key_env: who are you?"
        )


def test_a_theme_is_kept(watched: Callable[..., Watched], server: ServerProcess) -> None:
    page = watched().page
    page.goto(f"{server.url}/settings")
    page.get_by_role("radio", name="Dark").check()
    expect(page.locator("body.body--dark")).to_be_visible()
    page.goto(f"{server.url}/")
    expect(page.locator("body.body--dark")).to_be_visible()
    page.goto(f"{server.url}/settings")
    expect(page.get_by_role("radio", name="Dark")).to_be_checked()


def test_a_key_is_shown_once(settings: Page) -> None:
    settings.get_by_label("Key name").fill("laptop")
    settings.get_by_role("button", name="Create").click()
    shown = settings.get_by_role("dialog").locator("pre")
    expect(shown).to_contain_text("sk-strop-")
    key = shown.inner_text()
    settings.get_by_role("dialog").get_by_role("button", name="Close").click()
    settings.reload()
    expect(settings.get_by_role("cell", name="laptop")).to_be_visible()
    assert key not in settings.content()
