#![doc = include_str!("../FORMAT.md")]

use std::fmt;

use bytes::Bytes;
use env::planted::{PlantedBug, planted};
use types::{Epoch, Fields, RangeId, SeqNo, SessionId, Splice};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 88;
/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 48;
/// Bytes of an entry besides its payload.
pub const ENTRY_HEADER_BYTES: usize = 33;
/// Frames begin at multiples of this.
pub const ALIGNMENT: usize = 8;
/// Bytes of a frame's payload at most, without padding.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Parts of this size are written from where they stand: no buffer holds them a second time.
const BORROWED_BYTES_MIN: usize = 256 << 10;
/// The version that this program writes, and the newest that it reads.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"TEPUIWAL";
const FRAME_MARK: u32 = u32::from_le_bytes(*b"WALF");
const HAS_PREDECESSOR: u32 = 1;
const END_MARK: u32 = 1;

const _: () = assert!(FRAME_PAYLOAD_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(ALIGNMENT));
const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(ALIGNMENT));

/// Where something stands: its segment's seed and its offset there. All checksums depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The seed in the segment's name.
    pub seed: u64,
    /// Bytes from the segment's start.
    pub offset: u64,
}

/// What an entry says. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// A batch of mutations.
    Batch = 1,
    /// Rows cut out of a range.
    Excise = 2,
    /// Nothing but its sequence numbers.
    NoOp = 3,
}

impl EntryKind {
    /// Reads a stored number.
    pub fn from_raw(raw: u8) -> Option<EntryKind> {
        match raw {
            1 => Some(EntryKind::Batch),
            2 => Some(EntryKind::Excise),
            3 => Some(EntryKind::NoOp),
            _ => None,
        }
    }
}

/// What one range adds to the log, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it says.
    pub kind: EntryKind,
    /// Whose it is.
    pub range: RangeId,
    /// The range's epoch when it was written.
    pub epoch: Epoch,
    /// The first sequence number that it takes.
    pub first_seq: SeqNo,
    /// How many consecutive sequence numbers it takes.
    pub count: u32,
    /// Opaque to the log.
    pub payload: &'a [u8],
    /// What belongs into the payload and stands elsewhere; ascending.
    pub splices: &'a [Splice],
}

impl Entry<'_> {
    /// Bytes of the payload, with all that belongs into it.
    pub fn payload_len(&self) -> usize {
        Splice::whole_len(self.payload, self.splices)
    }
}

/// What one range added to the log, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedEntry {
    /// What it says.
    pub kind: EntryKind,
    /// Whose it is.
    pub range: RangeId,
    /// The range's epoch when it was written.
    pub epoch: Epoch,
    /// The first sequence number that it takes.
    pub first_seq: SeqNo,
    /// How many consecutive sequence numbers it takes.
    pub count: u32,
    /// Opaque to the log.
    pub payload: Bytes,
}

impl OwnedEntry {
    /// The same, borrowed.
    pub fn as_entry(&self) -> Entry<'_> {
        Entry {
            kind: self.kind,
            range: self.range,
            epoch: self.epoch,
            first_seq: self.first_seq,
            count: self.count,
            payload: &self.payload,
            splices: &[],
        }
    }
}

/// A segment's file name: its number, and the seed of everything in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// Counts from 1 in each session.
    pub number: u64,
    /// Random bits that no other segment has.
    pub seed: u64,
}

impl SegmentName {
    /// The place of its header.
    fn start(self) -> Place {
        Place { seed: self.seed, offset: 0 }
    }

    /// Reads the form that [`fmt::Display`] writes.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let (number, seed) = name.strip_suffix(".log")?.split_once('-')?;
        let plain = number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit());
        let number = plain.then(|| number.parse().ok()).flatten()?;
        // Lower case only: one segment has one name.
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let plain = seed.len() == 16 && seed.bytes().all(hex);
        let seed = plain.then(|| u64::from_str_radix(seed, 16).ok()).flatten()?;
        Some(SegmentName { number, seed })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:016x}.log", self.number, self.seed)
    }
}

/// What a segment knows of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Its seed; its number is one less.
    pub seed: u64,
    /// Where it ends: all of it was durable before the successor was begun.
    pub len: u64,
    /// The number of the session's last frame up to there; 0 when there was none.
    pub last_frame: u64,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose log it is.
    pub session: SessionId,
    /// Its name.
    pub name: SegmentName,
    /// The segment before it; `None` for the first.
    pub predecessor: Option<Predecessor>,
}

/// Why bytes are not a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not begun, torn or damaged.
    Absent,
    /// The checksum holds, but the content contradicts itself or the file's name.
    Wrong(&'static str),
    /// A reader needs at least this version.
    TooNew(u16),
}

impl SegmentHeader {
    /// The stored form.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let before = self.predecessor.unwrap_or(Predecessor { seed: 0, len: 0, last_frame: 0 });
        let flags = if self.predecessor.is_some() { HAS_PREDECESSOR } else { 0 };
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.session.get().to_le_bytes());
        out.extend_from_slice(&self.name.number.to_le_bytes());
        out.extend_from_slice(&self.name.seed.to_le_bytes());
        out.extend_from_slice(&before.seed.to_le_bytes());
        out.extend_from_slice(&before.len.to_le_bytes());
        out.extend_from_slice(&before.last_frame.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        let sum = checksum(self.name.start(), &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.try_into().expect("the fields add up to the header's length")
    }

    /// Reads the header of the file called `name` from its first bytes.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn decode(stored: &[u8], name: SegmentName) -> Result<SegmentHeader, HeaderError> {
        let body_len = SEGMENT_HEADER_BYTES - 8;
        let body = stored.get(..body_len).ok_or(HeaderError::Absent)?;
        let mut rest = Fields::new(&stored[body_len..]);
        let sum = rest.u64().ok_or(HeaderError::Absent)?;
        if !body.starts_with(&MAGIC) || sum != checksum(name.start(), body) {
            return Err(HeaderError::Absent);
        }
        let short = HeaderError::Wrong("it is too short");
        let mut fields = Fields::new(&body[MAGIC.len()..]);
        let needed = fields.u16().ok_or(short)?;
        if needed > VERSION {
            return Err(HeaderError::TooNew(needed));
        }
        fields.u16().ok_or(short)?;
        let flags = fields.u32().ok_or(short)?;
        let session = SessionId::new(fields.u128().ok_or(short)?);
        let number = fields.u64().ok_or(short)?;
        let seed = fields.u64().ok_or(short)?;
        let before = Predecessor {
            seed: fields.u64().ok_or(short)?,
            len: fields.u64().ok_or(short)?,
            last_frame: fields.u64().ok_or(short)?,
        };
        if (SegmentName { number, seed }) != name {
            return Err(HeaderError::Wrong("its header belongs to another name"));
        }
        if flags & !HAS_PREDECESSOR != 0 {
            return Err(HeaderError::Wrong("its header has unknown flags"));
        }
        let predecessor = (flags & HAS_PREDECESSOR != 0).then_some(before);
        if predecessor.is_some() != (number > 1) {
            return Err(HeaderError::Wrong("only the first segment has no predecessor"));
        }
        Ok(SegmentHeader { session, name, predecessor })
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Counts from 1 through the session.
    pub number: u64,
    /// Offset in the segment up to which it was known durable when the frame was built.
    pub synced_to: u64,
    /// Checksum of the payload and its padding.
    pub payload_checksum: u64,
    /// Bytes of the payload, without padding.
    pub payload_len: u32,
    /// Entries in the payload.
    pub entries: u32,
    /// Is it the end mark?
    pub is_end: bool,
    /// Flags that this version does not know.
    pub unknown_flags: bool,
}

impl FrameHeader {
    /// Where in `stored` a header may begin, by its mark alone: a scan passes millions of places
    /// where none does.
    pub(crate) fn candidates(stored: &[u8]) -> impl Iterator<Item = usize> {
        let mark = FRAME_MARK.to_le_bytes();
        let searcher = memchr::memmem::Finder::new(&mark).into_owned();
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = at + searcher.find(stored.get(at..)?)?;
            at = found + 1;
            Some(found)
        })
        .filter_map(move |place| place.checked_sub(FRAME_HEADER_BYTES - mark.len()))
    }

    /// Reads the frame header that begins `stored`, which stands at `place`. `None` when there is
    /// none: never written, torn, damaged, or from another place or life.
    pub fn decode(stored: &[u8], place: Place) -> Option<FrameHeader> {
        let stored = stored.get(..FRAME_HEADER_BYTES)?;
        // First the mark: a scan passes millions of places where nothing begins.
        if stored[44..] != FRAME_MARK.to_le_bytes() {
            return None;
        }
        let mut fields = Fields::new(stored);
        if fields.u64()? != checksum(place, &stored[8..]) {
            return None;
        }
        let number = fields.u64()?;
        let synced_to = fields.u64()?;
        let payload_checksum = fields.u64()?;
        let payload_len = fields.u32()?;
        let entries = fields.u32()?;
        let flags = fields.u32()?;
        Some(FrameHeader {
            number,
            synced_to,
            payload_checksum,
            payload_len,
            entries,
            is_end: flags & END_MARK != 0,
            unknown_flags: flags & !END_MARK != 0,
        })
    }

    /// Bytes of the whole frame: header, payload, padding.
    pub fn frame_len(&self) -> u64 {
        frame_len(self.payload_len as usize)
    }
}

/// Bytes of a frame whose entries take `payload` bytes in all.
pub fn frame_len(payload: usize) -> u64 {
    (FRAME_HEADER_BYTES + payload.next_multiple_of(ALIGNMENT)) as u64
}

/// A part of a frame that is written from where it stands, and how many of the buffer's bytes come
/// before it.
pub type Borrowed<'a> = (usize, &'a [u8]);

/// Appends a frame to `out`, but for its large parts, which it returns; `place` is where it will
/// stand. The caller has checked that the entries fit [`FRAME_PAYLOAD_BYTES_MAX`].
#[must_use = "parts of the frame"]
pub fn put_frame<'a>(
    out: &mut Vec<u8>,
    place: Place,
    number: u64,
    synced_to: u64,
    entries: &[Entry<'a>],
) -> Vec<Borrowed<'a>> {
    put(out, place, number, synced_to, entries, 0)
}

/// Appends the end mark's frame to `out`: like [`put_frame`], without entries.
pub fn put_end_mark(out: &mut Vec<u8>, place: Place, number: u64, synced_to: u64) {
    let borrowed = put(out, place, number, synced_to, &[], END_MARK);
    assert!(borrowed.is_empty(), "an end mark has no entries");
}

fn put<'a>(
    out: &mut Vec<u8>,
    place: Place,
    number: u64,
    synced_to: u64,
    entries: &[Entry<'a>],
    flags: u32,
) -> Vec<Borrowed<'a>> {
    assert!(place.offset.is_multiple_of(ALIGNMENT as u64), "frames are aligned");
    assert!(synced_to <= place.offset, "a frame cannot vouch for itself");
    let start = out.len();
    let body = start + FRAME_HEADER_BYTES;
    out.resize(body, 0);
    let mut borrowed = Vec::new();
    for entry in entries {
        put_entry(out, &mut borrowed, entry);
    }
    let payload = out.len() - body + borrowed.iter().map(|(_, part)| part.len()).sum::<usize>();
    assert!(payload <= FRAME_PAYLOAD_BYTES_MAX, "the caller checked the frame's length");
    out.resize(out.len() + payload.next_multiple_of(ALIGNMENT) - payload, 0);
    let sum = checksum_with(place, out, body, &borrowed);
    let entries = u32::try_from(entries.len()).expect("entries are fewer than payload bytes");
    let header = &mut out[start..body];
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..24].copy_from_slice(&synced_to.to_le_bytes());
    header[24..32].copy_from_slice(&sum.to_le_bytes());
    header[32..36].copy_from_slice(&(payload as u32).to_le_bytes());
    header[36..40].copy_from_slice(&entries.to_le_bytes());
    header[40..44].copy_from_slice(&flags.to_le_bytes());
    header[44..48].copy_from_slice(&FRAME_MARK.to_le_bytes());
    let sum = checksum(place, &header[8..]);
    header[..8].copy_from_slice(&sum.to_le_bytes());
    borrowed
}

fn put_entry<'a>(out: &mut Vec<u8>, borrowed: &mut Vec<Borrowed<'a>>, entry: &Entry<'a>) {
    let len = u32::try_from(entry.payload_len()).expect("the caller checked the frame's length");
    out.push(entry.kind as u8);
    out.extend_from_slice(&entry.range.get().to_le_bytes());
    out.extend_from_slice(&entry.epoch.get().to_le_bytes());
    out.extend_from_slice(&entry.first_seq.get().to_le_bytes());
    out.extend_from_slice(&entry.count.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    for part in Splice::parts(entry.payload, entry.splices) {
        if part.len() >= BORROWED_BYTES_MIN {
            borrowed.push((out.len(), part));
        } else {
            out.extend_from_slice(part);
        }
    }
}

/// Does the payload, padding included, belong to `header` at this place?
pub fn payload_matches(header: &FrameHeader, place: Place, padded: &[u8]) -> bool {
    checksum(place, padded) == header.payload_checksum
}

/// Takes apart a payload whose checksum holds.
///
/// # Errors
/// A text that says what is wrong: the writer was not ours, or newer.
pub fn decode_entries(header: &FrameHeader, padded: &Bytes) -> Result<Vec<OwnedEntry>, String> {
    let wrong = |what: &str| Err(what.to_owned());
    if header.unknown_flags {
        return wrong("the frame has unknown flags");
    }
    let Some(mut rest) = padded.get(..header.payload_len as usize).map(Fields::new) else {
        return wrong("the payload is shorter than its header says");
    };
    let fits = header.payload_len as usize / ENTRY_HEADER_BYTES;
    if header.entries as usize > fits {
        return wrong("more entries than fit the payload");
    }
    if (header.entries == 0) != header.is_end {
        return wrong("the end mark, and nothing else, has no entries");
    }
    let mut entries = Vec::with_capacity(header.entries as usize);
    for _ in 0..header.entries {
        entries.push(decode_entry(&mut rest, padded)?);
    }
    if !rest.is_empty() {
        return wrong("bytes after the last entry");
    }
    Ok(entries)
}

fn decode_entry(rest: &mut Fields<'_>, all: &Bytes) -> Result<OwnedEntry, String> {
    let cut = || "an entry is cut short".to_owned();
    let kind = rest.u8().ok_or_else(cut)?;
    let kind = EntryKind::from_raw(kind).ok_or(format!("unknown kind of entry {kind}"))?;
    let range = RangeId::new(rest.u64().ok_or_else(cut)?);
    let epoch = Epoch::new(rest.u64().ok_or_else(cut)?);
    let first = rest.u64().ok_or_else(cut)?;
    let count = rest.u32().ok_or_else(cut)?;
    let len = rest.u32().ok_or_else(cut)?;
    let payload = rest.take(len as usize).ok_or_else(cut)?;
    let last = first.checked_add(u64::from(count)).and_then(SeqNo::from_raw);
    let (Some(first_seq), Some(_)) = (SeqNo::from_raw(first), last) else {
        return Err(format!("impossible sequence numbers: {count} from {first}"));
    };
    Ok(OwnedEntry { kind, range, epoch, first_seq, count, payload: all.slice_ref(payload) })
}

/// The checksum of what follows the first `start` bytes of `out`, with all that is borrowed put in.
fn checksum_with(place: Place, out: &[u8], start: usize, borrowed: &[Borrowed<'_>]) -> u64 {
    if borrowed.is_empty() {
        return checksum(place, &out[start..]);
    }
    let mut sum = Xxh3::with_seed(seed_of(place));
    let mut from = start;
    for (at, part) in borrowed {
        sum.update(&out[from..*at]);
        sum.update(part);
        from = *at;
    }
    sum.update(&out[from..]);
    sum.digest()
}

/// The checksum of bytes that stand at `place`, or belong to the frame there.
fn checksum(place: Place, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed_of(place))
}

fn seed_of(place: Place) -> u64 {
    // Planted: without seed and offset, a frame of any segment's former life passes.
    if planted(PlantedBug::AcceptStaleFrame) {
        return 0;
    }
    place.seed.wrapping_add(place.offset)
}
