//! Moderation: harmful content in texts, in the format of OpenAI's Moderations. weir passes the upstream's verdicts on as
//! they are.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use weir_dialects::AnswerHead;
use weir_dialects::other::{PlainWriter, ResponseFormat};
use weir_dialects::schema::{Described as _, Schemas};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::moderation::{ModerationRequest, Request};
use weir_upstream::usage::RequestSize;

pub use self::answer::Verdicts;
pub use self::request::read;
use crate::kind::{ContentPart, Contents, Kind, KindBounds, ModelTerms, ScreenedFields};

/// The form of a response with verdicts.
#[derive(Debug, Clone, Copy)]
pub struct ModerationForm {
    /// The number of inputs.
    pub inputs: usize,
}

/// Adds the schemas of the kind.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::ModerationRequestBody::schema(schemas);
    answer::describe(schemas);
}

impl ResponseFormat for ModerationForm {
    fn plain(&self, head: AnswerHead) -> Box<dyn PlainWriter> {
        Box::new(Verdicts::new(head, self.inputs))
    }
}

impl Kind for Request {
    fn screened_mut(&mut self) -> ScreenedFields<'_> {
        let ModerationRequest {
            model: _,
            inputs,
            extra,
        } = &mut self.task;
        ScreenedFields {
            texts: inputs.iter_mut().collect(),
            words: Vec::new(),
            extra,
        }
    }

    fn contents(&self) -> Contents<'_> {
        let inputs = self.task.inputs.iter();
        Contents {
            messages: vec![inputs.map(|text| ContentPart::Text(text)).collect()],
            settings: Vec::new(),
            extra: &self.task.extra,
        }
    }

    fn size(&self) -> RequestSize {
        let inputs = self.task.inputs.iter();
        RequestSize::of_texts(inputs.map(|text| text.len() as u64), &self.task.extra)
    }

    fn bounds(&self, model: &ModelTerms<'_>) -> Result<KindBounds, ApiError> {
        let inputs = &self.task.inputs;
        model.check_inputs(inputs.iter().map(|text| text.len() as u64))?;
        Ok(KindBounds::of_data(self.size(), inputs.len()))
    }
}
