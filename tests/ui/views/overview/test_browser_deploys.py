import re
from typing import Any

import pytest

from tests.analysis.compare.two_windows import SECONDS, START_S, store_deploy

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_the_sentence_about_a_deploy_opens_its_comparison(
    explorer: Any, tab: Any, database: Any
) -> None:
    url = database()
    store_deploy(url)
    page = tab(viewport={"width": 400, "height": 900}, color_scheme="dark")
    page.goto(f"{explorer(url)}/?from={START_S + 300}&to={START_S + 600 + SECONDS}")
    sentence = page.locator(".note", has_text="Since the deploy at")
    sentence.wait_for()
    page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
    found = re.search(r"(T\wO?T) P99 is (\d+ % worse \[[^]]+\])", sentence.inner_text())
    assert found is not None, sentence.inner_text()
    sentence.get_by_role("link", name="Compare before and after").click()
    page.locator(".headline", has_text=f"{found[1]} P99 is {found[2]}").wait_for()
    assert page.locator("[data-testid=stException]").count() == 0
