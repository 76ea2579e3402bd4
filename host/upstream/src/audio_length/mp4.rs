//! MP4 and QuickTime (ISO/IEC 14496-12): tables of samples, or fragments with their own tables. The durations in the
//! tables are not used, except those of repeated edits.
//!
//! **Invariant:** a file with a box that does not fit into its parent, or with bytes behind its boxes, is refused.

use super::codec::Codec;
use super::flac;
use super::playing_time::in_nanos;

/// The most tracks of a file.
const MAX_TRACKS: usize = 64;

/// The bytes of a sample entry before its own boxes.
const ENTRY_BYTES: usize = 28;

/// Formats of sound whose packets have a known time.
const KNOWN: [&[u8]; 5] = [b"mp4a", b"Opus", b"fLaC", b"alac", b".mp3"];

#[derive(Default)]
struct Track<'a> {
    id: u32,
    is_sound: bool,
    codec: Option<Codec>,
    /// The table of the samples' sizes, of the chunks' samples, and of the chunks' places.
    sizes: &'a [u8],
    runs: &'a [u8],
    places: &'a [u8],
    has_long_places: bool,
    /// The durations of the track's edits, in the movie's unit; empty edits do not count.
    edits: Vec<u64>,
    default_size: u32,
}

/// The reader of a file.
struct Reader<'a> {
    file: &'a [u8],
    tracks: Vec<Track<'a>>,
    /// The movie's units per second.
    scale: u32,
    nanos: u64,
    /// The samples so far. A file can name the same bytes many times.
    samples: usize,
}

/// Returns the playing time of all tracks in nanoseconds.
pub(super) fn nanos(file: &[u8]) -> Option<u64> {
    let mut reader = Reader {
        file,
        tracks: Vec::new(),
        scale: 0,
        nanos: 0,
        samples: 0,
    };
    for of_file in boxes(file)? {
        match of_file.kind {
            b"moov" => reader.movie(of_file.content)?,
            b"moof" => reader.fragment(of_file)?,
            _ => {}
        }
    }
    Some(reader.nanos)
}

impl<'a> Reader<'a> {
    fn movie(&mut self, movie: &'a [u8]) -> Option<()> {
        // A later movie's fragments would mean its own tracks.
        self.tracks.clear();
        for part in boxes(movie)? {
            match part.kind {
                b"mvhd" => {
                    let at = match part.content.first()? {
                        0 => 12,
                        _ => 20,
                    };
                    self.scale = number(part.content, at)?;
                }
                b"trak" => {
                    let track = track(part.content)?;
                    self.tracks.push(track);
                }
                b"mvex" => {
                    for default in boxes(part.content)? {
                        if default.kind == b"trex" {
                            let id = number(default.content, 4)?;
                            let mut tracks = self.tracks.iter_mut();
                            if let Some(track) = tracks.find(|track| track.id == id) {
                                track.default_size = number(default.content, 16)?;
                            }
                        }
                    }
                }
                // A compressed movie.
                b"cmov" => return None,
                _ => {}
            }
        }
        if self.tracks.len() > MAX_TRACKS {
            return None;
        }
        for index in 0..self.tracks.len() {
            let before = self.nanos;
            self.samples_of_tables(index)?;
            let edits = &self.tracks[index].edits;
            if self.tracks[index].is_sound && edits.len() > 1 {
                // Each edit may repeat the same samples.
                let edited = edits
                    .iter()
                    .fold(0_u64, |sum, edit| sum.saturating_add(*edit));
                let edited = before.saturating_add(in_nanos(edited, self.scale));
                self.nanos = self.nanos.max(edited);
            }
        }
        Some(())
    }

    /// Adds the samples of a track's own tables.
    fn samples_of_tables(&mut self, index: usize) -> Option<()> {
        let Track {
            is_sound,
            sizes,
            runs,
            places,
            has_long_places,
            ..
        } = self.tracks[index];
        if !is_sound || sizes.is_empty() {
            return Some(());
        }
        let (size, count) = (number(sizes, 4)?, number(sizes, 8)? as usize);
        let place_bytes = if has_long_places { 8 } else { 4 };
        let mut places = table(places, place_bytes)?;
        let mut runs = table(runs, 12)?.peekable();
        let mut sizes = match size {
            0 => Some(table(sizes.get(4..)?, 4)?),
            _ => None,
        };
        let (mut left, mut chunk) = (count, 0_u32);
        let mut per_chunk = 0;
        while left > 0 {
            chunk = chunk.checked_add(1)?;
            if let Some(run) = runs.next_if(|run| number(run, 0) == Some(chunk)) {
                per_chunk = number(run, 4)? as usize;
            }
            let place = places.next()?;
            let mut at = place
                .iter()
                .fold(0, |at, byte| at << 8 | usize::from(*byte));
            for _ in 0..per_chunk.min(left) {
                let size = match &mut sizes {
                    Some(sizes) => number(sizes.next()?, 0)?,
                    None => size,
                };
                self.sample(index, at, size)?;
                at = at.checked_add(size as usize)?;
            }
            left -= per_chunk.min(left);
        }
        Some(())
    }

    /// Adds the samples of a fragment.
    fn fragment(&mut self, fragment: FileBox<'a>) -> Option<()> {
        for part in boxes(fragment.content)? {
            if part.kind != b"traf" {
                continue;
            }
            let mut of_track = None;
            for part in boxes(part.content)? {
                match part.kind {
                    b"tfhd" => of_track = Some(self.track_of_fragment(part.content, fragment.at)?),
                    b"trun" => self.run(part.content, of_track.as_mut()?)?,
                    _ => {}
                }
            }
        }
        Some(())
    }

    fn track_of_fragment(&self, header: &[u8], at: usize) -> Option<FragmentTrack> {
        let (flags, id) = (number(header, 0)?, number(header, 4)?);
        let mut tracks = self.tracks.iter();
        let index = tracks.position(|track| track.id == id)?;
        let mut next = 8;
        let mut optional = |flag: u32, bytes: usize| {
            let at = next;
            let is_there = flags & flag != 0;
            next += if is_there { bytes } else { 0 };
            is_there.then_some(at)
        };
        let base = match optional(1, 8) {
            Some(at) => usize::try_from(long_number(header, at)?).ok()?,
            None => at,
        };
        optional(2, 4);
        optional(8, 4);
        let size = match optional(0x10, 4) {
            Some(at) => number(header, at)?,
            None => self.tracks[index].default_size,
        };
        Some(FragmentTrack {
            index,
            base,
            next: base,
            size,
        })
    }

    fn run(&mut self, run: &[u8], track: &mut FragmentTrack) -> Option<()> {
        let (flags, count) = (number(run, 0)?, number(run, 4)?);
        let mut at = 8;
        if flags & 1 != 0 {
            let offset = number(run, at)?.cast_signed();
            track.next = track.base.checked_add_signed(offset as isize)?;
            at += 4;
        }
        at += if flags & 4 != 0 { 4 } else { 0 };
        for _ in 0..count {
            at += if flags & 0x100 != 0 { 4 } else { 0 };
            let size = match flags & 0x200 {
                0 => track.size,
                _ => {
                    at += 4;
                    number(run, at - 4)?
                }
            };
            at += if flags & 0x400 != 0 { 4 } else { 0 };
            at += if flags & 0x800 != 0 { 4 } else { 0 };
            self.sample(track.index, track.next, size)?;
            track.next = track.next.checked_add(size as usize)?;
        }
        Some(())
    }

    /// Adds a sample at this place of the file.
    fn sample(&mut self, index: usize, at: usize, size: u32) -> Option<()> {
        self.samples += 1;
        if self.samples > self.file.len() {
            return None;
        }
        let track = &mut self.tracks[index];
        if !track.is_sound {
            return Some(());
        }
        let end = at.checked_add(size as usize)?.min(self.file.len());
        // A file that was cut lacks the last samples.
        let packet = self.file.get(at..end).unwrap_or_default();
        let nanos = track.codec.as_mut()?.nanos(packet)?;
        self.nanos = self.nanos.saturating_add(nanos);
        Some(())
    }
}

/// A track's part in a fragment.
struct FragmentTrack {
    index: usize,
    base: usize,
    /// The place of the next sample.
    next: usize,
    size: u32,
}

fn track(content: &[u8]) -> Option<Track<'_>> {
    let mut track = Track::default();
    for part in boxes(content)? {
        match part.kind {
            b"tkhd" => {
                let at = match part.content.first()? {
                    0 => 12,
                    _ => 20,
                };
                track.id = number(part.content, at)?;
            }
            b"edts" => {
                for list in boxes(part.content)? {
                    if list.kind == b"elst" {
                        track.edits = edits(list.content)?;
                    }
                }
            }
            b"mdia" => media(part.content, &mut track)?,
            _ => {}
        }
    }
    Some(track)
}

/// Returns the durations of edits that are not empty.
fn edits(list: &[u8]) -> Option<Vec<u64>> {
    let is_long = *list.first()? == 1;
    let mut edits = Vec::new();
    for edit in table(list, if is_long { 20 } else { 12 })? {
        let (duration, is_empty) = match is_long {
            true => (long_number(edit, 0)?, long_number(edit, 8)? == u64::MAX),
            false => (number(edit, 0)?.into(), number(edit, 4)? == u32::MAX),
        };
        if !is_empty {
            edits.push(duration);
        }
    }
    Some(edits)
}

fn media<'a>(content: &'a [u8], track: &mut Track<'a>) -> Option<()> {
    for part in boxes(content)? {
        match part.kind {
            b"hdlr" => track.is_sound |= part.content.get(8..12)? == b"soun",
            b"minf" => {
                for part in boxes(part.content)? {
                    if part.kind == b"stbl" {
                        tables(part.content, track)?;
                    }
                }
            }
            _ => {}
        }
    }
    // A codec without a known time.
    (!track.is_sound || track.codec.is_some()).then_some(())
}

fn tables<'a>(content: &'a [u8], track: &mut Track<'a>) -> Option<()> {
    for part in boxes(content)? {
        match part.kind {
            b"stsd" => {
                let mut entries = boxes(part.content.get(8..)?)?;
                let entry = entries.next()?;
                // Decoders play a track with sound even if its handler says otherwise.
                track.is_sound |= KNOWN.contains(&entry.kind.as_slice());
                track.codec = codec(&entry);
                // Samples could be of either entry.
                if track.is_sound && entries.next().is_some() {
                    return None;
                }
            }
            b"stsz" => track.sizes = part.content,
            b"stsc" => track.runs = part.content,
            b"stco" => (track.places, track.has_long_places) = (part.content, false),
            b"co64" => (track.places, track.has_long_places) = (part.content, true),
            // Sizes of four bits, which nobody writes.
            b"stz2" => return None,
            _ => {}
        }
    }
    Some(())
}

fn codec(entry: &FileBox<'_>) -> Option<Codec> {
    // QuickTime's later versions have more fields.
    let more = match entry.content.get(8..10)? {
        [0, 0] => 0,
        [0, 1] => 16,
        _ => return None,
    };
    let inner = entry.content.get(ENTRY_BYTES + more..)?;
    let find = |kind: &[u8; 4]| boxes(inner)?.find(|inner| inner.kind == kind);
    match entry.kind {
        b"mp4a" => {
            let descriptor = match find(b"esds") {
                Some(descriptor) => descriptor,
                None => {
                    let wave = find(b"wave")?;
                    boxes(wave.content)?.find(|inner| inner.kind == b"esds")?
                }
            };
            of_descriptor(descriptor.content.get(4..)?)
        }
        b"Opus" => Some(Codec::Opus),
        b".mp3" => Some(Codec::Mpeg),
        b"fLaC" => {
            let blocks = find(b"dfLa")?.content;
            let rate = flac::stream_rate(blocks.get(8..)?)?;
            Some(Codec::Flac { rate })
        }
        b"alac" => {
            let configuration = find(b"alac")?.content;
            let (samples, rate) = (number(configuration, 4)?, number(configuration, 24)?);
            let samples = u64::from(samples);
            (samples > 0 && rate > 0).then_some(Codec::Constant { samples, rate })
        }
        _ => None,
    }
}

/// Returns the codec of an elementary stream's descriptor (ISO/IEC 14496-1, 7.2.6.5).
fn of_descriptor(bytes: &[u8]) -> Option<Codec> {
    let stream = descriptor(bytes, 3)?;
    let flags = *stream.get(2)?;
    let mut at = 3;
    at += if flags & 0x80 != 0 { 2 } else { 0 };
    if flags & 0x40 != 0 {
        at += 1 + usize::from(*stream.get(at)?);
    }
    at += if flags & 0x20 != 0 { 2 } else { 0 };
    let decoder = descriptor(stream.get(at..)?, 4)?;
    match *decoder.first()? {
        // MPEG-4, and AAC of MPEG-2.
        0x40 | 0x66..=0x68 => Codec::aac(descriptor(decoder.get(13..)?, 5)?),
        0x69 | 0x6b => Some(Codec::Mpeg),
        _ => None,
    }
}

/// Returns the content of a descriptor with this tag.
fn descriptor(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(&[tag])?;
    let mut size = 0;
    for _ in 0..4 {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        size = size << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    rest.get(..size)
}

#[derive(Clone, Copy)]
struct FileBox<'a> {
    /// Its place in its parent.
    at: usize,
    kind: &'a [u8; 4],
    content: &'a [u8],
}

/// Splits bytes into boxes; `None` if they do not fit.
fn boxes(bytes: &[u8]) -> Option<impl Iterator<Item = FileBox<'_>>> {
    // A first pass checks the sizes.
    let mut at = 0;
    while at < bytes.len() {
        // QuickTime ends some lists with a zero.
        if bytes[at..] == [0; 4] {
            break;
        }
        at += box_at(bytes, at)?.1;
    }
    let mut at = 0;
    Some(std::iter::from_fn(move || {
        let (next, size) = box_at(bytes, at)?;
        at += size;
        Some(next)
    }))
}

/// Returns the box at a place, and its size.
fn box_at(bytes: &[u8], at: usize) -> Option<(FileBox<'_>, usize)> {
    let rest = bytes.get(at..)?;
    let kind = rest.get(4..8)?.try_into().ok()?;
    let (head, size) = match number(rest, 0)? {
        0 => (8, rest.len()),
        1 => (16, usize::try_from(long_number(rest, 8)?).ok()?),
        size => (8, size as usize),
    };
    let content = rest.get(head..size)?;
    Some((FileBox { at, kind, content }, size))
}

/// Returns the entries of a table behind its version and its count.
fn table(content: &[u8], entry_bytes: usize) -> Option<impl Iterator<Item = &[u8]>> {
    let count = number(content, 4)? as usize;
    let entries = content.get(8..8 + count.checked_mul(entry_bytes)?)?;
    Some(entries.chunks_exact(entry_bytes))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long_number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
