"""Published model configurations; only the keys that determine sizes."""

from typing import Any

Config = dict[str, Any]

# Each line has several values.
# fmt: off


def a_config(**values: Any) -> Config:
    return {"torch_dtype": "bfloat16", **values}


def llama_3_8b(**changes: Any) -> Config:
    """meta-llama/Meta-Llama-3-8B."""
    return a_config(
        **{
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
            "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
            "tie_word_embeddings": False, **changes,
        }
    )


def llama_3_70b(**changes: Any) -> Config:
    """meta-llama/Meta-Llama-3-70B."""
    return llama_3_8b(
        **{
            "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, **changes,
        }
    )


def mistral_7b() -> Config:
    """mistralai/Mistral-7B-v0.1: every layer has a sliding window."""
    return a_config(
        model_type="mistral", vocab_size=32000, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, sliding_window=4096,
        tie_word_embeddings=False,
    )


def mixtral_8x7b(**changes: Any) -> Config:
    """mistralai/Mixtral-8x7B-v0.1."""
    return {
        **mistral_7b(),
        "model_type": "mixtral", "sliding_window": None, "num_local_experts": 8,
        "num_experts_per_tok": 2, **changes,
    }


def qwen25_7b() -> Config:
    """Qwen/Qwen2.5-7B: the configured sliding window is not used."""
    return a_config(
        model_type="qwen2", vocab_size=152064, hidden_size=3584, intermediate_size=18944,
        num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4, sliding_window=131072,
        use_sliding_window=False, max_window_layers=28, tie_word_embeddings=False,
    )


def qwen3_8b() -> Config:
    """Qwen/Qwen3-8B."""
    return a_config(
        model_type="qwen3", vocab_size=151936, hidden_size=4096, intermediate_size=12288,
        num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        use_sliding_window=False, tie_word_embeddings=False,
    )


def qwen3_30b_a3b(**changes: Any) -> Config:
    """Qwen/Qwen3-30B-A3B: its heads are wider than hidden size / number of heads."""
    return a_config(
        **{
            "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
            "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
            "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
            "mlp_only_layers": [], "tie_word_embeddings": False, **changes,
        }
    )


def qwen15_moe_a27b() -> Config:
    """Qwen/Qwen1.5-MoE-A2.7B: shared experts."""
    return a_config(
        model_type="qwen2_moe", vocab_size=151936, hidden_size=2048, intermediate_size=5632,
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_hidden_layers=24,
        num_attention_heads=16, num_key_value_heads=16, num_experts=60, num_experts_per_tok=4,
        decoder_sparse_step=1, use_sliding_window=False, tie_word_embeddings=False,
    )


def deepseek_v3(**changes: Any) -> Config:
    """deepseek-ai/DeepSeek-V3: latent attention, 3 dense layers, a shared expert, fp8."""
    return a_config(
        **{
            "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
            "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
            "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "first_k_dense_replace": 3, "moe_layer_freq": 1, "tie_word_embeddings": False,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            **changes,
        }
    )


def deepseek_v2_lite() -> Config:
    """deepseek-ai/DeepSeek-V2-Lite: queries are not compressed."""
    return deepseek_v3(
        vocab_size=102400, hidden_size=2048, intermediate_size=10944, moe_intermediate_size=1408,
        num_hidden_layers=27, num_attention_heads=16, q_lora_rank=None, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1,
        quantization_config=None,
    )


def gemma_2_9b() -> Config:
    """google/gemma-2-9b: every other layer has a window; only the model type shows this."""
    return a_config(
        model_type="gemma2", vocab_size=256000, hidden_size=3584, intermediate_size=14336,
        num_hidden_layers=42, num_attention_heads=16, num_key_value_heads=8, head_dim=256,
        sliding_window=4096,
    )


def gemma_3_27b() -> Config:
    """google/gemma-3-27b-it: multimodal; five layers with a window per full layer."""
    return {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 5376,
            "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32,
            "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
            "sliding_window_pattern": 6,
        },
    }


def llama_4_scout() -> Config:
    """meta-llama/Llama-4-Scout-17B-16E: chunked attention, and a shared expert without a key."""
    return {
        "model_type": "llama4",
        "text_config": a_config(
            model_type="llama4_text", vocab_size=202048, hidden_size=5120, intermediate_size=8192,
            intermediate_size_mlp=16384, num_hidden_layers=48, num_attention_heads=40,
            num_key_value_heads=8, head_dim=128, num_local_experts=16, num_experts_per_tok=1,
            interleave_moe_layer_step=1, attention_chunk_size=8192,
            layer_types=(["chunked_attention"] * 3 + ["full_attention"]) * 12,
            tie_word_embeddings=False,
        ),
    }


def gpt_oss_120b() -> Config:
    """openai/gpt-oss-120b: only the experts have 4 bits."""
    return a_config(
        model_type="gpt_oss", vocab_size=201088, hidden_size=2880, intermediate_size=2880,
        num_hidden_layers=36, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
        num_local_experts=128, num_experts_per_tok=4, sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 18, tie_word_embeddings=False,
        quantization_config={"quant_method": "mxfp4"},
    )


def gpt_2() -> Config:
    """openai-community/gpt2: all keys have other names."""
    return {
        "model_type": "gpt2", "torch_dtype": "float32", "vocab_size": 50257, "n_embd": 768,
        "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_inner": None,
    }


def opt_125m() -> Config:
    """facebook/opt-125m."""
    return {
        "model_type": "opt", "torch_dtype": "float16", "vocab_size": 50272, "hidden_size": 768,
        "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "max_position_embeddings": 2048,
    }


def falcon_7b() -> Config:
    """tiiuae/falcon-7b: one KV head for all heads."""
    return a_config(
        model_type="falcon", vocab_size=65024, hidden_size=4544, num_hidden_layers=32,
        num_attention_heads=71, multi_query=True,
    )


def tiny_llama() -> Config:
    """The rig's random model (`rig/model.py`)."""
    return a_config(
        model_type="llama", vocab_size=512, hidden_size=256, intermediate_size=512,
        num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False,
    )


# fmt: on

ALL = (
    llama_3_8b,
    llama_3_70b,
    mistral_7b,
    mixtral_8x7b,
    qwen25_7b,
    qwen3_8b,
    qwen3_30b_a3b,
    qwen15_moe_a27b,
    deepseek_v3,
    deepseek_v2_lite,
    gemma_2_9b,
    gemma_3_27b,
    llama_4_scout,
    gpt_oss_120b,
    gpt_2,
    opt_125m,
    falcon_7b,
    tiny_llama,
)
