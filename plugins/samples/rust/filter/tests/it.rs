//! The filter as the host calls it, on an answer that comes in pieces.

use acme::screen::CodeNames;
use weir_sdk::chat::{Block, BlockStart, Event, Fragment, ImageRequest};
use weir_sdk::filter::{Filter, Refusal, Request, Screened, Task, Upstream, Verdict};

fn screen(prompt: &str) -> Result<Verdict, Refusal> {
    let image = ImageRequest {
        model: "painter".to_owned(),
        prompt: prompt.to_owned(),
        inputs: Vec::new(),
        mask: None,
        count: 1,
        size: None,
        quality: None,
        background: None,
        media_type: None,
        extra: Vec::new(),
        stream: false,
    };
    let request = Request {
        task: Task::Image(image),
        attachments: Vec::new(),
        dialect: "openai-images".to_owned(),
        plan: "free".to_owned(),
        input_tokens: 10,
        upstreams: vec![Upstream {
            provider: "openai".to_owned(),
            model: "painter-1".to_owned(),
        }],
    };
    let configuration = CodeNames::configure(&[]).expect("it needs no options");
    CodeNames::screen(request, &configuration)
}

#[test]
fn a_request_with_a_code_name_is_refused() {
    assert!(screen("A bird that is blue").is_ok());
    assert!(screen("Project BlueBird, please").is_err());
}

#[test]
fn a_code_name_is_masked_wherever_it_is_cut() {
    let text = "On BlueBird, blue";
    for cut in 0..=text.len() {
        let verdict = screen("A bird").expect("it passes");
        let mut answer = verdict.answer.expect("it watches");
        let block = Block::Text;
        let mut said = String::new();
        let piece = |text: &str| {
            let text = text.to_owned();
            Event::Fragment(Fragment { index: 0, text })
        };
        for event in [
            Event::BlockStart(BlockStart { index: 0, block }),
            piece(&text[..cut]),
            piece(&text[cut..]),
            Event::BlockEnd(0),
        ] {
            let Screened::Replace(events) = answer.events(vec![event]) else {
                panic!("it replaces events");
            };
            for event in events {
                if let Event::Fragment(piece) = event {
                    said.push_str(&piece.text);
                }
            }
        }
        assert_eq!(said, "On ********, blue", "cut behind {cut} bytes");
    }
}
