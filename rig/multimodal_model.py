"""Build a small BLIP-2 model without weight files. vLLM serves it with random weights.

Run it inside vLLM's own environment:

    python multimodal_model.py DIR
    vllm serve DIR --load-format dummy

vLLM can load BLIP-2 without torchvision, which has no CPU build for the rig's torch. The image
encoder's 12 layers take longer than the language model. An image becomes 32 tokens before the text.
"""

import sys
from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
IMAGE_TOKENS = 32


def build(folder: Path) -> None:
    """Write the configuration, tokeniser and image processor into `folder`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        Blip2Config,
        Blip2Processor,
        Blip2QFormerConfig,
        Blip2VisionConfig,
        BlipImageProcessor,
        LlamaConfig,
        PreTrainedTokenizerFast,
    )

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "</s>", "<unk>", "<image>"]
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>",
        additional_special_tokens=["<image>"],
    )
    fast.chat_template = CHAT_TEMPLATE
    text = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        architectures=["LlamaForCausalLM"],
    )
    vision = Blip2VisionConfig(
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=12,
        num_attention_heads=6,
        image_size=224,
        patch_size=14,
    )
    bridge = Blip2QFormerConfig(
        vocab_size=64,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        encoder_hidden_size=384,
    )
    config = Blip2Config(
        vision_config=vision.to_dict(),
        qformer_config=bridge.to_dict(),
        text_config=text.to_dict(),
        num_query_tokens=IMAGE_TOKENS,
        image_token_index=vocabulary["<image>"],
    )
    config.architectures = ["Blip2ForConditionalGeneration"]
    images = BlipImageProcessor(size={"height": 224, "width": 224})
    folder.mkdir(parents=True, exist_ok=True)
    processor = Blip2Processor(
        image_processor=images, tokenizer=fast, num_query_tokens=IMAGE_TOKENS
    )
    processor.save_pretrained(folder)
    fast.save_pretrained(folder)
    config.save_pretrained(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
