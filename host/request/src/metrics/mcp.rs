//! Metrics of remote MCP tools.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use weir_telemetry::label::LabelText;

/// The counters of remote MCP tools. Cheap to clone.
#[derive(Clone, Default)]
pub struct McpMetrics {
    calls: Family<McpCallLabels, Counter>,
    tools_changed: Family<McpToolLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct McpToolLabels {
    tool: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct McpCallLabels {
    tool: LabelText,
    /// `ok`, `error` or `blocked`.
    outcome: &'static str,
}

impl McpMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Calls of remote MCP tools, by outcome";
        registry.register("mcp_calls", help, metrics.calls.clone());
        let help = "Changes of remote MCP tools that this node was the first to detect";
        registry.register("mcp_tools_changed", help, metrics.tools_changed.clone());
        metrics
    }

    pub fn call(&self, tool: &str, outcome: &'static str) {
        let tool = tool.into();
        let labels = McpCallLabels { tool, outcome };
        self.calls.get_or_create(&labels).inc();
    }

    /// Counts a change of a tool.
    pub fn tool_changed(&self, tool: &str) {
        let tool = tool.into();
        let labels = McpToolLabels { tool };
        self.tools_changed.get_or_create(&labels).inc();
    }
}
