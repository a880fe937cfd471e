BEGIN TRANSACTION;
CREATE TABLE engine_samples (
	replica TEXT NOT NULL, 
	engine BIGINT NOT NULL, 
	process BIGINT NOT NULL, 
	at_unix_ns BIGINT NOT NULL, 
	started_unix_ns BIGINT NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	model TEXT, 
	region TEXT, 
	config TEXT, 
	waiting BIGINT, 
	running BIGINT, 
	"deferred" BIGINT, 
	kv_usage_ratio DOUBLE, 
	waiting_loras BIGINT, 
	running_loras BIGINT, 
	longest_step_s DOUBLE, 
	step_model_base_s DOUBLE, 
	step_model_per_prefill_token_s DOUBLE, 
	step_model_per_prefill_attention_s DOUBLE, 
	step_model_per_context_token_s DOUBLE, 
	step_model_per_decode_s DOUBLE, 
	step_model_error_ratio DOUBLE, 
	step_model_r_squared DOUBLE, 
	steps_total BIGINT, 
	busy_s_total DOUBLE, 
	stall_s_total DOUBLE, 
	scheduled_prefill_tokens_total BIGINT, 
	prefill_tokens_total BIGINT, 
	decode_tokens_total BIGINT, 
	prefix_cache_queries_tokens_total BIGINT, 
	prefix_cache_hits_tokens_total BIGINT, 
	external_cache_queries_tokens_total BIGINT, 
	external_cache_hits_tokens_total BIGINT, 
	preemptions_total BIGINT, 
	drafts_total BIGINT, 
	draft_tokens_total BIGINT, 
	accepted_tokens_total BIGINT, 
	modelled_flops_total DOUBLE, 
	modelled_read_bytes_total DOUBLE, 
	modelled_write_bytes_total DOUBLE, 
	spans_dropped_total BIGINT, 
	hook_failures_total BIGINT, 
	accounts_dropped_total BIGINT, 
	PRIMARY KEY (replica, engine, process, at_unix_ns)
);
INSERT INTO "engine_samples" VALUES('a',0,7,1763634000000000000,1763633000000000000,0,NULL,NULL,NULL,3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE requests (
	trace_id TEXT NOT NULL, 
	span_id TEXT NOT NULL, 
	request_id TEXT, 
	received_unix_ns BIGINT NOT NULL, 
	e2e_s DOUBLE NOT NULL, 
	outcome TEXT NOT NULL, 
	source TEXT NOT NULL, 
	basis TEXT NOT NULL, 
	frontend_s DOUBLE, 
	queue_s DOUBLE, 
	prefill_s DOUBLE, 
	decode_s DOUBLE, 
	delivery_s DOUBLE, 
	prefill_own_s DOUBLE, 
	prefill_others_prefill_s DOUBLE, 
	prefill_others_decode_s DOUBLE, 
	prefill_preempted_s DOUBLE, 
	prefill_stall_s DOUBLE, 
	decode_own_s DOUBLE, 
	decode_others_prefill_s DOUBLE, 
	decode_others_decode_s DOUBLE, 
	decode_preempted_s DOUBLE, 
	decode_stall_s DOUBLE, 
	ttft_s DOUBLE, 
	itl_max_s DOUBLE, 
	operation TEXT, 
	model TEXT, 
	lora TEXT, 
	route TEXT, 
	tenant TEXT, 
	region TEXT, 
	replica TEXT, 
	engine BIGINT, 
	config TEXT, 
	streamed BOOLEAN, 
	http_status BIGINT, 
	error_type TEXT, 
	prompt_tokens BIGINT, 
	cached_tokens BIGINT, 
	output_tokens BIGINT, 
	preemptions BIGINT, 
	waiting_at_arrival BIGINT, 
	running_at_arrival BIGINT, 
	kv_usage_at_arrival DOUBLE, 
	cost_usd DOUBLE, 
	PRIMARY KEY (trace_id, span_id)
);
INSERT INTO "requests" VALUES('00000000000000000000000000000001','0000000000000001','chatcmpl-1',1763634001000000000,1.5,'stop','instrumentation','http',NULL,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'acme',NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "requests" VALUES('00000000000000000000000000000002','0000000000000002','chatcmpl-2',1763634002000000000,1.5,'stop','instrumentation','http',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE slo_counted (
	definition TEXT NOT NULL, 
	from_unix_s BIGINT NOT NULL, 
	until_unix_s BIGINT NOT NULL, 
	PRIMARY KEY (definition)
);
INSERT INTO "slo_counted" VALUES('a',0,60);
CREATE TABLE slo_counts (
	definition TEXT NOT NULL, 
	until_unix_s BIGINT NOT NULL, 
	good BIGINT NOT NULL, 
	bad BIGINT NOT NULL, 
	aborted BIGINT NOT NULL, 
	client_error BIGINT NOT NULL, 
	unknown BIGINT NOT NULL, 
	PRIMARY KEY (definition, until_unix_s)
);
INSERT INTO "slo_counts" VALUES('a',60,9,1,0,0,0);
CREATE TABLE slo_evaluations (
	slo TEXT NOT NULL, 
	until_unix_s BIGINT NOT NULL, 
	PRIMARY KEY (slo)
);
INSERT INTO "slo_evaluations" VALUES('chat',60);
CREATE TABLE slo_incidents (
	slo TEXT NOT NULL, 
	severity TEXT NOT NULL, 
	fired_unix_s BIGINT NOT NULL, 
	began_unix_s BIGINT NOT NULL, 
	last_unix_s BIGINT NOT NULL, 
	ended_unix_s BIGINT, 
	peak_unix_s BIGINT NOT NULL, 
	peak_burn TEXT NOT NULL, 
	budget_spent TEXT, 
	PRIMARY KEY (slo, severity, fired_unix_s)
);
INSERT INTO "slo_incidents" VALUES('chat','page',30,0,60,NULL,45,'20',NULL);
CREATE TABLE tailspan_schema (
	version BIGINT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "tailspan_schema" VALUES(2);
CREATE INDEX requests_received_unix_ns ON requests (received_unix_ns);
CREATE INDEX engine_samples_at_unix_ns ON engine_samples (at_unix_ns);
COMMIT;
