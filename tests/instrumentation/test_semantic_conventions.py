from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from tailspan_vllm import names


def test_every_name_that_begins_with_gen_ai_is_in_the_conventions() -> None:
    defined = {value for key, value in vars(gen_ai_attributes).items() if key.startswith("GEN_AI_")}
    used = {
        value
        for value in vars(names).values()
        if isinstance(value, str) and value.startswith("gen_ai.")
    }
    assert len(used) > 10
    assert used <= defined
