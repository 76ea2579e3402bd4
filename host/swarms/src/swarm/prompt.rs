//! The system prompt of an agent.

/// The text that is added to an agent's own prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedText<'a> {
    Nothing,
    /// The swarm's context, for the first agent.
    Context(&'a str),
    /// The complete output of the agent's dependency; empty if the dependency failed.
    Output(&'a str),
}

/// Returns an agent's system prompt with the added text.
pub fn system_prompt(own: &str, injected: InjectedText<'_>) -> String {
    match injected {
        InjectedText::Nothing => own.to_owned(),
        InjectedText::Context(context) => format!("{own}\n\nADDITIONAL CONTEXT:\n{context}"),
        InjectedText::Output(output) => {
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
            (InjectedText::Nothing, "You write."),
            (
                InjectedText::Context("About rivers."),
                "You write.\n\nADDITIONAL CONTEXT:\nAbout rivers.",
            ),
            (
                InjectedText::Output("A dam.\n"),
                "You write.\n\n--- CONTEXT FROM PREVIOUS AGENT ---\nA dam.\n\n--- END CONTEXT ---",
            ),
            (
                InjectedText::Output(""),
                "You write.\n\n--- CONTEXT FROM PREVIOUS AGENT ---\n\n--- END CONTEXT ---",
            ),
        ] {
            assert_eq!(system_prompt("You write.", injected), expected);
        }
    }
}
