"""The schema of the first release."""

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = None
branch_labels = None
depends_on = None

TYPES = {
    "text": sa.Text,
    "int": sa.BigInteger,
    "float": sa.Double,
    "bool": sa.Boolean,
    "bytes": sa.LargeBinary,
}
TABLES = """
application_operations
    key at_unix_ns trace_id span_id
    index at_unix_ns
    text! trace_id span_id
    int! at_unix_ns
    text! operation
    float! length_s
    text! process
    bool! simulated
    float clock_ahead_s ttft_s
    text response_id

cache_lookups
    key at_unix_ns trace_id span_id
    index at_unix_ns
    text! trace_id span_id
    int! at_unix_ns
    text! result cache
    float! duration_s
    text parent_span_id service region kind
    float lookup_s similarity
    text tenant route model
    float clock_ahead_s

clock_corrections
    key sent_unix_ns trace_id span_id
    int! sent_unix_ns
    text! trace_id span_id
    int! ahead_ns

cold_starts
    key at_unix_ns trace_id span_id
    index at_unix_ns
    text! trace_id span_id
    int! at_unix_ns
    text! replica
    int! engine
    float! length_s
    float imports_s config_s engine_process_s workers_s device_s weights_s compile_s warm_up_s
        kv_cache_s unsplit_s server_s
    text model config version region
    bool! simulated
    float clock_ahead_s
    text reached failure
    float scheduling_s image_pull_s init_containers_s container_s

engine_samples
    key replica engine process at_unix_ns
    days at_unix_ns
    text! replica
    int! engine process at_unix_ns started_unix_ns
    bool! simulated
    text source model region config
    int waiting running deferred fetching_kv in_flight
    float oldest_request_age_s last_step_age_s kv_usage_ratio
    int waiting_loras running_loras
    float longest_step_s step_model_base_s step_model_per_prefill_token_s
        step_model_per_prefill_attention_s step_model_per_context_token_s
        step_model_per_decode_s step_model_error_ratio step_model_r_squared
    int steps_total
    float busy_s_total stall_s_total
    int scheduled_prefill_tokens_total
    float prefill_attention_total
    int context_tokens_total decodes_total prefill_tokens_total decode_tokens_total
        prefix_cache_queries_tokens_total prefix_cache_hits_tokens_total
        external_cache_queries_tokens_total external_cache_hits_tokens_total
        local_cached_prompt_tokens_total external_cached_prompt_tokens_total
        kv_transfer_bytes_total
    float kv_transfer_s_total
    int kv_transfer_failures_total preemptions_total drafts_total draft_tokens_total
        accepted_tokens_total
    float modelled_flops_total modelled_read_bytes_total modelled_write_bytes_total
    int host_cpus
    float process_cpu_s_total core_cpu_s_total host_cpu_busy_s_total host_cpu_steal_s_total
    int spans_dropped_total hook_failures_total accounts_dropped_total
    float clock_ahead_s
    int host_cache_hits_tokens_total p2p_cache_hits_tokens_total disk_cache_hits_tokens_total
        kv_offload_load_bytes_total
    float kv_offload_load_s_total
    int kv_offload_store_bytes_total
    float kv_offload_store_s_total
    int kv_offload_store_failures_total
    float kv_offload_lookup_s_total
    int kv_tier_read_bytes_total
    float kv_tier_read_s_total
    int kv_tier_write_bytes_total
    float kv_tier_write_s_total
    int mm_cache_queries_total mm_cache_hits_total
    float step_model_per_prefill_step_s
    int prefill_steps_total

engine_starts
    key replica engine process at_unix_ns
    index at_unix_ns
    text! replica
    int! engine process at_unix_ns
    text! config arguments
    bool! simulated
    text model region version device
    int gpus
    text shape
    float loading_s clock_ahead_s

engine_stretches
    key width_s from_unix_s simulated
    int! width_s from_unix_s
    bool! simulated
    text! things
    bytes! first_unix_ns last_unix_ns
    bytes first_busy_s_total last_busy_s_total first_steps_total last_steps_total
        first_scheduled_prefill_tokens_total last_scheduled_prefill_tokens_total
        first_prefill_attention_total last_prefill_attention_total first_context_tokens_total
        last_context_tokens_total first_decodes_total last_decodes_total step_model_base_s
        step_model_per_prefill_token_s step_model_per_prefill_attention_s
        step_model_per_context_token_s step_model_per_decode_s first_prefill_steps_total
        last_prefill_steps_total step_model_per_prefill_step_s

gpu_samples
    key replica gpu at_unix_ns
    days at_unix_ns
    text! replica gpu
    int! at_unix_ns
    bool! simulated
    text source model_name
    float dram_bandwidth_ratio dram_bandwidth_bytes_per_s sm_active_ratio tensor_active_ratio
    int memory_used_bytes memory_total_bytes
    float power_w energy_j_total
    int sm_clock_hz sm_clock_max_hz memory_clock_hz
    text throttle_reasons
    int foreign_processes
    float pcie_rx_bytes_per_s pcie_tx_bytes_per_s nvlink_rx_bytes_per_s nvlink_tx_bytes_per_s
        clock_ahead_s

gpu_stretches
    key width_s from_unix_s simulated
    int! width_s from_unix_s
    bool! simulated
    text! things
    bytes! first_unix_ns last_unix_ns
    bytes first_energy_j_total last_energy_j_total

probes
    key at_unix_ns trace_id span_id
    index at_unix_ns
    text! trace_id span_id
    int! at_unix_ns
    text! endpoint kind outcome
    text region model request_id error_type error
    int http_status
    bool twin
    float late_s dns_s connect_s tls_s written_s first_byte_s first_event_s first_reasoning_s
        first_content_s itl_max_s e2e_s
    int chunks prompt_tokens cached_tokens output_tokens reasoning_tokens
    float cost_usd certificate_ends_unix_s clock_ahead_s
    text cache cache_result
    float server_queue_s server_prefill_s server_decode_s

requests
    key received_unix_ns trace_id span_id
    days received_unix_ns
    text! trace_id span_id
    text request_id
    int! received_unix_ns
    float! e2e_s
    text! outcome source basis
    float frontend_s handoff_s queue_s prefill_s decode_s delivery_s queue_seats_s queue_kv_s
        queue_budget_s queue_held_s queue_step_s prefill_own_s prefill_others_prefill_s
        prefill_others_decode_s prefill_preempted_s prefill_stall_s decode_own_s
        decode_others_prefill_s decode_others_decode_s decode_preempted_s decode_stall_s ttft_s
        itl_max_s
    int others_prefill_tokens_max
    text operation model lora route tenant region replica
    int engine
    text config
    bool streamed
    int http_status
    text error_type
    int prompt_tokens cached_tokens external_cached_tokens
    text prefix_ladder
    int output_tokens
    float billed_s wasted_s
    int preemptions waiting_at_arrival running_at_arrival
    float kv_usage_at_arrival clock_ahead_s reported_in_flight_s cost_usd
    text priced_by
    int reasoning_tokens
    float first_content_s
    int tool_call_tokens content_tokens
    float kv_load_s grammar_s adapter_wait_s encoder_s
    int kv_loaded_bytes
    text kv_loaded_tier
    int cache_write_tokens

requests_in_flight
    key span_id trace_id
    text! span_id trace_id
    int! received_unix_ns seen_unix_ns
    text! source
    float ttft_s reported_in_flight_s
    text operation model lora route tenant region replica config
    bool streamed
    int prompt_tokens
    float clock_ahead_s
    int engine

rollup_bins
    key latency grouping width_s from_unix_s simulated
    text! latency
    int! grouping width_s from_unix_s
    bool! simulated
    bytes! label_sets sizes bins counts

rollup_labels
    key label_set
    int! label_set
    text model lora route tenant region replica outcome streamed
    int! newest_unix_s
    int!=0 grouping

rollup_marks
    key width_s from_unix_s token
    int! width_s from_unix_s token

rollup_names
    key label value
    text! label value owner
    int! hours newest_hour
    int named_from_unix_s

rollup_state
    key width_s
    int! width_s whole_from_unix_s

rollups
    key grouping width_s from_unix_s simulated
    int! grouping width_s from_unix_s
    bool! simulated
    int! requests overflowed
    bytes! label_sets set_requests
    bytes ttft_s tpot_s itl_max_s e2e_s queue_s frontend_s prefill_s decode_s delivery_s
        prefill_own_s prefill_others_prefill_s prefill_others_decode_s prefill_preempted_s
        prefill_stall_s decode_own_s decode_others_prefill_s decode_others_decode_s
        decode_preempted_s decode_stall_s prompt_tokens cached_tokens output_tokens preemptions
        billed_s wasted_s cost_usd

sample_marks
    key width_s from_unix_s token
    int! width_s from_unix_s token

sample_state
    key width_s
    int! width_s whole_from_unix_s

sender_clocks
    key replica
    text! replica
    int! ahead_ns at_unix_ns

slo_marks
    key token until_unix_s source
    int! token until_unix_s
    text! source
    int! received_unix_ns

state_link
    key name
    text! name state_id shown
    bool! complete
"""
"""Each table with its key, its index if there is one, and its columns by type. With "days" instead
of "index", PostgreSQL also partitions the table by this column. An exclamation mark means NOT NULL.
A value after "=" is the default.
"""


def upgrade() -> None:
    """Create the tables and indexes."""
    for table in TABLES.strip().split("\n\n"):
        name, *lines = re.sub("\n {8}", " ", table).splitlines()
        items: list[sa.schema.SchemaItem] = []
        partition_by = None
        for line in lines:
            kind, *names = line.split()
            if kind == "key":
                items.append(sa.PrimaryKeyConstraint(*names))
            elif kind in ("index", "days"):
                items.append(sa.Index(f"{name}_{names[0]}", *names))
                partition_by = f"RANGE ({names[0]})" if kind == "days" else None
            else:
                kind, _, default = kind.partition("=")
                about: dict[str, Any] = {
                    "nullable": not kind.endswith("!"),
                    "server_default": default or None,
                    "autoincrement": False,
                }
                items += [sa.Column(each, TYPES[kind.rstrip("!")](), **about) for each in names]
        op.create_table(name, *items, postgresql_partition_by=partition_by)
