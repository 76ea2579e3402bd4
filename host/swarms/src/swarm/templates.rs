//! Predefined swarms: five pipelines of three agents.

use serde::Serialize;
use utoipa::ToSchema;

/// A pipeline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SwarmTemplate)]
pub struct Template {
    /// The pipeline's name.
    pub name: &'static str,
    /// The agents, in the format of `POST /swarms`.
    pub agents: [TemplateAgent; 3],
}

/// An agent of a pipeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct TemplateAgent {
    /// The agent's name.
    pub name: &'static str,
    temperature: f64,
    tools: &'static [&'static str],
    system_prompt: &'static str,
    task_prompt: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    depends_on: Option<&'static str>,
}

pub static TEMPLATES: [Template; 5] = [
    Template {
        name: "Content Pipeline",
        agents: [
            TemplateAgent {
                name: "Trend Researcher",
                temperature: 0.3,
                tools: &["http_get", "api_call"],
                system_prompt: "You research what people read about now. You name your sources, and never make one up.",
                task_prompt: "Research trending topics of the field at hand. List the most promising ones, each with why it \
                              matters and with its sources.",
                depends_on: None,
            },
            TemplateAgent {
                name: "Blog Writer",
                temperature: 0.7,
                tools: &[],
                system_prompt: "You write clear posts for a blog, with a structure that readers can follow.",
                task_prompt: "Write a structured post about the most promising topic: a title, an introduction, sections with \
                              headings, and a conclusion. Keep the sources.",
                depends_on: Some("Trend Researcher"),
            },
            TemplateAgent {
                name: "Editor",
                temperature: 0.3,
                tools: &[],
                system_prompt: "You edit texts until they are clear, in one tone, easy to find and accurate.",
                task_prompt: "Edit the post for clarity, tone, search engines and accuracy. Answer with the whole edited post.",
                depends_on: Some("Blog Writer"),
            },
        ],
    },
    Template {
        name: "Customer Success",
        agents: [
            TemplateAgent {
                name: "Onboarding Analyst",
                temperature: 0.3,
                tools: &["http_get"],
                system_prompt: "You analyse how new customers begin with a product, and where they get stuck.",
                task_prompt: "Find the friction in the onboarding at hand. List each point with its evidence and its cost.",
                depends_on: None,
            },
            TemplateAgent {
                name: "Success Strategist",
                temperature: 0.5,
                tools: &[],
                system_prompt: "You plan how customers stay, with milestones that can be measured.",
                task_prompt: "Write a retention strategy that removes this friction, with a milestone for each step.",
                depends_on: Some("Onboarding Analyst"),
            },
            TemplateAgent {
                name: "Comms Drafter",
                temperature: 0.6,
                tools: &[],
                system_prompt: "You draft messages to customers that are short, warm and to the point.",
                task_prompt: "Draft an outreach message for each milestone of the strategy.",
                depends_on: Some("Success Strategist"),
            },
        ],
    },
    Template {
        name: "Partnership BD",
        agents: [
            TemplateAgent {
                name: "Opportunity Scout",
                temperature: 0.4,
                tools: &["http_get", "api_call"],
                system_prompt: "You find companies that would gain from a partnership, and say why.",
                task_prompt: "Research possible partners. For each: what they do, what both sides would gain, and whom to ask.",
                depends_on: None,
            },
            TemplateAgent {
                name: "Pitch Drafter",
                temperature: 0.6,
                tools: &[],
                system_prompt: "You write proposals that begin with what the other side gains.",
                task_prompt: "Draft a proposal for each of the best partners.",
                depends_on: Some("Opportunity Scout"),
            },
            TemplateAgent {
                name: "Follow-up Manager",
                temperature: 0.4,
                tools: &[],
                system_prompt: "You keep conversations going without being a nuisance, and know what people object.",
                task_prompt: "Write a follow-up sequence for each proposal, and a script for each objection to be expected.",
                depends_on: Some("Pitch Drafter"),
            },
        ],
    },
    Template {
        name: "GTM Marketing",
        agents: [
            TemplateAgent {
                name: "SEO Strategist",
                temperature: 0.3,
                tools: &["http_get"],
                system_prompt: "You analyse what people search for, and who is found.",
                task_prompt: "Research keywords and competitors of the product at hand. Say which keywords to go for, and why.",
                depends_on: None,
            },
            TemplateAgent {
                name: "Content Creator",
                temperature: 0.7,
                tools: &[],
                system_prompt: "You write content that answers what people search for.",
                task_prompt: "Write content for the best keywords of the analysis.",
                depends_on: Some("SEO Strategist"),
            },
            TemplateAgent {
                name: "Outbound SDR",
                temperature: 0.5,
                tools: &[],
                system_prompt: "You write to people who do not know the product yet, briefly and honestly.",
                task_prompt: "Write an outreach sequence that builds on this content.",
                depends_on: Some("Content Creator"),
            },
        ],
    },
    Template {
        name: "DevOps Pipeline",
        agents: [
            TemplateAgent {
                name: "Incident Analyzer",
                temperature: 0.2,
                tools: &["http_get", "api_call"],
                system_prompt: "You look for the root cause of incidents, by evidence, and say what is not known.",
                task_prompt: "Research the incident at hand and find its root cause, with a timeline and the evidence.",
                depends_on: None,
            },
            TemplateAgent {
                name: "Runbook Generator",
                temperature: 0.4,
                tools: &[],
                system_prompt: "You write runbooks that somebody can follow at night.",
                task_prompt: "Write a remediation runbook for this cause: steps, checks, and how to go back.",
                depends_on: Some("Incident Analyzer"),
            },
            TemplateAgent {
                name: "Status Updater",
                temperature: 0.3,
                tools: &[],
                system_prompt: "You tell those who are affected what has happened and what comes next, without blame.",
                task_prompt: "Write an update for stakeholders and one for the status page.",
                depends_on: Some("Runbook Generator"),
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_those_of_the_documentation() {
        let table: Vec<_> = TEMPLATES
            .iter()
            .map(|template| {
                let agents = template.agents.iter();
                let agents = agents.map(|agent| {
                    format!(
                        "{} ({}; {})",
                        agent.name,
                        agent.temperature,
                        agent.tools.join(", ")
                    )
                });
                format!(
                    "{}: {}",
                    template.name,
                    agents.collect::<Vec<_>>().join(" | ")
                )
            })
            .collect();
        assert_eq!(
            table,
            [
                "Content Pipeline: Trend Researcher (0.3; http_get, api_call) | Blog Writer (0.7; ) | Editor (0.3; )",
                "Customer Success: Onboarding Analyst (0.3; http_get) | Success Strategist (0.5; ) | Comms Drafter (0.6; )",
                "Partnership BD: Opportunity Scout (0.4; http_get, api_call) | Pitch Drafter (0.6; ) | Follow-up Manager (0.4; )",
                "GTM Marketing: SEO Strategist (0.3; http_get) | Content Creator (0.7; ) | Outbound SDR (0.5; )",
                "DevOps Pipeline: Incident Analyzer (0.2; http_get, api_call) | Runbook Generator (0.4; ) | Status Updater (0.3; )",
            ]
        );
    }
}
