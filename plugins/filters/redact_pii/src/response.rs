//! The response as it arrives: placeholders become values again, and other personal data is redacted.
//!
//! The filter holds back the part of a block that could still become a match, or a longer one, until more text
//! decides: at most 254 bytes. A citation waits for its text, and gets its span in the changed text.
//!
//! In calls' arguments, only placeholders change: a redaction would break the arguments of a tool.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_sdk::chat::{Block, Citation, Event, FinishReason, Fragment, Span};
use weir_sdk::filter::{AnswerFilter, OpenBlocks, Screened};
use weir_sdk::json_texts::{self, Form, Scope};

use crate::kinds::Redactor;
use crate::placeholders::Placeholders;

pub struct ResponseRedactor {
    rewriter: TextRewriter,
    open: OpenBlocks,
    blocks: BTreeMap<u32, BlockBuffer>,
}

/// A search for placeholders of the request, and for other personal data.
struct TextRewriter {
    redactor: Redactor,
    placeholders: Placeholders,
}

#[derive(Default)]
struct BlockBuffer {
    /// Whether the block is a call's arguments.
    is_call: bool,
    /// The character before the held text.
    before: Option<char>,
    /// The held text.
    text: String,
    /// Characters of the block before the held text, in the upstream's text.
    position: u32,
    edits: Vec<Replacement>,
    /// Citations with the positions after which they arrived.
    citations: Vec<(u32, Citation)>,
}

/// A replaced stretch of a block, in characters of the upstream's text.
struct Replacement {
    start: u32,
    end: u32,
    /// Characters of its replacement.
    becomes: u32,
}

impl ResponseRedactor {
    /// A redactor before the first event of the response to a request with these placeholders.
    pub fn new(redactor: Redactor, placeholders: Placeholders) -> Self {
        Self {
            rewriter: TextRewriter {
                redactor,
                placeholders,
            },
            open: OpenBlocks::default(),
            blocks: BTreeMap::new(),
        }
    }

    /// Returns whether the event can pass unchanged at any point.
    fn passes(&self, event: &Event) -> bool {
        match event {
            Event::Fragment(piece) => !self.is_watched(piece.index),
            Event::Signature(piece) | Event::Sealed(piece) => self.is_flushed(piece.index),
            Event::Logprobs(_) => self.rewriter.redactor.is_empty(),
            Event::Citation(_) => false,
            Event::Opaque(_) | Event::Finish(FinishReason::StopSequence(_)) => {
                self.rewriter.placeholders.is_empty()
            }
            Event::BlockEnd(index) => !self.blocks.contains_key(index),
            _ => true,
        }
    }

    fn handle(&mut self, event: Event, out: &mut Vec<Event>) {
        self.open.follow(&event);
        match event {
            Event::Fragment(Fragment { index, text }) if self.is_watched(index) => {
                let is_call = self.is_call(index);
                let buffer = self.blocks.entry(index).or_default();
                buffer.is_call = is_call;
                buffer.text.push_str(&text);
                let until = self.rewriter.undecided(buffer);
                buffer.emit_until(&self.rewriter, index, until, out);
            }
            // A proof follows all of its text.
            Event::Signature(Fragment { index, .. }) | Event::Sealed(Fragment { index, .. }) => {
                if let Some(buffer) = self.blocks.get_mut(&index) {
                    buffer.emit_all(&self.rewriter, index, out);
                }
                out.push(event);
            }
            // Log probabilities contain the text.
            Event::Logprobs(_) if !self.rewriter.redactor.is_empty() => {}
            Event::Citation(citation) => {
                let index = citation.index;
                let buffer = self.blocks.entry(index).or_default();
                let position = buffer.position + characters(&buffer.text);
                let citation = self.rewriter.citation(citation);
                buffer.citations.push((position, citation));
                buffer.emit_citations(out);
            }
            Event::Opaque(mut opaque) => {
                self.rewriter.restore_json(&mut opaque.block.json);
                out.push(Event::Opaque(opaque));
            }
            Event::Finish(FinishReason::StopSequence(mut stop)) => {
                self.rewriter.restore(&mut stop);
                out.push(Event::Finish(FinishReason::StopSequence(stop)));
            }
            Event::BlockEnd(index) => {
                if let Some(mut buffer) = self.blocks.remove(&index) {
                    buffer.emit_all(&self.rewriter, index, out);
                }
                out.push(Event::BlockEnd(index));
            }
            event => out.push(event),
        }
    }

    fn is_watched(&self, index: u32) -> bool {
        let is_call = self.is_call(index) && !self.rewriter.placeholders.is_empty();
        is_call || self.open.is_prose(index)
    }

    fn is_call(&self, index: u32) -> bool {
        matches!(self.open.get(index), Some(Block::ToolCall(_)))
    }

    fn is_flushed(&self, index: u32) -> bool {
        let buffer = self.blocks.get(&index);
        buffer.is_none_or(|buffer| buffer.text.is_empty())
    }
}

impl AnswerFilter for ResponseRedactor {
    fn events(&mut self, events: Vec<Event>) -> Screened {
        // A block usually begins within the same events as its text.
        let all_pass = events.iter().all(|event| {
            self.open.follow(event);
            self.passes(event)
        });
        if all_pass {
            return Screened::Pass;
        }
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            self.handle(event, &mut out);
        }
        Screened::Replace(out)
    }

    fn restart(&mut self) {
        self.open = OpenBlocks::default();
        self.blocks.clear();
    }
}

impl TextRewriter {
    /// Returns the changes of a block's text, in order.
    fn find(&self, buffer: &BlockBuffer) -> Vec<(Range<usize>, &str)> {
        let mut all = self.placeholders.find(&buffer.text);
        if !buffer.is_call {
            // No match overlaps a placeholder.
            let found = self.redactor.find(buffer.before, &buffer.text).into_iter();
            all.extend(found.map(|one| (one.bytes, one.placeholder)));
            all.sort_by_key(|(bytes, _)| bytes.start);
        }
        all
    }

    /// Returns the start of the text that further text could change.
    fn undecided(&self, buffer: &BlockBuffer) -> usize {
        let until = self.placeholders.undecided(&buffer.text);
        match buffer.is_call {
            true => until,
            false => until.min(self.redactor.undecided(buffer.before, &buffer.text)),
        }
    }

    /// Changes a citation. The upstream's own JSON repeats the text, and is removed if the text is redacted.
    fn citation(&self, mut citation: Citation) -> Citation {
        let texts = [
            &mut citation.source,
            &mut citation.title,
            &mut citation.cited_text,
        ];
        for text in texts.into_iter().flatten() {
            self.redactor.redact(text);
            self.restore(text);
        }
        match &mut citation.json {
            Some(json) if self.redactor.is_empty() => self.restore_json(json),
            json => *json = None,
        }
        citation
    }

    fn restore(&self, text: &mut String) {
        if let Some(restored) = self.placeholders.restore(text) {
            *text = restored;
        }
    }

    fn restore_json(&self, json: &mut String) {
        let mut each = |text: &str, _: Form| self.placeholders.restore(text);
        if let Some(restored) = json_texts::rewrite(json, Scope::All, &mut each) {
            *json = restored;
        }
    }
}

impl BlockBuffer {
    fn emit_all(&mut self, rewriter: &TextRewriter, index: u32, out: &mut Vec<Event>) {
        let all = self.text.len();
        self.emit_until(rewriter, index, all, out);
    }

    /// Emits the text before a byte, changed, with all of a match that reaches beyond it.
    fn emit_until(
        &mut self,
        rewriter: &TextRewriter,
        index: u32,
        until: usize,
        out: &mut Vec<Event>,
    ) {
        let mut changed = String::new();
        let mut at = 0;
        for (bytes, becomes) in rewriter.find(self) {
            if bytes.start >= until {
                break;
            }
            changed.push_str(&self.text[at..bytes.start]);
            changed.push_str(becomes);
            self.edits.push(Replacement {
                start: self.position + characters(&self.text[..bytes.start]),
                end: self.position + characters(&self.text[..bytes.end]),
                becomes: characters(becomes),
            });
            at = bytes.end;
        }
        if at < until {
            changed.push_str(&self.text[at..until]);
            at = until;
        }
        let rest = self.text.split_off(at);
        let done = std::mem::replace(&mut self.text, rest);
        self.position += characters(&done);
        self.before = done.chars().next_back().or(self.before);
        if !changed.is_empty() {
            let text = changed;
            out.push(Event::Fragment(Fragment { index, text }));
        }
        self.emit_citations(out);
    }

    /// Emits the citations whose text was emitted.
    fn emit_citations(&mut self, out: &mut Vec<Event>) {
        let position = self.position;
        let due = self.citations.extract_if(.., |(came, _)| *came <= position);
        for (came, mut citation) in due {
            citation.span = match citation.span {
                Some(span) => Some(Span {
                    start: changed_position(&self.edits, span.start, false),
                    end: changed_position(&self.edits, span.end, true),
                }),
                // All of the text at that time; more was emitted since.
                None if came < position => Some(Span {
                    start: 0,
                    end: changed_position(&self.edits, came, true),
                }),
                None => None,
            };
            out.push(Event::Citation(citation));
        }
    }
}

/// Maps a position to the changed text: within a replacement, to its end or its start.
fn changed_position(edits: &[Replacement], position: u32, to_end: bool) -> u32 {
    let (mut taken, mut given) = (0, 0);
    for edit in edits.iter().take_while(|edit| edit.start < position) {
        if position < edit.end {
            let start = edit.start - taken + given;
            return if to_end { start + edit.becomes } else { start };
        }
        taken += edit.end - edit.start;
        given += edit.becomes;
    }
    position - taken + given
}

fn characters(text: &str) -> u32 {
    // A response has fewer than 2³² characters.
    text.chars().count() as u32
}

#[cfg(test)]
mod tests {
    use weir_sdk::chat::{BlockStart, CallKind, Opaque, OpaqueBlock, ToolCallStart};

    use super::*;
    use crate::kinds::{DEFAULT_KINDS, KINDS};

    fn redacting() -> ResponseRedactor {
        ResponseRedactor::new(Redactor::new(u8::MAX), Placeholders::default())
    }

    /// The filter of a response to a request with two addresses, which redacts these kinds.
    fn restoring(kinds: u8) -> ResponseRedactor {
        let mut placeholders = Placeholders::default();
        let redactor = Redactor::new(u8::MAX);
        placeholders.hide(&redactor, "ada@example.org, bo@example.org", |_| {});
        ResponseRedactor::new(Redactor::new(kinds), placeholders)
    }

    fn start(index: u32, block: Block) -> Event {
        Event::BlockStart(BlockStart { index, block })
    }

    fn piece(index: u32, text: &str) -> Event {
        let text = text.to_owned();
        Event::Fragment(Fragment { index, text })
    }

    fn show(answer: &mut ResponseRedactor, events: Vec<Event>) -> Vec<Event> {
        match answer.events(events.clone()) {
            Screened::Pass => events,
            Screened::Replace(events) => events,
            Screened::Stop => panic!("it stops nothing"),
        }
    }

    fn call() -> Block {
        Block::ToolCall(ToolCallStart {
            id: "1".into(),
            name: "f".into(),
            kind: CallKind::Function,
        })
    }

    fn said(events: &[Event]) -> String {
        let pieces = events.iter().filter_map(|event| match event {
            Event::Fragment(piece) => Some(&*piece.text),
            _ => None,
        });
        pieces.collect()
    }

    /// Redacts a block's pieces, and checks that at most 256 bytes are held back.
    fn streamed(block: &Block, pieces: &[&str]) -> String {
        streamed_through(redacting(), block, pieces)
    }

    fn streamed_through(mut answer: ResponseRedactor, block: &Block, pieces: &[&str]) -> String {
        let mut all = show(&mut answer, vec![start(0, block.clone())]);
        for text in pieces {
            all.extend(show(&mut answer, vec![piece(0, text)]));
            let buffer = answer.blocks.values().map(|buffer| buffer.text.len());
            assert!(buffer.sum::<usize>() <= 256, "{pieces:?}");
        }
        all.extend(show(&mut answer, vec![Event::BlockEnd(0)]));
        assert_eq!(all.first(), Some(&start(0, block.clone())));
        assert_eq!(all.last(), Some(&Event::BlockEnd(0)));
        said(&all)
    }

    const TEXTS: [(&str, &str); 9] = [
        ("Ask josé.l+x@mail.example.org, do.", "Ask [e-mail], do."),
        ("Pay 4111 1111 1111 1111 123 now", "Pay [card] 123 now"),
        ("To DE89 3704 0044 0532 0130 00 AND on", "To [iban] AND on"),
        ("My SSN is 219-09-9999", "My SSN is [ssn]"),
        ("Call +49 (30) 1234567 or wait", "Call [phone] or wait"),
        ("Call 1-555-010-9999.", "Call [phone]."),
        ("At 10.0.0.1:80 or fe80::1 now", "At [ip]:80 or [ip] now"),
        (
            "a@b.co 219-09-9999 a@b.co,c@d.co",
            "[e-mail] [ssn] [e-mail],[e-mail]",
        ),
        (
            "4111 1111 1111 1112, a@b and x1.2.3.4",
            "4111 1111 1111 1112, a@b and x1.2.3.4",
        ),
    ];

    #[test]
    fn a_match_is_found_wherever_an_answer_is_cut() {
        for (text, expected) in TEXTS {
            let cuts: Vec<_> = (0..=text.len())
                .filter(|cut| text.is_char_boundary(*cut))
                .collect();
            for (place, one) in cuts.iter().enumerate() {
                for other in &cuts[place..] {
                    let pieces = [&text[..*one], &text[*one..*other], &text[*other..]];
                    assert_eq!(streamed(&Block::Text, &pieces), expected, "{pieces:?}");
                }
            }
            let each: Vec<_> = text.split_inclusive(|_: char| true).collect();
            for block in [Block::Refusal, Block::Reasoning] {
                assert_eq!(streamed(&block, &each), expected);
            }
        }
        let kinds = KINDS.iter();
        let mut missing =
            kinds.filter(|kind| !TEXTS.iter().any(|(_, to)| to.contains(kind.placeholder)));
        assert!(missing.next().is_none());
    }

    #[test]
    fn streamed_or_not_it_is_the_same() {
        let words = [
            "4111 1111 1111 1111",
            "-",
            " ",
            "a@b.co",
            "@",
            ".",
            "219-09-9999",
            "DE89 3704 0044 0532 0130 00",
            "+49 30 1234567",
            "2024",
            "x",
            "\n",
            "10.0.0.1",
            ":",
            "(555) 010-9999",
            "A1",
            "é",
        ];
        // A linear congruential generator, by Knuth: a failure is reproducible.
        let mut state = 1u64;
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..300 {
            let text: String = (0..12).map(|_| words[draw(words.len())]).collect();
            let mut whole = text.clone();
            Redactor::new(u8::MAX).redact(&mut whole);
            let mut pieces = Vec::new();
            let mut rest = &*text;
            while !rest.is_empty() {
                let mut cut = (1 + draw(9)).min(rest.len());
                while !rest.is_char_boundary(cut) {
                    cut += 1;
                }
                let (piece, behind) = rest.split_at(cut);
                pieces.push(piece);
                rest = behind;
            }
            assert_eq!(streamed(&Block::Text, &pieces), whole, "{pieces:?}");
        }
    }

    #[test]
    fn calls_pass_and_logprobs_do_not() {
        let mut answer = redacting();
        let events = vec![
            start(0, Block::Text),
            start(1, call()),
            piece(1, r#"{"to":"a@b.co"}"#),
            Event::BlockEnd(1),
        ];
        assert_eq!(answer.events(events), Screened::Pass);
        let logprobs = Event::Logprobs(Fragment {
            index: 0,
            text: r#"[{"token":"a@b.co"}]"#.into(),
        });
        let shown = show(&mut answer, vec![logprobs, piece(0, "a@b.co ")]);
        assert_eq!(shown, [piece(0, "[e-mail] ")]);
        let end = vec![Event::BlockEnd(0), Event::Finish(FinishReason::Stop)];
        assert_eq!(show(&mut answer, end.clone()), end);
    }

    #[test]
    fn a_citation_stands_behind_the_same_words() {
        let cite = |span| Citation {
            index: 0,
            source: Some("https://example.org/?by=a@b.co".into()),
            title: None,
            cited_text: Some("It is a@b.co".into()),
            span,
            json: Some(r#"{"cited":"a@b.co"}"#.into()),
        };
        let mut answer = redacting();
        show(&mut answer, vec![start(0, Block::Text)]);
        let mut all = show(&mut answer, vec![piece(0, "To ada@example.org it was ")]);
        let spans = [
            Some(Span { start: 3, end: 18 }),
            Some(Span { start: 19, end: 25 }),
            Some(Span { start: 5, end: 9 }),
            None,
        ];
        for span in spans {
            all.extend(show(&mut answer, vec![Event::Citation(cite(span))]));
        }
        // The citation waits while the last word may continue.
        all.extend(show(&mut answer, vec![piece(0, "sent")]));
        let waits = show(&mut answer, vec![Event::Citation(cite(None))]);
        assert_eq!(waits, []);
        all.extend(show(&mut answer, vec![piece(0, " today. ")]));
        assert_eq!(said(&all), "To [e-mail] it was sent today. ");
        let citations = all.iter().filter_map(|event| match event {
            Event::Citation(citation) => Some(citation),
            _ => None,
        });
        let citations: Vec<_> = citations.collect();
        for citation in &citations {
            assert_eq!(citation.cited_text.as_deref(), Some("It is [e-mail]"));
            assert!(!format!("{citation:?}").contains("a@b.co"));
        }
        let spans: Vec<_> = citations.iter().map(|citation| citation.span).collect();
        let span = |start, end| Some(Span { start, end });
        assert_eq!(
            spans,
            [span(3, 11), span(12, 18), span(3, 11), None, span(0, 23)]
        );
    }

    #[test]
    fn nothing_is_left_of_an_answer_that_begins_anew() {
        let mut answer =
            ResponseRedactor::new(Redactor::new(DEFAULT_KINDS), Placeholders::default());
        show(&mut answer, vec![start(0, Block::Text), piece(0, "a@b")]);
        answer.restart();
        let anew = vec![start(0, Block::Text), piece(0, ".co "), Event::BlockEnd(0)];
        assert_eq!(said(&show(&mut answer, anew)), ".co ");
    }

    #[test]
    fn a_placeholder_is_restored_wherever_an_answer_is_cut() {
        let text = "To [[e-mail-1], [e-mail-2]\\n [e-mail-3] [e-mail-] [e-mail-1";
        let expected = "To [ada@example.org, bo@example.org\\n [e-mail-3] [e-mail-] [e-mail-1";
        let each: Vec<_> = text.split_inclusive(|_: char| true).collect();
        for block in [Block::Text, Block::Refusal, Block::Reasoning, call()] {
            for kinds in [0, u8::MAX] {
                let restored = streamed_through(restoring(kinds), &block, &each);
                assert_eq!(restored, expected);
                for cut in 0..=text.len() {
                    let pieces = [&text[..cut], &text[cut..]];
                    let restored = streamed_through(restoring(kinds), &block, &pieces);
                    assert_eq!(restored, expected, "{pieces:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_but_the_beginning_of_a_placeholder_waits() {
        let mut answer = restoring(0);
        show(&mut answer, vec![start(0, Block::Text), start(1, call())]);
        for (text, expected) in [
            ("a@b.co 4111", "a@b.co 4111"),
            (" [", " "),
            ("e-mail", ""),
            ("!", "[e-mail!"),
            ("[e-mail-1", ""),
            ("]!", "ada@example.org!"),
        ] {
            for index in [0, 1] {
                let shown = show(&mut answer, vec![piece(index, text)]);
                assert_eq!(said(&shown), expected, "{text}");
            }
        }
    }

    #[test]
    fn data_that_the_model_makes_up_is_redacted_beside_restored_data() {
        let pieces = ["[e-mail-1] or ada@exam", "ple.org, x@y.org[e-", "mail-2]"];
        let expected = "ada@example.org or [e-mail], [e-mail]bo@example.org";
        let restored = streamed_through(restoring(u8::MAX), &Block::Text, &pieces);
        assert_eq!(restored, expected);
        let restored = streamed_through(restoring(0), &Block::Text, &pieces);
        assert_eq!(
            restored,
            "ada@example.org or ada@example.org, x@y.orgbo@example.org"
        );
        let restored = streamed_through(restoring(u8::MAX), &call(), &pieces);
        assert_eq!(
            restored,
            "ada@example.org or ada@example.org, x@y.orgbo@example.org"
        );
    }

    #[test]
    fn held_text_comes_before_the_proof_of_its_block() {
        let proof = |text: &str| Fragment {
            index: 0,
            text: text.into(),
        };
        for proof in [Event::Signature(proof("s")), Event::Sealed(proof("s"))] {
            let mut answer = restoring(u8::MAX);
            let buffer = show(
                &mut answer,
                vec![start(0, Block::Reasoning), piece(0, "4111 [e-mail-")],
            );
            assert_eq!(said(&buffer), "4111 ");
            let shown = show(&mut answer, vec![proof.clone(), Event::BlockEnd(0)]);
            assert_eq!(shown, [piece(0, "[e-mail-"), proof, Event::BlockEnd(0)]);
        }
    }

    #[test]
    fn placeholders_are_restored_in_all_events() {
        let cited = |cited: &str, json: Option<&str>| {
            Event::Citation(Citation {
                index: 0,
                source: None,
                title: Some(cited.into()),
                cited_text: Some(cited.into()),
                span: Some(Span { start: 0, end: 10 }),
                json: json.map(|json| json.replace("AT", cited)),
            })
        };
        let json = r#"{"AT":["AT"]}"#;
        let opaque = |at: &str| {
            let block = Opaque {
                kind: "x".into(),
                json: json.replace("AT", at),
            };
            Event::Opaque(OpaqueBlock { index: 1, block })
        };
        let stopped = |at: &str| Event::Finish(FinishReason::StopSequence(at.into()));
        for kinds in [0, u8::MAX] {
            let mut answer = restoring(kinds);
            let (hidden, value) = ("[e-mail-1]", "ada@example.org");
            let begin = vec![start(0, Block::Text), piece(0, "[e-mail-1] ")];
            show(&mut answer, begin);
            let rest = vec![
                cited(hidden, Some(json)),
                Event::BlockEnd(0),
                opaque(hidden),
                stopped(hidden),
            ];
            let mut expected = vec![
                cited(value, (kinds == 0).then_some(json)),
                Event::BlockEnd(0),
                opaque(value),
                stopped(value),
            ];
            if let Event::Citation(citation) = &mut expected[0] {
                citation.span = Some(Span { start: 0, end: 15 });
            }
            assert_eq!(show(&mut answer, rest), expected);
        }
    }

    #[test]
    fn log_probabilities_pass_if_nothing_is_redacted() {
        let logprobs = Event::Logprobs(Fragment {
            index: 0,
            text: "[]".into(),
        });
        let events = vec![start(0, Block::Text), logprobs];
        assert_eq!(restoring(0).events(events), Screened::Pass);
    }

    #[test]
    fn an_answer_that_begins_anew_is_restored_again() {
        let mut answer = restoring(0);
        show(
            &mut answer,
            vec![start(0, Block::Text), piece(0, "[e-mail")],
        );
        answer.restart();
        let anew = vec![start(0, Block::Text), piece(0, "-1] [e-mail-1]")];
        assert_eq!(said(&show(&mut answer, anew)), "-1] ada@example.org");
    }
}
