"""Create a tokeniser and a chat template like those of a reasoning model, for the tiny model.

Run it inside vLLM's own environment:

    python reasoning_model.py DIR
    python -m rig.serve -- --tokenizer DIR --reasoning-parser deepseek_r1

The chat template begins the reasoning. The reasoning lasts until the model generates `</think>`.
Random weights generate this token only with a `logit_bias`.
"""

import sys
from pathlib import Path

TAGS = ("<think>", "</think>")
END_ID = 260
"""The id of the token `</think>`. The tiny model's tokeniser uses the ids below 259."""


def build(model: Path, folder: Path) -> None:
    """Write the tokeniser for the model in the folder `model` into `folder`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"additional_special_tokens": list(TAGS)})
    if tokenizer.convert_tokens_to_ids(TAGS[1]) != END_ID:
        raise RuntimeError(f"{TAGS[1]} is not token {END_ID}")
    tokenizer.chat_template += "{% if add_generation_prompt %}<think>{% endif %}"
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    build(Path(__file__).parent.parent / ".venv-vllm" / "tiny-model", Path(sys.argv[1]))
