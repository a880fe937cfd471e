"""Copies the tiny model with a tokeniser and a chat template like those of a reasoning model.

Run this module inside vLLM's own environment: `python thinking.py MODEL DIR`. The chat template
opens the reasoning, so every answer begins with reasoning until the model generates `</think>`.
"""

import sys
from pathlib import Path

TAGS = ("<think>", "</think>")
END_ID = 260
"""The token of `</think>`. The model's own tokeniser has 259 tokens."""


def build(model: Path, folder: Path) -> None:
    """Write the copy of `model` into `folder`. The weights are links."""
    from transformers import AutoTokenizer

    folder.mkdir(parents=True)
    for file in model.iterdir():
        if "token" not in file.name and file.suffix != ".jinja":
            (folder / file.name).symlink_to(file.resolve())
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"additional_special_tokens": list(TAGS)})
    if tokenizer.convert_tokens_to_ids(TAGS[1]) != END_ID:
        raise RuntimeError(f"{TAGS[1]} is not token {END_ID}")
    tokenizer.chat_template += "{% if add_generation_prompt %}<think>{% endif %}"
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
