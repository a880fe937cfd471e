from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from tailspan_vllm import names

RENAMED = {names.CACHE_WRITE_INPUT_TOKENS: "gen_ai.usage.cache_creation.input_tokens"}
"""Names that the conventions renamed after the package's last release, with their old names."""


def test_every_name_that_begins_with_gen_ai_is_in_the_conventions() -> None:
    defined = {value for key, value in vars(gen_ai_attributes).items() if key.startswith("GEN_AI_")}
    used = {
        value
        for value in vars(names).values()
        if isinstance(value, str) and value.startswith("gen_ai.")
    }
    assert len(used) > 10
    assert used - RENAMED.keys() <= defined
    assert set(RENAMED.values()) <= defined, "the package has the new name: remove it from RENAMED"
