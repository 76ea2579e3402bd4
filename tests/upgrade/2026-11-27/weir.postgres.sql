--
-- PostgreSQL database dump
--

\restrict a47ucsugrRt2DDzOgSyjeubpjOhUE6wtsa19PUHUutiNogRmTrejlebkH9BbNIe

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: refuse_change(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'entries are append-only' USING ERRCODE = 'restrict_violation';
END
$$;


--
-- Name: refuse_deletion(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.refuse_deletion() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF OLD.operation_id IS NOT NULL OR OLD.number > (SELECT number FROM entries_archived) THEN
        RAISE EXCEPTION 'entries are append-only' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: _sqlx_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public._sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);


--
-- Name: account_entries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.account_entries (
    account_id text NOT NULL,
    sequence bigint NOT NULL,
    number bigint NOT NULL
);


--
-- Name: accounts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.accounts (
    id text NOT NULL,
    created_at bigint NOT NULL,
    plan text NOT NULL,
    period_start bigint NOT NULL,
    period_end bigint NOT NULL,
    period_number bigint NOT NULL,
    plan_credits bigint NOT NULL,
    top_up_credits bigint NOT NULL,
    plan_held bigint NOT NULL,
    top_up_held bigint NOT NULL,
    entries bigint NOT NULL,
    payment_customer_id text,
    payment_subscription_id text,
    owed bigint DEFAULT 0 NOT NULL,
    cancelled_at bigint,
    low_below bigint,
    low_since bigint,
    budgets text,
    budget_alert_at bigint,
    CONSTRAINT accounts_check CHECK ((period_start <= period_end)),
    CONSTRAINT accounts_check1 CHECK (((plan_held >= 0) AND (plan_held <= plan_credits))),
    CONSTRAINT accounts_check2 CHECK (((top_up_held >= 0) AND (top_up_held <= top_up_credits))),
    CONSTRAINT accounts_entries_check CHECK ((entries >= 0)),
    CONSTRAINT accounts_owed_check CHECK ((owed >= 0)),
    CONSTRAINT accounts_period_number_check CHECK ((period_number >= 0)),
    CONSTRAINT accounts_plan_check CHECK ((plan = ANY (ARRAY['free'::text, 'guru'::text, 'pro'::text])))
);


--
-- Name: active_accounts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.active_accounts (
    month text NOT NULL,
    account_id text NOT NULL
);


--
-- Name: api_key_hashes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.api_key_hashes (
    hash text NOT NULL,
    key_id text NOT NULL
);


--
-- Name: api_key_peppers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.api_key_peppers (
    version bigint NOT NULL,
    fingerprint bytea NOT NULL,
    CONSTRAINT api_key_peppers_fingerprint_check CHECK ((length(fingerprint) = 16)),
    CONSTRAINT api_key_peppers_version_check CHECK ((version > 0))
);


--
-- Name: api_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.api_keys (
    id text NOT NULL,
    user_id text NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    hash bytea NOT NULL,
    pepper_version bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    disabled_at bigint,
    last_used_at bigint,
    models text,
    holder_id text,
    project_id text,
    filter_options text,
    data_limits text,
    content_log bigint DEFAULT 0 NOT NULL,
    CONSTRAINT api_keys_check CHECK ((expires_at > created_at)),
    CONSTRAINT api_keys_content_log_check CHECK ((content_log = ANY (ARRAY[(0)::bigint, (1)::bigint]))),
    CONSTRAINT api_keys_hash_check CHECK ((length(hash) = 32))
);


--
-- Name: archived_totals; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.archived_totals (
    account_id text NOT NULL,
    key_id text NOT NULL,
    since bigint NOT NULL,
    spent bigint
);


--
-- Name: audit_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit_events (
    number bigint NOT NULL,
    at bigint NOT NULL,
    count bigint NOT NULL,
    kind text NOT NULL,
    actor text,
    method text,
    reason text,
    user_id text,
    key_id text,
    CONSTRAINT audit_events_count_check CHECK ((count > 0))
);


--
-- Name: audit_events_number_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.audit_events ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_events_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: auto_top_up_charges; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.auto_top_up_charges (
    id text NOT NULL,
    user_id text NOT NULL,
    tier text NOT NULL,
    created_at bigint NOT NULL,
    boot_id text NOT NULL,
    claimed_until bigint NOT NULL,
    payment_id text,
    attempts bigint NOT NULL,
    ended_at bigint,
    outcome text,
    error text
);


--
-- Name: auto_top_ups; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.auto_top_ups (
    user_id text NOT NULL,
    enabled_at bigint,
    tier text NOT NULL,
    threshold bigint NOT NULL,
    cooldown_until bigint,
    changed_at bigint NOT NULL
);


--
-- Name: blocks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blocks (
    account_id text NOT NULL,
    boot_id text NOT NULL,
    parts text NOT NULL,
    top_up_only bigint NOT NULL,
    period_start bigint NOT NULL,
    period_number bigint NOT NULL,
    plan_reserved bigint NOT NULL,
    top_up_reserved bigint NOT NULL,
    used_at bigint NOT NULL,
    called_at bigint,
    CONSTRAINT blocks_plan_reserved_check CHECK ((plan_reserved >= 0)),
    CONSTRAINT blocks_top_up_only_check CHECK ((top_up_only = ANY (ARRAY[(0)::bigint, (1)::bigint]))),
    CONSTRAINT blocks_top_up_reserved_check CHECK ((top_up_reserved >= 0))
)
WITH (fillfactor='50');


--
-- Name: canary_samples; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.canary_samples (
    slot text NOT NULL,
    canary_number bigint NOT NULL,
    digest text NOT NULL,
    account_group bigint NOT NULL,
    measure text NOT NULL,
    requests bigint NOT NULL,
    total bigint NOT NULL,
    squares bigint NOT NULL
);


--
-- Name: catalog_layers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.catalog_layers (
    version bigint NOT NULL,
    contents text NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    summary text NOT NULL,
    changes text NOT NULL
);


--
-- Name: content_logs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.content_logs (
    request_id text NOT NULL,
    at bigint NOT NULL,
    account_id text NOT NULL,
    user_id text NOT NULL,
    key_id text,
    for_organisation bigint NOT NULL,
    content bytea NOT NULL,
    CONSTRAINT content_logs_for_organisation_check CHECK ((for_organisation = ANY (ARRAY[(0)::bigint, (1)::bigint])))
);


--
-- Name: directory_members; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.directory_members (
    group_id text NOT NULL,
    user_id text NOT NULL
);


--
-- Name: directory_resources; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.directory_resources (
    id text NOT NULL,
    kind text NOT NULL,
    issuer text NOT NULL,
    name text NOT NULL,
    external_id text,
    document text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT directory_resources_kind_check CHECK ((kind = ANY (ARRAY['user'::text, 'group'::text])))
);


--
-- Name: entries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.entries (
    number bigint NOT NULL,
    account_id text NOT NULL,
    sequence bigint NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL,
    plan_delta bigint NOT NULL,
    top_up_delta bigint NOT NULL,
    overrun bigint NOT NULL,
    period_start bigint NOT NULL,
    operation_id text,
    operation text,
    hold_id text,
    request_id text,
    parent_id text,
    source text,
    source_id text,
    model text,
    amount bigint,
    provider text,
    adapter_digest text,
    requests bigint,
    tokens_input bigint,
    tokens_cache_read bigint,
    tokens_cache_write bigint,
    tokens_output bigint,
    images bigint,
    provider_cost bigint,
    latency_ms bigint,
    estimated_at bigint,
    owed bigint DEFAULT 0 NOT NULL,
    budget_key text,
    attempts bigint,
    CONSTRAINT entries_check CHECK (((operation IS NULL) = (operation_id IS NULL))),
    CONSTRAINT entries_check1 CHECK (((kind = ANY (ARRAY['settlement'::text, 'release'::text, 'expiry'::text, 'late_settlement'::text, 'late_release'::text])) = (hold_id IS NOT NULL))),
    CONSTRAINT entries_check2 CHECK (((kind <> 'settlement'::text) OR ((plan_delta <= 0) AND (top_up_delta <= 0) AND (overrun >= 0)))),
    CONSTRAINT entries_check3 CHECK (((kind <> 'release'::text) OR ((plan_delta = 0) AND (top_up_delta = 0) AND (overrun = 0)))),
    CONSTRAINT entries_check4 CHECK (((kind <> ALL (ARRAY['grant'::text, 'top_up'::text])) OR ((plan_delta >= 0) AND (top_up_delta >= 0)))),
    CONSTRAINT entries_check5 CHECK (((kind <> ALL (ARRAY['lapse'::text, 'refund'::text])) OR ((plan_delta <= 0) AND (top_up_delta <= 0)))),
    CONSTRAINT entries_kind_check CHECK ((kind = ANY (ARRAY['settlement'::text, 'release'::text, 'expiry'::text, 'late_settlement'::text, 'late_release'::text, 'grant'::text, 'lapse'::text, 'top_up'::text, 'refund'::text, 'opening'::text]))),
    CONSTRAINT entries_sequence_check CHECK ((sequence > 0))
);


--
-- Name: entries_archived; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.entries_archived (
    number bigint NOT NULL,
    day bigint NOT NULL
);


--
-- Name: entries_folded; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.entries_folded (
    number bigint NOT NULL
);


--
-- Name: entries_number_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.entries ALTER COLUMN number ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.entries_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: entries_verified; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.entries_verified (
    number bigint NOT NULL,
    day bigint NOT NULL,
    day_number bigint NOT NULL
);


--
-- Name: expiring_values; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.expiring_values (
    name text NOT NULL,
    version bigint NOT NULL,
    value bytea NOT NULL,
    expires_at bigint NOT NULL
);


--
-- Name: failed_requests; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.failed_requests (
    request_id text NOT NULL,
    at bigint NOT NULL,
    account_id text NOT NULL,
    user_id text NOT NULL,
    key_id text,
    project_id text,
    model text,
    provider text,
    earlier text,
    code text NOT NULL,
    status bigint,
    latency_ms bigint NOT NULL,
    attempts bigint NOT NULL,
    trace_id text,
    adapter_digest text
);


--
-- Name: holds; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.holds (
    id text NOT NULL,
    account_id text NOT NULL,
    request_id text NOT NULL,
    boot_id text NOT NULL,
    parent_id text,
    source text NOT NULL,
    source_id text,
    model text NOT NULL,
    amount bigint NOT NULL,
    opened_at bigint NOT NULL,
    period_start bigint NOT NULL,
    period_number bigint NOT NULL,
    expired_at bigint,
    plan_reserved bigint NOT NULL,
    top_up_reserved bigint NOT NULL,
    checkpoint bigint NOT NULL,
    plan_posted bigint NOT NULL,
    top_up_posted bigint NOT NULL,
    overrun bigint NOT NULL,
    usage text,
    budget_key text,
    top_up_only_at bigint,
    CONSTRAINT holds_amount_check CHECK ((amount >= 0)),
    CONSTRAINT holds_check CHECK (((expired_at IS NULL) OR ((plan_reserved + top_up_reserved) = 0))),
    CONSTRAINT holds_check1 CHECK (((expired_at IS NOT NULL) OR (((plan_posted + top_up_posted) + overrun) = 0))),
    CONSTRAINT holds_checkpoint_check CHECK ((checkpoint >= 0)),
    CONSTRAINT holds_overrun_check CHECK ((overrun >= 0)),
    CONSTRAINT holds_plan_posted_check CHECK ((plan_posted >= 0)),
    CONSTRAINT holds_plan_reserved_check CHECK ((plan_reserved >= 0)),
    CONSTRAINT holds_source_check CHECK ((source = ANY (ARRAY['web'::text, 'api_key'::text, 'agent'::text]))),
    CONSTRAINT holds_top_up_posted_check CHECK ((top_up_posted >= 0)),
    CONSTRAINT holds_top_up_reserved_check CHECK ((top_up_reserved >= 0))
);


--
-- Name: idempotency_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_keys (
    account_id text NOT NULL,
    key text NOT NULL,
    request_digest bytea NOT NULL,
    request_id text NOT NULL,
    hold_id text NOT NULL,
    boot_id text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    completed_at bigint,
    answer bytea,
    CONSTRAINT idempotency_keys_check CHECK (((answer IS NULL) OR (completed_at IS NOT NULL))),
    CONSTRAINT idempotency_keys_key_check CHECK (((length(key) >= 1) AND (length(key) <= 255))),
    CONSTRAINT idempotency_keys_request_digest_check CHECK ((length(request_digest) = 32))
);


--
-- Name: invitations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.invitations (
    id text NOT NULL,
    organisation_id text NOT NULL,
    email text NOT NULL,
    role text NOT NULL,
    code_hash bytea NOT NULL,
    invited_by text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    accepted_by text,
    ended_at bigint,
    CONSTRAINT invitations_code_hash_check CHECK ((length(code_hash) = 32)),
    CONSTRAINT invitations_role_check CHECK ((role = ANY (ARRAY['admin'::text, 'billing'::text, 'member'::text, 'viewer'::text])))
);


--
-- Name: load_answers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.load_answers (
    question_id text NOT NULL,
    boot_id text NOT NULL,
    problem text
);


--
-- Name: load_questions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.load_questions (
    id text NOT NULL,
    slot text NOT NULL,
    digest text NOT NULL,
    asked_at bigint NOT NULL
);


--
-- Name: mcp_tools; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.mcp_tools (
    server text NOT NULL,
    tool text NOT NULL,
    digest text NOT NULL,
    definition text NOT NULL,
    pinned_at bigint NOT NULL,
    changed_digest text,
    changed_definition text,
    changed_at bigint
);


--
-- Name: members; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.members (
    organisation_id text NOT NULL,
    user_id text NOT NULL,
    role text NOT NULL,
    created_at bigint NOT NULL,
    granted_by text,
    CONSTRAINT members_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'billing'::text, 'member'::text, 'viewer'::text])))
);


--
-- Name: node_leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.node_leases (
    boot_id text NOT NULL,
    started_at bigint NOT NULL,
    lease_until bigint NOT NULL
);


--
-- Name: notices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.notices (
    id text NOT NULL,
    user_id text NOT NULL,
    kind text NOT NULL,
    data text NOT NULL,
    created_at bigint NOT NULL,
    attempts bigint DEFAULT 0 NOT NULL,
    next_attempt_at bigint,
    delivered_at bigint,
    last_error text
);


--
-- Name: payment_checkouts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payment_checkouts (
    id text NOT NULL,
    user_id text NOT NULL,
    purpose text NOT NULL,
    item text NOT NULL,
    session_id text,
    url text,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    closed_at bigint,
    success_url text
);


--
-- Name: payment_customers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payment_customers (
    user_id text NOT NULL,
    customer_id text NOT NULL,
    linked_at bigint NOT NULL
);


--
-- Name: payment_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payment_events (
    id text NOT NULL,
    type text NOT NULL,
    created_at bigint NOT NULL,
    received_at bigint NOT NULL,
    content text NOT NULL,
    user_id text,
    customer_id text,
    subject text,
    state text NOT NULL,
    attempts bigint DEFAULT 0 NOT NULL,
    next_attempt_at bigint,
    last_error text,
    applied_at bigint,
    outcome text,
    retried_at bigint
);


--
-- Name: payment_subscriptions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payment_subscriptions (
    id text NOT NULL,
    user_id text NOT NULL,
    plan text NOT NULL,
    status text NOT NULL,
    period_start bigint,
    period_end bigint,
    cancelled_at bigint,
    provisional_start bigint,
    payment_failed_at bigint,
    as_of bigint NOT NULL,
    event_id text NOT NULL
);


--
-- Name: payment_turns; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payment_turns (
    user_id text NOT NULL,
    holder text NOT NULL,
    until bigint NOT NULL
);


--
-- Name: payment_upgrades; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payment_upgrades (
    subscription_id text NOT NULL,
    period_end bigint NOT NULL,
    given bigint DEFAULT 0 NOT NULL,
    giving bigint,
    within bigint,
    steps bigint DEFAULT 0 NOT NULL
);


--
-- Name: payments; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.payments (
    id text NOT NULL,
    user_id text NOT NULL,
    kind text NOT NULL,
    credits bigint NOT NULL,
    amount bigint NOT NULL,
    period_start bigint,
    period_end bigint,
    paid_at bigint NOT NULL,
    refunded bigint DEFAULT 0 NOT NULL,
    refunding bigint,
    currency text
);


--
-- Name: platform_daily; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.platform_daily (
    day bigint NOT NULL,
    model text NOT NULL,
    provider text NOT NULL,
    requests bigint NOT NULL,
    tokens_input bigint NOT NULL,
    tokens_cache_read bigint NOT NULL,
    tokens_cache_write bigint NOT NULL,
    tokens_output bigint NOT NULL,
    images bigint NOT NULL,
    credits bigint NOT NULL,
    overrun bigint NOT NULL,
    provider_cost bigint NOT NULL
);


--
-- Name: platform_folded; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.platform_folded (
    number bigint NOT NULL
);


--
-- Name: plugin_counters; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugin_counters (
    slot text NOT NULL,
    digest text NOT NULL,
    requests bigint NOT NULL,
    errors bigint NOT NULL,
    traps bigint NOT NULL,
    latency_us bigint NOT NULL,
    credits bigint NOT NULL,
    clamps bigint NOT NULL
);


--
-- Name: plugin_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugin_events (
    number bigint NOT NULL,
    at bigint NOT NULL,
    slot text NOT NULL,
    kind text NOT NULL,
    digest text,
    previous_digest text,
    actor text NOT NULL,
    detail text,
    CONSTRAINT plugin_events_kind_check CHECK ((kind = ANY (ARRAY['installed'::text, 'activated'::text, 'rolled_back'::text, 'removed'::text, 'quarantined'::text, 'quarantine_withheld'::text, 'canary_started'::text, 'canary_promoted'::text, 'canary_ended'::text])))
);


--
-- Name: plugin_generation; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugin_generation (
    number bigint NOT NULL
);


--
-- Name: plugin_parts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugin_parts (
    slot text NOT NULL,
    digest text NOT NULL,
    part bigint NOT NULL,
    bytes bytea NOT NULL,
    CONSTRAINT plugin_parts_part_check CHECK ((part >= 0))
);


--
-- Name: plugin_quarantines; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugin_quarantines (
    slot text NOT NULL,
    digest text NOT NULL,
    at bigint NOT NULL
);


--
-- Name: plugin_versions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugin_versions (
    slot text NOT NULL,
    publisher text NOT NULL,
    version text NOT NULL
);


--
-- Name: plugins; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.plugins (
    slot text NOT NULL,
    digest text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    wit_version text NOT NULL,
    signer text,
    size_bytes bigint NOT NULL,
    installed_at bigint NOT NULL,
    installed_by text NOT NULL,
    description text NOT NULL,
    signature text,
    CONSTRAINT plugins_digest_check CHECK ((length(digest) = 64)),
    CONSTRAINT plugins_kind_check CHECK ((kind = ANY (ARRAY['adapter'::text, 'tool'::text, 'filter'::text]))),
    CONSTRAINT plugins_size_bytes_check CHECK ((size_bytes > 0))
);


--
-- Name: projects; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.projects (
    id text NOT NULL,
    organisation_id text NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    archived_at bigint
);


--
-- Name: recorded_exchanges; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.recorded_exchanges (
    id text NOT NULL,
    slot text NOT NULL,
    at bigint NOT NULL,
    content bytea NOT NULL
);


--
-- Name: recording_nodes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.recording_nodes (
    slot text NOT NULL,
    boot_id text NOT NULL,
    begun_at bigint NOT NULL
);


--
-- Name: recordings; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.recordings (
    slot text NOT NULL,
    begun_at bigint NOT NULL,
    until_at bigint NOT NULL,
    share bigint NOT NULL,
    most_bytes bigint NOT NULL,
    kept_bytes bigint DEFAULT 0 NOT NULL,
    exchanges bigint DEFAULT 0 NOT NULL,
    actor text NOT NULL,
    CONSTRAINT recordings_most_bytes_check CHECK ((most_bytes > 0)),
    CONSTRAINT recordings_share_check CHECK (((share >= 1) AND (share <= 10000)))
);


--
-- Name: sealing_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.sealing_keys (
    id bigint NOT NULL,
    fingerprint bytea NOT NULL,
    CONSTRAINT sealing_keys_fingerprint_check CHECK ((length(fingerprint) = 16)),
    CONSTRAINT sealing_keys_id_check CHECK ((id > 0))
);


--
-- Name: slots; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.slots (
    slot text NOT NULL,
    active_digest text,
    previous_digest text,
    changed_at bigint NOT NULL,
    publisher text,
    canary_digest text,
    canary_number bigint,
    canary_share bigint,
    canary_since bigint,
    canary_promote_after_ms bigint,
    least_version text,
    on_quarantine text,
    CONSTRAINT slots_canary_promote_after_ms_check CHECK ((canary_promote_after_ms > 0)),
    CONSTRAINT slots_canary_share_check CHECK (((canary_share >= 1) AND (canary_share <= 9999))),
    CONSTRAINT slots_on_quarantine_check CHECK ((on_quarantine = ANY (ARRAY['roll_back'::text, 'refuse'::text])))
);


--
-- Name: swarm_agents; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.swarm_agents (
    run_id text NOT NULL,
    number bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    result bytea,
    CONSTRAINT swarm_agents_check CHECK (((ended_at IS NULL) = (result IS NULL))),
    CONSTRAINT swarm_agents_number_check CHECK ((number >= 0))
);


--
-- Name: swarm_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.swarm_events (
    run_id text NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT swarm_events_number_check CHECK ((number > 0))
);


--
-- Name: swarm_runs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.swarm_runs (
    id text NOT NULL,
    user_id text NOT NULL,
    swarm_id text NOT NULL,
    task_id text,
    request bytea NOT NULL,
    budget bigint NOT NULL,
    status text NOT NULL,
    client_key text,
    request_digest bytea,
    fence bigint NOT NULL,
    recoveries bigint NOT NULL,
    lease_owner text,
    lease_until bigint NOT NULL,
    parent_hold text,
    last_event bigint NOT NULL,
    agents_total bigint NOT NULL,
    agents_completed bigint NOT NULL,
    credits bigint NOT NULL,
    tokens_in bigint NOT NULL,
    tokens_out bigint NOT NULL,
    outcome bytea,
    created_at bigint NOT NULL,
    deadline bigint NOT NULL,
    cancel_requested_at bigint,
    ended_at bigint,
    key_id text,
    bytes bigint DEFAULT 0 NOT NULL,
    CONSTRAINT swarm_runs_agents_completed_check CHECK ((agents_completed >= 0)),
    CONSTRAINT swarm_runs_agents_total_check CHECK ((agents_total > 0)),
    CONSTRAINT swarm_runs_budget_check CHECK ((budget >= 0)),
    CONSTRAINT swarm_runs_check CHECK (((client_key IS NULL) = (request_digest IS NULL))),
    CONSTRAINT swarm_runs_check1 CHECK (((ended_at IS NULL) = (status = ANY (ARRAY['queued'::text, 'running'::text])))),
    CONSTRAINT swarm_runs_credits_check CHECK ((credits >= 0)),
    CONSTRAINT swarm_runs_fence_check CHECK ((fence >= 0)),
    CONSTRAINT swarm_runs_last_event_check CHECK ((last_event >= 0)),
    CONSTRAINT swarm_runs_recoveries_check CHECK ((recoveries >= 0)),
    CONSTRAINT swarm_runs_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'completed'::text, 'partial'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT swarm_runs_tokens_in_check CHECK ((tokens_in >= 0)),
    CONSTRAINT swarm_runs_tokens_out_check CHECK ((tokens_out >= 0))
);


--
-- Name: swarm_steps; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.swarm_steps (
    run_id text NOT NULL,
    agent bigint NOT NULL,
    iteration bigint NOT NULL,
    ordinal bigint NOT NULL,
    input_hash bytea NOT NULL,
    effect text,
    idempotency_key text NOT NULL,
    output_limit bigint,
    state text NOT NULL,
    output bytea,
    credits bigint NOT NULL,
    tokens_in bigint NOT NULL,
    tokens_out bigint NOT NULL,
    component_digest text,
    intended_at bigint NOT NULL,
    ended_at bigint,
    CONSTRAINT swarm_steps_agent_check CHECK ((agent >= 0)),
    CONSTRAINT swarm_steps_check CHECK (((state = 'intended'::text) = (ended_at IS NULL))),
    CONSTRAINT swarm_steps_credits_check CHECK ((credits >= 0)),
    CONSTRAINT swarm_steps_effect_check CHECK ((effect = ANY (ARRAY['read'::text, 'idempotent'::text, 'unsafe'::text]))),
    CONSTRAINT swarm_steps_input_hash_check CHECK ((length(input_hash) = 32)),
    CONSTRAINT swarm_steps_iteration_check CHECK ((iteration > 0)),
    CONSTRAINT swarm_steps_ordinal_check CHECK ((ordinal >= 0)),
    CONSTRAINT swarm_steps_state_check CHECK ((state = ANY (ARRAY['intended'::text, 'done'::text, 'failed'::text, 'uncertain'::text, 'blocked'::text]))),
    CONSTRAINT swarm_steps_tokens_in_check CHECK ((tokens_in >= 0)),
    CONSTRAINT swarm_steps_tokens_out_check CHECK ((tokens_out >= 0))
);


--
-- Name: swarm_users; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.swarm_users (
    user_id text NOT NULL,
    last_begun_at bigint NOT NULL,
    kept_bytes bigint NOT NULL,
    CONSTRAINT swarm_users_kept_bytes_check CHECK ((kept_bytes >= 0))
);


--
-- Name: task_credentials; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.task_credentials (
    task_id text NOT NULL,
    name text NOT NULL,
    sealed bytea NOT NULL,
    sealing_key bigint NOT NULL,
    created_at bigint NOT NULL
);


--
-- Name: task_starts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.task_starts (
    task_id text NOT NULL,
    cause text NOT NULL,
    trigger_type text NOT NULL,
    slot bigint,
    started_at bigint NOT NULL,
    claimed_until bigint NOT NULL,
    execution_id text,
    refusal bytea,
    CONSTRAINT task_starts_check CHECK (((execution_id IS NULL) OR (refusal IS NULL))),
    CONSTRAINT task_starts_trigger_type_check CHECK ((trigger_type = ANY (ARRAY['manual'::text, 'schedule'::text, 'event'::text])))
);


--
-- Name: tasks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tasks (
    id text NOT NULL,
    user_id text NOT NULL,
    definition bytea NOT NULL,
    sealing_key bigint NOT NULL,
    next_fire_at bigint,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    key_id text,
    start_minute bigint,
    start_cause text
);


--
-- Name: traffic_hours; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.traffic_hours (
    scope text NOT NULL,
    hour bigint NOT NULL,
    organisation_id text NOT NULL,
    key_id text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    requests bigint NOT NULL,
    client_errors bigint NOT NULL,
    provider_errors bigint NOT NULL,
    gateway_errors bigint NOT NULL,
    tokens_input bigint NOT NULL,
    tokens_output bigint NOT NULL,
    credits bigint NOT NULL,
    first_token_00 integer NOT NULL,
    first_token_01 integer NOT NULL,
    first_token_02 integer NOT NULL,
    first_token_03 integer NOT NULL,
    first_token_04 integer NOT NULL,
    first_token_05 integer NOT NULL,
    first_token_06 integer NOT NULL,
    first_token_07 integer NOT NULL,
    first_token_08 integer NOT NULL,
    first_token_09 integer NOT NULL,
    first_token_10 integer NOT NULL,
    first_token_11 integer NOT NULL,
    first_token_12 integer NOT NULL,
    first_token_13 integer NOT NULL,
    first_token_14 integer NOT NULL,
    first_token_15 integer NOT NULL,
    first_token_16 integer NOT NULL,
    first_token_17 integer NOT NULL,
    first_token_18 integer NOT NULL,
    first_token_19 integer NOT NULL,
    first_token_20 integer NOT NULL,
    first_token_21 integer NOT NULL,
    first_token_22 integer NOT NULL,
    first_token_23 integer NOT NULL,
    first_token_24 integer NOT NULL,
    total_00 integer NOT NULL,
    total_01 integer NOT NULL,
    total_02 integer NOT NULL,
    total_03 integer NOT NULL,
    total_04 integer NOT NULL,
    total_05 integer NOT NULL,
    total_06 integer NOT NULL,
    total_07 integer NOT NULL,
    total_08 integer NOT NULL,
    total_09 integer NOT NULL,
    total_10 integer NOT NULL,
    total_11 integer NOT NULL,
    total_12 integer NOT NULL,
    total_13 integer NOT NULL,
    total_14 integer NOT NULL,
    total_15 integer NOT NULL,
    total_16 integer NOT NULL,
    total_17 integer NOT NULL,
    total_18 integer NOT NULL,
    total_19 integer NOT NULL,
    total_20 integer NOT NULL,
    total_21 integer NOT NULL,
    total_22 integer NOT NULL,
    total_23 integer NOT NULL,
    total_24 integer NOT NULL
);


--
-- Name: usage_daily; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.usage_daily (
    account_id text NOT NULL,
    period_start bigint NOT NULL,
    day bigint NOT NULL,
    model text NOT NULL,
    provider text NOT NULL,
    source text NOT NULL,
    key_hash text NOT NULL,
    requests bigint NOT NULL,
    tokens_input bigint NOT NULL,
    tokens_cache_read bigint NOT NULL,
    tokens_cache_write bigint NOT NULL,
    tokens_output bigint NOT NULL,
    images bigint NOT NULL,
    credits bigint NOT NULL,
    overrun bigint NOT NULL,
    provider_cost bigint NOT NULL
);


--
-- Name: users; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.users (
    id text NOT NULL,
    created_at bigint NOT NULL,
    issuer text,
    subject text,
    plan text DEFAULT 'free'::text NOT NULL,
    admin_since bigint,
    disabled_at bigint,
    kind text DEFAULT 'person'::text NOT NULL,
    name text,
    email text,
    deleted_at bigint,
    rates text,
    admin_granted_by text,
    disabled_by text,
    filter_options text,
    data_limits text,
    content_log bigint DEFAULT 0 NOT NULL,
    CONSTRAINT users_check CHECK (((issuer IS NULL) = (subject IS NULL))),
    CONSTRAINT users_content_log_check CHECK ((content_log = ANY (ARRAY[(0)::bigint, (1)::bigint]))),
    CONSTRAINT users_kind_check CHECK ((kind = ANY (ARRAY['person'::text, 'organisation'::text, 'service'::text])))
);


--
-- Name: verified_accounts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.verified_accounts (
    account_id text NOT NULL,
    entries bigint NOT NULL,
    plan_credits bigint NOT NULL,
    top_up_credits bigint NOT NULL,
    owed bigint DEFAULT 0 NOT NULL
);


--
-- Name: voucher_guesses; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.voucher_guesses (
    user_id text NOT NULL,
    since bigint NOT NULL,
    guesses bigint NOT NULL
);


--
-- Name: voucher_redemptions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.voucher_redemptions (
    user_id text NOT NULL,
    voucher_id text NOT NULL,
    credits bigint NOT NULL,
    redeemed_at bigint NOT NULL,
    applied_at bigint
);


--
-- Name: vouchers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.vouchers (
    id text NOT NULL,
    code_hash bytea NOT NULL,
    name text NOT NULL,
    credits bigint NOT NULL,
    uses bigint NOT NULL,
    redeemed bigint DEFAULT 0 NOT NULL,
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint NOT NULL,
    revoked_at bigint,
    CONSTRAINT vouchers_check CHECK (((redeemed >= 0) AND (redeemed <= uses))),
    CONSTRAINT vouchers_code_hash_check CHECK ((length(code_hash) = 32)),
    CONSTRAINT vouchers_credits_check CHECK ((credits > 0)),
    CONSTRAINT vouchers_uses_check CHECK ((uses > 0))
);


--
-- Data for Name: _sqlx_migrations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public._sqlx_migrations (version, description, installed_on, success, checksum, execution_time) FROM stdin;
1	create users and keys	2026-09-10 03:16:48.963609+00	t	\\x616b4cd0d7d89cf28e1b1098a93b59a1338f4a979baa9e7dabb177f32924785c10598b184fa9046ea93ffbaadc435377	105145788
2	create audit events	2026-09-10 03:16:49.079628+00	t	\\x7b00aa9ee03bd266de1015f49e209c70adbeab489e4a4f3fdedb7478a920f4978e2c9929c7153bca1a8a203b514d2167	55969986
3	create ledger	2026-09-10 03:16:49.151065+00	t	\\x3b785d40b61f9d7df160d4a573fe8d76a5ada570d940c4dc5a1c3a30f3af193a0bcaded6c223498bf91e3b4d1b4203ac	187627492
4	create plugins	2026-09-10 03:16:49.343866+00	t	\\x56a3354f4703a2fbc5a3eda09c596f32eb717bd5579c4718064b7b71d9a62d3c1e162cad81d3655e4fceda66f4694959	98714882
5	create sealing keys	2026-09-10 03:16:49.443164+00	t	\\x33071c30d1f8e0a47a6b88e5ce8006413e1bfa46c20b0706ea53dab85c971291c9b70fc2a3c5d5a72ff2dade8f65c2cd	20757699
6	create expiring values	2026-09-10 03:16:49.468002+00	t	\\x7550ace68157f27ea68329e38b12c2da73fcfd180a870d3a78a32481fc0fa41868d14742c4ec9c9c768af883c54c4b66	27883224
7	add tools	2026-09-10 03:16:49.499865+00	t	\\xd2311a418e5ddfb0269d38085acd84de3eadbbfd1a26cb9c2689167b209d313e0a0df9d57026730c46b197ee0f3cc484	3991360
8	create swarms	2026-09-10 03:16:49.511857+00	t	\\x01dcefd619de8febd57bf1e8a8b0b3bb574fcc99f70ffdd4a20ec422f61e594b13f99dd52ae713d856499582c95f2480	76104221
9	create tasks	2026-09-10 03:16:49.603639+00	t	\\x95884654714ea23f121cf6860d0a07ae7fbc11e80731c9115a33183d2d66db647061b0d5e33787aae13ba3b53b6f4a45	148057588
10	add owed credits	2026-09-10 03:16:49.756713+00	t	\\x55eae9d108df0d1f3e8a7aea052529da47005ad4cb8fdecc3ecede28f6c92e1ba0c54424e029bf74d7b9373db6f1593e	14124017
11	create payments	2026-09-10 03:16:49.786411+00	t	\\xa60dd4e734deffff87aee5e521580015ba1ce6239f105b67696205902a222a9a3466322ef58bf1c0ceefe2980d67c698	264260534
12	add plugin signatures	2026-09-10 03:16:50.059637+00	t	\\x18a578ae7ecc8459a5369a879907c98b309ba0511c2bed5e46bc7d3e7269da3bfbd01a65fefdf6a75ae74386fd7f008b	31416048
13	add canaries	2026-09-10 03:16:50.092512+00	t	\\xdc84f63bb93d914f434a6d217ceb8f4b15a9a61cb9dfbcaeb0b6da2c4e65d594d2ef7be21fecabbb649aa40c8b04f44d	19490128
14	add filters	2026-09-10 03:16:50.119824+00	t	\\xa9d848e99e26ff10e9c1cc3c96f672be63f69004d9c61eee8d917d77898d4b735cf92943d1d9a076d137d0859130df94	7937307
15	create recordings	2026-09-10 03:16:50.131952+00	t	\\x4ba7c4896f81ae99c72e32abb878939e1f6f172aaf285f934154b0b2305ba1bebd08d865e00029ab649a45fbd2c41add	43950354
16	add budgets	2026-09-10 03:16:50.187524+00	t	\\xa6ca88ef6b7bb6817e29304786aee3a0424bcee555593bfadc25de3128b465a0282ff78fe8fcba492a34478a9b8e4cb5	12223696
17	create mcp tools	2026-09-10 03:16:50.211825+00	t	\\x5425d8ce08bda419f9931b6ba60693a5ac214cdbdba59f471dc058e8c42ff6610694003a8fbe32b35ef05c6d796c6b5a	16081291
18	add attempts	2026-09-10 03:16:50.239636+00	t	\\xb7875c86a4eb0961c37814c51ef50d169d574b4417508333c7303004675a3a4fcc504c59c2bf29c618be91a97da61c77	12042426
19	add paid upgrades	2026-09-10 03:16:50.251828+00	t	\\x27bd3df36626af2f136a003cf15495d1135a3a266977d7d8d1968ebc7439d21d11cfe7ddbb146ac7fa111dfadb9ddccd	27937245
20	create archived totals	2026-09-10 03:16:50.283958+00	t	\\xa845942bd560e356435d4f6a9b3daf33a6ee9b5d3405b0da212a127cc905b90a979796cf97a2650e461fbc8aa76bbfb7	39896205
21	create vouchers	2026-09-10 03:16:50.331784+00	t	\\x6849a085d325b570c5fa748f5b5456ec079c9058d1fc10ef6da527b241c0da44eebefe072a885171385efae7f0be8724	112248949
22	create recording nodes	2026-09-10 03:16:50.455635+00	t	\\x3fb97cf8bb20cc30033843cff0d55deeeb9b1c6de6b711590b1eb4d0c548c1c9db837644d587b9f0d930980b5924de2e	23930207
23	add keys of tasks	2026-09-10 03:16:50.495412+00	t	\\x7712b443cdaecef5fda4adf6afbe290300cbf099684068aecf7090e3b5f96dc545b9d4e06b3a1aa95000bb367e0bd92d	19986036
24	index lists and sweeps	2026-09-10 03:16:50.520093+00	t	\\x743b89def67f95ed4265fc72b45be41d19d7e9a091de58cf8a0e2c4a8325ba24dcde365dd2bfcff6a1f79163df8e11c9	91773234
25	index open swarms	2026-09-10 03:16:50.61587+00	t	\\xf0f7f52bd354c0af0f5cf6e6df83ab0280cbe1d1707846b99b5bf603da009b8df002ca66d4c7c0cf41317bcbe3954810	36019731
26	add slot policies	2026-09-10 03:16:50.65585+00	t	\\xe51a2f0e439a5284f59b3e53f0865e7975c9223d543bcc0c8ae4d977acfde53e3ba50509d6ed41be4d886b6b5a084a81	3973642
27	create load questions	2026-09-10 03:16:50.663841+00	t	\\x1802bdbc39de087497e135eee9212a88a4dfa05521e4aa81a5085e58f91da86d29150dd7a1fa5097b3c5d1936b4c7ad4	19999141
28	create organisations	2026-09-10 03:16:50.686131+00	t	\\x48a69a2ec25bcf81aa88b529c052cff9ee2fa763f3d8071755317081586c48dea4de4ad65f6f0a29d28fe82bb2bbe115	97706314
29	add roles of groups	2026-09-10 03:16:50.791816+00	t	\\xf2c7eb0c0161ddd22936e05d73d17a5cd17e0fbc8f1a98d8e885fd46e177a5a02c7a3e7e49c3f2b0fc5f8bd76a94e0d7	8056256
30	add plan models	2026-09-10 03:16:50.807817+00	t	\\xf8c22e5af5c6e8b1719164ab7f9cc4991fd4becf8165032491d78ada9afe6c2c5b75a09ee61b59a00624c4251d3c8ce8	3992436
31	create directory resources	2026-09-10 03:16:50.819756+00	t	\\x712b4763f1b51d0490330fd26e433b4896158d354bee293910954a83d2ce59a2f3c2d428e0c65f9aeb48ae003c6ca43a	72038972
32	create blocks	2026-09-10 03:16:50.9021+00	t	\\x2366cfdd4c2f5e52e4fbf9f71935a911e14a834a58f367d5175ab62e35ae701e1d5e134f73f5b29793e5421e37be3e5a	51952861
33	create platform daily	2026-09-10 03:16:50.963826+00	t	\\xba4c9a0c570ec552663a0736d4c80cb39ef0ade7128c4bbc0a2a7c9fdde2470600b929434d7931841535e80550952686	21610548
34	create active accounts	2026-09-10 03:16:50.99072+00	t	\\x066112fce2e4847548ac7c16412597d7581ab34d89d2859dd1c01841ecd57b6cc60d5fb23825b7b414860bc11acbeaba	25229736
35	add filter options	2026-09-10 03:16:51.024815+00	t	\\x7bb94eb318aaa5ce7364c5c6a96b5472d34c0750f40d827dbf10872d3c807b77aaf996088acc118da6703b23bf64786b	2969891
36	add data limits	2026-09-10 03:16:51.031832+00	t	\\x19e336460b76a79bcb2ff9ebd3b6df22d7d8cec11ece70303967f009bc9d05af3f0d596039ed1cb31f2493506a5a60d6	1007622
37	create failed requests	2026-09-10 03:16:51.035866+00	t	\\x4f31f911664271a7bb6636108d2570b432b76ebceb0aeb339850eeaa8bbf31caee42abfebc77ee855cc67da91e8fbaf4	52204806
38	create traffic hours	2026-09-10 03:16:51.095634+00	t	\\x3959ae6df378db59b4da52b6a438ed3719965b2817075f55f961a6d0c8d47a6cd5d3dbc9ac56e33aba339aa60b1ddb9a	55979846
39	create content logs	2026-09-10 03:16:51.159822+00	t	\\x005c26da32c386da598f64694eb092643f85b63bf413117bfb0e458303941770e052f8bc8c4883ea5778a9daf5bdd2a8	47997195
40	add checkout success url	2026-09-10 03:16:51.22363+00	t	\\x32a96d92c5f901f820b8c5758b2f63ec2abfc47e20f2527117570dca19bc352d7a4a00746d29455b851069f58fcb1e40	15983599
41	add component to failed requests	2026-09-10 03:16:51.239925+00	t	\\xa1839b2a33d66ff1e4c7a58d1dc6faa6ec63fefaa2976e19e520faaaf899b35166f2724a35367b6d0fd9ada0a49ed770	725015
42	create catalog layers	2026-09-10 03:16:51.259633+00	t	\\x6857c38378e6efd1ce443ca488c635300e0fb9a3a5da03bea3364c7d32c46736bfc1316e7ad23ea8bac244f78ea83285	40097574
43	add notices by kind	2026-09-10 03:16:51.311648+00	t	\\xff54e6b261e11884e30c0ab70bcb0679f7d1789d97be3377b86167ac78a2998f232a300c775066efa57983ed4c147e27	31058165
\.


--
-- Data for Name: account_entries; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.account_entries (account_id, sequence, number) FROM stdin;
dev	1	1
usr_01a08951993f741585c520e1ed44de81	1	2
usr_01a08951993f741585c520e1ed44de81	2	3
usr_01a08951993f741585c520e1ed44de81	3	4
usr_01a08951993f741585c520e1ed44de81	4	5
usr_01a08951993f741585c520e1ed44de81	5	6
usr_01a08951993f741585c520e1ed44de81	6	7
usr_01a08951993f741585c520e1ed44de81	7	8
usr_01a08951993f741585c520e1ed44de81	8	10
usr_01a08951993f741585c520e1ed44de81	9	11
usr_01a08951993f741585c520e1ed44de81	10	12
usr_01a08951993f741585c520e1ed44de81	11	13
usr_01a08951993f741585c520e1ed44de81	12	14
dev	2	15
dev	3	16
usr_01a08951993f741585c520e1ed44de81	13	17
usr_01a08951993f741585c520e1ed44de81	14	18
usr_01a215db5329725e9f714a336a1d82cc	1	19
usr_01a08951993f741585c520e1ed44de81	15	20
usr_01a08951993f741585c520e1ed44de81	16	21
usr_01a08951993f741585c520e1ed44de81	17	22
usr_01a08951993f741585c520e1ed44de81	18	23
usr_01a08951993f741585c520e1ed44de81	19	24
usr_01a08951993f741585c520e1ed44de81	20	25
usr_01a08951993f741585c520e1ed44de81	21	26
usr_01a08951993f741585c520e1ed44de81	22	27
usr_01a08951993f741585c520e1ed44de81	23	29
usr_01a08951993f741585c520e1ed44de81	24	30
usr_01a08951993f741585c520e1ed44de81	25	31
usr_01a08951993f741585c520e1ed44de81	26	32
usr_01a08951993f741585c520e1ed44de81	27	33
usr_01a08951993f741585c520e1ed44de81	28	34
usr_01a08951993f741585c520e1ed44de81	29	35
usr_01a08951993f741585c520e1ed44de81	30	36
usr_01a08951993f741585c520e1ed44de81	31	37
usr_01a08951993f741585c520e1ed44de81	32	38
usr_01a08951993f741585c520e1ed44de81	33	39
usr_01a08951993f741585c520e1ed44de81	34	40
\.


--
-- Data for Name: accounts; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.accounts (id, created_at, plan, period_start, period_end, period_number, plan_credits, top_up_credits, plan_held, top_up_held, entries, payment_customer_id, payment_subscription_id, owed, cancelled_at, low_below, low_since, budgets, budget_alert_at) FROM stdin;
usr_01a215db5329725e9f714a336a1d82cc	1795663024936	guru	1795663025290	1798255025290	1	10000000000	0	2606381800	0	1	\N	\N	0	\N	\N	\N	\N	\N
usr_01a08951993f741585c520e1ed44de81	1789010221368	guru	1795663025115	1798255025115	2	9992639360	1262500000	2404618860	0	34	\N	\N	0	\N	\N	\N	\N	\N
dev	1789010220978	pro	1795663023703	1798255023703	2	55000000000	0	0	0	3	\N	\N	0	\N	\N	\N	\N	\N
\.


--
-- Data for Name: active_accounts; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.active_accounts (month, account_id) FROM stdin;
2026-09	usr_01a08951993f741585c520e1ed44de81
2026-11	usr_01a08951993f741585c520e1ed44de81
\.


--
-- Data for Name: api_key_hashes; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.api_key_hashes (hash, key_id) FROM stdin;
dba1896e70e338632923bb2906836619b2421f2a7be5539f6b8ad63c47df2430	key_0946c432d998d139
63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	key_5a6178aa774814da
e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	key_52afbb6b77d4bbe2
86a245be3cb537ef46d347d61ea86171fece80f96f2c6225b21403209315e7c2	key_a6ccc4aa2d62a3f1
f4ba33fb6d6c9df081eeec4c1db95de0db78d24b80e96bbf573c2cce3194d51d	key_56769aad2ed91dea
\.


--
-- Data for Name: api_key_peppers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.api_key_peppers (version, fingerprint) FROM stdin;
1	\\x5e0d5d4033ce3b48c78698e03a87084d
\.


--
-- Data for Name: api_keys; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.api_keys (id, user_id, name, prefix, hash, pepper_version, created_at, expires_at, disabled_at, last_used_at, models, holder_id, project_id, filter_options, data_limits, content_log) FROM stdin;
key_5a6178aa774814da	usr_01a08951993f741585c520e1ed44de81	key of 2026-09	inf_WmF4qn	\\x63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	1	1789010221392	1796786221392	\N	\N	\N	\N	\N	\N	\N	0
key_0946c432d998d139	dev	development	inf_CUbEMt	\\xdba1896e70e338632923bb2906836619b2421f2a7be5539f6b8ad63c47df2430	1	1789010220978	1803439023691	\N	\N	\N	\N	\N	\N	\N	0
key_52afbb6b77d4bbe2	usr_01a08951993f741585c520e1ed44de81	key of 2026-11	inf_Uq-7a3	\\xe6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	1	1795663024142	1803439024142	\N	\N	\N	\N	\N	\N	\N	0
key_a6ccc4aa2d62a3f1	org_01a215db55647430a9bc47679f154083	of the organisation	inf_pszEqi	\\x86a245be3cb537ef46d347d61ea86171fece80f96f2c6225b21403209315e7c2	1	1795663025513	1803439025513	\N	\N	\N	usr_01a08951993f741585c520e1ed44de81	\N	\N	\N	0
key_56769aad2ed91dea	usr_01a215db5329725e9f714a336a1d82cc	bob	inf_VnaarS	\\xf4ba33fb6d6c9df081eeec4c1db95de0db78d24b80e96bbf573c2cce3194d51d	1	1795663026165	1803439026165	\N	\N	\N	\N	\N	\N	\N	0
\.


--
-- Data for Name: archived_totals; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.archived_totals (account_id, key_id, since, spent) FROM stdin;
\.


--
-- Data for Name: audit_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.audit_events (number, at, count, kind, actor, method, reason, user_id, key_id) FROM stdin;
1	1789010220990	1	api_key.created	\N	\N	\N	dev	key_0946c432d998d139
2	1789010221397	1	api_key.created	user:usr_01a08951993f741585c520e1ed44de81	\N	\N	usr_01a08951993f741585c520e1ed44de81	key_5a6178aa774814da
3	1789010221631	1	user.plan_set	local:0	\N	guru	usr_01a08951993f741585c520e1ed44de81	\N
4	1789010221751	1	user.topped_up	local:0	\N	1000	usr_01a08951993f741585c520e1ed44de81	\N
5	1795663024155	1	api_key.created	user:usr_01a08951993f741585c520e1ed44de81	\N	\N	usr_01a08951993f741585c520e1ed44de81	key_52afbb6b77d4bbe2
6	1795663025127	1	user.plan_set	local:0	\N	guru	usr_01a08951993f741585c520e1ed44de81	\N
7	1795663025296	1	user.plan_set	local:0	\N	guru	usr_01a215db5329725e9f714a336a1d82cc	\N
8	1795663025359	1	voucher.created	local:0	\N	vou_01a215db54bd75a48d73b65ab9ce5b75: 250 credits, 5 uses, until 2027-02-24T03:17:05.342Z	\N	\N
9	1795663025385	1	voucher.redeemed	user:usr_01a08951993f741585c520e1ed44de81	\N	vou_01a215db54bd75a48d73b65ab9ce5b75	usr_01a08951993f741585c520e1ed44de81	\N
10	1795663025498	1	user.adjusted	local:0	\N	12.5 bought: a correction	usr_01a08951993f741585c520e1ed44de81	\N
11	1795663025510	1	organisation.created	user:usr_01a08951993f741585c520e1ed44de81	\N	Story	org_01a215db55647430a9bc47679f154083	\N
12	1795663025515	1	api_key.created	user:usr_01a08951993f741585c520e1ed44de81	\N	\N	org_01a215db55647430a9bc47679f154083	key_a6ccc4aa2d62a3f1
13	1795663026176	1	api_key.created	user:usr_01a215db5329725e9f714a336a1d82cc	\N	\N	usr_01a215db5329725e9f714a336a1d82cc	key_56769aad2ed91dea
\.


--
-- Data for Name: auto_top_up_charges; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.auto_top_up_charges (id, user_id, tier, created_at, boot_id, claimed_until, payment_id, attempts, ended_at, outcome, error) FROM stdin;
\.


--
-- Data for Name: auto_top_ups; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.auto_top_ups (user_id, enabled_at, tier, threshold, cooldown_until, changed_at) FROM stdin;
\.


--
-- Data for Name: blocks; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blocks (account_id, boot_id, parts, top_up_only, period_start, period_number, plan_reserved, top_up_reserved, used_at, called_at) FROM stdin;
usr_01a08951993f741585c520e1ed44de81	boot_01a215db4df470aa9e5fc3f2e19b3b2c		0	1795663025115	2	2384618860	0	1795663025696	\N
usr_01a215db5329725e9f714a336a1d82cc	boot_01a215db4df470aa9e5fc3f2e19b3b2c		0	1795663025290	1	2464539400	0	1795663026186	\N
\.


--
-- Data for Name: canary_samples; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.canary_samples (slot, canary_number, digest, account_group, measure, requests, total, squares) FROM stdin;
\.


--
-- Data for Name: catalog_layers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.catalog_layers (version, contents, created_at, created_by, summary, changes) FROM stdin;
\.


--
-- Data for Name: content_logs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.content_logs (request_id, at, account_id, user_id, key_id, for_organisation, content) FROM stdin;
\.


--
-- Data for Name: directory_members; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.directory_members (group_id, user_id) FROM stdin;
\.


--
-- Data for Name: directory_resources; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.directory_resources (id, kind, issuer, name, external_id, document, created_at, updated_at) FROM stdin;
\.


--
-- Data for Name: entries; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.entries (number, account_id, sequence, at, kind, plan_delta, top_up_delta, overrun, period_start, operation_id, operation, hold_id, request_id, parent_id, source, source_id, model, amount, provider, adapter_digest, requests, tokens_input, tokens_cache_read, tokens_cache_write, tokens_output, images, provider_cost, latency_ms, estimated_at, owed, budget_key, attempts) FROM stdin;
1	dev	1	1789010220994	grant	55000000000	0	0	1789010220993	op_01a0895197c07353a45f65e5c4469b96	{"grant":{"id":"op_01a0895197c07353a45f65e5c4469b96","plan":"pro","period":{"start":1789010220993,"end":1791602220993},"credits":55000}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
2	usr_01a08951993f741585c520e1ed44de81	1	1789010221610	grant	10000000000	0	0	1789010221604	op_01a089519a1f7293b408776ccf900710	{"grant":{"id":"op_01a089519a1f7293b408776ccf900710","plan":"guru","period":{"start":1789010221604,"end":1791602221604},"credits":10000}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
3	usr_01a08951993f741585c520e1ed44de81	2	1789010221746	top_up	0	1000000000	0	1789010221604	op_01a089519ab17706967fe4eae066c901	{"top_up":{"id":"op_01a089519ab17706967fe4eae066c901","credits":1000}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
4	usr_01a08951993f741585c520e1ed44de81	3	1789010221791	settlement	-9800	0	0	1789010221604	\N	\N	hold_01a089519ac174b583f55eb097e10c10	req_01a089519ac174b583f55eb097e10c10	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	22	\N	0	\N	1
5	usr_01a08951993f741585c520e1ed44de81	4	1789010221806	settlement	-9800	0	0	1789010221604	\N	\N	hold_01a089519ae97716bdebdd3a09750150	req_01a089519ae97716bdebdd3a09750150	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	0	\N	0	\N	1
6	usr_01a08951993f741585c520e1ed44de81	5	1789010221826	settlement	-9800	0	0	1789010221604	\N	\N	hold_01a089519afd759bbd594aba9d274066	req_01a089519afd759bbd594aba9d274066	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	0	\N	0	\N	1
7	usr_01a08951993f741585c520e1ed44de81	6	1789010221837	settlement	-9800	0	0	1789010221604	\N	\N	hold_01a089519b0876a19d0c8ab995273143	req_01a089519b0876a19d0c8ab995273143	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	0	\N	0	\N	1
8	usr_01a08951993f741585c520e1ed44de81	7	1789010221871	settlement	-9800	0	0	1789010221604	\N	\N	hold_01a089519b17753db5f73cb36a5bfe17	req_01a089519b17753db5f73cb36a5bfe17	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	19	\N	0	\N	1
10	usr_01a08951993f741585c520e1ed44de81	8	1789010221884	settlement	-1610000	0	0	1789010221604	\N	\N	hold_01a089519b3973bdbec78510d21442fc	req_01a089519b3973bdbec78510d21442fc	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo-image	1610000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	64	1	1000000	0	\N	0	\N	1
11	usr_01a08951993f741585c520e1ed44de81	9	1789010221921	settlement	-560	0	0	1789010221604	\N	\N	hold_01a089519b5c7123a2525972a7f9b7af	req_01a089519b5c7123a2525972a7f9b7af	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo-embedding	14840	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	4	0	0	0	3	400	0	\N	0	\N	1
12	usr_01a08951993f741585c520e1ed44de81	10	1789010221936	settlement	-1400000	0	0	1789010221604	\N	\N	hold_01a089519b6c72e59fdd28ff273d5456	req_01a089519b6c72e59fdd28ff273d5456	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo-rerank	1400000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	4	0	0	0	1	1000000	0	\N	0	\N	1
13	usr_01a08951993f741585c520e1ed44de81	11	1789010221945	settlement	-280	0	0	1789010221604	\N	\N	hold_01a089519b7575139b87abffc6c73911	req_01a089519b7575139b87abffc6c73911	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo-moderation	9800	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	0	2	200	0	\N	0	\N	1
14	usr_01a08951993f741585c520e1ed44de81	12	1789010221954	settlement	-7000	0	0	1789010221604	\N	\N	hold_01a089519b7f766f8e55cbf01584b078	req_01a089519b7f766f8e55cbf01584b078	\N	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	demo-speech	7000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	5	0	0	0	1	5000	0	\N	0	\N	1
15	dev	2	1795663023707	lapse	-55000000000	0	0	1789010220993	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
16	dev	3	1795663023707	grant	55000000000	0	0	1795663023703	op_01a215db4e567572bb401984a6d3840a	{"grant":{"id":"op_01a215db4e567572bb401984a6d3840a","plan":"pro","period":{"start":1795663023703,"end":1798255023703},"credits":55000}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
17	usr_01a08951993f741585c520e1ed44de81	13	1795663025112	lapse	-9996933160	0	0	1789010221604	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
18	usr_01a08951993f741585c520e1ed44de81	14	1795663025112	grant	10000000000	0	0	1795663025115	op_01a215db53d772c196afb1b4f2539a53	{"grant":{"id":"op_01a215db53d772c196afb1b4f2539a53","plan":"guru","period":{"start":1795663025115,"end":1798255025115},"credits":10000}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
19	usr_01a215db5329725e9f714a336a1d82cc	1	1795663025291	grant	10000000000	0	0	1795663025290	op_01a215db548a76838c7941573a82657b	{"grant":{"id":"op_01a215db548a76838c7941573a82657b","plan":"guru","period":{"start":1795663025290,"end":1798255025290},"credits":10000}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
20	usr_01a08951993f741585c520e1ed44de81	15	1795663025377	top_up	0	250000000	0	1795663025115	voucher:vou_01a215db54bd75a48d73b65ab9ce5b75:usr_01a08951993f741585c520e1ed44de81	{"top_up":{"id":"voucher:vou_01a215db54bd75a48d73b65ab9ce5b75:usr_01a08951993f741585c520e1ed44de81","credits":250}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
21	usr_01a08951993f741585c520e1ed44de81	16	1795663025482	top_up	0	12500000	0	1795663025115	adjust:t-1	{"adjust":{"id":"adjust:t-1","way":"give","pool":"top_up","credits":12.5,"reason":"a correction","actor":"local:0"}}	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
22	usr_01a08951993f741585c520e1ed44de81	17	1795663025538	settlement	-9800	0	0	1795663025115	\N	\N	hold_01a215db556d71c2941ec65193037ed2	req_01a215db556d71c2941ec65193037ed2	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	16	\N	0	\N	1
25	usr_01a08951993f741585c520e1ed44de81	20	1795663025566	settlement	-9800	0	0	1795663025115	\N	\N	hold_01a215db559971feade0510b166d02d6	req_01a215db559971feade0510b166d02d6	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	0	\N	0	\N	1
26	usr_01a08951993f741585c520e1ed44de81	21	1795663025600	settlement	-9800	0	0	1795663025115	\N	\N	hold_01a215db55a670b79c77e2ce2a2f02cd	req_01a215db55a670b79c77e2ce2a2f02cd	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	23	\N	0	\N	1
29	usr_01a08951993f741585c520e1ed44de81	23	1795663025636	settlement	-560	0	0	1795663025115	\N	\N	hold_01a215db55e173a382748e889aee2cea	req_01a215db55e173a382748e889aee2cea	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo-embedding	14840	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	4	0	0	0	3	400	0	\N	0	\N	1
35	usr_01a08951993f741585c520e1ed44de81	29	1795663025874	settlement	-954100	0	0	1795663025115	\N	\N	hold_01a215db56c473959b19dd1be7667ab6	req_01a215db56c473959b19dd1be7667ab6	hold_01a215db564576ceb067271e9f2ec59a	agent	01a215db562c77968fff100c0f4ef6be	demo	11365200	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	604	0	0	253	0	681500	8	\N	0	\N	1
36	usr_01a08951993f741585c520e1ed44de81	30	1795663025908	release	0	0	0	1795663025115	\N	\N	hold_01a215db564576ceb067271e9f2ec59a	01a215db562c77968fff100c0f4ef6be	\N	agent	01a215db562c77968fff100c0f4ef6be	swarm	20000000	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
23	usr_01a08951993f741585c520e1ed44de81	18	1795663025548	settlement	-9800	0	0	1795663025115	\N	\N	hold_01a215db55887412848ae3a663337d0d	req_01a215db55887412848ae3a663337d0d	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	1	\N	0	\N	1
27	usr_01a08951993f741585c520e1ed44de81	22	1795663025621	settlement	-1610000	0	0	1795663025115	\N	\N	hold_01a215db55d170a7a9158ec945019020	req_01a215db55d170a7a9158ec945019020	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo-image	1610000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	64	1	1000000	0	\N	0	\N	1
30	usr_01a08951993f741585c520e1ed44de81	24	1795663025661	settlement	-1400000	0	0	1795663025115	\N	\N	hold_01a215db55f9743895704f38caf74496	req_01a215db55f9743895704f38caf74496	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo-rerank	1400000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	4	0	0	0	1	1000000	1	\N	0	\N	1
32	usr_01a08951993f741585c520e1ed44de81	26	1795663025696	settlement	-7000	0	0	1795663025115	\N	\N	hold_01a215db561d75e48bc4c9e8bbc32706	req_01a215db561d75e48bc4c9e8bbc32706	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo-speech	7000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	5	0	0	0	1	5000	0	\N	0	\N	1
33	usr_01a08951993f741585c520e1ed44de81	27	1795663025777	settlement	-265300	0	0	1795663025115	\N	\N	hold_01a215db566472919be751aebe1d43d1	req_01a215db566472919be751aebe1d43d1	hold_01a215db564576ceb067271e9f2ec59a	agent	01a215db562c77968fff100c0f4ef6be	demo	10654000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	349	0	0	10	0	189500	5	\N	0	\N	1
34	usr_01a08951993f741585c520e1ed44de81	28	1795663025826	settlement	-927500	0	0	1795663025115	\N	\N	hold_01a215db569477a799ac9d16126be4f4	req_01a215db569477a799ac9d16126be4f4	hold_01a215db564576ceb067271e9f2ec59a	agent	01a215db562c77968fff100c0f4ef6be	demo	11398800	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	599	0	0	242	0	662500	8	\N	0	\N	1
39	usr_01a08951993f741585c520e1ed44de81	33	1795663026103	settlement	-954100	0	0	1795663025115	\N	\N	hold_01a215db57a272398ed201ef0fb2c06e	req_01a215db57a272398ed201ef0fb2c06e	hold_01a215db5717702d803704c169486a4d	agent	01a215db5706704b8f8b70f81b153eea	demo	11365200	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	604	0	0	253	0	681500	15	\N	0	\N	1
40	usr_01a08951993f741585c520e1ed44de81	34	1795663026122	release	0	0	0	1795663025115	\N	\N	hold_01a215db5717702d803704c169486a4d	01a215db5706704b8f8b70f81b153eea	\N	agent	01a215db5706704b8f8b70f81b153eea	swarm	20000000	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	\N	0	\N	\N
24	usr_01a08951993f741585c520e1ed44de81	19	1795663025556	settlement	-9800	0	0	1795663025115	\N	\N	hold_01a215db559076f79c15389505131d04	req_01a215db559076f79c15389505131d04	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo	34566000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	4	0	7000	0	\N	0	\N	1
31	usr_01a08951993f741585c520e1ed44de81	25	1795663025670	settlement	-280	0	0	1795663025115	\N	\N	hold_01a215db5602759eabdaab140327b884	req_01a215db5602759eabdaab140327b884	\N	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	demo-moderation	9800	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	2	0	0	0	2	200	0	\N	0	\N	1
37	usr_01a08951993f741585c520e1ed44de81	31	1795663026002	settlement	-265300	0	0	1795663025115	\N	\N	hold_01a215db573d7282ac98fc9cbf984847	req_01a215db573d7282ac98fc9cbf984847	hold_01a215db5717702d803704c169486a4d	agent	01a215db5706704b8f8b70f81b153eea	demo	10654000	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	349	0	0	10	0	189500	16	\N	0	\N	1
38	usr_01a08951993f741585c520e1ed44de81	32	1795663026044	settlement	-927500	0	0	1795663025115	\N	\N	hold_01a215db577271d389d674aa3085c093	req_01a215db577271d389d674aa3085c093	hold_01a215db5717702d803704c169486a4d	agent	01a215db5706704b8f8b70f81b153eea	demo	11398800	demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	1	599	0	0	242	0	662500	4	\N	0	\N	1
\.


--
-- Data for Name: entries_archived; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.entries_archived (number, day) FROM stdin;
0	0
\.


--
-- Data for Name: entries_folded; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.entries_folded (number) FROM stdin;
40
\.


--
-- Data for Name: entries_verified; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.entries_verified (number, day, day_number) FROM stdin;
0	1795651200000	0
\.


--
-- Data for Name: expiring_values; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.expiring_values (name, version, value, expires_at) FROM stdin;
session:36:usr_01a08951993f741585c520e1ed44de81:story	-8996163010633335762	\\x000001a216124424010000000122b59b06fadba7d1006eb771a09610be31e1ccdbf8349aab832a5155fea05b95bc5b879f6f320674012d51aaa6dd6b23156de0885d3dfd20795d56e07fba32c05be28728e7e22092a6a0dd5b8ff5d7622b15637da6264dfbb9a4702810454814f46bc3d4c00ba5fc17d20696d5fff83cb52571d99013430ed262c0fb5f547d273cd32ab1b305e6d87f3d49732389fd4f72aacfc43c07c2720f80237f769536e4edf4eadf172ae4b82ce8069e4bb26afb7239e266c5d5a558c204944633ade83f3784457a80aead648c5bab7a1a8a85b39061bf45775621628d98bd30392ea31c927cfc9f74af81f2b7981dc97f321ea3b7697a4fe2012cfa2807488f54e857f77b9caa97b16f39d40a6f35edaa8ab0e0870379726ea6379d6c858d5d7938010a3fe17e4d9c814edd1ee212bc2bf6ceaa2c4298ccece9744f01db7ec61e97a6fac24116137a67e8ef6972b52a80962aa8a5f65b42b2e9c642e2c78e9b3cd66b1b890ae3681f58940155191b822a2fffc91548b2576c2780ed4545bb413a9635917f2e37ad	1795666625572
\.


--
-- Data for Name: failed_requests; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.failed_requests (request_id, at, account_id, user_id, key_id, project_id, model, provider, earlier, code, status, latency_ms, attempts, trace_id, adapter_digest) FROM stdin;
req_01a215db585870e388dcaaa412f51c58	1795663026276	usr_01a08951993f741585c520e1ed44de81	usr_01a08951993f741585c520e1ed44de81	key_52afbb6b77d4bbe2	\N	slow	\N	\N	QUOTA_EXCEEDED	429	11	0	\N	\N
\.


--
-- Data for Name: holds; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.holds (id, account_id, request_id, boot_id, parent_id, source, source_id, model, amount, opened_at, period_start, period_number, expired_at, plan_reserved, top_up_reserved, checkpoint, plan_posted, top_up_posted, overrun, usage, budget_key, top_up_only_at) FROM stdin;
hold_01a215db580775d0bc5b894d310ba049	usr_01a215db5329725e9f714a336a1d82cc	req_01a215db580775d0bc5b894d310ba049	boot_01a215db4df470aa9e5fc3f2e19b3b2c	\N	api_key	f4ba33fb6d6c9df081eeec4c1db95de0db78d24b80e96bbf573c2cce3194d51d	slow	141842400	1795663026186	1795663025290	1	\N	141842400	0	0	0	0	0	\N	\N	\N
hold_01a215db586974058cfbdd54c943bd94	usr_01a08951993f741585c520e1ed44de81	req_01a215db586974058cfbdd54c943bd94	boot_01a215db4df470aa9e5fc3f2e19b3b2c	hold_01a215db583976cb84868dea3bf0b9e4	agent	01a215db582073d490a6a41e405242bd	slow	19992000	1795663026285	1795663025115	2	\N	19992000	0	0	0	0	0	\N	\N	\N
hold_01a215db583976cb84868dea3bf0b9e4	usr_01a08951993f741585c520e1ed44de81	01a215db582073d490a6a41e405242bd	boot_01a215db4df470aa9e5fc3f2e19b3b2c	\N	agent	01a215db582073d490a6a41e405242bd	swarm	20000000	1795663026236	1795663025115	2	\N	8000	0	0	0	0	0	\N	\N	\N
\.


--
-- Data for Name: idempotency_keys; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.idempotency_keys (account_id, key, request_digest, request_id, hold_id, boot_id, created_at, expires_at, completed_at, answer) FROM stdin;
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db5706704b8f8b70f81b153eea:0:1	\\xd17a645501a587411bb8389c73b86e515a3cb6544091b46a0417e5fdf163cb20	req_01a215db573d7282ac98fc9cbf984847	hold_01a215db573d7282ac98fc9cbf984847	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663025985	1795749425985	1795663026002	\\x0100000001be5c171cc88cf4720f432e6da812275a6111d8bbe3d7c93e04fae8a32e9b518ddf676fa39f25c43dd5ec684fb9bd89e5a28d0f33746b980b7f99f552f9891a2b275f49519e55deac75bfdf6150064d46a64c5f8672b904aceec8cc16fe96ea3d2987ea9d7ed76e1459b84392c4f763c3ed702e67d71226233aa3943dbc5682a1e563c7bf9116a4ed54978435e5c63d80a5807e392d4235c7179d1137582f5951e2de8bafea3f5a76990c50691b287de33a484ea29409d5156fc65bf0dfb8439b15b46fd2f79f9f29dea48c3001af3bb0820f7a0bc41d4b9a7bbe1d065908912ede9068dda394c116df15ecf9eedc50bf160e73ecaee41be846331c0e63c0615e9d7bfa44e215cc4954e7cb17f8c414637ef02dc316dc1540b48a1a8b8c39f3ec384b3784388a1964fe4c7831103f250d27fa70d0ec44df42d3c3f20efbf597ca82ef1543466024046be037bf17778e044e003a84156de0417cded9b564c1436cf9962c8b50510f3e28b4fe6d39c7676598795eed6fb894ff12022e8aabe147c3cb0cbfc791404df4a92f0533fd2aa4db84a75f0e6100b9e8416c194fb60d53c9aa7f7883c71500d7786e4fc29e3e95f6edbe27b7533ffc3016f78b2cb2c84a2440ba7cac8c20bb20fa4814d1996c989a22741f6126bfd443fc54247b775c1844b9ba9ee10e4744f1a60b5e4fa32c82fca3aca4da59eca6bd7a31c8eeb975fd852a79ef9ea993dacd81e773ebb4c0c3e2f4091f5a867a4bf0de2fe8acfcdfa5229d7d7a956cdfc04bc139c190fe6ee554f6b60bcff3514cc5f3dc63cfd4280bb9d801b0562451180b608e1a1a464b210d509d3a01f39a011032337f5d076d
usr_01a08951993f741585c520e1ed44de81	once	\\xb0b864aa877ddb3a68e8527a2f506f1e595f8af69a1bf3d7529d2f749d8c6a53	req_01a215db55a670b79c77e2ce2a2f02cd	hold_01a215db55a670b79c77e2ce2a2f02cd	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663025577	1795749425577	1795663025600	\\x01000000010eda23be7edae12705fd269260b7c656189e1906a7c878016f6781c215fb9294b7c84ec7aa1b5760769d139cce340b80335b86fc1a9291d5e465b73f5554dfd5486bf4b8da63a47c38c1a530b98893fc88936f6ed070acdec37e85463778aae7865bdee976ceab75bf1ba0fa03fe81223f3f66f03791846106865ae398b74a123bebe5c16bfc82358dfc886202463216a086c0f6427f075c5b58008c956e41f3389a5db67fbdff2aac450eea1d76887984c75c051215477656fa72f02292cb509e8943dc1b69c9ce452c863dd3d73625283c24ac277c108370a0badda0febc7fc063af251a0df49793853c78c469b897061feac565eff225e4f819743d7e777dacb24749adca07515decca9838c02319084cece7d3579bb1e250a68a66445583ee61cb59e85ca64c3f261a267699098b86d18e3541963939a107a9709f2a45753c4b91cb822b0e0996ef464b2bc5a1f534b566b98972388464e51579178fa2ec1a818398658b029395ae0f4e5ccba8bec19cf72b8ddadbd8188c1ad77826cbbc5a150cfca073029322891f9d6fcd710dbb240a84827bf8f359d73c949c23ff3e2c5e513d24c6a0bf98725c51a76dff6654837772555aa93f4f44696d5063b9f4897bb29b906edc335a8ca1e7af2f3843bf2da345f495
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db562c77968fff100c0f4ef6be:0:1	\\xb7584f3a3b360b193a63c0a1f106a64033b870c11b5cbac9b8254a7fd15537fe	req_01a215db566472919be751aebe1d43d1	hold_01a215db566472919be751aebe1d43d1	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663025771	1795749425771	1795663025777	\\x01000000010ea38826abb037ccca6353e2ff3b117de6e53871c8936fd5e48c45927e5bffef6cf2ee847d95d4e8d617583fb253b905cf21706f9bc7ca9886e3c6118d39c1b8e438b677d18822ee117fd9967f368fb064dc698d3334587f3359b5742047d0ed18964fed231ccad9801b8c6208ff7cdf4404b07333270b72cd82f42cf6868b48a239fa2e362c220fd0378bfbe5c138b97565f4eb52cf03a670b0f28da96550d92fb68d846f15135c52976adcfc3884790f1bfcb526ea0f508bce39903c54372c7bffe7eb8599271a3e41d1a439a70f011cd847a14b532a381c16c5db66d5637b5aa8dca08360ba6af8d0b53a69fd299edac31be3404ceaf10caa0b85cc39dd95f0e9795c52acf15ee855c1767edf46dcce3a33e04c77ad29477232571c8baedef934857c2f9be6cc9dad6d8ff233c04bba7f503413cfbf209344f1537830b94d3be04862eb0aba9f9815e01830e2cee435d67f17c9d6fd7a5d6359272014e17adfc2ad8e84467d9368390f07e3e10e375d7cc3f1cdc8bb397bb0ec3cda9ac18ec3789e82d60795da6dfd20e3993d1eab5533ce87a8111b6a31ffe7c2a2539bd80a9e17370ae96e24df12b2306902467e6e018fbe7d4777212f8adac2b53f8beed47c9dcdf80cfd9398c424e0529088e69d9d2a4eb22db04d5c43aed62f9039599d188874e343160e3fd1d06bb184c8d8a166d0cce7799da731a8a3e11353b4459d7f834afb1616d5947082d32486aa31dc2d8b21f02e817dcdfc98999777f31d31721c27195404d78d86047c93f8dc785bcbad12e006b5f73824c611b6f3cce9bd98b2b923cc3163ebe13f28b53cea924671b4aa0f2b42349ee7b5d7f7a5
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db562c77968fff100c0f4ef6be:0:2	\\x101aaa040172a79594d158ff59ebc3d5b099a8f64adfa92ce5510529d8a612dc	req_01a215db569477a799ac9d16126be4f4	hold_01a215db569477a799ac9d16126be4f4	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663025817	1795749425817	1795663025826	\\x01000000016769af50f58d98bb65950760106070e13aae65a07172ee93f466360916af8089e0f224eeb575b05fddfb34cab9a06873c953ab6c071336de9cc76848c9a665eb4f969a12154f229b2a239853bc400fbb3dfdb39a8a8cf79f4ca5691bf5cc1978e16c50fb59fc6646834e9aa07510503950cfcda220b0e13f27dafacfa92e8daf08fa4fa8a966c7d85e6ab12a1f7bc7253cf74618209e74bef7c251bec2707e1cc74e2203c5ac26d097e0979f61c3dafcbfac03d378c71db56d9bd915b31bd64e931288ebc860334d63486b50e19eaa382f7191d9a631f372dad0eef86a6f455508cd616bca79916266e7e251b85332bba876af5c8700df60a01c94dd224cc3207f71d11f2dd3a9f53d23581681ac99fab2fcc00471c4a8e2f03268b5819915fe81e18caccfdf8977238f20cc30ae8f191d21077b17c1dde1262fd0418a2d95de7204093040725b3719f2ec2513e2cd4df4f2bc21ff1ee538eb64b8a1e17fb5fcab743738c97f288d0bf2446ba7682b445515914ff35a6edc7b4d317fda5497326fb62f2380c13afefc0009ef00c1999bcf9f546f94a5d40ac05f83f44c31063918f1d067d39408a58774f8ae89dd8e5208f7c5515a3c801b5b01bd0a394d4e093f5e8245f336070994109012c0733678322f34ac584fa267f5de60908e1ed447e878f129f5419f3b09c5c40c47003b631d11ecc97d10809bea1a6d3fff4680001f48026618d1538d61d3b07c762d4012179a16ff943257812849767c3497abe5778bb3b1e4e4ca3426309d74e848be306031648cff89e1393f2532a9aec1923a68c84fc2566bcda7b8240a4cd86c9be148659910f69490fd5f8809e2bc3a94351e7acd0fac3e6bb719e4ecd5267e1a30503608fcbd0b603db0714fe97ed2b65294fe843dade34d04146ac24c5e672a872021ba8f363aee47ada02fa08b3573a9f309e8334b64e2a13c07ef548a72f3f4a2b29ef5912a0c5e5d0173e3235876a3e5e6a50c4f0b282db525a340eddd6085f59206b2a51194c74cb8abba1827dc5b7a08c139f59d85bf77a4fe73a4d60c2da7911bd8e1007db06a3002a121f7599ebaf85b56a65e66cc0eb74e97d7d264231a35dce891040c4d8c49d96c26ee977898434e4119630311397c03617e297bfc1bebea8b668686a86d2041527984317d7084e0e8d74346848d8e994bf16dc08ebcf9f1820f9b4c47c1d9c71312eba73f6fa9827de26854527a81f979c55ac4463e9409e364379a134e66c5fe807ff4f2ddf6cae013d884ab73af8612b89edc60db2b806bbcc4f982568b902e547377b16a137616173cecf8bb858bd3010df27ccce95a3370a18bc8dee99e3690be47eef9cf3f9d0c1bfdf07b8c596141940ded741f145686e56b775d8c0925ba851a805b330e76d9483c213b5314245006f1cbed70818f8ed959df4eec6f3955518c6028167ed03fa5133780ac1965cc00bcc5a6ed04f95367b99a575db0f9d4dea29348b307964ef4ad8963dd79d64e4a6d9864eab2155125db1b962427f13d8c6d7237a3b0387cc5587ed9c24d62985dfa5c8b738cf75d15592be28ae92c814da55e85c992a9660d73f00bf1a8318cf80eff6332e4b4b59bdd759d72d3a72ce05b0b3f74b446e7e242622ba65966839a250217dd86e8c4dff3ff375946fe559415a7eb2a873e7d4a88d3ec0b7c23e2be04c76165bba0444c6070a62e24e33665a783b93b68d24658a058715b7252be735659e757cf4b54900ea4363450bd36121f299de8f61c85449fa558ea0f6f9775b1c91f1679027b64d87712e177bd9910add00b4064a1e17c7bf4832c7afc6c7105a359035ae780d13728b5b2c5e16f05316105b6aee3d485f3402dff04e7df70a0c95e9bf03dda47c1d68cb2a269b4becb251e5c90a33dd620f83e4c627a2417376f4b943857e06fe561d5693baaf197257d525d0c466716c85f351b9407da03b1326a8abad8c1569601c3bee135ec44f0be1b345d7dd54f7737a0b0d3767a20cb7c60570ca5a5b3fe4b3df9fde2f56ca2d50985c83b0293072a1c0c05ddfdb1d93cbebc44
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db562c77968fff100c0f4ef6be:1:1	\\x157886fb7ea6993ff5c1e132df5b85fd5ac808db9e7ac592394a761f22de2cd3	req_01a215db56c473959b19dd1be7667ab6	hold_01a215db56c473959b19dd1be7667ab6	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663025865	1795749425865	1795663025874	\\x01000000016dc2fcb6a42fcb8f9d0aaf6b333845371486bf2acd8785191f7dd3caa7de0773540faa6d74671b942133086a0552886f359245fd457deb80c5360bdc520fea31f345db627f810c4bebbc989e21840fdbfe1153e75c5e56d3f3042a6a0c744693ed285a044e70350259e88b51caff151bcbb0b27a682033c626f03e49709b3b1e35599c70b9d7805ab149484f06d0d9a7e80b08144a2e4ca391e0f4ca79a731aadaa2117dd502d4b1d36daa9d8c8a21477638d0d3b998e00b8062939fc8c31f924c2a6edc91912f3d794cbfd71c14b471c1a4fa92a2e035515d70ff24543ce4e855e6bb8d05981c158ab484558d3df00e07cf4752163fe423cbbf3ec5d67ee8b4582cf04f17a2bf636efe20e532f8497c635ee2aa57370062bdb4f7036f3fe3f38bd2b24b09fcac58317b913123bcc020544be9400b608b199cce18d074753a24c546d7dfb99b64bf75604505d85e91d2870e943aa1a82e9a793c4fef73b1ed8a64d580f4bc039ae9e71de60462acff2e2a86698081400862a36116f0995aff62559f87b6228172fb6feac3d40fdb2a10bdf63fe76dd8c02019ff139b5dd7438a9689e1353294a9b8ab503eba3984bf14ad19fe8c74965c90aecc4507f37c03c596164f2855199857c5923a7be05eed140e3eed31f72cf0173d73e0d681336d929e62cd13aa415fbd7b019df65a5e9bfd7cec0728c9d3c21eef3b488b150fbc582dfcbeabdd3a1bc17a113a5eca7d820d178bd3b446ef95abc59cb326489da63c0934b76cace46e4770fb377c7d4aa6aee46f050bdf272e93931c5174afecd429e9a907182a4659e843a4d0531c02fac300d88dc5914e52bc890fcfff5bba3684dee1d982ea620a0532aabce73a39615327da1b8af0367b258b344408be7ee1c12af0580979429b3fb1664e685b8bdfe6ad434193ecb24543b03aa07dafbe267fb8ec3d5abef1fc81b91d14cbd8a2a9c30a76e2a92c91f4529061b38406213c4c9d3932e6dbac0e7cfe97053749509ad1fe1edaf62f41cd1a3a6df42b4b9e0910d47da2e4d158d75c3e1cf663069d85a93038261c0bc9582cdc46baaf6097c08daa8bd0e8eade5f1bed2a568f28396926db6039639c36c5f89dca6381bca7356c1b24cfed5989ad0a80516c77a66fcb2f07d3cdb9a14284e11e0004326a17f38895786a6ce4fb4c39c8885b3b51e913bfef33a368cc9ab40bb685fab078f68bdf67ea9b516be627b12bfa944c893516c9b1e57c29edac8fead5841e13c3159600e991c238e557f35da933021587e3f2e0bbd1c164a51047baaa8a1cdcbb3c47c7448c0f7f0aa85fed5fb03b9b98f86c7c9a1ad7d453b965891442c9cf96c32719f9e644d10575fb4b9fbd587933ca0b7749f4cde4d64d946fc46eac592b44bfea699fe689f0dfd2268608e18da3aba44aad2b3cd4153f1fff4ce6995d391525d5c268d06e4ca2af30f6b31f6f3a84ac7b87b426d0b74db9fd37742cbeb4652a9bcf59c0fb1c3b83b3736b8950b691654006fd2aa09e35fc26170c2037b7fca50442e49a040ac4dec805358bd6efc8afc5a3d9d5ff5c2ceb515cd91126a0759ad9564e57e68dd8d06679fe1df28aafe02bd67ef7e89e7a1eb1b6c2c18f3916d971ada646f217593b771e20d74c1c561d1a3245cdf442e0666c52bfecb1334e53cb810c8108e31b32a4aff2190a6012e8d59b6acc15a4a433f5aeb9b85fe5e2121078a74a732a00ca28837ef16141e5e650fdad268b587c63d28298e929d9743d5e6477119388d8239a0694e56bf96a6d258994bbd4715df2be5db8aa003eccc9c393ad206f62ff51c21fcb43e4155a9483d51bc484bccc94ca361126c3380da9b6591d3aa154527a4bf5f9fa4ab3c5f73885174bfc0eba40987aba9e477b5ae1c602f92df8b6a8c14705da64af20d7785d5e86df82efbd66b23d508852ffc6e123689b05959329936e3e16ff3508c4da8716fdaaaa5db262cb10988573da51de24c87729c26bd6b41310f6515f18a01aadf904de09a6c5bf40a2587dea64edae386afc6978290fc14590f420606389196e70283cdf0d42239ef4dd130daded3b81a0d7d29610e86d2d5e66b6a31893b8f9e5790ffbe398e44486af45ad30
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db5706704b8f8b70f81b153eea:0:2	\\x2ee0334ccf9e186c548a7e388d35f60efe988c6af60df3413e797c8a54c80ca3	req_01a215db577271d389d674aa3085c093	hold_01a215db577271d389d674aa3085c093	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663026039	1795749426039	1795663026044	\\x0100000001baed1087b7089db97bfe78ea1198ad7ac9bfd7073767bffd1c7ab18198bc31f1514bb992769b451b3df4f83b42feeee6b6204d9f1625ff1bc17038b3fd1b3f7b6c2a00db051b5420a59ddc94f7522270e6bf0876d9e29f66c38b43ca3d3886d54108a456066640f42265497cd52ddf71df2af67492006ba80eca3d219508c87dfbf4ef6d28eb9e4097646cb055a990dfbee69db62ee731a7689339e70f456fc84dc0126f3746a9f6fb9fa48981772bfeaa2e33fe05968370192de5ff1c0e1918e669d352dd6ab89825f2200090ee259af242d4349f8361d6a7adff6817ecc05a7b66a08ac9b0934d7983c5b0f561921ed6a5edcdf72eebd59e1df8b44f2a5b46ec684a1abc8e4b5fae5e28fc17ecce0b5fdd8cd06ccde468aad408dfd7c9f8212c4ccc42e1d482c0a83b06606de4fc8c2592a19fb02846d5906d668cd6ce40dc14cabb330a6444716852b7a7ea7d1b5cd1064560d41e51954384fe45f9efe87e186bf9a021dce154296d4b1d9d0d40d57af8e1d8d9f0148773d9092232e4367e4f9cbb73b18473dec33d94a426f39fe1fda7376ef4fdc7cd73a9be6eec6b4068509098e19d8fa1bdc15198edddff16b963b71863872a5169ae06c7931a39a629889f68a510ddb2b5c471ad1d2d242ba74ec5a5e9f2f199608facea1319e3f883ead4e532dd936d4d8cedf8872e0c066e02b21b0338703beaa0ae022136f3b3faace6b58266d0351caf5b76c3ed4c998a0d810c9c5ce7b756356218d778ca3fbbfe79894093dcf61af03f07d9dd37b63d4879a4a174e998100433366eddc0615cff93fc448603b40035e98cd7efde972d894a88115e0159d23d2a4590e24125f9f7e24984d48dc84d305b39f696da173aebbb7222aaac14f95437a7abbfb71384bb28a7e42f617c6ea7ac200176743670b0f53f579af646593db6da77961d2c87344662b3b608d7a9e7a92062c81e27c7d8a5abf40825d97a08f52db3e23a8d004a84453b55de1c8eb10d64340627a0df40533cb1db30c008b45dc2c1eaa76fa3662623121ad738eae8d7543b74b8db843d34b1eb9d5e0205e1ca2575ca23eb317b0fe7cd5b7132ccf221c1779a034b38fc23a664da1b347b1de24b9468f732e85de5fd13294f66a6d9eed87cae8ef2e4970b11170e71339e27cf4971cdf02266952ec9baa444aded88506c756db219395ab116903bef63a197ef533524de787f329d1f72053125a4e28e23052918c7bcabcb241ee27907f7d7ea974406413f202655986755dca3182b341afa67d547222af6cd0afe6bdef97e971f678849d4ac96af98d65ec7ba64729930f860acc8d6120886c220b54abe09f26888badce2628d702ba50fef234e1ed117eca8b9b53b546a4af9e47a096d2d9ce8a8a0c9d1f5cc2a99a8fe204d489dfecc276c8385ba95550fd970e00ca6212002cebbd5320bdf74d9c40491715b46aba164ac4b52e6b9acb645f7f5ef9c44f54a96e5395a6008acf30df625f6ad47268f64ebf12ac391f697db0bc03ed39736ee8599dab5212c6ba9abf5fcbc528ec222b339be836b0e2dafe5bde9ff326b2fa3a455654543dcf60eb863e8a7d96f7cabc9931a948d8b65a349df3e7831b141aa7b55c927b107c7d7c984b9a88786fd66ce789ee16d31ff62bdf81f044321d7393ad948a2f6ec03275ccbee0156c4345bb2100a846b1aa2bc10098360749f9c935c1c47102a135e5d05e8ecf478dfc23e89df7ed847976ad062ab28523b0ae057219ec7537027736b206989b20c9a2e130ba697a0deeafc2f8caa7a26f14612e1862a7a0851155d300cbfbe947ab682d2fceeafb5fe8a22e12d17005aa58c9ccc372c0d7249561030006ae66a670389493bc96e9c715a88322ecdce6c194d9eeb918ee5105e11cf723a5b4c4882978e542d84ca6e02352152ee4c920e1e34e210287e87c6b232a3460f2faa91f4d8ea6b84cabd5a7aedc9c244e41f70455c2f4be137bad441ae3c7962492cb5fcb169c7d430a65bdee10177d6c7a05769c420fd155371c4605c6c4fecd2e23bb733df9e8054585d10643f71
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db5706704b8f8b70f81b153eea:1:1	\\x9ec2fa42aa4bc02a32dd430c5f95490b86ad0f6650fe3d35e4224983a17cabbc	req_01a215db57a272398ed201ef0fb2c06e	hold_01a215db57a272398ed201ef0fb2c06e	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663026087	1795749426087	1795663026103	\\x0100000001930371a1f0bd6c7c0d8aca840a9bebd7c230f452f3f26b48f8f1689df8c5760e21b2b37503f094f924030ef5b9d23afb42fe62ed9018833eaa16142a96ee66b3029c5bbb89385e0605c4f5f65d1b3d8a691787836256db9d7cf63744b11c74e407dafc30ee53e566ba18b0b9c316b9766abe7c079bdb5a2f893f873d2cad38042f9359a149c9c6af3d7a590d3763b5f8ab7bcb10222c96a11c6b8d4c9124da034bbee3c6212069cd992378acc4571a29c49e500a6967959a9b316ad981a604ef6dddbe055f2dee4dc45bc22c3876ef101d94a74110956f0e3137ebd21e640966aa9307d4e75a1ba7132ee155709d3f87b4651b4e6c52629339a9fe4350d5a4d1414d293a26fd6e2aeb6c009b64b31cb0da3156aaf907e5bf3ffe48909abbc2595255958b91485443150a9e7e3de8fb2dfce0db0e26ca65bda7804df7ff68bddece4ec28e3cc0afb043317ecf359c67301307026b40181ec1ae8e602ed06cf4c432c48a1ab995813182e5ba7426ea5a5a9882d2fc6478b35a0c794b0957ac01a34147771ec270721add5f1b7edc1a605e3789c099c0a909f0a98b9f2b37428a41e8dd1f8eb301295723eae15c738fbab295196d7866ed20d0d5e44a7acd9d8aff3f21ff81e8e633c03edf31603e7045dfa62743c0de9a682a0febbe7573bd1e6d647fa9bc4912c35d7c2a5e7e2b6fdd1b3d019e4cb6c6df0b4b7fd81f72a131d6b3ecbc7861e40203c5d3f53ce7667c15339ef5495b37ff4066fd58b06f34a8494be383787020abfd7bd76cfce2136b858da1a21b1a0b6336c1073a9371b55df92e534c97233f892c746be8fbd61f65410d472af5e5142556e94dbd4694da329c995719269885cdbc41985123d33f059018443d678d17211f5679d103164216c5a82001dc9b79351a0958444facefd1584fe0ff5ecf169c0f591fc0f94ae26b4f8b72107694e4c25ce9bcb913b020edcd170c5d97fa51d0be932af3b25080dcbd4778d584475372e7d20e31a31f4053d1728951efb0d6d891a889e66b8d6fa3e45a2102106070424cd1b8e8903ef69ad3274dd1c8ad86fd50e42f0b04271ffef39e96465aab44048ebae82e85b611f1ef172e963f79072ed80fa78da50a2d85f0c9ef3adefc61bfcafe02289dc1f9f9cc11150fae3f4d706bb900490d337e893f89b57efb2da839c7413fd6ba9350bc904932b060f3371b9faad31f4f6d6956e934d245b5c57de86f3034a3e6e29a95b80e41d1a405ddf459136e35bdf4cb8e6ee29cefe7f4a0c27a39337660bef4f2ddb486fa654d6b6c27f988b0639521623624b999a4381957e3a07d4ad7cb0f0c8a26ad04ba0aa4fcbdb4ee8788c6f844754007e4c35b764f68a8ccc3caf512efa4cdb4046501d5befa2361dee6137172130eeaaf0ce00479db95e3967340f2a05c843124cdd9aa41637727846c2eac46a0a02223b9ee41e55d67b8114e358f1f2878a7611093d9d2faa0737f01ec08637e8e31b6f53ef9e45f21e44db00e2bb6f5f1a6009202cc8b5a714490346a13dd35ac573782bd6a62a2c0b7992909eefc79a8ea2b1f3dad15caa30315944384710f91a428c9565307a436084158f3d2f080d0ae06cc5c663996afa0376faf4a98322788208d7453f237608ab44ed36574a6e9f75c25dfada15840474ef1d6fc057a5d22be24ad571a5e8332a47a3260b41e518f9a20f549d61e43fc3ae2061bcd7a656f3cb350b34c436f190df4dff4332dfbb7dd98c2107cbb52d33ca34a3b67a7022cdcccfa47481335fc5864cae9729c81df8672f5785f21df2f0fcaf3a6024f901457ea399b10f76548b616e5070efeb7cd9f78297587098975272416417783301e5c85b06276990f6312e33c7b7e7f40f44170cf71058aea56e2ec680b2afaa95524825cbdcfd7d7b4fd34047e7cc2376374875c6d257a37d3f93aba9a654a9b8b64c690034cf39171a46e48da3c86a4aec9c3d21d37880f071a521218edf0222c267d2c062e874e3b47adc60ce57de73dfb1918d985632644d0010443d86b819bd5f4dc3d8093c669ee9541ad7197a2b46b2ce994962773027e27d2b87679ef60c3a439ddf38dcd2aba11f6bb5e9f718de74993c3fe355cd1471bf5
usr_01a08951993f741585c520e1ed44de81	swarm:01a215db582073d490a6a41e405242bd:0:1	\\xf6211c7a1b202b82524d08b348179e356719e9a296276f6e044fda498f6b3e42	req_01a215db586974058cfbdd54c943bd94	hold_01a215db586974058cfbdd54c943bd94	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663026285	1795749426285	\N	\N
\.


--
-- Data for Name: invitations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.invitations (id, organisation_id, email, role, code_hash, invited_by, created_at, expires_at, accepted_by, ended_at) FROM stdin;
\.


--
-- Data for Name: load_answers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.load_answers (question_id, boot_id, problem) FROM stdin;
\.


--
-- Data for Name: load_questions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.load_questions (id, slot, digest, asked_at) FROM stdin;
\.


--
-- Data for Name: mcp_tools; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.mcp_tools (server, tool, digest, definition, pinned_at, changed_digest, changed_definition, changed_at) FROM stdin;
\.


--
-- Data for Name: members; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.members (organisation_id, user_id, role, created_at, granted_by) FROM stdin;
org_01a215db55647430a9bc47679f154083	usr_01a08951993f741585c520e1ed44de81	owner	1795663025506	\N
\.


--
-- Data for Name: node_leases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.node_leases (boot_id, started_at, lease_until) FROM stdin;
boot_01a08951977c7187b7e1faa894f855ca	1789010220926	1789010221976
boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663023624	1795663058638
\.


--
-- Data for Name: notices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.notices (id, user_id, kind, data, created_at, attempts, next_attempt_at, delivered_at, last_error) FROM stdin;
\.


--
-- Data for Name: payment_checkouts; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payment_checkouts (id, user_id, purpose, item, session_id, url, created_at, expires_at, closed_at, success_url) FROM stdin;
\.


--
-- Data for Name: payment_customers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payment_customers (user_id, customer_id, linked_at) FROM stdin;
\.


--
-- Data for Name: payment_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payment_events (id, type, created_at, received_at, content, user_id, customer_id, subject, state, attempts, next_attempt_at, last_error, applied_at, outcome, retried_at) FROM stdin;
\.


--
-- Data for Name: payment_subscriptions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payment_subscriptions (id, user_id, plan, status, period_start, period_end, cancelled_at, provisional_start, payment_failed_at, as_of, event_id) FROM stdin;
\.


--
-- Data for Name: payment_turns; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payment_turns (user_id, holder, until) FROM stdin;
\.


--
-- Data for Name: payment_upgrades; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payment_upgrades (subscription_id, period_end, given, giving, within, steps) FROM stdin;
\.


--
-- Data for Name: payments; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.payments (id, user_id, kind, credits, amount, period_start, period_end, paid_at, refunded, refunding, currency) FROM stdin;
\.


--
-- Data for Name: platform_daily; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.platform_daily (day, model, provider, requests, tokens_input, tokens_cache_read, tokens_cache_write, tokens_output, images, credits, overrun, provider_cost) FROM stdin;
1788998400000	demo	demo	5	10	0	0	20	0	49000	0	35000
1788998400000	demo-embedding	demo	1	4	0	0	0	3	560	0	400
1788998400000	demo-image	demo	1	2	0	0	64	1	1610000	0	1000000
1788998400000	demo-moderation	demo	1	2	0	0	0	2	280	0	200
1788998400000	demo-rerank	demo	1	4	0	0	0	1	1400000	0	1000000
1788998400000	demo-speech	demo	1	5	0	0	0	1	7000	0	5000
1795651200000	demo-image	demo	1	2	0	0	64	1	1610000	0	1000000
1795651200000	demo	demo	11	3114	0	0	1030	0	4342800	0	3102000
1795651200000	demo-embedding	demo	1	4	0	0	0	3	560	0	400
1795651200000	demo-moderation	demo	1	2	0	0	0	2	280	0	200
1795651200000	demo-rerank	demo	1	4	0	0	0	1	1400000	0	1000000
1795651200000	demo-speech	demo	1	5	0	0	0	1	7000	0	5000
\.


--
-- Data for Name: platform_folded; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.platform_folded (number) FROM stdin;
40
\.


--
-- Data for Name: plugin_counters; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugin_counters (slot, digest, requests, errors, traps, latency_us, credits, clamps) FROM stdin;
demo	aeac020969fdb9b791be1a948eb0297455d88a1b31f76b29c125dcc5e0cc14f9	16	0	0	10927	7360640	0
http_get	4a36c5c1d2caef0f8b2a9ddd9fe5106d57f8f6a5b7639ba80cd47d19c266dc2a	2	0	0	4591	0	0
\.


--
-- Data for Name: plugin_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugin_events (number, at, slot, kind, digest, previous_digest, actor, detail) FROM stdin;
\.


--
-- Data for Name: plugin_generation; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugin_generation (number) FROM stdin;
0
\.


--
-- Data for Name: plugin_parts; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugin_parts (slot, digest, part, bytes) FROM stdin;
\.


--
-- Data for Name: plugin_quarantines; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugin_quarantines (slot, digest, at) FROM stdin;
\.


--
-- Data for Name: plugin_versions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugin_versions (slot, publisher, version) FROM stdin;
\.


--
-- Data for Name: plugins; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.plugins (slot, digest, kind, name, version, wit_version, signer, size_bytes, installed_at, installed_by, description, signature) FROM stdin;
\.


--
-- Data for Name: projects; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.projects (id, organisation_id, name, created_at, archived_at) FROM stdin;
\.


--
-- Data for Name: recorded_exchanges; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.recorded_exchanges (id, slot, at, content) FROM stdin;
\.


--
-- Data for Name: recording_nodes; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.recording_nodes (slot, boot_id, begun_at) FROM stdin;
\.


--
-- Data for Name: recordings; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.recordings (slot, begun_at, until_at, share, most_bytes, kept_bytes, exchanges, actor) FROM stdin;
\.


--
-- Data for Name: sealing_keys; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.sealing_keys (id, fingerprint) FROM stdin;
1	\\x8c77e4d8b907519bad34a353bc6053ac
\.


--
-- Data for Name: slots; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.slots (slot, active_digest, previous_digest, changed_at, publisher, canary_digest, canary_number, canary_share, canary_since, canary_promote_after_ms, least_version, on_quarantine) FROM stdin;
\.


--
-- Data for Name: swarm_agents; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.swarm_agents (run_id, number, started_at, ended_at, result) FROM stdin;
01a215db562c77968fff100c0f4ef6be	0	1795663025748	1795663025838	\\x0100000001f0e94fee06ec90adcb030d3f6230eeac09fdfc04c143b918fa795c04199b6b7411213b60473fe56f5b96898563c24ea7e00488d00b6388fcec3dd71634a1de7b46e37c3bd4a835e07721192e1864e708f5dff12535f07be14637b58498e999ab86e7176b718a26b9b90bdde36eaf460c8b5da71dcceeda3b818fa7b241e9676c3618b3104845959d1493fb43280d600d8f8d6399909c2866536c88a35bd7f523d793536840f6506e406757a9b0fab9841206a3b82339a921b263b4a79d5075904685ee8f21f624567720ccdfcf7321aa1fe988ffd6d78acbde2c842ec7ca47f8836e5de04e3ea1cc9f1be9f4b9e85d3d4c8057e8d709cf53314ccc2cd63d8ac7435c4aa5a72abfd3817c6919fa1018862920b46a69d1dd46d45a267cbbd86e844df14710e0830fd9848fd4567fc30838d9eceb52d35f14e7f4f1bc18d1a1e7c301d643ae0f405970182796b1885284e6e0895df38ec5b04a1fd5839781c27ae3872f1aa583d7465d7289425d95c61b8ca376decf126a2a3fcc2629d15f971c7aae0f3b06b6280612782ebc52a62d6e3376d98ec5919be9b7c2ebea3c3063f877bee932ac76c3cf0a59384e27cdd21a86c8cb4d1646cf432898ca024a7b1e29b11cd58793ceacd7fca4f5e07de6636efc977f0fdecb22fe6fef3c1b9f1eff4d12a375fdda7e0c3447ffa17c389f79a2834e2717cc5dae7ecbfbbce228503561a9cdc07b2ee2f085a062f1cb608bfd7d5a1b0400d9b2511c0458906236c7571388574a21a2c05289de6984fc91ee70858243ae812a850be0086f0155438e90dde11f1fab884c079ea9269edcb0a2cad335fa45cc34470858f57a8378b0df3d0a2fc3dea6e38c0e05df29414ed6e21ae2e43bc5804fa8c44cf2c4eeb68ba8aff5b8438625b3ef09d72eff830a794d6b353d38a61fbf76903ca9e8b3853a34c2dc16cf95908823c2da998d9f45d500aaac2c5cc316d27fe57e48dd2ee4cb390eb9aab7bf986e9f25f0310c2ea553f44c5c10fc7441c902cc08a844f699ccedec31a720d758f2cc5cc7ff73aed1b93dce2309db9858fed7ef6227bfa6d8a1ed9485d091e08da880438eef9e6563f6cf6e4a158d3b4b1df28f0bbbc49e7d4654c07a70f5dbbbbef099f27cb70b16e0d7367d44435402d74731bfa032095964a973bc8a6821a35e600014d4e65e6ce2e3ef91dbccfa97b806c35e891d5712ec1be952acc7f82211febe4ab0a0b4bc1143c3efbdd00a667b2fb05d4a4187b541509fe8c61019b4b31f3455fd22349203826792e3b56dc8ee1afb13eab64a41c5491fcf9f1fbe74737dc256653c25c0a7651a1df2cb21c85891dbb2bd593552f2e4f7cc1486abd185a23b8d70cc7f703065ca4371314110a510fa1388f29f62762003c3e25e3acb2474dc4f249829e05a30d314d89a17ff33ee328432ab083c1af6dd27dbe02ba9587a0b6b919b089c26c9d4c17c4887833a88230b9db87f9382668d5669d421818994aaf20f93d435ef3c306ca3abde5b81d51a25b4ceb016da3941a9f3feccd9600f4153553f9348aa7314f27f95167ffe85254afc6ea5e69f93782448b82c2c71e60ba19619fc66f2ac97f5570ae8b752e66823c6b60f0c68651172c9f2c0cde307779a6bb860624d2d0bf00afeb1a4b841a88d1e4cb2f2a27af867568d713ef91433589305efaa3a9c71c992a707702b1b93a79df036ee185bbc234c29092e82ea490ec9ba89a4f50de68bd1f05dfb1cf8adb460a1a22206672b0de3a6eb60c9ab3baf1c7bacfcd9d8e659075c4c7e7c77b1f0683d61cb846cc9c5d62fee02b15c826115874b5fc8451ac2940fc3201d703081aa7717406301c193bb1b9eca5218b4bdd62625b5aac5c687e5e4bc8bb31ff3c9128ca6ae63f7a7928c11257e80c39d9dc42c71c08f92255a5ed6730b0510c13382a655393d651b307bdb2a9d6dfe403770a53f7cfcd035528c331a103e6fcdf23855c1c27a9243f28a3cee6420ab7b292ca9b0a160b8f8d2
01a215db562c77968fff100c0f4ef6be	1	1795663025850	1795663025900	\\x01000000016d4e9f0888cd65ea2b3920a07c1b495948cb989a78b246f3deb0355da571847dababe324075f8b61baf18b32f6ddc7130710578322b299a57c5d8e19f5d7e18be5761a31b8a032926277d5b0e790093812e34ad7603b01327213031a7eabbef930f0fdaae890bf99bc0218b085c2257f7427af5ea9708eeff912e26aff7721fadeab94f20478a0439aa88a5fe7d58badd123edda04afe2bea2d60bff835f3bd7c37e899d96811ac14eab2268c7fed274c803fb6a7a32ac316161e12237fc4f93d291db4342c65b987c0ff1faea06fe7190f72b0b5a9eb21e687700c225aa81454384f4079967fd755baf6923bb61b7cd69e5294acf60c141e7eaef21966c5476a9585af74e0166a81ec51b6b82296eff66f47a2896b44c8ea60344be48b3b724cdd7573c557db5f4dd3969af1e8fb6aa7792efe6f18bc8ad3a1f3c0436882dcd2682ce69cc3b5eaea5ab2394a5c2d215e336c22e622885351486d72e873e6e3dd6e413f9f0a465698bc710a87be315b598f6c84a44b14438d4943e75dd503d5d5fc9f5eb1359c016c4f06aefb622e5d6963f008733a50ae73aea5604af158f5016ffc599638a6d81c6afa3366057a771f6b4365bdffea5c886c0e21d9673c0906a65c51152b2c5952d613c19993070ea7e4c027a0d4b9558159f7c177d6bb40660cfa051cc46b31343a9c9069d0511c0121ee428c0a7e09fd92df1d96be988d4677c8d2b573c0edc05b3d5bd04b2e7653856fdaf8b30d92125f417541ee4723f8332661e7f99d69ff1a2ff36a09460caa5ecd9940f16219327a8adf594fbabf7e8f7e344c56d5ebe4e594e66708281c1e572e2d0152a5e7ef3572e4ffc808bcd5caf9f5cccd5046c4d3e216f0001b1c4edaefd4659136dc8f28ec10cecc3745d7ea8305efe1728e63d70d10b5fcb3bb152c319479cbecfc8253d0f0e8b6ffa34e1ab19441ee7f8e18da8c32cd1ff99014a8eec0cc439affa84eb240418889cc9c855588b6ac84c09d34d2df50269144d91130f0e2b5c51d4d6de94347ed2181653ea48389047796c570459878547d4ada6146fcafcccc316a93945aecbdeb9242105bf61af19945ee1ae717ac9e750fa7ebb270ec5a1724b9daffd8199f15deafab4e3869171fb7870c076ea0e8142eae4ad07a4ea6a0d1188b6556245aceb42dc2dee01ca35adc63a76c8981c397207a88403b3c2040ac5fd86b72d72eb5313d60af5f25e76e18b079d58a047d3d38ec24a57f119f23543c92559b35afaf6baf68c22064205474153c2737a535855d2d5b0aaa94570ba39679a796e31f87057a6187096d76fcf00878f21f31d0ab62671bd70a7370a3bac64371ad6620d60451cdc29f325a39e60e0376297d2d03fe212dfab8eae672af43664a09d41f215efce404f8f4e09f5307d323f4c6f3eab7cc33e7a6349f03136f0e419fe47c8fc845d012fe91e05eebe9636ee50ef8ff61a260f4d456f7938096ef8110af6cea91806d01b61a48e95f6d0ca6d220af68d6700025863aa3499a32514bef735501cf3bafeff8e6b20028fcacffa6ec00106c5532a789475468dcb99fa36d9546d89c511a162f3260d6efed191426982a3b0a87618b546ed3efb047b0060f84cfe6c09101c184eddbb88d9e0ff8fc7d83797e1f4e78896b6e9a7adef0ab482816e784d7a227c7174816e993d0802fc290b603d16187928c9d0af9a71ad08a9f56f6409e140515ad006992df653795f7b38bb2716aded1fd5656d9ce775fd918432e90ec679d8e119
01a215db5706704b8f8b70f81b153eea	0	1795663025962	1795663026062	\\x0100000001139e9377af7b32cdda2a0305676dc1960c25d16b5a4ead1870621fd98615df89a4058b4048c88ce07e1048a286dd25d193e651785133901516db6b4dddbdb84c9107577d78c785fe8f6d52c453022cdca7f98e8fc4df5275e019bdaa21fcf9dbdd7a750921de5edf93b2c74c57a0973cfd842fdb0151ba0b3d157aa3216cae17e10460e519d647036526cd3ade6cc75dbff1fb8ab145a16212d60c2011517541161bdfea096cc6cadeac9f655e61941fcf6a076995edb6496dbc7517c6d5051d83c858ac53712c976fe17dd5422e969fcb05a15f8ed11c6b3e3e358489ae75f53d5ff90e8f9c2d1b42a98912507d4a096403fd973619e03b0fe010a759d59e28fa5e30f4f6d91ce48129ea3ff8020b615da88e6dc90838630217ec35e57ecff613554446d0c50e613258dcd4b4dc1d5a9522ada6289d8526397619247e973c641e8c816a8421ae0a11622ec6e4c9319c35348dd2d64ca2e7e51aafc603f892fb36daf5da3e3a7f48f4b51bfe0974b46eef616163eac164a3225d29aa961f248f3cfe5c46bfa2dd1201d5b56f14502d747b869cce78f8e46375e4bf82c248a34cff3570abd388a0758af09217f8698d2a9c42ce560a7fe86cebd41afb614a36695d8e7810ba3cf63eff16327509bdf2669331ddc8a2224ae89ca26fafa12707a012988cd111bcad6810da3b144c5daf1e27d37ccd18f899ef19aeb85e5370d4641b06a18cd57d1e39e8c518eec9932fda38a03ea50ca023b17cb0ff866145074083d84c9494bab3db424d91f4ab3d792a6561fc8760a5bbbda072966baa80facdd5fac220136f828128f028f6b06b28cc4da5a0cb5ab23a6dab8af445e030d9425c0ebd6a269e26f3df69cae92937fa19539623cf0a61264672819078f11b2b23604d4d8c23d3ad966a3f12118e97c5164bc8757f558be7ca9871953b10d1f1237b2febbd66ae940dede989621dc09e99fe70228e55fddfe1fd5ec714254d58c4cc83ce848fa9a23638336dccd5672274150a8ba3d4b94744607c3557fad0f1733a6cbae4d5a787b5593b64997f45cba7745f25996a04877f487a91fddaeeee3ea5246182fa84445bb7f2dd424f4985d9092902324fa5d646d4f8f4927182c836d91ee2d4107f5ab1ed209cd9b98b6098d2ac4466ee31b927d816e252e7b39d32f7396b9404819704f8c4f297f8e5ed80a8d54bc9f6f3be3b47a0a8c263a2ea4403e9ecbc414469e020acc1c01ef03f4ea2b17d56a10a748582a026813b5b1c9ca7086c518636a8ed1700ed57b21c560b2469037ead123bdf98bb646a2fd58e7d746e3c1e65f5119e4bca6d542084ecad6aabc8dc9a152e0b643bd949a723763d7a047dff10dc0d7c04a22cf95ebdc8962f0c5c5f2570bda8fbfb0852f3cc4e50cf71e16dce23655b4226375451c6d470170b7979e9840a4373cf81f875a6984111754cc9a91565c3832d48bd2ffdce7c918e356929a1ccc9d6b4692d78da8df9ea1479902ee30e9e2b003f52d180d95db42d3a6b8a29460d52d7300a8639479ba47a78571856d5392198252d82d09703bf014727f8d37907b5225354ee4dd076fbc39579981c973efda8a74847673e376f84e294da5fd44d406894183144527c7b40aa31d3069ad9bd2db91027e014f7ef1121712a71fa3a1e9349c39289a4545e4369da8ed085c94d88dd6354e5babee20cce990f82ab8bfa87ea5d857b121549109128ac04ccdde99cf0e59acabf489d6a18131a11d1cc0cf0893ed708359217fe9b5532389915a6b368f133ff0444446ff08b0ec51ba949d1eb59a5d0165e906df734455f0faf1c18e47b2fabec315e43bf238ac9abf07e05fc554c59eb603aff400452b6165cc6b7484b7ef213b12d6cfee43a30dc1262d44e70f9dc1afe5941c454168ae9a6e6adeda99f5ba426b79424ca4f1c148dedf9d1df44c09d207f2c7c8d75c2eed51572a3c1793c31ab9dfbf04835f0373fb361f5f1c7ad1aeb12071287ff48a6063d5e4fbc0645
01a215db5706704b8f8b70f81b153eea	1	1795663026070	1795663026118	\\x0100000001550a5db664a9e47bd9305f83d90756d5d23ac0595bc28942313366872615493bc9c2eadda6ae210f7a109164ce6ad12f11555d2a417a0ae88b31e21a3ea2f3c4bc1936371e02cae93e729e3351da68294a615a2d4c4f6b40e84dd8d54b4c3c235c6d12f4bb81ac3926f1ab09ea49f8c02f1f6ad7071346d80401a9dfddef151621f91f54efd2ef7b439dcf61ea70c158044ff4e31033154d50a73348b64fd4d65764477531c81175219d8afd9fc2c9ac9f16ead179cea1adb746d250293d45e78fe4657b2cf391259f2ae958a1995b8dd5b6aa55d158af002c29e1b36340c0c257dc15cde2c969683bc020d69b167023b9261c584bb9cc36685b3fe4da66e00e39d513cac1114390f777d7796b546968193eb729ea0058bd0435d74e22babb0248fba0eed81ff5f40c56fbd8ed4c51fbdaf2bd293a31da8362b5d962b5e0e1042e79984e4028cf282a87d2365d4403e7915cf0899727611518d8296bbcffc93b76d8c0451c718891062ea0c388da2b1053676efa93f7ad54686df8d56aaa9f2f974a765fc52a4a34d30f3998313ca0a8d93e2e40ba49e7b779bddb23f010b276fedad54a6590d2d08cd679d69f8cd57c1caf2f84f2a4c40b92cae2d3dafc52ff00cb5418d93cf9ef7fcbae4ab4fb0012b535f181c7e26988ab4a23d4a9cb05ec1eeb4dc72aa4eff8fe8718bacca0431dfa7d36db214b5e702ec2f555f373970545465872308e8f883c65192988610db21c37b74a0f5818aac212c7d92946d4e861fdfcc24c2475664005de87c7b4e9dc2b2a83ab5f1665af4a0057472d161b20ce525527461b5fc6b5f7335cc55f7af16305da8cf66f29b8dd4426b153f44a43d9cf1e2d89ce31ce976794959615e9b5cbbe3235ea9ff85d8d7861b3e48281f63fd13aa1a3afcdcb018dbb2b126ff1fef7b707903c0e44c7d504822abaeda75f8595788ea6cd03f6e84d1ce52c4e9e5a6e6c3de946c197bc9890500895519526f88e53e6e191f91cf273aa2e7ac311428a1aff4ad2aa36677cdbe09ca5f78e9ecdf2dd7d4e8bdf535c6dae1fb1bc52626e89d9896accbed4a54b85b13f7c4694cb1c215f8ff3d904b1ef394bad9205efb2acadfb3730caf6a603b0af25c9fc6b41d679afe48fbb72b7509838c07a58efc8f5bf7276329c3d17857e83191b807565ef138b68793ff13d4cceb9a789e5bb862f9f5d28cf8b33698b3315d22f2a189d63d2ef699c0f5d2e79106650098fa3f514399a46abbb6d50606bfa915e29554b9399af670551f9aa307c505a77f610bb58a848f6156d6a5da9e30bb9e0b1daad99ac82bcdf5b05b7782567ddacee3b8b03fca07ab62b8f252da2fe67f28abf83ac889103675dc8a71f80ac3b726efe36ac9d3d56d2ddb4658739829fb548d5d98a4b76f52aba874284ae42bc4886ddf8d014a7d2358d9974a0b587f756e895e58d01dc741ccd0a64f16db6300a774037e90fe9701753bbcb7fc26880fb48094cc4d4f4cf12fe99cdc461e603299f85865ac41ab2f5ed8f80f62bcb575739d1b56f8e4a45b7c139db3afc646c7aa96b9d22a72e3118f94fe4708f6bf4705fab25e9c498af71c18760e8a8c750c3e30a486774fb1490ac9e3284d8a1a2c4439f6f9e97492f73e5cee8bae00b508f1d04a8daee2345fed508bc93757d422e25dd24805e66ee2944e5e971e634afa71d604b5aba53459b2fd199ca60ab9f55a0fe4688de26e6f4a66a3587375137e8f6c5b5768c5ce4c8ef5436237ac8411065d1b0ed924fbbee
01a215db582073d490a6a41e405242bd	0	1795663026248	\N	\N
\.


--
-- Data for Name: swarm_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.swarm_events (run_id, number, name, data) FROM stdin;
01a215db562c77968fff100c0f4ef6be	1	agent_start	\\x0100000001ef22b131a7620675bcc2d0461c1e28e7b5046c7547b5fcd1abad04419ae29ae0ea1f12dde0c82d4fc8c5e2bf86877f85b800f5be80952ee383abbf8087f2b55fb64fc897b1f8d37e745b287026cf7bbf608f4c7dd3e87fc5139bfffda9f48f0476bed56d7e10a5c5c66f09d21be04526d5958c5f490f0981dfc0b12fd320b3170c57c393fb7c2d721c38ecb55026aa1955e1265ea4af
01a215db562c77968fff100c0f4ef6be	2	tool_call	\\x0100000001fbc1ffc305d7e67005a6438def4e1d7771d86df8bd3f2f38f6150c176e86932d2f0b464da191fc40ec27b8d7a1db6c6ab87e9553ffacdc686329b49a228652b838a6786040cd69727e6af33744886ffb4c35b425a6ada620d74a48bc840774a845ffef06d0624d0dcce644e5d7139b0feb18e23bbcce87dddd7169e9f999971cc13c87df2426b320bf38363252b21390b305ea14f72ffc4d257451ef300ff81f662d09328e34b914aee0265b7a7565bdcb7fd74481408bffa065cd6a5b03f621da038c53678a4ad11ffee6aa3336a0769434a05e924ffe5ad130485872c75cb05836247a1c7185e2ee58e9b764df5bda7fdc82d67f105771834921264ab2a2d4eb1b9d317fd07db76a2ee149d52579f1852cdab0531fb9c75c953b4b9256dc472ed3da86f441f32d503c33fb95a183f7c7f989348a18f24978eea1fb7dde084294202ca06c27611d8698
01a215db562c77968fff100c0f4ef6be	3	agent_done	\\x0100000001225c3966ebf7f23fc1f56ac5058b10d49abf8556eed8220f5281081ed295e89d1bd644c8c3cee8c8cc90705d6bc341f48263ae8d7f0c1922798091d57f8f225e929821ed99d42256c2f324fca714b6adc360714ca8ba6338553e1b4dacd3a800c30e933debfc9386892527a4e0b4e864627a8eb91f1a29de4e6a5b93e0a001dd493bd03377b313d4beba882bcb0cdc5af674c8eb155ea40c216dc85683c8cec8227979d014d34777d4bba93c4c8a9f9c04d711b9c8d18548baed95218f9ec9a6239dd780a2c242016888e3b6a2abb6977d9dfaa4c6294197b8b25bc97a44054086c92ea310be1a3c2aa109f877ae9a436ceac51061aa6286e269ee63bcd1d7e1baaad2cf0d355a20af66baaf83c28bcd4dcd1d6bc87a71cc32cccfcd698d81e8e3f6a6cc18e20c6dd7b7c806a4dbe75eeb0e5ae11a1e61f72d67604c571dd2d5971dcec2ed23542a8f69e64ebeeb0219371a5651922e5279ec19b884e0608986641d57015d8765caea2916e1839085e4a802b3d6697731e8506e179e8c160c66ed6178631309885793fda6a2cd03eb0e4ff08269b16792dc8131c6d5b5847f748ed9be22c3651834456ad777de2ac819febc76870fbba3fd925f89047af2a7b05f99387569dfb2993f275ff92c9233ddb3d59e5d3a3b828f786b476ba5ae5677a982622b0691a819b0d955e44b78337c7e34a33bc34bf4adb349d6ebb16e108fc6a7d61d50ae81856d2711e6d240dd898323ddf0af7905aad4602ab861435a98ff35b217c2a8de207ef9169dd7a80d9220222b0b59e2954f78655ef6c9869b0d345880338995695fdd44b298281475ddd45880b403d9286f703fb773b894523e046d846ef8c6130b8c0ab1745d3090be5cacbc138cd9a6f72978c1cd00661ef168ca01f60ac54294acf76b2607aec21fb19a18e2b0822d535ec7b76997c6bbdf6a0049de567d8befbaf6588b8142d4edae0bbfb0e5350a1a4c92194b8686213eb72545cf17e3b8fde87016870c4582018629e6575629ce7cf1f1a52262162a813d0698753b12297048018a1f6ba99c25309655ce09911dd68ebdcfb0c37b4d7d45c161a6fb3c79ea2308181ca0094e58426a075753bf93af1ad43313fa027ff6d07e4ef57f5c0d53ec29c775088ac62f688fc5ca60c64230a6fadf1b1abd7967e0e14d42fdde14b0cc66153241611ef83515d13a36ecdb45ee133436fa2c923e5e73ac04ac880d2698b12f9dd93a80b69ac8e02db969ef1671419c19df063439be7077776cf16e8da49a4f9b4b998c5c3d5349ddcf89c82352b63298a6d5341fd73153a6557651c7d3f0b9ef517990cff534ec50369a1364d66cf2f1e5acbaca9cd55151a3b6ef625cc15dce772ed0bfd758b7054d160d43fcef78415ac316c97ed64a402f0e11e384b62c7c760a737e5495d5c7fdfa16f502be5f9233fabb6e3aae4f27466d1205dc0d4747270147577ddd6af1d84a6980b8c7d2540e0dd792361f0b9ad1c885c3111a76f8406e9c1e61594ee65d03dc10ce58bc7b95c686e6edc17cdf4522e72262d0515ee2f0b1fe9dfd5cccecd6f3ecb1f4fcc2dfff1035737bb30a0c0f3378fe29b031280d49200a83df90dcad5d8800ffc9fcf2a829ef39208ba77546b32e4c128d37844e5f146ae3b6595bbdf9f907ac3eda3a52ed8296b1bef5805177d5611f34f701207dc76e1b567bf45c70160a672d02220b337294d19878b11ac40e55f979ba337f7af997f94e907b0b3c4af0919a81ba517137f9cb72718bcc9852fae82b45aa72dd05472d49635252768ef69c3331514d31bdabbd0d018544ede1332b51a6f0296c1fab34c5dcca4b69605deeda4940547cf2319164ac14cb4d9eb6b7c1ac0e99d84fc369bfee7d25084949cd1c1fa943ec4ecc5da9543b7a22349b79d958f0458e593648cd7bd460666d50d7da986a86b20e1fd808d5202583ecddc77908d547c5fe0a160f8806c3edc39f6aee4716de1b482598174f4dd1c6f269dd2b95fd58bce9dc472715a717bf12e35331e66601fa392d4a3d3c96f35ca6f2f1932b50d1bb3bd9cf010f837c46713bae575ffcb10aae666003187034f4340537e6db12
01a215db562c77968fff100c0f4ef6be	4	agent_start	\\x01000000016bb75048c04ae957ed82126eae7fdde17f2b23faba3d7dc3252a64f8fd6d3173d06e57abe30967366fc2a76aef4fe2166c23282b507655a9e7d07c4319b1b6f5934eccd427f605b18c04c88e8fd046200d652816107a640f4e579cc3b08d9be18aae19edb97b3e1189d42e283b84dcb5b73dee826dead5977cf1ba2e21638a471935f18442628c5b57c94a5d78a266fd39236b9f0d3707
01a215db562c77968fff100c0f4ef6be	5	agent_done	\\x01000000019de122828670bf99db64f63701b0c9bcb294f9f1a9faed8b22fbf971e4273a71c35a3762122f9ed2d6e77e1109ea6fa3c6136c387770af23c0f7548ad66b206877cd5ea8433706763622985bbba210fec2ede190704782b3b630a2274063b84d59a2ca626c15d75463be9c16d4db3624305df40e8a02b7d5d0cb3dcf04ad365554002911704ea1f99c6e069332c6c9bdeb07eb006393c6f075eb6afecb511a5c3a14abb00fcac6140e23de51ae961855cb697d1f243fbf91efb2292dac39b333ad3263ee60cb8b7c129b32fcfd8eb95000de2bcad30599f7e948580e59bc63d394077b628eedeb632372b9bd908df235cc3a72ed08c4dde42ee16687747429a82c1bc0082ec89b37adf059145c8e6262ab6291270ea7a00aa266af39684d3bc9f24c450f37b413fd1dbd3fb2cc4ee95df02b12bc8feade6cda0639796f43115350e5957247e321f51da86760658d2fef1a100e71670e91db5f2243cfd9f2e68c82669cc870401f9e6009a5d01256ee9670b80d435044545fb42042f2e435ee92e2d3bf5477ec25223a2a2dd79ead28a7917b1fa690aac10773119bbcdb5a5c9dce6a92dcbd7dd443653f2580ebfd71edf814420d8dd52d392b404d84755b27af71286ebd5f776a94586865ab2bf66da8ff88078cabdfc36c7bcc73a29a1e431f0f0cc3cd359be8ebe1e6e455cd1a7b921064a2d9ca1075169a156e775c5a38ce097deeaf26ad3a386b03163988e5cf4d16029fb856ebdbe1c7065089f233943f34a5fd6d091fe8b4e3ee38060deaf0c091d30323692b37922188cffaf2f59eaacd4f547b3968232601efee6350e85ccad8fc5272e46db78398b505b48204be93d904eb578872c01d18c4ca6b1d45a217aca81f75629d9282e5df10c4d8d370450146a55fd4a6f53a23f347335047bd81b1f0e291d44e228ccb75020c1404a20150306cac8f76f6335ed1acc05613eba6dc3cf2c111679cdc108454470e3a4d9345e16fa5d1cafd1536f1798a06b61354494a3b87e5963e2c56fcbaaeac79f6e1cffa11d35ad34552e27fa8c6ef4ca40d90d1f66af731ffdfe1e2b5b607006253ff9fa51f694dc08c543086608a1d8fe817514593031e0cac701e0a553fc71ffdda6dcfe5c8a94397359d1cf3c749233ab68170f6077624a90a6bf7317a304c6ea0dd524575759f035ebb4ca543a2d097c813ed1b74e7a4673cde303ce20fe84dffe6c16dadf6f695d399fe453dda12de857ca5c59ef65ec9f3628cc5ab5e1347a48aa8781fd5267434a0bad08bf2814b107a0e7e69482fdfa6191259683f0f5d222ec6b7e30aec3b0a1c9385052cb334d567c5d14f2a402551438e74371f5d9b062d790d006ed30d0b1bdc9cbae9b1f6ab8a629e59aafc12e679e98959bbbc63c4f99298ff5ec8ebe3d73def3c22d4429ac68ed415362b03ac52ee50f326c8453f3663858c4c4d1480480304ed9d4b46159bb12cffa23e600c2966b8b791b3f326da034316f4c6811a4b5e2d132366ebcd995291c2e471651ad3c0a6e3a6e8a7d0f6434d5d152095bc0eaf93bec154f2b5e7b046e6cefa7eda84c90aa48f5f32395ec61ee4dee5f29d2581443736591d6faab77a7c746c53dc34f7f47ac5aa07fbec360aafda0272f2391f13eb9d3840d6c55fb1ff51bac9ed51f7217022b88411790e596d3ce3483080d7789d6ba9b5c475a24388b48bf4aa6332c99ffb8ba8c8109ab30b8b8de5c34fae8daac28d5230614c66c806a458ef139dc4cc2df5233885ec2145345beff2200be65c4200a787d4d92b0af9b755d5d38c6f428c34bd4da9d25009572855b37be055e3ac42602b0f16bc24cc37355f53a95e410cec6f6d8b19
01a215db562c77968fff100c0f4ef6be	6	swarm_done	\\x0100000001e472cd5ab78e1fbb32f733859df709c252788fb972b0f70a0cad97716597b604d13a40e69691734afd81a3b5e7dbda212464e941310bbbb10a1f1c8024275d54ea820bd194ac5312a7728334a416fb840730473b065e6c9cd15b970a9e1a2c193e576f31a452382d897ac928844d4dc0f233cf1d571593bf0e1542bb813cb236752ad213931a118f7ecf4c2f52a5ee1aa205f185e0bb6487b6696c25b1a5feb312fe6408d01f222171b9e8c23f4d14a1057f13b8705fe264df3a78de12d2c967e7635eac732f8d060eb8889dad334f1bcbeb63f5e01c11da02c19f38852f04da887259e6d8007aaa25d1491220955e63118bba7a843369469846f59527836db72e772889cf3d31444128a537acecd3e278c8704df052af03c726bf92b71bacbe931cbf4f3f834009baa592e181f733c8964965c2868593d8877e770eaa5c3e74d61958f488a5752486bb93c0683f758c18035fea6ddfc91c67d2895eb8194da8cbdf31c3b2cbb0b98f96d5d811c20ca264d298c1c0d8279fde2d8180860821d2d266f3432929891fac46dc7ae40dfbb4537924493e8edfa372083712f8ecca2196158c874237150440ccb3da4d3e34e2c08dbed2fa2a3780a9d90262b118cbffec0d818c2654ed28001b29339834533357ed50a1ddbeacea3315e3a97cd63d2eabeaa2c0708a9e21d5122138f7bfc32e361e39977a792ee35e50b7a8ae5dac207ba502a6436a1277f85d21f302728a8e7f71a2386a69b939c6fed7458e300674c0f77f36955c6e00ec65f4c7aef422b0aaa9965a4bf29f3d35c4e096c566c99d9c194858298edf0afe483a9a90c703890cfb376f1e760a0349e6087f30f39103b8ad1d5ced4dcacf49fc7af0dedbccc08c1f525737aacc3f333b3cc155866575436674be2141125c8e475f4c1ce4299c4b96a6d1b01edc36786c69b4ac6b462de684242f6521feca954fd967502b37c16647d04a259dfb4ca038d1e4c0ddcc07d636c8dfa6c6e2d8dc0d2c2b7f0fcd979d7974a454042bb21dac09ffb2da15d63cc18a22e6b6e03e341454bd6ba08842a7d30c2c7de34cd055459f13f424b9cdd3391ae182d522062db4adb18629f088a90eb68b569b43184614948eaa75e8714564adf5215c5aa1ca17bc6f5ea5769d1703194eca5965f95577269cc8b456c4838f39f109ca867db07974e7e38c824e1c07b1b6f8b0bae7edb892efaf7e9f7f03ae4418baad072479d40b312ff1f7c05d8b6ecd7759ef090b303cfd0e567df4adb59d758b02885c7878b635f8a8764010f73fa80b02bbcfc1194c5539cac5c3e1956c065530a06e4ff32ed86ca2b420303e70877eacd698278e95fcab4a57ba6b567c8a3148f82c177270fd54f4ae61d2bb0400a9ce351c471fe86b490e04bc47b202c34920b872144ac1369f1dd79df98d1dca6d1f7d414f21e5c61512a93261c96e5f4b30a44638a6893b5c40261ed6fbe55a7fac45aa792499c0544b9251a13957fa440225ad910a0e51d53a3d67bd76a9f007d6356227dabbd5305040d2d2e5553428b903d08cdecd95aed4ec3db4500a316f7127c6e8f7b7befc3dfd34e5c1a42049bbfb1ac09b2f476f9908db19b2fd7c79465842ae6365ce98d823a8b4549ad6a836888f20bb7e34863aa24cbf3195b0ef36cc5f5c0dcb8957269ec490d58e384dd8be648c648f81de0c1f7b3f6494dc4db3aa443b996160110a7aa6f63086057611b7ef4c584710594e4fccd621c45690aee0d46ff0a894f6499b9e705d5eda7d98cfe1d924c2ed72de555e5d6625a8d58eaff192617e73fb010ba5eac27af26e61d2406073c5ae8ff1138d549f819fc2950b9b4ac6dd0d7ba3e9a7a06bdd22969b3e18f47860132a59b2164854c467ef438834838e478664efbbbe960bb4d16d104b7855f1ef54fb892777b53724a789b51125aba471cb9d8e545766b8278074a44383f817aef8ff1f3aca645344
01a215db5706704b8f8b70f81b153eea	1	agent_start	\\x010000000190a68c3c2f93196e5cabe7a252a2490e5eec45b8bb7715b4129488193289be4c2061d76b441d684d00d0e3a7b43b050ebef83bb9945e24480f5e671a2d4a3e47652afe665e96c8139a9230bda88c28625d686d119d29ef418c35460fc9f7ff76ede9c72f785999ec548d27548d1d513d1b5d73fca863af044f54aff128fe4b5da26679d3c1a06fd247f349e52e84012c8361353e7585
01a215db5706704b8f8b70f81b153eea	2	tool_call	\\x010000000117d61df7238f57b021323ea26b08c416643add3568df47897c7ca2d96413cc4a25067ef575d882c10ec1fa4586eeae8961156f9af20cfd84ae9b9ea0865c1eb91f98d0c94c5485efa0beed0e4007ee5f4d0b66ddad8c4f770abd7cd733ab742d7f03d0c2a8e530311a5f64bdc4305d23dfd969c63defff03638af127d2f44b07468548ed4f0d25d123e86b03d79cde671aa4ba9ea34262eba5a664680acce21fb6194c0bdb0c05615bd66f63ec0d0bcd00a51a9a929f8f2edf31da14b939fa7f3b50c08e0e395259ce3a8a3686f61d8a87b38635455dba23c1bb3713a22eae7ef180edfd7fdf602116683c29cd3f9c58d8ca7dbbc9c7607cb7b26f6e8e30079d97f6af815097afde72759aeb264fbf45413ced5e82fadd4fe645fabdf1c178b2e619f4bfb2ad1348ba3cd66e5c7d49d3f112ac22e583cdae6f8c9d4a821504f3f5cf07cfc052d289b21c
01a215db5706704b8f8b70f81b153eea	3	agent_done	\\x0100000001ceb4423eadcaa2243aad6be15835ce0f278d9a6533545421738932131cb0c4dfe243b98f7cfe36b82a2500b3851dcba5a3e495a36906f4fc92f87e8fe89e05583ad790f8a74866a92718b357a15e8ea529c1ae29832feb01e3ab4a486a96a876adfb1714451b9ad1bed74e3675b9ba2ea5ac00a79838161b86d9b1c3f923ed43e09c43747a2727469eb36d470b4bdce9a11d57dcb42dddc2946396300ef8594c0dffcb97e859a29f1aed43bd1af26f65d826b4c4edb3be5d1432353b7d02ffa0f68db8807790e619f7d2c0e76631b8f60ae650b3902f51298ab2de706ca51b3d4cf2087371151587f4a8fb43b18e2868f9763bddd41131b34ef65da214d530245d4286acf62fde3ba1d68d13ed595b3049e4beecaef8385bf1725031e803bd969c67949980c994c5179996335c87e7de6500323efd68785d9399af62963a4a1457f207f9cd893972c8ef71fe528e97b6a87cbf7a3ec03611bb41763af315436256943a751877a375c1849329589827797a9c7ca65e2375944e6337b34911fda8d1c50a441f1ef9d509399915c5da37b752e46f91fe0ee6f7b8b710a5c9bf9ed32054f21167b993536def250d8873f616395726a037e2e9f6ba2d40513d2e2b52715ea12fc29d4fa2b34385a635c268d99085bb28a231b47dedf94b888aeb1a133ed151013d1ab05402a31583b2fbd391c6105b4e59b305901823cb4c1a60a7ca97a6b87881bfa77f004ff0b68fc4efd48b1c5fa987b21af571e2ccc22d10a6d03eb15f49da2f7ac5a1fb4e5fa3517fd2d246162c910f2660903f1a7fdbd44b1df022c673ec1029e0d14bc141e171109b49e4e35ebb96f4ab2cf04f4efcc1349d12d3d96f5b6d1b4a79186861b8b88e21195befaa0ebd47aa9be7a07b545477d75be7b14580ee805bc0cdad6ebdfd54849eb1e61879b051316febf0e21ef296aa67a53889cc8ee365aac25931648f270727658cd12227dc54d1f662b591f0b1200ae95fd309209f4af84073d7fda68a16fe42cc00f367a6eecc65fb660a3f4cac69f4f73ae713e54ddbcf7f7076ccd0bba5fe28c325b4a5d6ef06b7e2d6c36d98a88212667f2b9507531595fa544fdc6690fd3b80856a457216dc3c4b2a4ee3d280961fa86286558a522803487cb337928e7a0ae63913ce46d1f64e419f2a489b33df2128151c5e77e3a50c422c117c472f6fa169ac61cb6bbf26f2060c7857f848717aa2cb690a1ee17e7391926486e5d54118f290413c3be1021a5286986d54a975a16640fa47369391faa75fbb295cc1c27630d36220e12b10f16012719a744f691c56aa03c3552c5295b43229552754f01da3de8f7da0b0fc6d80f995a9d498277bb46ae85d49cbf0ba653aa5a8dd967e3835de6f5db2b88e05cf8f3afbd944011896beb74589a15ef96fcc09a20f3d575aa13d4088cb79aa99cf342610de579431be970e6e8173732d857ccbdc66f334713e256721ffecb6c47d4eaefa85a6ce9d52c4142a1f928a35bc6424f4a08a8805b83951aafe44e55c967772120b795b2cb26cc83e492401672c25f56b6a9f867eeca09ec1d9b6160c3cc3d7757105df6e16987a880e74e2113cfdc6dfb62d280acff0275209e403e5e20a6dde9e435d800569e5338fee009fd0b8bb423dd6d2dd3422f4797cb0d404a3b06d5d85db6489af1b0a8b87da6e3c03f50342aa402d530d2b224ddd3547b7cd723eaa427c26af52b3568b366c899a67535b8f60f80c0f2bf172a28c61aba186c5e5827d55d79b529ee78f56fb6a71c98f7a3ad98d57ea79fa7d1f7d9d1f7d105231b979dbd0a50f8bb64b58acb4ba37b1a2f20f5510e98303a270cfb3de81faa4a7979f024b9c4811212efee5650d42a42fac154866a3b6971de06d982e74415fb9dd7e127898db8ff823156aa540fd1f7f7b29d840df02b31f7032378cac03b3f73e6f337de32f5c569a11bff3fc9da0e06ccb06cf94835e0c8a8b4135637c0a9626da8d3ed039c00d597ca6d25287910b4fbd1acf75b8e258e1d79274bcdd714c78032d06a818b92ba51a117a6f10f812b4ab3a0cb478360d18776bf0208e4357596540f1e59d37cf4f5b9bceab4e
01a215db5706704b8f8b70f81b153eea	4	agent_start	\\x0100000001be8913b84b445008f0a57980b76fd9d3c83c405ca9cf66b37bbf6219900ce67e6f4935aeaad95f7c343577faac4464b38a6d1481c4fa1830fa74bc6f8734d60572185a38e912b2c1643197c4ac7138fd01113edf085d48e91a266658e8d7e169fb9aaa78d51669770aced56d5357b6229d8879d37d5cf5229cff5d98439925c2e239042d2b9aded4f542a478a7cbdac6960d4d5afb11eb
01a215db5706704b8f8b70f81b153eea	5	agent_done	\\x01000000014e580d8523b8c39f35bffc96b736988b73169d379d1298d50186ce56379927fe188f5d9cb53d322bd2e8d3253f3a7cd487c158ecd7fd41b5d3dd0dcd82b417ddc28d9cfd2ff53ae7661e4db767b3ee22fbd000f73914ae68135ad35c356d8253e7113cff19dfc7b85218716843270c0cb3d60e33ec0ce980aa717e8aa46b224c1d227977d325489276ca03974be693f302e5e6c3d1c25039ad3a1c9878421c655b1a7ffe8af6351de44bcc3d7b167f1d5c3714da253588ef1f13ee270b425999f23f842c5fefaef2bda928e7fe54ca551b61212869cbf08797acab380f8201be5aa3e01b9899e8a5ed70d778fd2c9c611740219403c6a819a89e7cc508ef8a4b4e80f271bf5b095052f40b36b25a1ef9d9efa6acd0c2431b2fc059ba8f78e956a4ab9687bbd1f5b6b0633f7528c3da95eebc7884dffe36dba36aba01590670ca56122b9809621912c957ab70076e7be583e8b0d9171dff710d06f8a7b1820d3ddb950572a0830ec703aed6eeb3771f36cd42a77c3fb8e899602fc8ca9f00a7af91d64eb03c124101b791ade4d9b7ef213e7a8f5cf2488d55163b4e0628dd10f5556c1d8cdef9e2e0301178914799397657fc0c9d26876599baf05387878b554686d45b739345be39f17b6d6abb8c649c3d7c8dffbec2454cc7ab8c54d1d83341c71163ed2d59dde9e1611e6ad4ffed8b1109d095b215fb4143014db03a7a19294b41181dd10c6c81a760bc20128d87db1e75c04cda615aacc3d9ec3eff0e9522b562b1225559fc426de996d713f10a063c36748a6e8720b02afb559dea294412f17e7c91a9a5abaf7632d22166478b109574f453bc186c646faed6c3cf53867789fb291955456e8c45e99d7c8acde3654776628089373623a13d737f6bd776135d24626ca43bb6b5f7131e93fbbfc1fe6f944cc0b9033f2fae174ed15f93089876c56f89b285a06c6317eb456e719cca43077f41767790b67f2150d074b18459c439e3b7416087e0a972bd8a77f2ac65822b3252f80f01a48331169a2df0dea954cf16f3836d54a0a257872ffd2a090a1ea8b8e69807e0e89e3a0f90be8009f5ca7a6e3e8758780553c76fce20210c0cd14482e01067ae1653b33c33007d6f8bd9a934879dcdb63998e0065e7a22f21569db7aaeefee01dfc209263c2150418359663db581362d1a0c4099d81e070270735c014ae6ed77e600b99ccc8755f4b627cf1b60884b9073b706237657bbb81580db335e6c804b25772e78f24156c39d2732f069ab1a5e69fa752b993f6e46ebe03d9776c24e41d835422f54dbfde92d04a697ec79135d4f2311c316543ab78acd193fda7c21277f87603218bee0284ef90c9b978288d1b0cc58f118df8f181cf293e850b08acb52687bf5304cd4ced46e45cdfe40ebb5863cc74a6b52afb923812a543fa002aa53d1b304b3d36a33c71461b54a7bafc345589e47e31765ad13225989a85a5cfecea2905a3f99b717f04fa668f4392ca384aaff055322072ab0301359ae410cd2fe80362331426f05220b1f6e87cb4c4d71094a6d62d8956fe7b1e613961a597d6d75cb4925695442db5e050c3d663bbcc76f54bd715d4a43052633a28d6c0e9baf31c3e0be961cbe4ddf09acfdb7a183bc2fb90da3c1fdde9bac9d0683c859364168a8c3f06fa420cebb2fc38d3e6e83113a854a1d5a87244a89415a0edf1aa7a3ef93a9b9217408eab1d37be209616138c607b6dac7d4215e30c4afceddb9bd7a19f5074e15f0cf35a8fd2f484433d10d2402bf52bd9fef65d0f2ce23a4db781e3fba1babb306a6c97b759b92305f2c41f7dd3d6ad61751ba0ade2d9a470ecdad280801898aa8bad65d5cc579
01a215db5706704b8f8b70f81b153eea	6	swarm_done	\\x0100000001b1d7955af691a95ce74100b24e4d582ddd3f11438414d9d4a3b300ef90f90d10b14bc656a9bfd53cfdc0cb39855e1213917c1a253a05dd95ba0c0099a41fae8c367825080cc7c12441770e1da16e77f6dfd91d67cfc440495439aa86eb31eeef4f94d42ea71c62da8b3c206fc54509e5dfbf3963284cc3e0a1649eab80bfca90804123eb5a3c8af23d5b8210693a702f1efab5f06ec80a72c415f997795b6ce75def3a847cca240de80c3eaa4615706d08486b599f4b8836b09aa3f2a9af3d57ff5eb1feb753b82ae8e457fb69332d368d961327da8a566b84da366527cc48b3fe16daf1445813c4d0258c0e56c14c2bd13d9f4a6165c275820799191a7335c9c1ba935646306713cab2ab54700c96fcc6b737740a07635a483ebc905309921326813bfe43d8bfc03201a89d461cbb46f3ee75e3da2e7d9aaf02de673d4bfa84cf119382969fd100c79b001410724f034ea04c3464d7719e0a68ad3573c52dea34e437b256fe496fa3341ef9876f3624d294245f5a455451034a5b5925e6d71de77590c8f5e629af47577a6f10cea248a50ae4d965c72cf1f03ab74c075659723069acfdb47e386df4806ef93473d63f845730f205ae057f30dce55cf4047631919fbbbe6c97457a6814015ed97726e221cc5074f7c5f2411ca10589cab2ce4a57ddd7443f875e471536e6ae4193edb3c8ac680c3abbc95ee2e275075f61a543a1d0f85a6153a68049f41cd8f9db61a2f68b7d14356b958571a15fb6d217c359a2fba8e4f464cb6a6627eaeb240c667ff4a8c6329e436aaf679e15b4803738b1a0edc1d806ef0e7f6c644f60bc39df70b3a9f3d48f31b6b84f15da1cc08672a925c51128a2da771650f362f5c9602052051ac866c474a245ade5fda88dc108cb57c25d745e9dac32bb7b4100521ba9bd390458708b5cf8958d87d7027e3968b69d3365f284f864dc1918de46cee59e6773f5775939632ad4f80ffd343f16946976e08014ebc744c2f80944d86ad04efbf8d1cfaaa299acf309574abf54e43e7e6b960b440182245f52e50c05f4dcd1271571e4a53be323224a728d4202b7cde01b6129e87daccc7088b002cf4f911d4b3242af27d22c67739037dbd7820712c0cf3604837440702e00dbab7d0e192a1c1276e2a0d1c42bc717c2999a5b3ecb48b74eed99414ee5d2aff278e8adb558287cbf4e8c5a5f866e08280f978bfc9abc5016853e8bcd06cf84e913195449b1ee5e4294e7f6f5ef437fd69a7ffbd612e1172d72f334eabc672cfad6271659f0c782dde0090e34d4239760b8cce5669105c7b6380c6a21472059b29645a1080ada4fd8d5958b792311d858310e442e2dd5275d703fe8a97855c305286ba3c3fb15c526bf1991a5026b7cebcac832c3940790f256efe4dd41468d47c0f9f72a3d1a45c9588882057bdcacee2cd780d7e73d0c31c2065929986538db0cfd0ae06ee2f68138f9731fec07042cf6f74566faa31dec8780261e896eb1291cd036a9cc1e0a89773199af1ce39f84b3da9ef16ee61c3c93b0af8a478bb54ac144fddbb9dd2ae66a833de013ad382b185c165a5b3165cf6859f76544bd962ca3c8d86bd139b0ab61d0ec036957b711081acb42ddf12fe9c7752a6e2c966ab8a60f365fc8d8d37bf6b9cb6a05dfcdcdedde46e5daa4ced9f0052db93b2805774f44943f7599d93fcf2bebb50860cbf35d66f6c823a04985ef150326fa726ea08e3e7eea58b87c4a188270dcffc13d4b4099b5b83804c069f8f21c1a3ab81013e2d5bb803565f6b1a123717cfe5264898f060b364b1a1a2b5a3048599af159866af54fb6913875a643026a03631b87e58939d07e194b1e88d7c9c836fb5d331bfa8a4e6c93907795dc6e6b4cf7b7714d8aec529c88b5c41d0926d8d128ae035d2d1717d2e6fa850ce2177f33f2ef224fcc0338ef1fa6166d9ae804d3324b8f752d88abdf80b6c5a1b5
01a215db582073d490a6a41e405242bd	1	agent_start	\\x0100000001db0577c0f2991e902eaffad8e1299adb5c8d3891797f6a9263a1d918eebc4fe4be5e2d00b264d8e3181c36750e3a6257426d52cff837ee030264a8836cef2401e864bfa7d8e6a4e846fc5ce5be74e5968a91396c536eca395c335a943d810e4f9193f4d20d877fddbf0dccc97824ab96428bb3a9083374b2e3ecc878b251575b0973dc229e772c7cbd4479df96504806e4dd7ad9084c
\.


--
-- Data for Name: swarm_runs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.swarm_runs (id, user_id, swarm_id, task_id, request, budget, status, client_key, request_digest, fence, recoveries, lease_owner, lease_until, parent_hold, last_event, agents_total, agents_completed, credits, tokens_in, tokens_out, outcome, created_at, deadline, cancel_requested_at, ended_at, key_id, bytes) FROM stdin;
01a215db562c77968fff100c0f4ef6be	usr_01a08951993f741585c520e1ed44de81	done	\N	\\x01000000011adc8ae2adac57086ebdd74ba9b626301215090cdaca2d471f01b2b72f2f3c14e226cf250b79b97cece6e6ece859ea9e8252f9ee5759b60c9b1c1cdcfc948ab70d66c8b5008adad1fd5734ebea9a5a7f6867e45473c3d60696e2a5d5efaa70b521c58fbd8c07ea7ba1e600bf55f6a237039a1e7da5f6338e93d745f9f48c3ba166667c777b9733bbbc23776464c6e2c1fe7a373bdc4f5f952a4fd96de18d200ae4100092c471775a4f6a9388bcf83310d06b8ae95612fa81433fe8074f6595701723490f1d568f1557a04813452a2a738d1ef955553d3423e417a0f6fe7ea8abc3d09cda2f31da714c4d77fed9c01e1a73f58e9fa311dddf95fbacefb6efa46f5bdce6d0aea35cddf0545ece3170308e720eb8605896fa9722548f9e5372e4a6f814437fd37664dbee4bf49652048bb819a6d7e3f5c506ea2e72db9abd9753575ebf9afa00949afacb160ae2e5a6b6273245d8776170f3584512a7a1a47b3bdc0da2512deb80f441c4c5babd575e540179e2fdf2fa09bb2e849066052c9da09b4130321740f772ed290a5338e5c161b4797530362ed12e48f598d499388bbcf6e6006e6bc69e054d1ee6d194416835cc2f13c3fc6cf9a9b3ad976b9c20fbd31c21f61093271f037ca6f3dc855cf7e75e6cb4cd032a49d3e77a3b0794bb7a6d8637f44e508c8659300e3e988921601d1719bde1ae1e08d29cbf8878eaec066f79ca4a69c52ad501275594fe7d4f305efb5b3099c0c64bec9ac418afdd4ec3e0abdd486ca0d1621e11fc0ae9bdb81655460c4a6279c8ea5cfd5d640284cb0f26400429c878c9493ce3dbada738a30eb37d4a0129ae0106e1f55d31772f4c22be9cccf97b685d6335a976ce7d8e6b5f360ca82e195ec704abe60db2483e685e08c4624173cad3275a6adaeff4d383bb1e675d4cd577edd444cd9af57564dcf0d081e0a926a2e873c25e56a9b308d6ec3a05acda9f73a1f90cef817cd72c4bb3d33bf572b37373623981e74bcbae5db5d9567c0859e17066e9038e6090f6edefa8cba3896bbdbfeec408063a91e597b7a0f8153eeaffa3ac63111240f149ac9280ac4121b9b9bef0160341404f702d99115f2b95773266b5dc84f4b2c2aad8239a1c474d666f546628379cac732df502308b820c3ef62c5917dee811d831d53001fb7af74c7f1e461fb3f9c352b6f86a379f7e1f44b2a5384ba21712efa85037933b88d902d2cbb017ed173c8df846445b3bff97d88c70d53d7b73cebfd5a1274d64a66e733bb2145093987245bf61fbb523e65cb2f3acd3c0026138b5f8aff47ebeabac0a9ed89d4178d28bcb7919ca6f5adbea0c0637a9241a4f23074122c3ea4712efab30737bb708b0a76322dec526fbca32c34e3cf51eee3e2da68d84e170c6e8fd196968289d3977f70e547c06ff15c9bb68405d99bbeaebcb6eaa98d6debebd6a23fa9c430127ee474be4f81c2743a9f5b179d029c1fb631fd7525a7a4ba6969cbe4d12ea64285ef686283b966d961c5af4a87b35aaa3d8c8fb01032f5f0fca695c10dbde098d1ec1f2a8e43791305f3e45603c62654377e4f0b0a5d14d0f03e7259892833a83d5edd4d06867f972c1f7c32da8861db780d7374b1c33518fd331c2992c170c1c3f9c640768ebb9f9e3c6d6f0e91aa43384111f297bfa966aad29406b401f4dffa845efae6580677c38bdc8de659f61518df4efb1f21a8bd09a3bc0c69e9506c72fbe2885e63bd545965c4a5edaee303d2d3b98da75ed9388d6e07c7e243f3093dc20dde5f6359c5d9b2e6506d32baf076cca390f1996458dc87a847102d1b80498e75eb874f0f8efda31b3de9d875609dfb3d709e87ac7bdd183e1b89b37d0364c0706c79aee3027e8cf97f17b9eda442fd65ff3ebc52d472e56eb41cc1ea6e751a9a441dd718fc769f3e2b243421c093d92b781c66fec6d30a1dab21dccbd306bacbb6bdb22bb9754edece698271ed903cde70738679dead4cd965a68e7cda027a9adeea852f540f1bf28058337434a8f100b463c1f404098d7345b3336c1383abe5e9cf3b020e04e22db340e17cf8c081f6034290422d5dc4c82d08b30313a8b239cb40cc8de378d87354475d38ebd6c536e641f12bcf6d50f0ca966e58357169c39f3d9132df7f534ae6cfc2883c25ee15168f45609216f4abe2689cdf84981b3e4909d318e335ee92d84f2b5a7e7ab9277e7fb7256a2c609270f4efa4b66f8d31c74371109cf243e6ad39d72903ce183944912d892c0959330b625cca3636be646e2f259138a8af5e94159b28b595121dc5d482a37035a67839b665ee7c1576d736e2541aeaa42267f04404de492bfb6b86c5f846c265a7e569de9ff374cf68dd4669c031d93b2bd643b4e9158df1ab60b838d65b6e2dafe0b6ae280330304ae97a08495f0c933349c18620e0aa5a0aec458ec7858f5ee97f6db09443e13a7d26a0c0772da611f47779c5c73544af2ee0a8e90bd6885fb45eeed735e5f748f0b35fbc3fdf297db653d288d58764704004ad8f2ac547182cd70b4a2dce2c0647e102deccf91e7869a9c900c98802a41d76e7239a0ca9c019a2e4b6965960c7a73cef32c85e833b7aa4f79c3b3ebdcdf62110b03bc12f69faff0d6ffc6156bc42bbcb9b493f180554d6f6ebbf938c7a5571394a53734600da1f0509dcb5a9220fc99dc676bb1351d8506ff8bd11dfd0750250faa5530a15b7b5204adf6ce25f6bb006aad3ec5f5a5b25cfb620ba2a423fb9059d96f900dff930f1fc30a39d770cf6b85d3587fd273f5a1b9cb5221efc407892f3de795753c62d17e68cbca962e37e1ba120deaaf54363f2b712efebe484f04f60e33e398fad375ff4e7f4a0869fd5e2579fd4d38dddd65d0c3c3a8420da6220c40656535ef41259cee7a5d7cfae369047da8b5aa8bd6078ac20c319ba9e0307323970dc6815a181a1447e7d5a31e6e074445ad202b8c948fe4c2a34905362671e17fb7d4f51c097d9f0fa2fbf84b0a87f28191e73ecf4ebfdf41272a49a18ca689ceeb287612b1c80e6bb0470fc942c432e5c43835e0a8d3874a25c557a5fc2221249d29f72a3f7aec5a5aeb51f0fed8bd343880de6fe736fd7e90eecf7593d80891f7ec13b116049421dbf50a5acaf5adedea5575e5ccd4b73ec9a6e0095bafc235f8e1660e2c03c12f9f87d0fd8c13cca85fcfdc2302d5958d8a1bb020c0aea655edfd659dc8e5ff2a94c360b6149bd60125547cabbc42972a9ce2f9c8f350290b4a24a3c495ea67e9ed9489bf014672efec8db663948f9586779d2fdb9c6f6f53df737a29320a1e5b73dbc6dc166522d7f11d725c34e7d79854a9f7f40287c00e85b170f0e3729efed2259a0f1efb438854c1d9ba404918fd1b73a9d8565364e9a70b8e4ecbc99a364eae986cb9fb996e88a5b34b3f0e77fb44e9e05a76f0ed885dac362baaea02ddf4c8a0716c60e3ded8eeecd891e092ea214daba14bd9911427f7952e677a7a5b21857dcd4dc09ceaf4759cfc7e4d18ea56789d20a88afa50ace6702d8e6b581433c6650fa3401839a495f7ca1315d515244f214161b4b6951381a5f076f46aa51002906d93c44718100c64ba8835a523b6bbcc8331eac4ce6a1e29dcbf97ba78d8286bd125c6301858656284eabbe8f68dc3f7c087c912c545df14fbb4b79d562ddd079d6106d5e45156a7aa28a81048e8368b33d1009bbfe53a4fce001afaad25f2a36b61cc948bbe83b5745eef8ffff2a74c1e09bc229e3eb081fc1f56ef83addec1323bac42bf302cf46b82081cbf1d8a7e33c8de0722bc4e135b15a5ca054a40808a1c2a06dfd04e43023700eb09b87cb9a113188f7ddf9d366e0fce15d4626f690a4adad18076e4a48346bb8ca3ce7f2046046d6e4210f45f78cfce0eba4755b9f8114a9b35878dd5746d4cf1d7f13eae83b2bb0f5b20773a322a6dc94a19aa6cbe07eb10ee05aa913ff0784d94818e65b876e07fefd2d71ac628194f21e8bc5b6cbf0b965d0d654a034e4a3b03cdd6fef6f59768d4f91054496cf94ab52e23a996e89b22a86d6cd2b2661f73d741e8a26ecb916ef46d9f168133164da9af45ad4bc53f51bc5e20075eea4b8a0878920bee20c2748838a2d1d941ea616b0f3745119045678421c776ee2067f556ae3b99d46832aa298767ec9c4434348f675b9e6f49ef67fa1703367e3d2423290d1aa764d813bb925b5a5fa86182837240f6b127b13e9a255e0e9fa9df70795d6bc2388b5a7c97b321b1dd5f71c873b28e693e814d0ed89cfcabcea75438b9115371947d6af71882ca220350f17b1b13330fec219e9c9b189ec8d5b0dfad020ddb382998b59a9415ae61883a861be3f383700de14ab33659dba0b32c067fb6e2b12a65a5373f166ec5dcefdbd57393d62096dacd28b2753528a19633ebeab83b40d688a662137c60d90b873071bba5e6e014318c95b0d39b86fa61e070fc843cdd00692a9e014a8d764de007134e6324c2bc8b993f2dd0bab07916f5938751302f2a57032c39b435a057d0ab820fadd9211436a4e9df540c799efee0e397fcfb898722e2fdb7c4433a585b0e0e419623881a46c9776fe896186d49d9845fa90846761c408cbaf27d22eee42e9255158b733db7f7b413e0ef6e39ae3610b5f216d386f74a8ddce8e82c7bc25aff0df21f37548d44f9a00cebb761b54483eaa4b63306ba5cf35f1c483f490e4c73cf631527761b542f9f9eb29e8b48b25d32a81a2ea60771e5efac8594a40483df0b80d3492b9784c3f46170e74154b86cdd19865b9056e60de7e58d0b07b09964f1a7e7d069bbd331629476e17dcede747a2ab2d72d0193be31368f32049150f2204e586473c673bbb087a27039de36789c360dfc991e63ce01ad8778e3ffb9	20000000	completed	\N	\N	1	0	boot_01a215db4df470aa9e5fc3f2e19b3b2c	0	hold_01a215db564576ceb067271e9f2ec59a	6	2	2	2146900	1552	505	\\x010000000154a4e38e1ae4bb6f8ca37e1b059d73dbddb52065c2f18867535770fcacbbd7f01488d452a95ee92262abd5049d69281aad8b07a3741ffb0c4cc5493f415488ed644e08a00306c688fd26d42566533a981a888886cad5ef82023efc5a7364115d6242c0f7cab92be9592791fcb4fc23b995d14a37f9d7183439ec3522d69676d7b26378110fe6c7229437d74e71a4528f7185b289888da1be43ab766c2b8033dccaf30a855e3a20eee785573af183e300cf89e088c667cd3a6ea1d6c18c69e34a79199e0b9c488c545601eeb19c044c67c51e4e728e59dd8982bc12d267ebb50709b3b6d19eb315399d45a7c2a8f38ec7fee40d78e5586504b969b3067044106ddd19c328aef43488dbeb397917184dfaa3389140375ebd2e9291a702068964b23fb26a73cf8cf8eafc05bf214d6f25d6d1c004f5482e810f4408940f45ca392dbdf273a28adb3f5abc399e94fc3e80699e735b41d4d1e2e7c6be28b2e6240989454aecd0f3a9d474003d45bf403ef3403c59f9397208a8fb2fec39c0792b1e4902b1018b08895093deeb8e776037358ff3b0a48d777f31fbb347192bb4632af3753827aeece658dfb87c3e7816d440899298661e9e3fb2e29d09892a740d06e59fec534bd7ae647181ec9aa984b49cb84e88a401065d5cc9329bf0c2b71f7cebec45163f1d9a4422227c90589637100fdb0713938548d22c6d3fbee6f73024e2a3f2714eed110054cc0d8eb07694124fd4942c2a830512aa939a70eb023acc6865712c4df1e5626db59d34ae338df00cc52aa6a7b266c1bc4071edb4c6cc6e9028810d2d96254a61d709519aaffeaf140649873c5c34b0430f10004dc3645d7a71127060a80aabd3aa9832f328f1db471a797be8980b6b12b2573cc561a56058c051c25bf08667bfab9fa09be37277c0e0246e62758edc14eefcf1f434a8ecde196d7e246def03812008ec1b1b1da1e3402380c43cd60413a94fad4cca29d14a57866f04bcaeb980c4581dd3b5f590c5c868fa5c226989e0069b3b93551656d59bdb52d839d4f8de2edb104ebeda2a9a94dbc89dc6c829ce641c61744a43880b0853bd4cc215c5b15c6cef4bf06743c1b6b17995d279f2d13402af3c43cd1b564e4c256e894efa96674cd67015f687c6eec6153a2c76b430ce165ee00117e3579af62b68db142a4c0894283672fbc8ca3f26091233e33c791c6d1937386be74bb7f2669fa5c316f06f1db10b8470c635ad38ae9777064db60f4c818f13820c2f7aab0ccfc9e82b9361cd3ef8cdc80d0556ec236348233d1cd7d99b5a4096a4cf779e591c4fbcf8c4a0b386ce96e817b7f067635714fb761cae08de8611e42c874389a12cecbea6d2b6131e487b812a4f5f594450dcd77368e89e4b8ea5f75981832843338148ba62c8a5d30196a91396d04b76430ccabc9b03c515bfe1bcc5d6898407dd6c8fe2c08ee9bad36d9833f63bc2d3eab0ea005e9c7cf83fa7e179fca2eb8549d0f8a79f437a1db14d6c38b3676fb798531853448d95d5299c1b1492b623eb0f3b7f5585821bca992647b8a1fccf34	1795663025709	1795666625709	\N	1795663025914	key_52afbb6b77d4bbe2	15839
01a215db5706704b8f8b70f81b153eea	usr_01a08951993f741585c520e1ed44de81	done	\N	\\x01000000014447ac4f082d13a7c8e83bcf3bc4dc0ea6b222f214ab5523fe5ce5e17e56654f519fcd88337b0d2b876b047ac214ec5fe4de2237f53a31b4d92e83b6785b50313dea7071efb60dcd7bfe0cabe30c3fb285830a7481279f7697e6d60292bcd8fc9ab03e1481a0e652705543a454fc00e141965d7b38b698cfc6add79e384b24c4beaa9536ce70b6743cf21bda79021aedd0e1d0c12464196e4474459ae20200ec5fb785bd3c4334a6f020b91b686fe24f20e801e28ed7d6d253ecacb269d8f4fd6f8d31e7a9f99270b3b995681079548d3ff8c187285977f167355329505fb2168ce21f4b56fc32191ebddabb3437b21347d14a6f9fb556574f3c54148cb0ea3ad24b627d9f56a29f5afdaa48784daa7baab73219ce97d0d96dcf4ea05b443dfab3587dc23be9047a926a6df501b69c330e2c9f8b3326b389a19eced5e40fd1d19d214ecc46ec14a99be038bb98dfc130bd4e1c8647200925df4d9cca141c4000085dbf8684ca284169739956168a210fea074766ee174f559ac04301d6d9bd9134c114587345521d747b2246b1f4017063a8143b2322bf3e6446229c7e34a82d359c9c0f04f01a7206a4f12a783e1471c9bf3c063bd2042a2674bdd351d1f2e84347072d51578b1dea00718b4fddc1c1958c13b6d40b66225b56db0e90a6de7cebf864cd445bd50f6888d216fa5ad3e2ca7027072db2f1a8c7d36095169cfd496c97d7b0ba2b4fb6c049dcef11eab67126b4144b6d60e46a3dbbc97bdda6087f50d484b93ed8da2252f66858ffcba785bb989902cd3515087cdb331852a11da987d297e9bab3e998781f29bc155b4523215b7f52bee10d9b99145df5254c4c9176c6eefbcc599912294f241966fd0fb8268dc05827b3e7423911f488514ff416e7de1833b8ca1b5c1e45ce90f7969e19fbe0927fb65af5e221a458e03eceb87b8a17cd86b61f44ccb12cd164882d2ff482f71e764cf830204d6b69853d5d51a5f55ef737cc8ea3379cfa46999f7c2cb52ab0fa4f06cc048c6ecc93913e6e0892a897e39e33a160816db5694499f5b2c4a31a52ae40ed3e23fdadb6d6c78fdaa7a9b64fb7c6afad56c3f29931f899895971408e32cdb103412a9dd8d3b8d2d267c6a11300266fca36db3564d15b78d49750a05802cde5d72aa23fc7a77a8bc2207d897b850da4e7e9a0d8e24233315d3c1f23c8a1695c5159c8f6ef89cc4ef2ef2257e8a84d12dcb899039ee06e17e3296ebd71799005e2187dd1fd4cff3bc35a094f984141720643b2a0a332c559377b71f0b87fa80113c29c084a350f51f0013162c42a1467a72ea77b1778ba1f2deb51d1445876869efe966e4cd49ba96b658c815173fa22c755a79562f3376bf4bffacb08447204932411090ea935dd02522686513a2ddc156bf8f3cf5210355edad6b0189b4d98b45a502b820470a457204c499091382d80e910e6c86e64c2531c2a226d40b78ba3d52fb62b9da94a619a9c09698fcf6c313b8f76c67a1f500a30a5aa5bd0b06b8da7d4f8bb81253e3d773f1eb4e99b1456ae060204ddedab7b680ae11274b85178a733acaf224e7a2658f6a9154236e1b78dd47ec555afbaf957419d8d02d678b2494f3b49f5d8f4471a1c79da7f41a2eb0a77a6940f270ad077daf4d09f84216d6466ae990d8e0b12933ebcf13047e0ab2722f303f8c4e8bc38c6a5a9d1f1323a92c78f404347b8d6ddfc0f7bbd3b9825392f6e14eb1b3559c3454605f54af8aae4ee385c3c9025b0ddcf2bc261b328c239152ea811b00ae3019499fc94bdfcfcf13b1841ce2970bcad3abc87a4ed55970d4296b8c95bdeeb011cfe3b2f452d1b7136abab5615e43534957a7dc53ba55307de7a459852bc8a5bd970f8a590ecca151305bbfe5518a175ded0f8576171d3569a0f8656621a587af8d530e5c6f28b1f57745629a23b004909efd6f797f3463742c2261a373a5dc04cc294beae0b3a20e96e9afdfbae3313fd908cfc12babf8a0097249a98265ecbced182d40620bf8cce2bd2bb6eacc8f7b2ded8ad12651b24a7d5bf09285742b3615e875351b8b4a2b5df5a7a65889a6e11fdf0bdbcf5b21437fe2ff83303a49d6227ac3b726b1c04468eb798a36fca237ada3c71c03ebef01520a7b043d3870dfc8b9174391abd0c69b6d08e3769fb71ad8c943132456734a24e8c4a7d150d26b33b4f634061ba3599705a31b85666a7eecd792702c0e0bd05b784d409445a74166860a7649ce6282ab27691272fc9e2519c83c4845dac213a318bda29ab4b911bf216c71faeff2513acc2290d60712c8729154273b48f56672fedca97747a37b66bad3e88a984e532aecefd6f906b590a5ce9f465515d3e5bb14071424e2f3a7b5120be8759a4ddac253b6280f2a2552f2f8ff474ee399086e0b5003de6c41ca6a6bd611c9f347ca6941aa864e3819c06b78c4f53b23223b82ac400379f1346d783794cc8aeec4f6cdb96330100d32df68631c0913be9f78006f1c12c573ee4513cb78bdcba8a87cea96de579d28bf42e72ea44428f91f65a0a0e11971d966033608addbee77120a28bb0b3ad90af3ee15cc5b6e2ca314415264f3b5ca437822e3cabdd7b696e5031929af4432a93e431e4bd62125bc8c80b7bf0b711521f6f59a7207e3c54a61764c9560d3375b4e441e7b1e2b3be0fe86313a799cc6119e3db9a2aa75d873c69504a24e6e0251879599497862ab39d596b8f0628c589734387a8110131f07078f198dfd2cf9b7d810420fa17b38577abb04bef2fe453bbe757de0820e536235d5e1cdcddddd4c7e3b6fe401fdb3ee3048cd15807fa56684aa03f82ac381f9a1e1908add4fcd7b4abfb956ec3cfb4b2ccdedeadea1f15cb12202d1ccf403bf968ce3dbcc2c13e2d08b6cc92f93fcaa67373202be4001ad466b5617ec32c0c4aa15f168f77bcd4648ad8f3c4732f257416c5636162c6a7dfc2561ad03894cc8d1a5024bc60b594116da2ac3ac12ed3f4a7e85e29c0b9ad806ba5c9abe40a338250eebb605f870ce308da0ad29a8683ae90f4c7db1d9d6008dcfda3d3bcaa42214c22fbbb7fdfa8d3b118fc64c31548919ebf6306a486a66d5f5a394845b7049c2bc25b79e862f692a14888c06ba2b3b89101a880c3b109c3e6f63dfbb300b17b079752e2a79f441840430e4e5a20dba56138a252d95341e03c31babfcff3118a640903bd9b988330325f8bc08968e70015b76368745b0c7a7ffb635f8d76145c536d4e93c0e2f15729306518b493c246318d6a37c6907c7cce99353a8430fd04d3e6a13175743b31436c90911ee01337892d51d02515ae587622499572aab66cc0b151d1518a6fffd8d0e60bd76084707791d793a24874e45ab79628f395318d65c84088dc0b587c112e069c0f9483b0f8dfc736ac623190a76435b3fa74386ad07ba2a24f2197fea33ef750676a93ae9cdcaa9abcbb4a1585e7a600fca45a5d79fec8b51234a8b9e66ca3076ff6b12af277a531b4cfade9c09b9ce0b9b85dd34cd0185410677ca76db1b118e9add8fe714c0fc6bbe5b47af9f305842e2eee160ea19cbe4d7194ee09bc3b850368abbebd61e56e5a5a76296ff4828c2df8f2f031ff1b0e08b85f39e4ea9a8a6db0c7cdf2ea78ee74f57c808f4b2aaa5e635be8cefeac87500a44168a99bc13fc10ce6444ec93892b7383cba34dfd4ca0a86fe677a03508ab8ae0d98da716b9410d690b801903027ed355d6b78c93a319e821e277e79ceea57dd15fedfae0c4040a386974d0eb3244024e157c6e4e4e40a8addc31fc5210b28f259299c0d2c271599edae346d721b4bb96b4e7f9d1b46580f74cfcab85e3b3b8fa5a8b07a1517509545c96679d6e2a32bf181541f46425a4afb4418506344b42a65c1043aa1ded8e24f075dd66ee3ab121627ccac446c043e3707e72f15d48ff9396b23d8373effece320e6653249b58ec430bd8be7c561aa3532b53c6e8761fac1d94f516779c9555b4259460f9f89b81bbda3b9796563fe45b6eb86950bebc0953fdedc060aea73837d66fcb769a7a396f3787af6d892c482aed664a3ea22ffb1b4b2017fdc4d72ba7a04057c4d22bb34e2bbaf8d8aead1d2c8e235bf8dfbb08b2fff1c9d0b25f4965f63c532715d0fc016a2b5b7776776524fe4b7fb94a2e11ed3af6b2c6e50503e96fbad59648ae1a5110f84fdbd201da6fb7d70748008155b07e82ccfb89b3f0f0ea66f4a1164bb77a7292757ab88deec0b6d8ddb4994a25f060c434a1d226c1c13a99e5aa52e9b9324997f13658087865e704fd44609485fa310561429a2f3195a26359da93b42e7ded56611ed32ec183717f9c5dd8f32fb8a33181072e959ca68503e2d2e8ce2d5a1f9db5e250caae767f935d54984077b4c361364c41ca6fbc92719ed2a584a5a0aa3e4549b32290ec72904d749e74cc814cea907aeac5b89b871ab9c7858d12906039bafe337740710ca24c3770b1632a9fd896f3b69f216677ed77e5bfaa7eb5ecbb98c805324918f4eeadbece8dc19e863d3eacb9bbd29f01bd35acbee352a7d471c3cd08d620f55ba8fa4d9aa07f25b6f4c8e892030f997af2cae5fca77c2ffcc4c47e421c792e11632336ff1fb2714651237318a2d75cf496e390a7c094421f1bbfff76cc5bc4d410418fb89f43e5c5492bbf41fa36e35ccbbc70d9a9c387b40280f68c6de6545568f6411b4a0077b1ed34d0a7e5465d7345b9c258a554e630d58f94d91fb50792488f1e64753d27a799dc98b329ded7fb8b6647cd24abc219da5ea6e2f10666bc0c719f8f06bb76c837459231950733d7530c3da2befb09a49978c1b270ad0f94c3ccfd517ee4a3d3440d030363ecae66792c82dd1ee81b32abc5372d79a90a965b2ee5d7c2a76519f9a2	20000000	completed	\N	\N	1	0	boot_01a215db4df470aa9e5fc3f2e19b3b2c	0	hold_01a215db5717702d803704c169486a4d	6	2	2	2146900	1552	505	\\x0100000001835cdd2fdbea47221dde06836b1940d17ad4281408a08bf8cec41277af51f753cdfdb585dafbb1ad6ca0259bc82f6c08a2f2da3621ca623ee14f1aee8baa62710abd68ed6863ec87ac94290bcc7abe87cd46f2da2622bf7cf9a04ea7f7604ccf1fa7d2ec402d53a67a971bebe2b91903761b81d1e156074ac2c23617483141c868dadbba306945cd5d6ae61aaae925091102981d371b44c97c67e5358bf99b52d019d2a5b3142d5a1dde04d26c5b1cae9c6114159a21a1f6498beac669d927dba704edf2531d1e5f8ef16960e136071732df0ad725d5e90a762fd8644d5d0bb18f288432a4a8cf7c89801e622bf8248b61cbbadd90467bb305babf85ca54b0c40002d6fd9c9cb2aa957b0b00c9870e3be9fb2ed2aa30945d64f032b9bf825cb9b200058c6703ce749ba75fd3fa7ecf1f93ce43f1f8d3db852aafcea324b8d6651299a39735845e1852adbafa84b48f5fd4a362268251f5715f8d3fc7c6735b54ad2c4ba3174764fbebb4b2c259c5829c26e4fb74bca960da9a41466c2d224f573528a2d8e5d4db9c18906d9a5564cc9090b3ed85c97be2cd0088358bbf076f939150758d5f3785f47c68dad740557a18728b9c5636b6697e55063de6a253126c3573400b2111d48d1d80788a23ec839e2216af340895f9ae927a82dcebc12196e9b89e23c68bffa7643e074ffc280ff94c5e52f39a05ef02022ff78109b59cef3fc7c5e52a82ceca45c663da4675cc6181b010faa8a64e42c18c467af7b52dd3586216702dceec838a723ac204d9ddc985fc48cf936e7bb58fa1ec4a4858e578ef7e49d7803992ff64cfdb90c91640b4086a2a8efbf5b8241f0f37307ef18b826282a1fd190ddffbc9f238b0ec28e8a981eb39e5128eb4b999e9196049aaf4853bdca7264ce053ba73760625eb100aa6168498b99d3cce1d12cb6002747a0677a7de26acb6a0c3de8ae806b208a7aeaa4039233f95ea6d9cab40873c0c00517c6ad6a4d31e5253608a36f27c9996936c273493639dd6b8133a363d2003069932448692e367bdef2cb7e99da8a2936b85ae8740dd6dcc220dbe9571fea0eb7aed1a0b3eef707b208f153d5a5cec7c5bd30bdd918c130e0b563c730d8c1fbc9bef561c11ec8d048bcf3fb2aca138a096ac928a15d302d45491df22193ecd44c38321e1fdb6b3001faba956f8d9cfa9a25bb353208c822c0dc56eeaf2e2c2a656c66071286165b55561d7fc1f268115d47cb8c57b792711aeff9b10629e269ab7465b7a3265a10f2829b1590d7c9f113fe34c88469bb349da1f63578c2bbc0fe7c7d88cc9e209337b3b64b4de57738672d9aace949a6ed2ea9f62666c0504657aa0c3d64eb9e5cd3bb9c8ade1544279abe53b36f5670ea60804ab7568f04d9d7c2e4a48f38810d2b9cf71b7b55acf7cbb5101985a0c0c5fa3605c6a933343797213ec30f2fdef835c625c67d4eed9cf974d09a89d55a04bb55b3b8d825f6edbc3174f61e4b72a76679b998fc73158749f1db7e38666bd93a506d4b4c59ab127c9c061fd74d6efe48f44db8bc12f5a0f60cbadea19	1795663025926	1795666625926	\N	1795663026134	key_52afbb6b77d4bbe2	15839
01a215db582073d490a6a41e405242bd	usr_01a08951993f741585c520e1ed44de81	waits	\N	\\x010000000100ab3aa5a8973c5626a9dae5b518d54ee231ddb3b04ea6b3c10ae491345eb1b31a200e35a18413a69df33d49a98cf9ee29feac68dd1a18ed96d2d71616aa92be874433fd6362ae2d97e629aa429dbc673ef10ea9718b285ed3eca8af28f9a21da0e1eac388d4181c0e40abeaf9372e6d49c43bb81f58e1347c0308d2f278c28c991eba4b6c9d00999e7b33e094d3f3bdf5853ea8d384a412889e8da508c8fc34799e5a3978564177228cae99ca7fe058bf1ea760aec87e4d634c54ddb3243c60be01fbb8c33d338f3a37771b35db0fc21c1504ee857c9437c14a1bb9c1a1b39a0ea735fc5b371e65060ea4ce579f080374bb94b4e9091fd41354d39bb0e9e7dc6cc6b01781ab105997aebc594b193244919ba532346cd1fb67d72cfdbfb3463e08c941eb239de81741df6ec8d53b7dc9bd0c653916f7785c5f041d7d01918e70e8ffb3da6b7eb41d3b6db99025c5a5ee1b204950b15fb2f83c0c57b3fb6c7ef9922153075401431d113baa5240ee21904b22139b56df22009ca4095265313c7b5f84f8c79265251e28fd3fcbcb715a1e331422f9fe234634be49733803ecc5bba7ecb00c6710e946f535c35dafbd1a989ca72942229731b9182465dfd172052fcacdbb0e64be9db16ab4772f032fd9a919f25eb8fe1af6f08208a0ab771d32ee5c156b872a38833b825247d613ebb0ad158139965079b02d2accdeb2c4ae85fc01e3ad95a761058d6f56b61abb8127fa977dcee10fe9f32548f703447198ec26e49d02b6fcc4f89a59ae63caf6b98dc5ae4fbe8a8eacd81c7d95a43e43ff317db4776907acd823a407cee10e7a5c6a84b37151279546fa124887fd6643184c82e25f6e2f9866dc817fb9dc99010dd6b3d3d532125de9ccc674f36ea92b00c7a8d157df8bd28f867dd20a0fdedb52c94c69fcacc679796d3f239c27be831a4c9b8eb035b5b13b6dc39468d7d44cbe6ea757b76235b8b720361a530b4f2bdf7422fa9a2c687d9636c0203329e0d47332ff8c0c2e217a8963664b108c6ec1ee085c14ff474719e8f2c90f0a4075adbb2b7a0fe8478d4829a20a8e7b25bf5d3c38307fc182ca5085c2313a0e19b8ce05d7c54b01b53c6c239bf3cb729d13ac9c1847b4efebd2339aff6e93707dcc71739edd9019d34ac3e22e63f2aa3af1f1591a59d6ebcaf0ea1576cc9687b0beba9cce9636458f1f7b8a62415be375a9321b5ca584170d5461ef1024f584e70308e06548207813dab83fc27895c484f0f120de1a2f852c4d9310ae2061772d4734d0f86b281fa851a51932873fb4a7e2a756b4806049d207e977900aca34d41cf0401fcaa347644c1dfbda67c2e233e1491510de266b5171af455e6d2c63a9c6d1ad44f5141c15ab5ff5a3152e909853f832d188a3efc26645b27ef2138d5e5f22b14656d1f4f7c017cd39da673382e1b6e5f2d9fc922485902994564a501c3b136a875d6e9b4f9df680ed66c6dd5d1aaa2d2ea703de29dea70abbbef6489d687296cdc0f9610e73ce63774380a924a5b0c70686f6f4f2eb099ba039523e3cb4fc598b59f24126e4c4d3390788b4dbc71f21ff321edd000b069f28a7690a103ea2f864d6d3f02bb0cc105413bb45db82032573ffadc0a64b87142c30770b38c6a1029f7c1e762856e2ad312cab389ffca87f7a57012f2c969aa9fe8282d892383dcf70fd973340eb720a3b8db840687a5f97b8ca65c357da99132dc1e90d5b3f0d76452e558395640463b961f582e8711172503ad34a7ea5836ee285216e10fbcd18a36e68e5be19d4ef9ffffd5a8a046ae67b36efb5408fc3eb0a70fae24ddeddc66f97dd5cf37b25dadfeb1662f9a61c501c0b94b8c89db961284087b6ef7ccb568d190b55daa134224cc0647981a199b52981c1becc114c88f783cf45e5f4971cd7ce74e9057f77ac222edc853d3291b5d3b2889f3c75a427670315b9d2b85da9f01a74ec9d16cec73b4f563252eea4b9ef289943bf4ef6952e4075aee42e75bc71cb1093c6009f2ed31c2625dd2995eb6bce5a6a5eae9c2fbe5271beec65e088f4ac2d3cc1db60e8816955da34a6c27b871ef09084ae5f23de023efc1e4212912a7d1585d3a9e09e67bc7b2a2b1471e2d83b5226ef740d89c880800dd44199b95963d78115812845243e0a21c5059841b8d949db9efc79cfe6eb0b21da60dfdbbb03e10d434f9357e150177498f7f1764f2705fbf699985b3a2e8ce350f9df11963ad80115bc9d34fc622763481e387709f734649eef7b3a92ec8c316bd75a44d8dead5723504b667eb535c3a69f3a99d365524d47e33767e5c790326853a75aae8977b1709bbebf94f4ed3aa735f06b315227715fe32f148f058ac5117875e4e3f6c0f6e84a77ec924a45f7d5fc395cbd447ce0d914b83d046f803d81c451810254b316df7bf0ad9adb99dd43904f99883677945adcf836e7c2040b072c813739d5183b40a4f173a07ecbcf1b64e61b82e36329d71f3f974ec596d7c8ba2475db903a1679f39ff30c4a06cc88f4ccd69a124350b752b241ff596e6e4501064d7e359b29108042d7c74647205d3035b2d62d34223df036305ec548b672ef25ed6d491ddba83babbc5e2210e1dc1f6f1449eff50fcf992af2d28ceb2ae99559f326c7ac942974f74dc918d75e49db1082ffe9d9e920571f7169133fe0b12b2700d2bb7088538196791fccafe952b7e64136d5aad8c8960438db73695afa7c788fce9cb7d720b825983d55fad8894444873fdc4836368cfe1acd051ca4b8a7a821f43b75e4fb6b12e04ddd843d69cda922806a1e9fbc57dcf83d95469e60262f73bfd2386eb80fc6a448662cdaf94a6485fd319e92aef6cb477c304fa6292f011aaa9541f9aafab1accd557860d54154ef554e2ed804ce495bbe7452918542f0e36a5f5d952f1a2bb62cc7ef51dfc9260837c24377de84bd8088181ea079ad92c44de8ff8c232e0d59a1a49d850887052dfe5ed1b6ce79c0d412b9e1ca63105117639eed9a9b63418177db425a08843d890fb865df621698128a00b0194191b1a364b5fbc49e57c6f472cd89f0c389a278f66d9fb96f4eff9afb60b58e4d7182083fc91d527c7e43bcb3c6d05181380ed55337cccde40967a83095411fdb794a6a8c17a608e01846d47a379d7f119fef88f7b37d26017cc76a445333029caad587fdbccc77222e0c5dbd9df8f84abe00ce58ae7129fd091389a68f263dd52f287dd2849c11413db8cae9d2e5424364cb6c5af8fd97aca83e85326215335591ce3519d1a8d5e8f1f6f1f4d83d17d123d9b7cac9ffa28bba64591481ee4b1156e50e519129831e80f919851325665dc91a05c63c2155d8a0ed86175c25eeb025c769b27142b4bf69c85ed8b739d4c42039f4dc22342439706dbf44c48534eca0f867fb988e15371449067c0e2097d86200a9f46190b517f0b2a40f74bd42c4dde358e0b7719157828e4453300d9cd11929f58862238348ab8b466bb3199474da28fa3b1bcca2d5586ee792bf48d53c1241322b78a0fa48529ea4476bfb318b7ed2eb8da1d2d698e6daa3c6b2a18bc86d8f7e20864d9d2040c50ed4cca53e3952cee846a048699db27711ca074ddf5e6f73cb23383cfa1a1c167435ba92afef0a816648ff1e6a19349a31574ac68e1313d02e39e9fe3408453a24b4e76603fc997e2a9aa35358620e80cd41d51dc27df76f8185f418c4fe55627aa2622ed523ccc8993bfead8b2e7ff137b8587bd4c2ae8d28f4ceedfae0ff1b3ccc61ee04e772e6ad49b720f963da50ccf956ef1bf5020ce0013b299f4c62bb0df489d6730186d56aa18c31d806758570840359e63309e979cd4d7974fbc9b1e6dc55da21aa9fa2860c98d87c0c051d8354d09b4419349e62235d80bc05bc708e46f47f05938dffe937099524cd508a747a593957916f58b9490ae2435c9bfedd01815a60d9cf796b162292b73d2c2d156107fc69678db7a50c8982b72f9c484093076d87963b453c35bba94d14b95c8f2c6f881b114686c3a9f89834dfa6de50102255155c757d81908daee38734e5bbc13966fee5372e89d123ec22cab24191f52d1210ec082fcf857ae1099d06e64f21d9dff75561539809ea16a6c81573251dc310cd0e212ccaf3689fb9ac21500f72f5ba1525e676fd6aaa67a7b540c4fee80f6267000558c7164803d54f28fcc1d198cf435268daa376658fbba0e5ded958406990f9805f3bf7ef5e1382e120b911676f45a0dbb35120ad951f8ce0925d8631af212440ed9a57c99864883559dcac571a2c4681fac2093d1bb1d57ac4be2a6df7f2dcccd68e504c3ca340ae16c346305ba03721dcea9f938a7c43d25b0e0040c74e5760990e6b031b558984c92d34e70902f6a25807c174736d2d9326dce4dabf2d27c5e9196ee07a1f44c8eb9c010fd408265d6becd4741ab256c4bd3325fa407c1384f692856eba8f00f01d44464d63dbf291a99db88ae7afbbb8ed9d4bdedb5942014579ed0e194d9320faf2d9efcde9607de0ef1a9890e7bf4e930f8b9f496a2c0dd0f0ec9decec02150013a72e512f8ecfa95d37d1f8b5704c89acaf580690e4c502738ea10e15a497871d05ec211e4aa6ee3999e332bbd4aded88fc158d89008b96d48275f05fc82c8cb9983d88afaaa08dfed2211dea45296ba15014ae97214f1b4b785e41c4b45a9d37206104b88d9397745e38465de59cbfdb4508fa3fa438d5a080c28636f27a57106e37c6cb0bba6613ac462903aa12b12d4f5ff427fffe2a6541cffc5142d1062499a2cbe0d0d35a877a162464a6c7b8d97e0ca1273063961f768c4f86111f0b12c32cd3030aea42de4c9b17373f7b6c78497dd19141099d4d863eedb44ecff47d62cbb9e6e01f8879abf5d54479	20000000	running	\N	\N	1	0	boot_01a215db4df470aa9e5fc3f2e19b3b2c	1795663056216	hold_01a215db583976cb84868dea3bf0b9e4	1	2	0	0	0	0	\N	1795663026208	1795666626208	\N	\N	key_52afbb6b77d4bbe2	3619
\.


--
-- Data for Name: swarm_steps; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.swarm_steps (run_id, agent, iteration, ordinal, input_hash, effect, idempotency_key, output_limit, state, output, credits, tokens_in, tokens_out, component_digest, intended_at, ended_at) FROM stdin;
01a215db562c77968fff100c0f4ef6be	0	1	0	\\x0b32788b3bf6f9634588355e7f741d3a8775a14f8d5c5706e961799b366ea597	\N	swarm:01a215db562c77968fff100c0f4ef6be:0:1	4096	done	\\x0100000001ee678dbac644d4ccbf9bd20317d7150fd34b1671ccb261353dbca3c30338eba94fa2f919f4cd2634672e8975e6733e742bf769b95a5330953cd2cf1f56cc534b4027173887fa5e0cf419ba2ba7e475e2280ef9da0a145fed3f01913149653d0a2d2d55aa4e7eeccd36d2a230596fd6678846e6fe3d517c51dec5b508aa36562bed59d32ede61f96658a84e743f1b598858a06aa2d2ee607ba8eed0c8584f7dbe8cdc952e4f27d44e032d6687ce2baf51fd62631a2f2e82fa830a80e773718d2ea265f6794db8e5ca1e2abd1fc9bd4c5a1695b0f3ada2935570e2a074a9e9050d0a4498c0	265300	349	10	\N	1795663025756	1795663025785
01a215db562c77968fff100c0f4ef6be	0	1	1	\\x26a80d152e64fb338c38686b84f35140527f6c1b6b2919bf9aec881c65969169	read	8294b66e15ef0bb75fb66ab5e8c07e1337f78b51fefba95315c04b40159c5e93	\N	done	\\x0100000001e4b12ffba49187c9e7f9b261cbca0bdc16f50434e18fcd371b287193ba86043610e80bb753ebde3c2bbd9b423753f033ca2805a0305e029f70c73a321d986328a7f44e2e7a1c573bacde97197a7020e2fb8f14d5f6e2d203fdadc7008e74eaf23d169cdf1639df2348f5a3d69d7cafca69a8def3179287471db9ca8ddaeec57e46d140e3fec91d28cd1d622e7c5b3bd9de46f2c78ce2401102cbee19e05b99aff208faf688d4a236f0a70542c39b994ec36c584daeb07d26010ca5ffbfb970fa6874dbd4cbc9e4bbd1e54ffbb154f67bcd02214731076c9615812f1fd39a27b984cc7894d133b93946fb5e664a6a530fba198ed617c07c8c0fc376ca39fc79824c02c5bba74991664a098e6af0279d5d3cc9a567995785cff369e09fbb9e110e5a70b90a88ed071332ee1da4bb41c521cdaddfb4d853f6dc67c187181035847daf2746c6c1c2e195589d2a93229d603c2c7f8fbad84f56978d43ceb9987989e7270cc2003cd33d897cc60cc8fb3a50949dc6a2d4bf442353d118a0898ab22d5d2411e883654d668c746229e898584ce02d61315423e834c251b6034218ba3691eee667fdd50f2086130119c73fda84e26816f78f909d62a7e82653d3c1c35c94f7546f640071516e740e5ee4749d73d869efdd3e0b993c958a6b52ac6af4f4b54766fe20b27457060b614429ef78ff92e6d54101dd3d3cba0711894832f2de829a2b9657d967f6b8eb57114e293562f5a7ecceded1c5226adbb6d671d558674ce834d5cbf694c61a4de2d9a585ada7b84ca7532c53b14b9837df5d004ef18829b627c164d0a2a07547a5221adc04a0c81b4981d12f0ca20f90832e68185bc0462558494a90502b46c376dde71c7675c3d9f0e001113361d36d21bff0103a7764942c6356a3d74cddcd9780fab4327f12d895a3b4df6049e6febd6a5b92ff996c9d67619363fcf41a97b9a4b9431258edf67f16241b4e3f735d70b3ed5e79cf23452eb666965f980d45f64dc1e64e4158e92c04b60b9a1b862c1edad2cf207e8d49206347abbc21d9b518e58804bdbc340e63fa8258fee4a070461207761d49f5ac7d72ce1c558db445d2aa2ebc9486c100d24fa215928e5baf6569d4272324c2d7dafa79cf45ca9e021b6254a3e3747aacde236feb8b912329307b4da3fbe3f74d4a4a86c744561bf1e1f7cf8ab5da02993edd71443a23a02849dd3218b28e913b4d720f089454273b1a25ed33d950f1b3d78fbe0e74561dfe6e6a63c2593fdcb34627694b7595ec45753250833bbaf8fafab923b9c0c1bcb72d0fa9721d8b4be95421a168509ff8d96c928e47370736f9df06a3092323fe3dcaa09157d9611a1d82686329d3d748c4ae743a83e7ac9402a482417c31dd988a66e2fa476a3a73312e8619823123403c0f5f1391b59fec9bb361f8c305af73dfbba97706ee50d6994868850cec6be27cd30342efaaf80fea7661c33da22bd3046b9d2d06fa0bb323f599d0151456ab91702a52211749ef8b4df83de0ba094d791c4a7f24adf38dabad16bc47e95f582ee712603aee2982689676742f1194775c0a9722fc3c69021c623c8645912b1d20d2edffdf21c8fc540c95ee26f5e799c7d45e233b668d7c713dbc9c6071f84b5a4ab112183fe405ee915aeb13a3bc58fcd4961158ee78126f168aa42e3d509de92e9085e4efa4da33e2e34c560248206d7c99f8d48e2336333688191ec5f9782785ed33f79d41f9544c77db34eb629b57b7967368e6d066875d4207c2c4760e621c03f3	0	0	0	4a36c5c1d2caef0f8b2a9ddd9fe5106d57f8f6a5b7639ba80cd47d19c266dc2a	1795663025790	1795663025799
01a215db562c77968fff100c0f4ef6be	0	2	0	\\xb0d7f1709d86ea7d089e7544d0b8d5122671f41431fb7bfe8a26774cbca8ff8b	\N	swarm:01a215db562c77968fff100c0f4ef6be:0:2	4096	done	\\x01000000012c9ce93fffe2dfb3f6e748f2d8b3c6a4e77567b0b78c1b9ea4e4fa1a7efdbcc8a4f63fd9d0dc83142c11d05327b3dfbbe764090709dbc396629364b6e894750a2f830752b223259643088355b691ee6ca386e5c5486d89dd5c33aa47779194b8e93ce63b1b67978e201a861f27af8b5c77ca3f3db05d974b64ae864af6a3941b234bddd32b082f27c3f4709a9445f47934ec9c3f5213da524cf05e12a75ae5f0b4e9e5b1bf9281005aabe02f0782d858081ad9daab293b1023e8a393495592f83b2c8e1474ae13f887ee2bfb0a38753e307aa986902870a02cfc8ec715dbd7ac8c599b244572d9c2a71f11dec9df6f60d110dbaee6eff78351eb39def38db8c178ce21c09d7c1865253d0bde935c39a156ef8cd32c503ca2f7dc5a3a9b26c03d9b073fc6674e424233422f8efbcd7e04c88cd90baa4d38ecba0eec144fab4eed0d967d93bcdad0a205c030cc7623de6375f85ae91331eba814f62238ee71f7420356bd60dee8aac1dcc8f97ed72b9e008ed82e2c3b30b8beaafe9427b1938a3cbaa23b91340d8861401d9e5409b97f3bc5a400cefc046e8947ad284add7f6995c1bd5311e7854a2dce6569b54312d5c93744ef0a07c66ba86c1d214aabc761e39a7011caa06dd1a9b851dca5becf86fa5e543fe8ae7321383fd2a71d0f5f73d6a3c41614b4776fe4c2b729316c2ee22d2d3745585b239d95741e626633b7c7459868db5406849406655124602f52abdf5fed901e1c5d4ff2f1ca8819f1f32de7dfaf79023d390a66a632c648e82fdf092890da682b30be9b2aa0fb5a6975c412bfa77b9967170e59921908d7fcc5bd229003666f5cddf752ea8265fe6583157eee2dcd2350f2c3a98df8ff35f1a59b85723e5e90d0c4ef471ca2dd45c6a883ebf18a8c8698990f369c5b0ee6b3cc85a02bc3fd56520b2a787e9ccf167af8ee8b8ec9e52661d7b3eab833088b5af5fb1698a0a8ad85699ce61709339fabe6db4c16437256ebbc83455e9387215590bfa999df86d859cab7051d04baa82c0db10ef5cd3d2003977038e5c887a527f930964a72eeaa05769be882535d5012a09b5283b5d1ffe984f7de5e2be70ff808462cb38cb371b3b976eabd7d5d1db347e3f879f9fb67baef32f966c96f3db9a4e4e1582224beab81d9f18b2d29641343463f36784fd32fae4efa177da6255964bb48a6913f1995f8c93f2b7c6c75adf6e0f90ab84196c5553bfd5443a0d2d188ab9eda70dfe9964f1c7f2ac00d071432744f87300bcae738a47fbe08f4c7d89e3c80ce5bef30f79fe51ee1c6d6f6e46d929a0f7cad9e5a650aeebe9722034f286a924422876af5d6f61192bed9126bac916e47e588adf4b994e1ef0e5fbfa9ed948eb096d4b97971e126890427a15a5e5096e46da956f2445f20ccc0773ef93e5d95fea34c95b0675f4d8fe68e443a5854e8467af64d69abd06cc388fac220d10892b97e00d085b5d4052d25a563854a32d42a4d953ffb7af19a05518f24788ab9c907fa31debc38a9eb69583a7c15ec	927500	599	242	\N	1795663025808	1795663025833
01a215db562c77968fff100c0f4ef6be	1	1	0	\\x6bbe3b9626f3a5869dd0ece3a89ff63df83515d13ffe2f25fef1b19d941f0d2b	\N	swarm:01a215db562c77968fff100c0f4ef6be:1:1	4096	done	\\x0100000001fdbf78b4b33462e2b03bfd35117caddfce8422463cd1f972398458d6950dd8bc81b24ecdf9230d162a5dc726eca3b8ce76e4d8bc231fdc62087dccb52f8925fd080f0884d4515cc74aec780f4c4eefa1fdc22a4ad29026f1f99beb6a1e3184c2c6e2ebd686cf42aafe6de074160d6b9af36fd3837a516682a4c43600e167af8bbe06264447c686b01772260f376a151e640d8f23bb3ed4782a843c9e217d1f26dbe57a692910fb1f71a77eaaac76365950142ce3a2ccfff474b8bab353da703acf3ebbc3358aa294f67eb3d6ef73cff1459816907e43c4a71fd7bfc22730631c64ec3a72f3d5de0970f1c05b7b37d32e80d5247d1a773dde21d188660c257873106eea94ed1310c6360026703c70dea8bd2472fbeda445ea8706d2d6655045304434e5d210d07c285e143ea8622aea61a27c34fc853be6e2f6dc7dcc489c3873bd1e0e7e3d3431fa1d815ec618bac1f82798ebcf59f4baa627a0d480ae840fa308b7d5a9f57fbfb4dd7d3dfcac04cc52c9019aa28a89b37f853a7416d6d11f3f465d8c7142bee0641a125b1ec5b195b0359591ebb3df705fa1378ea5a3414e18cd2a577406ceaabd2bd644afd111e083082d246bf7270d0acd8d58ed61b99e7e56bf2b505bea26524d12663bfd5c4f0bf1ba1516f795398571ba83a81e4748e49461f7d04150d93b0bcf92e306c2fdc87916ae9a675dd7d76da15e3a6e3865f147388cadc114064210b62fbedbe8ed49d7fc77f1fba61155a4799871bc269c548d6383e9a124337615210da3271967fe3193025e28224369b9b383444c7f8b3809804747efab02c6dbdbc1c7b781e81b3b39c7179a3c37e735e0cea0627a90ba3ed746ba9ad8d88ed8194bba741ccca6c5be8b12c2d94e9af31d5306d853851b422e1cebdde1b6286dfb859ce2c9499b4bece36b930c4bda4823e05174462fee1fd002415ea2f5dbd8f124cbf12e7c6b565962fd3758bc66c2873af2df811929dfc4fe06b2111d763b39758db2182160e83481ffa088fd3c53c2cf67d2065df29749607da6d2516d511c40b3e694614a0de48f7c805bbb8748efd85b588cef463c5980a7da243b4478f7a9351d0b61ce910070ace20fad65b65772a674f9c302e2c702a15de74192ba99a622de5cd2bccf6b1c4bceb061ac2fb9765aa95f5f3daa512b8e24b834d6ee5a411b3d0dbe0d5c6b6f05ce1df65bf72c3e662199160e1bfa9b575e34cd827c8f892fc92e9186a05b0b51ad2eea4b4cf4e9ce346ade254334e7a52a8fd9a9ee6c5b73646be7c72fb7579879a24ffc4d5078d24faa5cbad957d300445b66941da00e8c6da8753389bd48512f34cf87e5086ab5f622440a960c4bf997dc54571eca1b38644fd2e22e0091eb589216a581471979e68348ca28717e767a669fb658f6c02f650bf3f387d9403e69029fdccd23515f6551a8ecbcb99d9909fec8a4572867b5f3a8aa5cc270ef54bf9806b5fef6d01fca598eff53dcde9695bafb16b97959fd74f88eaefae6e40687d6ce7778432dc1ede99d7426bf00cc6cece8362b8a6304d9b0c3c57cb8133fb5093fb1e2eebae8b799442edd1eeb2b4b20eed5	954100	604	253	\N	1795663025856	1795663025885
01a215db5706704b8f8b70f81b153eea	0	1	0	\\xf0a1502bc93b1d7b88ccef0bf2c6811283275566a1e6c14097ed96f5c03505e8	\N	swarm:01a215db5706704b8f8b70f81b153eea:0:1	4096	done	\\x01000000010082a9282ab040580de92d4d89fc57570625ed71711aee7635f2804872995a286900c0d0f283e44726a5d5387b91a91ad451c4b879cd41860833ab2e52165d931fb4c8450dd9ff28f1a173527982f951610f7529f81d5dabcad9e0dbb508957046474552f1810d83d7ea0cb72b83b3685dc1161047a2662acce9f7c3fa997cb3b66315f62ad414806cabea7e282278882488e7a322fd44491647d904805eac0e394c2c2ddfea263c6dbb1f6fbfb9960a542e3bd1d8039c4b3026ae29aee2e9c9ae043e1b74f4a51d20f31dc347e7860c1c3eeda16fc2038c2c5746bfcb1dd2e9609550ba	265300	349	10	\N	1795663025968	1795663026013
01a215db5706704b8f8b70f81b153eea	0	2	0	\\xacd6ac6bd7890d960ea9ce8866a029bd2affeced1bee4fc4cf4e004a0af22fee	\N	swarm:01a215db5706704b8f8b70f81b153eea:0:2	4096	done	\\x01000000010b27f90e2637bfe423e81ec65a7585b941c9760028d46b5e7085d63646c06f1bb5108fc5c97de916eecbb53463ce9a16c5b7587282ee561aab2f82afcdf017a82afe6f2859157e8197ab0ec066892a4e128ac3c590aea7e1e00760c7ad70062a03720d7f8c956f7f8a429a15a6c9c34f7d091cd2726dffb551b923a95e2e83c4a5f0a4864a5160751e45001ca4943466150f59d76969de201db6a1922b68daad05c16bb9d35c1d4ac9ede84f42022da4903e954385d94835c3ca5d58063aa9a9fd9f008f490b1329fc00294c1d1e46b52b610aaa7598429364adc2f8fcff66d8af00292eada77d106ccb6e3dadfbde6c00eaffc987a0be9e3fee71a43e39066f848b5841d31d4d3fd248c7fdbf08788fb478ffef7f9f5ae3c2f4b49b490a879edc505840c3fd006a8babbc5d1100e74767fb71a5c6fbaa6cfedfd49014e5d73a45eef2c36731341ba3e2965eef0d6ecd66ab3f659d649ad6b3f0d1c8e603c506f4e2f90ef9fe9fd35911d8870d8e2369d4fd60fe58a874b529a69b03fefc40877e3fbe55b23dc53fa03dde9378723e5e48592b4909eb5ed11deae9c2108ead21c67def0b61810540d12e6e44b055ec6524fdaa7e7ad748e3a8fcbe23aac71ea986fe394385dba888ec81150bd845e7b2e8ffbd4fa50fcb74c00c4c0b804aa1e3bbae864bd36692a970924d8fc36d1dcf487333c2aaf8e75b9f555392094397197a91164dbd071c4a8e1a6f284d1a36fa49f5ab82b941b1ab8fd035a4a0b1211f9139db803b347282d80c3d4ed232b73a4380f749b4f3fa7e9b65b236c6797231090a48653fe8e58f05741c1931086d94adf539397e94452fdb5c36853183757f948fb12e1aa605a38c49f760d0c88a92e4f94eb48ab3832f4a596205844aa2455b37994153fd659d97c0561ecd40da86a8dc1675b42cf74bd57ac994d0a4cb70eab5625070e67c9f84918b10868c6aaf10db7b19b154fb75d9abe38ed8a88943ba9b6c32d3082bd7b5bdef1919665189c18bfc4c3515e4b41b2f100e7888e81c9d8dd6ee6867675fad46e231db41f6882a64799d9dccb798fc5db927477bbddf4eac3d0d4fdf6246d1ca1fbe8594a57d573b79b5a0ec7fbabdeb5b80b206434ce4533b3c94fbd43a419ba6833b04c72156c1df45aad964140f213d42dc7c78171bbd30d3d7b973a1f0760cb418239711e5e0993cd69ee8971f97ecdc184bdee5e161174960df4abc3a7a12957887d00b4f971cbd4fe5b602007613cdc5588d646b90193a4ed31abb21218063ed1672e72767c3d8fb5d0f1f7db8b69526c1b73908296df31bc2a6c54d2bdb834ebd92a93860e05dc6f8a4742ed714c9e2db59bd17d46117682cf67545c6cb1ccbc06c18a390da2ad6566f03016e1027a981dab120d09986283972ac3ba1c3809b707fe005409ad91fda2bf33120ba40cd52102643f7035425d9014ddd0c9e0121f6b9212796571f3a957ae6cb581c23eeb0f2f7a374fd76d713e657421678c5f70caf0458639dfb8aede80f4dc734349df5	927500	599	242	\N	1795663026030	1795663026057
01a215db5706704b8f8b70f81b153eea	0	1	1	\\x26a80d152e64fb338c38686b84f35140527f6c1b6b2919bf9aec881c65969169	read	c8fdeddace33fd9f60e259d845ece7ba7166668faf0aacc45869f1c8f7a5fb19	\N	done	\\x0100000001e1343fb1394c7dbd8c3396a5a5e898a900ed2a8b10de3b6a9297593b401c6721ec3945075f4e6707fa4c035f474c7d36f6a944ec6109982b40206c0fef16d4633c394c441d62321936fb4c75f3f2d277f4420bf1301dab426469efa777511678596e6a1bd70533cf1c93ffd3bc8db208f9eecad6c3883c7c44c7092e5349406477cf63952736d09c3787d94fc888708c73c6d7df7c58dcfa2d023b9bc8ceddda20cae78278d2d3a76b40bf1c7ab3161572e534175d4bb63630bc96882090f6b344bf7413b55715bff8a9245cd6447f5848751473ee0152eb8c95559bb20760de687e9f70eb2557c15d2d77ee1a4bd9f4b458f24fe5a5609d7c2d0ebe2ed9ab01638109149f69c90262bd49509df5cffdf9c1a1e3cc00d63794f3c6d93390ab78011b5b65214c066dd2b83766401c8590a58f849b3334a1d1da364cf5b95cc24db4402c4ee02355d4f626dbe569bebd5aae6041dc639dd4ef97135125045a69c4c053e341a1985bba3123569fcf121066bebff3619fd9a6469d8eb5e71fe9036e3461236cf2c1e4616bdfb783a01c67339494b462c554b2e513562da246b9c9cfc799ef991e79a08eb757b61109864988c198f213a23f51176b6e5518d96c9dba3d06edead24d8efdad46a4ddf923876b2d3fa71495e0ede887bab71fea12f5be7e0813110da7ad64d294093f6f81a6525fe18cfedd525612c5bb265b561ec9ee6f92dea16e5207e290303e1a442a7d061c629639cd226446797a096bd7cb7c13570f52d8561d3488d6246eccf2db403756f12cff4dd64ce886d5cb88565976f4f21cc701696431da0fbcea762efba929cbad8e1d71d7aad9d6e7690a0b8cb190dd231e2373d78709474b0c0ca75951fad7933bda20c7b8b7eb2a5366423a17e775f0529b667c873e1b41e3324f2572b85db6a3cb960657490ebf1da025d66891629295e508639e3604936722e9362c9e83a37ec2d22f3d11a09704864316e2308ee6b2fd59dc02fe2b28c494ba168efabc25666a2617bf0a2212d69538a5b1785aed8cace7f86e62229b0ec4ac1d4ffea9df76ef4fc02507a168dedc3ad4180c4b497c7674fa81b26917ae99219e7ddc6d679dfd8ebd8722d44ebd5532dc91aa5a033d98a7ac817e021117932aa536c0d072f9879b937b18e298be3e324815f30b548646edfceb70d780f673a0e40fddffc07a3329cb58feb82c626cfea32b7dc5667128a47d974ac27787a65e43a611cd07d85805552790c23a78cbcfe443d317b5a547b139909e6143bfe42122c82763375154687b3d8bd755bbb869ffa2cfa139dce4d3ea12cebec76bfdb92b72b48639ef7e35ac49d6b89bc87dfa288998f146104c11169168abcca5f4bcbaa9ca68b428429ed424466e03ac757a17fe8abcff0f3e53e1bf8e16fafeb1dcc1a330e2ea8ec34f4b78983d422a2bee5876c37468690754c99c0432aeb6ad66999938c1333ccaf540485385832162dff12ead442aa7e616883bd4dcd5d1c44fc2dccf0153505a2be6849c7dc14f898bb9db1b029f43aaba914832a4b2a200cbe2f3aea3b6b75ee369d03a7a514f277170f0e4f857da34b671f71d4d146a3604197a722e3b725968d73ee3da354482864fb69fd4267f8a98d34738a318d64d6139fe4fadafe1b59d65d2f7a88519a26aa20d6d553a67a979618f2252b52c502de238b2ae71590f6d88c9d4897fde514ce151f8729602c3be9c4e8d2fa94977b465220242bd806f4f83a539627e6a7d9f6ab43dcb1e5f7eb713e70db4bcc3c0	0	0	0	4a36c5c1d2caef0f8b2a9ddd9fe5106d57f8f6a5b7639ba80cd47d19c266dc2a	1795663026019	1795663026024
01a215db582073d490a6a41e405242bd	0	1	0	\\x522ae8a9588aea74bf61921681d395d9bb0dc4db0990f65725230a8531db149f	\N	swarm:01a215db582073d490a6a41e405242bd:0:1	513	intended	\N	0	0	0	\N	1795663026277	\N
01a215db5706704b8f8b70f81b153eea	1	1	0	\\x62d2e280235f534ae594e90a48a1a1714ea1aa2e28f54a72f3887e1153abd1d9	\N	swarm:01a215db5706704b8f8b70f81b153eea:1:1	4096	done	\\x0100000001b5681498d468c17370a7f4bada43dd3ac1ef7e765350189803cf69f78ccff96dd868ebe7e8d9afe6df372bcfa6452f8535aa71c638103967e536f46ae812f3b854f291411dcb406a46947eb302c75d64ce430ed740f7e4f1f6c74d25b00d978f1cfa6d9570e1ca8c43d689a92ff080bc505ccd6907d4ef2d370daceff6c7479f79c3bb630ee9ab2f741cc3f9811411c80a36e0ae699e28202a939808b03a7acab8ff63c734eddd830e2c9d668eed610d3e0f56641306406c4fe87a607c9503b5a83de002a44610229eab2ea622d9d549ae71a539a43d13bce7571928119289db7cdaf080d442b6151ef1809415d479923c082e288612ddccbce07f80bccd2c920a3353a8013ad6c197ea08021b69e40ce351ffe0a7d72a822082c0f1ed6aff7593beabe7d0680e5a400b272ca5c2e1f72823542a8d1c54f5935dcab4b82d4827ee935cc7ac2b7835ce93957e97c3a85a23b4152c85cfdb58aa34481653600af518c5488e5df81021b92787748e2a0d5bbcecf750856382520e1617b39df19b67a24c939b49de50e8115ed4dbf4758a23fd71096a1ce69a8b73fb8419d7f76d1b84ceb7748644e1574df100ca8407f685f84f31f561b56a63051570fe7a7041371dc06f4971740c6c176e42d2c82d3a59f17a3ffd82b8c37d3aaa541dab3efaa21f4f3e354b5e4f74b2997e79e61a739d565d4ad73751411e6a998c035eca47fdda93c35b09bcfb62fac4e113071b1e4ea311b97f1018bfacbd62fe12556eac05f44a1e492c4da62fe3cda45cb51a8d29d2274eccc4f7dfad076bd3ece0667807e0109d02141f3433992297e161460763d0c116b86928d2ee6fce7b6161077577c60299807bf3d3ec4bf3f3665c8b67155ec665c06153abae0912e1833dac33c2feb4b72bdff94e3a9a7c869413ee41387a664d32331f1a50036aafcb3abd9483dd19e3b17b167f595c623c12661fac4213f4eac6568394fc6db8fcf9283a668d9aec33d26503c3dd0d592f4883726bd1a063282c8ce327b71f978ba885f79d861e7a375a2edc092360502279791a8c79be10e76c7494f2ba2d0009e1bf38c0c945a1ce4199a1083d7e117b34e2a9ee970b2b4fbf76413d59d6d501eb0cf6a7984c2b9f34fa0a9e6ddeccabade5a4954694abcf624d59e910c53f2d56c0b2ef66ab96818153c8a34a14e9a4fa0cb0630f556d7aa7221f99339ed08eb012dbf818d41700b8a702ac95600cd681813228fa436aa872e04c1b3ccf971ad8ba72e0c4996d849105ec6cf64059fa9178de64ee80cb453c47e1e43106dde6257557e93b461f1625c0bc17fae30d57a92a534ec984a3eacb1a61c13e964e86d32e2123e373042898b3e3ee028084ba79d3f0069acd6060a45cb54c4741b4c42ce3f3df3009c6f66c9323232e1efb53d4047d7c8a623254281d310b344a9b2a76f2141aa91dc199958fc9906ffca0a468f51bc181accc0f03c4b6d91cdfdf302cf153d4a2645eb3ef4f809b7fa2753dc9328fed3574380d9b60be59da107ca66a8860fd925e1908914696f1c7c0817d66d765f4c50fe26c53db9500771e0003df272949025dd2ea197254b07b	954100	604	253	\N	1795663026076	1795663026115
\.


--
-- Data for Name: swarm_users; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.swarm_users (user_id, last_begun_at, kept_bytes) FROM stdin;
usr_01a08951993f741585c520e1ed44de81	1795663026216	35297
\.


--
-- Data for Name: task_credentials; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.task_credentials (task_id, name, sealed, sealing_key, created_at) FROM stdin;
\.


--
-- Data for Name: task_starts; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.task_starts (task_id, cause, trigger_type, slot, started_at, claimed_until, execution_id, refusal) FROM stdin;
\.


--
-- Data for Name: tasks; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.tasks (id, user_id, definition, sealing_key, next_fire_at, created_at, updated_at, key_id, start_minute, start_cause) FROM stdin;
task_01a215db57e17762b710396e557b0c68	usr_01a08951993f741585c520e1ed44de81	\\x0100000001f4566744c6c8109dc75c7aefe5a36ad2eeac56f30e287bee6889c4bfb83049f69ba127ef129e3b634d41dd9155a7ead5ed0ab139ad2d611e059bcd3d45c29fad1fc85d36b6ea7a9599544639cbf9a799a11252f6d934ab9534b487e86747f441b9a68fd431ee91dac16f5415d60a402ba6b9586c6e5c62fe659d3a8d8daf7fc684256b31a6b6d1bb77337714d0368b7f0c86f46fc1a2defd89773a786854c9e66dc007a56c3525d1a7503e417cd6fda3279d2fb50e968a0bad9da82428d0502aae66fefff2dab601f99f00f71378b4b6bff6677b6474b94ae731b6df1e6ce7ac90a9b9ec22033150499b0061ff4e520e12df667db444a9412bc6e1b039382823416673f431283e9b372d3ce9381c744f97b726f8af3a345c5934683ffb8e402ffe83981d29ba7875a69dbfe3489894905fd29a470a96f612471511705d802ac34af928d23e414089e0a20d7d27a15789c96f0c0f77ef022e2fab344ab05e55c552e3c6e25ea1c1c86826fa6f8135e22593b1a0a7dde4651e14b1f6b736fc8ca0eaf1be52fbe02adbeb74b6b3d4	1	1796025600000	1795663026146	1795663026146	\N	\N	\N
\.


--
-- Data for Name: traffic_hours; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.traffic_hours (scope, hour, organisation_id, key_id, provider, model, requests, client_errors, provider_errors, gateway_errors, tokens_input, tokens_output, credits, first_token_00, first_token_01, first_token_02, first_token_03, first_token_04, first_token_05, first_token_06, first_token_07, first_token_08, first_token_09, first_token_10, first_token_11, first_token_12, first_token_13, first_token_14, first_token_15, first_token_16, first_token_17, first_token_18, first_token_19, first_token_20, first_token_21, first_token_22, first_token_23, first_token_24, total_00, total_01, total_02, total_03, total_04, total_05, total_06, total_07, total_08, total_09, total_10, total_11, total_12, total_13, total_14, total_15, total_16, total_17, total_18, total_19, total_20, total_21, total_22, total_23, total_24) FROM stdin;
\.


--
-- Data for Name: usage_daily; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.usage_daily (account_id, period_start, day, model, provider, source, key_hash, requests, tokens_input, tokens_cache_read, tokens_cache_write, tokens_output, images, credits, overrun, provider_cost) FROM stdin;
usr_01a08951993f741585c520e1ed44de81	1789010221604	1788998400000	demo	demo	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	5	10	0	0	20	0	49000	0	35000
usr_01a08951993f741585c520e1ed44de81	1789010221604	1788998400000	demo-embedding	demo	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	1	4	0	0	0	3	560	0	400
usr_01a08951993f741585c520e1ed44de81	1789010221604	1788998400000	demo-image	demo	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	1	2	0	0	64	1	1610000	0	1000000
usr_01a08951993f741585c520e1ed44de81	1789010221604	1788998400000	demo-moderation	demo	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	1	2	0	0	0	2	280	0	200
usr_01a08951993f741585c520e1ed44de81	1789010221604	1788998400000	demo-rerank	demo	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	1	4	0	0	0	1	1400000	0	1000000
usr_01a08951993f741585c520e1ed44de81	1789010221604	1788998400000	demo-speech	demo	api_key	63e016dd917c47ce22b9fec6192f09f2a0d9854f1e3f4814a9b98b931da3b117	1	5	0	0	0	1	7000	0	5000
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo	demo	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	5	10	0	0	20	0	49000	0	35000
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo-image	demo	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	1	2	0	0	64	1	1610000	0	1000000
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo	demo	agent		6	3104	0	0	1010	0	4293800	0	3067000
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo-embedding	demo	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	1	4	0	0	0	3	560	0	400
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo-moderation	demo	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	1	2	0	0	0	2	280	0	200
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo-rerank	demo	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	1	4	0	0	0	1	1400000	0	1000000
usr_01a08951993f741585c520e1ed44de81	1795663025115	1795651200000	demo-speech	demo	api_key	e6f692965b3d1ac9547210f7365dd1af90bb3623351648fe889061a687e75eab	1	5	0	0	0	1	7000	0	5000
\.


--
-- Data for Name: users; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.users (id, created_at, issuer, subject, plan, admin_since, disabled_at, kind, name, email, deleted_at, rates, admin_granted_by, disabled_by, filter_options, data_limits, content_log) FROM stdin;
dev	1789010220978	\N	\N	pro	\N	\N	person	\N	\N	\N	\N	\N	\N	\N	\N	0
org_01a215db55647430a9bc47679f154083	1795663025506	\N	\N	free	\N	0	organisation	Story	\N	\N	\N	\N	\N	\N	\N	0
usr_01a08951993f741585c520e1ed44de81	1789010221368	urn:weir:dev:identity	alice	guru	\N	\N	person	\N	alice@example.com	\N	\N	\N	\N	\N	\N	0
usr_01a215db5329725e9f714a336a1d82cc	1795663024936	urn:weir:dev:identity	bob	guru	\N	\N	person	\N	bob@example.com	\N	\N	\N	\N	\N	\N	0
\.


--
-- Data for Name: verified_accounts; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.verified_accounts (account_id, entries, plan_credits, top_up_credits, owed) FROM stdin;
\.


--
-- Data for Name: voucher_guesses; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.voucher_guesses (user_id, since, guesses) FROM stdin;
usr_01a08951993f741585c520e1ed44de81	1795663025370	0
\.


--
-- Data for Name: voucher_redemptions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.voucher_redemptions (user_id, voucher_id, credits, redeemed_at, applied_at) FROM stdin;
usr_01a08951993f741585c520e1ed44de81	vou_01a215db54bd75a48d73b65ab9ce5b75	250000000	1795663025370	1795663025384
\.


--
-- Data for Name: vouchers; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.vouchers (id, code_hash, name, credits, uses, redeemed, created_at, created_by, expires_at, revoked_at) FROM stdin;
vou_01a215db54bd75a48d73b65ab9ce5b75	\\x839d718ee0d6a9b40d53017fc51680ac73e0478926102b628e8755cdd79f2579		250000000	5	1	1795663025342	local:0	1803439025342	\N
\.


--
-- Name: audit_events_number_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.audit_events_number_seq', 13, true);


--
-- Name: entries_number_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.entries_number_seq', 40, true);


--
-- Name: _sqlx_migrations _sqlx_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public._sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);


--
-- Name: account_entries account_entries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_entries
    ADD CONSTRAINT account_entries_pkey PRIMARY KEY (account_id, sequence);


--
-- Name: accounts accounts_payment_customer_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_payment_customer_id_key UNIQUE (payment_customer_id);


--
-- Name: accounts accounts_payment_subscription_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_payment_subscription_id_key UNIQUE (payment_subscription_id);


--
-- Name: accounts accounts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (id);


--
-- Name: active_accounts active_accounts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.active_accounts
    ADD CONSTRAINT active_accounts_pkey PRIMARY KEY (month, account_id);


--
-- Name: api_key_hashes api_key_hashes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_key_hashes
    ADD CONSTRAINT api_key_hashes_pkey PRIMARY KEY (hash);


--
-- Name: api_key_peppers api_key_peppers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_key_peppers
    ADD CONSTRAINT api_key_peppers_pkey PRIMARY KEY (version);


--
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);


--
-- Name: archived_totals archived_totals_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.archived_totals
    ADD CONSTRAINT archived_totals_pkey PRIMARY KEY (account_id, key_id, since);


--
-- Name: audit_events audit_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit_events
    ADD CONSTRAINT audit_events_pkey PRIMARY KEY (number);


--
-- Name: auto_top_up_charges auto_top_up_charges_payment_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.auto_top_up_charges
    ADD CONSTRAINT auto_top_up_charges_payment_id_key UNIQUE (payment_id);


--
-- Name: auto_top_up_charges auto_top_up_charges_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.auto_top_up_charges
    ADD CONSTRAINT auto_top_up_charges_pkey PRIMARY KEY (id);


--
-- Name: auto_top_ups auto_top_ups_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.auto_top_ups
    ADD CONSTRAINT auto_top_ups_pkey PRIMARY KEY (user_id);


--
-- Name: blocks blocks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blocks
    ADD CONSTRAINT blocks_pkey PRIMARY KEY (account_id, boot_id, parts, top_up_only);


--
-- Name: canary_samples canary_samples_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.canary_samples
    ADD CONSTRAINT canary_samples_pkey PRIMARY KEY (slot, canary_number, digest, account_group, measure);


--
-- Name: catalog_layers catalog_layers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.catalog_layers
    ADD CONSTRAINT catalog_layers_pkey PRIMARY KEY (version);


--
-- Name: content_logs content_logs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.content_logs
    ADD CONSTRAINT content_logs_pkey PRIMARY KEY (request_id);


--
-- Name: directory_members directory_members_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.directory_members
    ADD CONSTRAINT directory_members_pkey PRIMARY KEY (group_id, user_id);


--
-- Name: directory_resources directory_resources_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.directory_resources
    ADD CONSTRAINT directory_resources_pkey PRIMARY KEY (id);


--
-- Name: entries entries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (number);


--
-- Name: expiring_values expiring_values_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.expiring_values
    ADD CONSTRAINT expiring_values_pkey PRIMARY KEY (name);


--
-- Name: failed_requests failed_requests_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.failed_requests
    ADD CONSTRAINT failed_requests_pkey PRIMARY KEY (request_id);


--
-- Name: holds holds_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (id);


--
-- Name: idempotency_keys idempotency_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (account_id, key);


--
-- Name: invitations invitations_code_hash_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_code_hash_key UNIQUE (code_hash);


--
-- Name: invitations invitations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_pkey PRIMARY KEY (id);


--
-- Name: load_answers load_answers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.load_answers
    ADD CONSTRAINT load_answers_pkey PRIMARY KEY (question_id, boot_id);


--
-- Name: load_questions load_questions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.load_questions
    ADD CONSTRAINT load_questions_pkey PRIMARY KEY (id);


--
-- Name: mcp_tools mcp_tools_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.mcp_tools
    ADD CONSTRAINT mcp_tools_pkey PRIMARY KEY (server, tool);


--
-- Name: members members_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (organisation_id, user_id);


--
-- Name: node_leases node_leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.node_leases
    ADD CONSTRAINT node_leases_pkey PRIMARY KEY (boot_id);


--
-- Name: notices notices_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.notices
    ADD CONSTRAINT notices_pkey PRIMARY KEY (id);


--
-- Name: payment_checkouts payment_checkouts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_checkouts
    ADD CONSTRAINT payment_checkouts_pkey PRIMARY KEY (id);


--
-- Name: payment_checkouts payment_checkouts_session_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_checkouts
    ADD CONSTRAINT payment_checkouts_session_id_key UNIQUE (session_id);


--
-- Name: payment_customers payment_customers_customer_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_customers
    ADD CONSTRAINT payment_customers_customer_id_key UNIQUE (customer_id);


--
-- Name: payment_customers payment_customers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_customers
    ADD CONSTRAINT payment_customers_pkey PRIMARY KEY (user_id);


--
-- Name: payment_events payment_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_events
    ADD CONSTRAINT payment_events_pkey PRIMARY KEY (id);


--
-- Name: payment_subscriptions payment_subscriptions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_subscriptions
    ADD CONSTRAINT payment_subscriptions_pkey PRIMARY KEY (id);


--
-- Name: payment_turns payment_turns_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_turns
    ADD CONSTRAINT payment_turns_pkey PRIMARY KEY (user_id);


--
-- Name: payment_upgrades payment_upgrades_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_upgrades
    ADD CONSTRAINT payment_upgrades_pkey PRIMARY KEY (subscription_id, period_end);


--
-- Name: payments payments_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_pkey PRIMARY KEY (id);


--
-- Name: platform_daily platform_daily_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.platform_daily
    ADD CONSTRAINT platform_daily_pkey PRIMARY KEY (day, model, provider);


--
-- Name: plugin_counters plugin_counters_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.plugin_counters
    ADD CONSTRAINT plugin_counters_pkey PRIMARY KEY (slot, digest);


--
-- Name: plugin_events plugin_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.plugin_events
    ADD CONSTRAINT plugin_events_pkey PRIMARY KEY (number);


--
-- Name: plugin_parts plugin_parts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.plugin_parts
    ADD CONSTRAINT plugin_parts_pkey PRIMARY KEY (slot, digest, part);


--
-- Name: plugin_quarantines plugin_quarantines_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.plugin_quarantines
    ADD CONSTRAINT plugin_quarantines_pkey PRIMARY KEY (slot, digest);


--
-- Name: plugin_versions plugin_versions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.plugin_versions
    ADD CONSTRAINT plugin_versions_pkey PRIMARY KEY (slot, publisher);


--
-- Name: plugins plugins_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.plugins
    ADD CONSTRAINT plugins_pkey PRIMARY KEY (slot, digest);


--
-- Name: projects projects_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (id);


--
-- Name: recorded_exchanges recorded_exchanges_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.recorded_exchanges
    ADD CONSTRAINT recorded_exchanges_pkey PRIMARY KEY (id);


--
-- Name: recording_nodes recording_nodes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.recording_nodes
    ADD CONSTRAINT recording_nodes_pkey PRIMARY KEY (slot, boot_id);


--
-- Name: recordings recordings_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.recordings
    ADD CONSTRAINT recordings_pkey PRIMARY KEY (slot);


--
-- Name: sealing_keys sealing_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.sealing_keys
    ADD CONSTRAINT sealing_keys_pkey PRIMARY KEY (id);


--
-- Name: slots slots_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.slots
    ADD CONSTRAINT slots_pkey PRIMARY KEY (slot);


--
-- Name: swarm_agents swarm_agents_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_agents
    ADD CONSTRAINT swarm_agents_pkey PRIMARY KEY (run_id, number);


--
-- Name: swarm_events swarm_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_events
    ADD CONSTRAINT swarm_events_pkey PRIMARY KEY (run_id, number);


--
-- Name: swarm_runs swarm_runs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_runs
    ADD CONSTRAINT swarm_runs_pkey PRIMARY KEY (id);


--
-- Name: swarm_steps swarm_steps_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_steps
    ADD CONSTRAINT swarm_steps_pkey PRIMARY KEY (run_id, agent, iteration, ordinal);


--
-- Name: swarm_users swarm_users_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_users
    ADD CONSTRAINT swarm_users_pkey PRIMARY KEY (user_id);


--
-- Name: task_credentials task_credentials_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.task_credentials
    ADD CONSTRAINT task_credentials_pkey PRIMARY KEY (task_id, name);


--
-- Name: task_starts task_starts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.task_starts
    ADD CONSTRAINT task_starts_pkey PRIMARY KEY (task_id, cause);


--
-- Name: tasks tasks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);


--
-- Name: traffic_hours traffic_hours_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.traffic_hours
    ADD CONSTRAINT traffic_hours_pkey PRIMARY KEY (scope, hour, organisation_id, key_id, provider, model);


--
-- Name: usage_daily usage_daily_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.usage_daily
    ADD CONSTRAINT usage_daily_pkey PRIMARY KEY (account_id, period_start, day, model, provider, source, key_hash);


--
-- Name: users users_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);


--
-- Name: verified_accounts verified_accounts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_accounts
    ADD CONSTRAINT verified_accounts_pkey PRIMARY KEY (account_id);


--
-- Name: voucher_guesses voucher_guesses_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.voucher_guesses
    ADD CONSTRAINT voucher_guesses_pkey PRIMARY KEY (user_id);


--
-- Name: voucher_redemptions voucher_redemptions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.voucher_redemptions
    ADD CONSTRAINT voucher_redemptions_pkey PRIMARY KEY (user_id, voucher_id);


--
-- Name: vouchers vouchers_code_hash_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vouchers
    ADD CONSTRAINT vouchers_code_hash_key UNIQUE (code_hash);


--
-- Name: vouchers vouchers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.vouchers
    ADD CONSTRAINT vouchers_pkey PRIMARY KEY (id);


--
-- Name: accounts_by_budget_alert; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX accounts_by_budget_alert ON public.accounts USING btree (budget_alert_at) WHERE (budget_alert_at IS NOT NULL);


--
-- Name: accounts_by_low_since; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX accounts_by_low_since ON public.accounts USING btree (low_since) WHERE (low_since IS NOT NULL);


--
-- Name: accounts_by_period_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX accounts_by_period_end ON public.accounts USING btree (period_end);


--
-- Name: accounts_paid_by_period_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX accounts_paid_by_period_end ON public.accounts USING btree (period_end) WHERE (plan <> 'free'::text);


--
-- Name: api_key_hashes_by_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_key_hashes_by_key ON public.api_key_hashes USING btree (key_id);


--
-- Name: api_keys_by_holder; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_by_holder ON public.api_keys USING btree (holder_id, user_id) WHERE (holder_id IS NOT NULL);


--
-- Name: api_keys_by_project; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_by_project ON public.api_keys USING btree (project_id) WHERE (project_id IS NOT NULL);


--
-- Name: api_keys_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_by_user ON public.api_keys USING btree (user_id, created_at);


--
-- Name: api_keys_in_order; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_in_order ON public.api_keys USING btree (user_id, created_at, id);


--
-- Name: api_keys_not_revoked; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_not_revoked ON public.api_keys USING btree (user_id, created_at, id) WHERE (disabled_at IS NULL);


--
-- Name: audit_events_by_actor; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_events_by_actor ON public.audit_events USING btree (actor, at, number) WHERE (actor IS NOT NULL);


--
-- Name: audit_events_by_kind; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_events_by_kind ON public.audit_events USING btree (kind, at, number);


--
-- Name: audit_events_by_time; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_events_by_time ON public.audit_events USING btree (at);


--
-- Name: audit_events_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_events_by_user ON public.audit_events USING btree (user_id, at, number) WHERE (user_id IS NOT NULL);


--
-- Name: audit_events_in_order; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_events_in_order ON public.audit_events USING btree (at, number);


--
-- Name: auto_top_up_charges_by_claim; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX auto_top_up_charges_by_claim ON public.auto_top_up_charges USING btree (claimed_until) WHERE (ended_at IS NULL);


--
-- Name: auto_top_up_charges_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX auto_top_up_charges_by_user ON public.auto_top_up_charges USING btree (user_id, created_at);


--
-- Name: auto_top_up_charges_open; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX auto_top_up_charges_open ON public.auto_top_up_charges USING btree (user_id) WHERE (ended_at IS NULL);


--
-- Name: blocks_by_run; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX blocks_by_run ON public.blocks USING btree (boot_id);


--
-- Name: called_blocks; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX called_blocks ON public.blocks USING btree (boot_id) WHERE (called_at IS NOT NULL);


--
-- Name: content_logs_by_account; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX content_logs_by_account ON public.content_logs USING btree (account_id, at);


--
-- Name: content_logs_by_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX content_logs_by_key ON public.content_logs USING btree (key_id) WHERE (key_id IS NOT NULL);


--
-- Name: content_logs_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX content_logs_by_user ON public.content_logs USING btree (user_id, request_id);


--
-- Name: content_logs_in_order; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX content_logs_in_order ON public.content_logs USING btree (at);


--
-- Name: directory_members_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX directory_members_by_user ON public.directory_members USING btree (user_id, group_id);


--
-- Name: directory_resources_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX directory_resources_by_age ON public.directory_resources USING btree (issuer, kind, created_at, id);


--
-- Name: directory_resources_by_external_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX directory_resources_by_external_id ON public.directory_resources USING btree (issuer, kind, external_id);


--
-- Name: directory_resources_by_name; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX directory_resources_by_name ON public.directory_resources USING btree (issuer, kind, name);


--
-- Name: directory_users_by_name; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX directory_users_by_name ON public.directory_resources USING btree (issuer, name) WHERE (kind = 'user'::text);


--
-- Name: entries_by_account_change; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX entries_by_account_change ON public.entries USING btree (account_id, at) WHERE (hold_id IS NULL);


--
-- Name: entries_by_change; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX entries_by_change ON public.entries USING btree (at) WHERE (hold_id IS NULL);


--
-- Name: entries_by_hold; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX entries_by_hold ON public.entries USING btree (hold_id, kind) WHERE (hold_id IS NOT NULL);


--
-- Name: entries_by_opening; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX entries_by_opening ON public.entries USING btree (account_id) WHERE (kind = 'opening'::text);


--
-- Name: entries_by_operation; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX entries_by_operation ON public.entries USING btree (operation_id) WHERE (operation_id IS NOT NULL);


--
-- Name: expiring_values_by_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX expiring_values_by_end ON public.expiring_values USING btree (expires_at);


--
-- Name: failed_requests_by_account; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_by_account ON public.failed_requests USING btree (account_id, at, request_id);


--
-- Name: failed_requests_by_code; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_by_code ON public.failed_requests USING btree (code, at, request_id);


--
-- Name: failed_requests_by_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_by_key ON public.failed_requests USING btree (key_id, at, request_id) WHERE (key_id IS NOT NULL);


--
-- Name: failed_requests_by_model; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_by_model ON public.failed_requests USING btree (model, at, request_id) WHERE (model IS NOT NULL);


--
-- Name: failed_requests_by_provider; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_by_provider ON public.failed_requests USING btree (provider, at, request_id) WHERE (provider IS NOT NULL);


--
-- Name: failed_requests_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_by_user ON public.failed_requests USING btree (user_id, request_id);


--
-- Name: failed_requests_in_order; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX failed_requests_in_order ON public.failed_requests USING btree (at, request_id);


--
-- Name: holds_expired; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX holds_expired ON public.holds USING btree (expired_at) WHERE (expired_at IS NOT NULL);


--
-- Name: holds_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX holds_open ON public.holds USING btree (boot_id, opened_at) WHERE (expired_at IS NULL);


--
-- Name: holds_open_by_account; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX holds_open_by_account ON public.holds USING btree (account_id) WHERE (expired_at IS NULL);


--
-- Name: idempotency_keys_by_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_keys_by_expiry ON public.idempotency_keys USING btree (expires_at);


--
-- Name: invitations_by_email; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX invitations_by_email ON public.invitations USING btree (email, id);


--
-- Name: invitations_by_member; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX invitations_by_member ON public.invitations USING btree (accepted_by, id) WHERE (accepted_by IS NOT NULL);


--
-- Name: invitations_by_organisation; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX invitations_by_organisation ON public.invitations USING btree (organisation_id, created_at, id);


--
-- Name: invitations_open; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX invitations_open ON public.invitations USING btree (organisation_id, email) WHERE (ended_at IS NULL);


--
-- Name: members_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX members_by_user ON public.members USING btree (user_id, organisation_id);


--
-- Name: notices_by_kind; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX notices_by_kind ON public.notices USING btree (kind, created_at);


--
-- Name: notices_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX notices_by_user ON public.notices USING btree (user_id, created_at);


--
-- Name: notices_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX notices_due ON public.notices USING btree (next_attempt_at) WHERE (next_attempt_at IS NOT NULL);


--
-- Name: payment_checkouts_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_checkouts_by_user ON public.payment_checkouts USING btree (user_id, id);


--
-- Name: payment_checkouts_open; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX payment_checkouts_open ON public.payment_checkouts USING btree (user_id, purpose) WHERE (closed_at IS NULL);


--
-- Name: payment_events_by_arrival; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_by_arrival ON public.payment_events USING btree (received_at, id);


--
-- Name: payment_events_by_customer; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_by_customer ON public.payment_events USING btree (customer_id) WHERE (user_id IS NULL);


--
-- Name: payment_events_by_refund; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_by_refund ON public.payment_events USING btree (created_at) WHERE (type = ANY (ARRAY['charge.refunded'::text, 'charge.dispute.funds_withdrawn'::text]));


--
-- Name: payment_events_by_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_by_state ON public.payment_events USING btree (state, received_at, id);


--
-- Name: payment_events_by_subject; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_by_subject ON public.payment_events USING btree (subject);


--
-- Name: payment_events_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_by_user ON public.payment_events USING btree (user_id, created_at);


--
-- Name: payment_events_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_due ON public.payment_events USING btree (next_attempt_at) WHERE (next_attempt_at IS NOT NULL);


--
-- Name: payment_events_new; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_events_new ON public.payment_events USING btree (next_attempt_at, id) WHERE ((attempts = 0) AND (next_attempt_at IS NOT NULL));


--
-- Name: payment_subscriptions_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payment_subscriptions_by_user ON public.payment_subscriptions USING btree (user_id);


--
-- Name: payments_by_time; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payments_by_time ON public.payments USING btree (paid_at);


--
-- Name: payments_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX payments_by_user ON public.payments USING btree (user_id, paid_at);


--
-- Name: plugin_events_by_slot; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX plugin_events_by_slot ON public.plugin_events USING btree (slot, number);


--
-- Name: plugin_events_by_time; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX plugin_events_by_time ON public.plugin_events USING btree (at);


--
-- Name: projects_by_organisation; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX projects_by_organisation ON public.projects USING btree (organisation_id, created_at, id);


--
-- Name: recorded_exchanges_by_slot; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX recorded_exchanges_by_slot ON public.recorded_exchanges USING btree (slot, id);


--
-- Name: schedule_fires; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX schedule_fires ON public.task_starts USING btree (task_id, slot) WHERE (slot IS NOT NULL);


--
-- Name: swarm_runs_by_client_key; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX swarm_runs_by_client_key ON public.swarm_runs USING btree (user_id, client_key) WHERE (client_key IS NOT NULL);


--
-- Name: swarm_runs_by_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX swarm_runs_by_end ON public.swarm_runs USING btree (ended_at, id) WHERE (ended_at IS NOT NULL);


--
-- Name: swarm_runs_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX swarm_runs_by_user ON public.swarm_runs USING btree (user_id, id);


--
-- Name: swarm_runs_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX swarm_runs_open ON public.swarm_runs USING btree (lease_until) WHERE (ended_at IS NULL);


--
-- Name: swarm_runs_open_by_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX swarm_runs_open_by_id ON public.swarm_runs USING btree (id, ended_at) WHERE (ended_at IS NULL);


--
-- Name: swarm_runs_open_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX swarm_runs_open_by_user ON public.swarm_runs USING btree (user_id, lease_until, id, ended_at) WHERE (ended_at IS NULL);


--
-- Name: swarm_steps_unpriced; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX swarm_steps_unpriced ON public.swarm_steps USING btree (run_id) WHERE ((state = 'intended'::text) AND (ordinal = 0));


--
-- Name: task_credentials_by_sealing_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_credentials_by_sealing_key ON public.task_credentials USING btree (sealing_key);


--
-- Name: task_starts_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_starts_by_age ON public.task_starts USING btree (started_at);


--
-- Name: task_starts_by_time; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_starts_by_time ON public.task_starts USING btree (task_id, started_at);


--
-- Name: task_starts_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX task_starts_open ON public.task_starts USING btree (claimed_until) WHERE ((execution_id IS NULL) AND (refusal IS NULL));


--
-- Name: tasks_by_sealing_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX tasks_by_sealing_key ON public.tasks USING btree (sealing_key);


--
-- Name: tasks_by_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX tasks_by_user ON public.tasks USING btree (user_id, id);


--
-- Name: tasks_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX tasks_due ON public.tasks USING btree (next_fire_at) WHERE (next_fire_at IS NOT NULL);


--
-- Name: traffic_hours_by_hour; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX traffic_hours_by_hour ON public.traffic_hours USING btree (hour);


--
-- Name: traffic_hours_by_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX traffic_hours_by_key ON public.traffic_hours USING btree (key_id, hour);


--
-- Name: traffic_hours_by_organisation; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX traffic_hours_by_organisation ON public.traffic_hours USING btree (organisation_id, hour);


--
-- Name: usage_daily_by_account; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX usage_daily_by_account ON public.usage_daily USING btree (account_id, day);


--
-- Name: usage_daily_by_day; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX usage_daily_by_day ON public.usage_daily USING btree (day);


--
-- Name: users_administrators; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_administrators ON public.users USING btree (id) WHERE (admin_since IS NOT NULL);


--
-- Name: users_by_email; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_by_email ON public.users USING btree (email) WHERE (email IS NOT NULL);


--
-- Name: users_by_plan; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_by_plan ON public.users USING btree (plan, id);


--
-- Name: users_by_subject; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX users_by_subject ON public.users USING btree (issuer, subject);


--
-- Name: users_by_subject_alone; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_by_subject_alone ON public.users USING btree (subject) WHERE (subject IS NOT NULL);


--
-- Name: users_disabled; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_disabled ON public.users USING btree (id) WHERE (disabled_at IS NOT NULL);


--
-- Name: users_organisations; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_organisations ON public.users USING btree (id) WHERE (kind = 'organisation'::text);


--
-- Name: voucher_redemptions_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX voucher_redemptions_open ON public.voucher_redemptions USING btree (redeemed_at) WHERE (applied_at IS NULL);


--
-- Name: entries entries_are_not_changed; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER entries_are_not_changed BEFORE UPDATE OR TRUNCATE ON public.entries FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();


--
-- Name: entries entries_are_not_deleted; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON public.entries FOR EACH ROW EXECUTE FUNCTION public.refuse_deletion();


--
-- Name: accounts accounts_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_id_fkey FOREIGN KEY (id) REFERENCES public.users(id);


--
-- Name: api_key_hashes api_key_hashes_key_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_key_hashes
    ADD CONSTRAINT api_key_hashes_key_id_fkey FOREIGN KEY (key_id) REFERENCES public.api_keys(id);


--
-- Name: api_keys api_keys_holder_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_holder_id_fkey FOREIGN KEY (holder_id) REFERENCES public.users(id);


--
-- Name: api_keys api_keys_project_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_project_id_fkey FOREIGN KEY (project_id) REFERENCES public.projects(id);


--
-- Name: api_keys api_keys_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: auto_top_up_charges auto_top_up_charges_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.auto_top_up_charges
    ADD CONSTRAINT auto_top_up_charges_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: auto_top_ups auto_top_ups_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.auto_top_ups
    ADD CONSTRAINT auto_top_ups_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: blocks blocks_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blocks
    ADD CONSTRAINT blocks_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: directory_members directory_members_group_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.directory_members
    ADD CONSTRAINT directory_members_group_id_fkey FOREIGN KEY (group_id) REFERENCES public.directory_resources(id);


--
-- Name: directory_members directory_members_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.directory_members
    ADD CONSTRAINT directory_members_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.directory_resources(id);


--
-- Name: entries entries_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: holds holds_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.holds
    ADD CONSTRAINT holds_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: invitations invitations_accepted_by_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_accepted_by_fkey FOREIGN KEY (accepted_by) REFERENCES public.users(id);


--
-- Name: invitations invitations_invited_by_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_invited_by_fkey FOREIGN KEY (invited_by) REFERENCES public.users(id);


--
-- Name: invitations invitations_organisation_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_organisation_id_fkey FOREIGN KEY (organisation_id) REFERENCES public.users(id);


--
-- Name: members members_organisation_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.members
    ADD CONSTRAINT members_organisation_id_fkey FOREIGN KEY (organisation_id) REFERENCES public.users(id);


--
-- Name: members members_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.members
    ADD CONSTRAINT members_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: notices notices_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.notices
    ADD CONSTRAINT notices_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: payment_checkouts payment_checkouts_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_checkouts
    ADD CONSTRAINT payment_checkouts_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: payment_customers payment_customers_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_customers
    ADD CONSTRAINT payment_customers_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: payment_subscriptions payment_subscriptions_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payment_subscriptions
    ADD CONSTRAINT payment_subscriptions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: payments payments_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: projects projects_organisation_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_organisation_id_fkey FOREIGN KEY (organisation_id) REFERENCES public.users(id);


--
-- Name: swarm_agents swarm_agents_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_agents
    ADD CONSTRAINT swarm_agents_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.swarm_runs(id);


--
-- Name: swarm_events swarm_events_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_events
    ADD CONSTRAINT swarm_events_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.swarm_runs(id);


--
-- Name: swarm_runs swarm_runs_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_runs
    ADD CONSTRAINT swarm_runs_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: swarm_steps swarm_steps_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.swarm_steps
    ADD CONSTRAINT swarm_steps_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.swarm_runs(id);


--
-- Name: task_credentials task_credentials_task_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.task_credentials
    ADD CONSTRAINT task_credentials_task_id_fkey FOREIGN KEY (task_id) REFERENCES public.tasks(id);


--
-- Name: task_starts task_starts_task_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.task_starts
    ADD CONSTRAINT task_starts_task_id_fkey FOREIGN KEY (task_id) REFERENCES public.tasks(id);


--
-- Name: tasks tasks_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tasks
    ADD CONSTRAINT tasks_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: usage_daily usage_daily_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.usage_daily
    ADD CONSTRAINT usage_daily_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: voucher_guesses voucher_guesses_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.voucher_guesses
    ADD CONSTRAINT voucher_guesses_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: voucher_redemptions voucher_redemptions_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.voucher_redemptions
    ADD CONSTRAINT voucher_redemptions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: voucher_redemptions voucher_redemptions_voucher_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.voucher_redemptions
    ADD CONSTRAINT voucher_redemptions_voucher_id_fkey FOREIGN KEY (voucher_id) REFERENCES public.vouchers(id);


--
-- PostgreSQL database dump complete
--

\unrestrict a47ucsugrRt2DDzOgSyjeubpjOhUE6wtsa19PUHUutiNogRmTrejlebkH9BbNIe

