//! The order of a swarm's agents.
//!
//! An agent runs after the one that it depends on. Otherwise, agents run in the written order: independent agents
//! follow one another, and a dependent agent runs as soon as its dependency has finished and no earlier agent can run.

use super::request::SwarmAgent;

/// A circular dependency between agents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Circular dependency detected: {0}")]
pub struct DependencyCycle(pub String);

/// Returns the agents' indexes in execution order. Each dependency must name an agent.
pub fn order(agents: &[SwarmAgent]) -> Result<Vec<usize>, DependencyCycle> {
    let dependency = |index: usize| {
        let wanted = agents[index].depends_on.as_ref()?;
        agents.iter().position(|agent| agent.name == *wanted)
    };
    let mut order = Vec::with_capacity(agents.len());
    while order.len() < agents.len() {
        let is_ready = |&index: &usize| {
            !order.contains(&index)
                && dependency(index).is_none_or(|wanted| order.contains(&wanted))
        };
        match (0..agents.len()).find(is_ready) {
            Some(index) => order.push(index),
            None => {
                let stuck = (0..agents.len()).find(|index| !order.contains(index));
                let name = stuck.map(|index| first_met_twice(index, dependency));
                let name = name.map(|index| agents[index].name.clone());
                return Err(DependencyCycle(name.unwrap_or_default()));
            }
        }
    }
    Ok(order)
}

/// Follows the dependencies of an agent, and returns the first one that occurs twice.
fn first_met_twice(from: usize, dependency: impl Fn(usize) -> Option<usize>) -> usize {
    let mut met = Vec::new();
    let mut at = from;
    while !met.contains(&at) {
        met.push(at);
        match dependency(at) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds agents from `name` or `name<dependency`.
    fn agents(names: &[&str]) -> Vec<SwarmAgent> {
        let agent = |text: &&str| {
            let (name, depends_on) = match text.split_once('<') {
                Some((name, wanted)) => (name, Some(wanted.to_owned())),
                None => (*text, None),
            };
            SwarmAgent {
                name: name.to_owned(),
                system_prompt: String::new(),
                task_prompt: "x".to_owned(),
                model: "m".to_owned(),
                temperature: 0.7,
                max_tokens: 256,
                max_iterations: 1,
                tools: Vec::new(),
                integrations: Vec::new(),
                webhook_urls: Vec::new(),
                depends_on,
            }
        };
        names.iter().map(agent).collect()
    }

    #[test]
    fn agents_run_after_what_they_depend_on_and_else_as_they_are_written() {
        for (names, expected) in [
            (&["a"][..], &[0][..]),
            (&["a", "b", "c"], &[0, 1, 2]),
            (&["a", "b<a", "c<b"], &[0, 1, 2]),
            (&["c<b", "b<a", "a"], &[2, 1, 0]),
            (&["a<c", "b", "c"], &[1, 2, 0]),
            (&["a", "b<a", "c"], &[0, 1, 2]),
            (&["a", "b<c", "c<a", "d"], &[0, 2, 1, 3]),
        ] {
            assert_eq!(order(&agents(names)), Ok(expected.to_vec()), "{names:?}");
        }
    }

    #[test]
    fn a_circle_is_named_by_the_agent_where_it_closes() {
        for (names, name) in [
            (&["a<a"][..], "a"),
            (&["a<b", "b<a"], "a"),
            (&["a", "b<d", "c<b", "d<c"], "b"),
            (&["x<c", "b<c", "c<b"], "c"),
        ] {
            let circle = order(&agents(names)).map_err(|circle| circle.to_string());
            assert_eq!(circle, Err(format!("Circular dependency detected: {name}")));
        }
    }
}
