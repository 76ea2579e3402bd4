//! The sources of a response, which arrive beside it, usually at its end.
//!
//! Sources are emitted before the last text ends. Their spans are counted in bytes of all text; the contract counts
//! characters of a block.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Event;
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, Citation, Span};

/// Maximum number of citations.
const MAX_CITATIONS: usize = 512;

/// Maximum total size of sources with a span, in bytes: one source may have many spans.
const MAX_CITED_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Sources {
    grounding: Option<String>,
    citations: Option<String>,
    /// The current text block, its text, and the bytes of text before it.
    block: Option<u32>,
    text: String,
    bytes_before: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingMetadata<'a> {
    #[serde(borrow)]
    grounding_chunks: Option<Vec<&'a RawValue>>,
    grounding_supports: Option<Vec<GroundingSupport>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingSupport {
    segment: Option<Segment>,
    grounding_chunk_indices: Option<Vec<usize>>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Segment {
    start_index: Option<usize>,
    end_index: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingChunk {
    web: Option<SourcePage>,
    retrieved_context: Option<SourcePage>,
    maps: Option<SourcePage>,
}

#[derive(Deserialize)]
struct SourcePage {
    uri: Option<String>,
    title: Option<String>,
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CitationMetadata<'a> {
    #[serde(borrow, alias = "citations")]
    citation_sources: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct CitationSource {
    #[serde(flatten)]
    segment: Segment,
    uri: Option<String>,
    title: Option<String>,
}

impl Sources {
    /// Follows the text that sources may cite.
    pub(super) fn add_text(&mut self, block: u32, text: &str) {
        if self.block != Some(block) {
            self.block = Some(block);
            self.bytes_before += self.text.len();
            self.text.clear();
        }
        self.text.push_str(text);
    }

    /// Keeps the sources of a chunk; a later chunk's replace them.
    pub(super) fn keep(&mut self, grounding: Option<&RawValue>, citations: Option<&RawValue>) {
        let text = |raw: &RawValue| raw.get().to_owned();
        if let Some(grounding) = grounding.filter(|raw| raw.get().contains("groundingChunks")) {
            self.grounding = Some(text(grounding));
        }
        if let Some(citations) = citations {
            self.citations = Some(text(citations));
        }
    }

    /// Adds all sources to the open text, or to a new one if none is open. A source is an addition to the response:
    /// an unreadable one must not cost the rest.
    pub(super) fn cite(&mut self, blocks: &mut Blocks, events: &mut Vec<Event>) {
        let mut citations = self.grounding_citations();
        citations.extend(self.metadata_citations());
        citations.truncate(MAX_CITATIONS);
        if citations.is_empty() {
            return;
        }
        let index = blocks.run(Block::Text, events);
        self.add_text(index, "");
        for (source, segment) in citations {
            let span = segment.and_then(|segment| self.span(&segment));
            events.push(Event::Citation(Citation {
                index,
                span,
                ..source
            }));
        }
    }

    fn grounding_citations(&self) -> Vec<(Citation, Option<Segment>)> {
        let parse = |text: &String| {
            serde_json::from_str::<GroundingMetadata<'_>>(text)
                .ok()
                .map(grounded_citations)
        };
        self.grounding.as_ref().and_then(parse).unwrap_or_default()
    }

    fn metadata_citations(&self) -> Vec<(Citation, Option<Segment>)> {
        let Some(text) = &self.citations else {
            return Vec::new();
        };
        let metadata = serde_json::from_str::<CitationMetadata<'_>>(text).ok();
        let sources = metadata
            .and_then(|metadata| metadata.citation_sources)
            .into_iter()
            .flatten();
        sources
            .filter_map(|raw| {
                let source: CitationSource = serde_json::from_str(raw.get()).ok()?;
                let page = SourcePage {
                    uri: source.uri,
                    title: source.title,
                    text: None,
                };
                Some((citation(page, raw), Some(source.segment)))
            })
            .collect()
    }

    /// Returns the characters of the current block at these bytes of all text.
    fn span(&self, segment: &Segment) -> Option<Span> {
        let at = |index: usize| {
            let index = index.checked_sub(self.bytes_before)?;
            let characters = self.text.get(..index)?.chars().count();
            u32::try_from(characters).ok()
        };
        let (start, end) = (
            at(segment.start_index.unwrap_or(0))?,
            at(segment.end_index?)?,
        );
        (start < end).then_some(Span { start, end })
    }
}

/// Returns each source with each of its spans; a source without a span once.
fn grounded_citations(grounding: GroundingMetadata<'_>) -> Vec<(Citation, Option<Segment>)> {
    let chunks = grounding.grounding_chunks.unwrap_or_default();
    let parse = |raw: &&RawValue| {
        let chunk: GroundingChunk = serde_json::from_str(raw.get()).ok()?;
        let page = chunk.web.or(chunk.retrieved_context).or(chunk.maps)?;
        Some(citation(page, raw))
    };
    let supports = grounding.grounding_supports.unwrap_or_default();
    let mut citations = Vec::new();
    let mut cited_bytes = 0;
    for support in &supports {
        for index in support.grounding_chunk_indices.iter().flatten() {
            cited_bytes += chunks.get(*index).map_or(0, |chunk| chunk.get().len());
            if cited_bytes > MAX_CITED_BYTES {
                return citations;
            }
            if let Some(source) = chunks.get(*index).and_then(parse) {
                citations.push((source, support.segment.clone()));
            }
            if citations.len() == MAX_CITATIONS {
                return citations;
            }
        }
    }
    let is_supported = |index: usize| {
        let mut indexes = supports
            .iter()
            .flat_map(|s| s.grounding_chunk_indices.iter().flatten());
        indexes.any(|known| *known == index)
    };
    for (index, chunk) in chunks.iter().enumerate().take(MAX_CITATIONS) {
        if !is_supported(index)
            && let Some(source) = parse(chunk)
        {
            citations.push((source, None));
        }
    }
    citations
}

fn citation(page: SourcePage, raw: &RawValue) -> Citation {
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    Citation {
        index: 0,
        source: text(page.uri),
        title: text(page.title),
        cited_text: text(page.text),
        span: None,
        json: Some(raw.get().to_owned()),
    }
}
