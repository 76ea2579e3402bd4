//! The system prompt of an agent.

/// The text that is added to an agent's own prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected<'a> {
    /// Nothing.
    Nothing,
    /// The swarm's context, for the first agent.
    Context(&'a str),
    /// The complete output of the agent's dependency; empty if the dependency failed.
    Output(&'a str),
}

/// Returns an agent's system prompt with the added text.
pub fn system_prompt(own: &str, injected: Injected<'_>) -> String {
    match injected {
        Injected::Nothing => own.to_owned(),
        Injected::Context(context) => format!("{own}\n\nADDITIONAL CONTEXT:\n{context}"),
        Injected::Output(output) => {
            format!("{own}\n\n--- CONTEXT FROM PREVIOUS AGENT ---\n{output}\n--- END CONTEXT ---")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_injected_to_the_byte() {
        for (injected, expected) in [
            (Injected::Nothing, "You write."),
            (
                Injected::Context("About rivers."),
                "You write.\n\nADDITIONAL CONTEXT:\nAbout rivers.",
            ),
            (
                Injected::Output("A dam.\n"),
                "You write.\n\n--- CONTEXT FROM PREVIOUS AGENT ---\nA dam.\n\n--- END CONTEXT ---",
            ),
            (
                Injected::Output(""),
                "You write.\n\n--- CONTEXT FROM PREVIOUS AGENT ---\n\n--- END CONTEXT ---",
            ),
        ] {
            assert_eq!(system_prompt("You write.", injected), expected);
        }
    }
}
