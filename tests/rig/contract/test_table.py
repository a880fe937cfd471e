import ast
import re
from functools import cache
from pathlib import Path

from tailspan_vllm.engine_state.config_fingerprint import _ARGUMENTS
from tailspan_vllm.plugin import TESTED
from tailspan_vllm.start_up.hooks import _TIMED

from collector.normalise.engine_spans import VLLM
from collector.scrape.engine_series import NAMES
from rig.contract.requirements import Attributes, RequiredMethod
from rig.contract.table import ARGUMENTS, CONTRACT, FIRST, HOOKS, LAST, Hook

ROOT = Path(__file__).resolve().parents[3]
INSTRUMENTATION = ROOT / "instrumentation" / "tailspan_vllm"


@cache
def _parsed(read_by: str) -> ast.Module:
    return ast.parse((INSTRUMENTATION / read_by).read_text())


@cache
def _looked_for(module: ast.Module) -> set[str]:
    """The attributes that the code checks before it reads them, or reads with a default."""
    return {
        argument.value
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


@cache
def _mentioned(module: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_every_row_is_whole() -> None:
    assert len({hook.what for hook in HOOKS}) == len(HOOKS)
    for hook in HOOKS:
        assert hook.where, hook.what
        assert all(path.startswith("vllm/") and path.endswith(".py") for path in hook.where)
        assert hook.read_by.endswith(".py")
        assert hook.otherwise is None or hook.otherwise.strip()
        assert "|" not in hook.what + (hook.otherwise or "")


def test_every_row_is_in_one_part() -> None:
    assert [hook for hooks in CONTRACT.values() for hook in hooks] == list(HOOKS)
    assert FIRST < LAST


ATTRIBUTES = [
    hook
    for hook in HOOKS
    if isinstance(hook.requirement, Attributes)
    and hook.read_by != "engine_state/config_fingerprint.py"
    and not (hook.otherwise or "").startswith("the same effect as for ")
]


def test_an_optional_attribute_is_checked_before_it_is_read() -> None:
    """An attribute that the plugin reads without a check counts as required."""
    for hook in ATTRIBUTES:
        assert isinstance(hook.requirement, Attributes)
        module = _parsed(hook.read_by)
        assert set(hook.requirement.names) <= _mentioned(module), hook.what
        for name in hook.requirement.names:
            assert (name in _looked_for(module)) == (hook.otherwise is not None), hook.what


def test_every_name_that_the_plugin_looks_for_has_a_row() -> None:
    held = {
        name for hook in HOOKS for name in re.findall(r"\w+", f"{hook.what} {hook.requirement}")
    }
    for path in INSTRUMENTATION.rglob("*.py"):
        module = _parsed(str(path.relative_to(INSTRUMENTATION)))
        assert _looked_for(module) <= held | _OF_OTHERS | _WITH_DEFAULT, path


_OF_OTHERS = {
    *("cpu", "strerror", "sysconf", "value", "__qualname__", "__self__"),  # Python
    *("path", "port", "response_complete"),  # the web server
    *("architectures", "quantization_config", "compilation_time_metrics"),  # transformers, torch
    *("done", "_end", "_tailspan", "output_kind"),
}
"""Names that are not vLLM's, and arguments that only look like names."""

_WITH_DEFAULT = {
    *("kv_holding_waiting", "kv_cache_specs", "watermark_blocks", "data_parallel_backend"),
    *("prefill_context_parallel_size", "detokenizer"),
}
"""Names of some versions of vLLM. In the other versions, the plugin's default is exact."""


IMPLEMENTED = "statlogger.py"


def test_our_parameters_match_the_contract() -> None:
    for hook in HOOKS:
        if isinstance(hook.requirement, RequiredMethod):
            _check_parameters(hook, hook.requirement)


def _check_parameters(hook: Hook, requirement: RequiredMethod) -> None:
    functions = [
        node
        for node in ast.walk(_parsed(hook.read_by))
        if isinstance(node, ast.FunctionDef)
        and node.name.strip("_") in (requirement.name.strip("_"), _OURS.get(requirement.name))
    ]
    assert functions, hook.what
    if hook.read_by == IMPLEMENTED:
        signatures = [tuple(each.arg for each in node.args.args[1:]) for node in functions]
        assert any(
            signature[: len(requirement.takes)] == requirement.takes for signature in signatures
        )
        return
    looked_for = {
        (position.value, name.value)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "guard.argument"
        for position, name in [node.args[1:3]]
        if isinstance(position, ast.Constant) and isinstance(name, ast.Constant)
    }
    assert looked_for <= {(index, name) for index, name in enumerate(requirement.takes, 1)}
    assert looked_for or not requirement.takes, hook.what


_OURS = {
    "_update_stats_from_finished": "finished",
    "_finish_request": "finish",
    "update_from_events": "events",
    "record_admission_rejection": "refused",
    "get_core_engine_for_request": "routed",
    "_initialize_kv_caches": "kv_caches",
    "init_device": "device",
    **dict.fromkeys(_TIMED, "timed"),
}
"""The plugin's function that wraps a vLLM function, if the names differ."""


def test_the_plugin_lists_the_versions_that_were_read() -> None:
    assert TESTED == (FIRST, LAST)


def test_the_reported_arguments_are_those_of_the_fingerprint() -> None:
    ours = {part.removesuffix("_config"): names for part, names in _ARGUMENTS.items()}
    assert {part: names for part, (_, names) in ARGUMENTS.items()} == ours


def test_scraped_and_traced_names_are_in_the_contract() -> None:
    """Names from before vLLM 0.12 are left out, because no supported version has them."""
    held = {hook.what.partition(": ")[2].removesuffix("_total") for hook in HOOKS}
    scraped = {name for name in NAMES if name.startswith("vllm:") and "gpu_" not in name[:9]}
    assert {name.removesuffix("_total").removesuffix("_sum") for name in scraped} <= held
    for names in (*VLLM.latencies.values(), VLLM.max_output_tokens):
        assert held & set(names)
