"""Create a LoRA adapter with random weights for the rig's model, in PEFT's format.

Run it inside vLLM's own environment:

    python lora_adapter.py DIR
    python -m rig.serve -- --enable-lora --max-lora-rank 8 --lora-modules ada=DIR
"""

import json
import sys
from pathlib import Path

RANK = 8
TARGETS = ("q_proj", "v_proj")


def build(model: Path, folder: Path) -> None:
    """Write an adapter into `folder`, for the model in the folder `model`."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.manual_seed(1)
    weights = {}
    for name, weight in load_file(model / "model.safetensors").items():
        if name.removesuffix(".weight").endswith(TARGETS):
            rows, columns = weight.shape
            below = f"base_model.model.{name.removesuffix('.weight')}"
            weights[f"{below}.lora_A.weight"] = torch.randn(RANK, columns) * 0.02
            weights[f"{below}.lora_B.weight"] = torch.randn(rows, RANK) * 0.02
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": list(TARGETS)}
    (folder / "adapter_config.json").write_text(json.dumps(about))


if __name__ == "__main__":
    build(Path(__file__).parent.parent / ".venv-vllm" / "tiny-model", Path(sys.argv[1]))
