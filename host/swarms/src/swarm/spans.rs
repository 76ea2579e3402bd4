//! Spans of a run, its agents and their tool calls, with the names of the conventions for generative AI. The API
//! records model calls, as children of the agents.
//!
//! A run may move between executors. Therefore, its span ids derive from its own id: every executor knows them, and the
//! executor that ends a run or an agent records the complete span, from its start.
//!
//! **Invariant:** spans hold no text of users or models: an agent is identified by its number.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanId, SpanKind, TraceId};
use sha2::{Digest, Sha256};
use weir_storage::clock::Millis;
use weir_telemetry::propagation::TraceContext;
use weir_telemetry::spans::{Span, Tracer};

use super::record::{AgentResult, AgentStatus, SwarmStatus};
use super::store::SwarmRun;

pub(super) struct RunTrace {
    tracer: Tracer,
    run_id: String,
    /// The parent span, if it is recorded.
    parent: Option<TraceContext>,
    /// The run's own span if it is recorded; else the user's trace context, to be passed on.
    place: Option<TraceContext>,
    is_recorded: bool,
}

impl RunTrace {
    /// Returns the trace of a run, below the span of its request. A run without such a span, such as a schedule's,
    /// starts a trace, whose id is the run's own.
    pub(super) fn new(tracer: &Tracer, run_id: &str, asked_at: Option<&str>) -> Self {
        let asked_at = asked_at.and_then(TraceContext::parse);
        let own = span_id(run_id);
        let (parent, place) = match asked_at {
            Some(parent) if tracer.is_on() && parent.is_sampled => {
                let place = parent.with_span(own, true);
                (Some(parent), Some(place))
            }
            Some(other) => (None, Some(other)),
            None => {
                let trace_id = TraceId::from_hex(run_id).ok();
                let place = trace_id.and_then(|trace_id| tracer.begin_trace(trace_id, own));
                (None, place)
            }
        };
        let is_sampled = place.as_ref().is_some_and(|place| place.is_sampled);
        Self {
            tracer: tracer.clone(),
            run_id: run_id.to_owned(),
            parent,
            place,
            is_recorded: tracer.is_on() && is_sampled,
        }
    }

    /// The trace context for calls of an agent.
    pub(super) fn agent(&self, number: i64) -> Option<TraceContext> {
        let place = self.place.as_ref()?;
        Some(match self.is_recorded {
            true => place.with_span(span_id(&format!("{}/{number}", self.run_id)), true),
            false => place.clone(),
        })
    }

    /// Starts the span of a tool call.
    pub(super) fn tool(&self, number: i64, tool: &str) -> Option<Box<Span>> {
        if !self.is_recorded {
            return None;
        }
        let agent = self.agent(number)?;
        // The agent's own span is recorded at its end.
        let place = agent.with_span(self.tracer.new_span_id(), true);
        let name = format!("execute_tool {tool}");
        let kind = SpanKind::Internal;
        let mut span = self.tracer.span_at(name, kind, &place, Some(&agent))?;
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", tool.to_owned());
        Some(span)
    }

    /// Records the span of a finished agent.
    pub(super) fn end_agent(
        &self,
        number: i64,
        model: &str,
        started_at: Millis,
        result: &AgentResult,
    ) {
        if !self.is_recorded {
            return;
        }
        let (Some(place), kind) = (self.agent(number), SpanKind::Internal) else {
            return;
        };
        let run = self.place.as_ref();
        let Some(mut span) = self.tracer.span_at("invoke_agent", kind, &place, run) else {
            return;
        };
        span.began_at(moment(started_at));
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set("gen_ai.request.model", model.to_owned());
        span.set("gen_ai.usage.input_tokens", result.tokens_in);
        span.set("gen_ai.usage.output_tokens", result.tokens_out);
        span.set("weir.agent.number", number);
        span.set("weir.agent.iterations", i64::from(result.iterations));
        span.set("weir.credits", result.credits_used.micro() as f64 / 1e6);
        if result.status == AgentStatus::Failed {
            span.fail("failed");
        }
    }

    /// Records the span of a finished run.
    pub(super) fn end_run(&self, run: &SwarmRun, status: SwarmStatus) {
        if !self.is_recorded {
            return;
        }
        let (Some(place), kind) = (&self.place, SpanKind::Internal) else {
            return;
        };
        let parent = self.parent.as_ref();
        let Some(mut span) = self.tracer.span_at("invoke_workflow", kind, place, parent) else {
            return;
        };
        span.began_at(moment(run.created_at));
        span.set("gen_ai.operation.name", "invoke_workflow");
        span.set("gen_ai.usage.input_tokens", run.tokens_in);
        span.set("gen_ai.usage.output_tokens", run.tokens_out);
        span.set("user.id", run.user_id.clone());
        span.set("weir.execution_id", run.id.clone());
        span.set("weir.swarm.agents", run.agents_total);
        span.set("weir.swarm.status", status.name());
        // The number of claims.
        span.set("weir.swarm.claims", run.fence);
        span.set("weir.credits", run.credits.micro() as f64 / 1e6);
        if status == SwarmStatus::Failed {
            span.fail("failed");
        }
    }
}

/// Returns the span id of a part of a run, equal in all processes.
fn span_id(part: &str) -> SpanId {
    let digest: [u8; 32] = Sha256::digest(format!("span\n{part}")).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    SpanId::from_bytes([a, b, c, d, e, f, g, h])
}

fn moment(millis: Millis) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis.0.max(0).unsigned_abs())
}
