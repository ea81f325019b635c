#![doc = include_str!("../../FORMAT.md")]

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Fields, SessionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Change, Revision, Versioned};

/// The version that this program reads and writes.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"TEPUISNP";
const PUT: u8 = 1;
const DELETE: u8 = 2;
const CHECKSUM_BYTES: usize = 8;

/// The whole state at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Counts the snapshots of a folder.
    pub number: u64,
    /// The last transaction that it contains.
    pub revision: Revision,
    /// The log whose later records continue it; `None` after a clean close.
    pub log: Option<SessionId>,
    /// The keys.
    pub entries: BTreeMap<String, Versioned>,
}

/// Why stored bytes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They are damaged: what is wrong.
    Damaged(&'static str),
    /// They need at least this version.
    TooNew(u16),
}

impl Snapshot {
    /// The name of snapshot `number`.
    pub fn name(number: u64) -> String {
        format!("snapshot-{number:020}")
    }

    /// Reads a name back.
    pub fn parse_name(name: &str) -> Option<u64> {
        let digits = name.strip_prefix("snapshot-")?;
        let plain = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    }

    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.revision.get().to_le_bytes());
        out.push(u8::from(self.log.is_some()));
        put_session(&mut out, self.log);
        out.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for (key, found) in &self.entries {
            put_bytes(&mut out, key.as_bytes());
            out.extend_from_slice(&found.created.get().to_le_bytes());
            out.extend_from_slice(&found.modified.get().to_le_bytes());
            put_session(&mut out, found.session);
            put_bytes(&mut out, &found.value);
        }
        let sum = xxh3_64(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        Bytes::from(out)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn decode(stored: &Bytes) -> Result<Snapshot, Refusal> {
        let body_len = stored.len().checked_sub(CHECKSUM_BYTES);
        let (body, sum) = body_len
            .and_then(|at| stored.split_at_checked(at))
            .ok_or(Refusal::Damaged("it is too short"))?;
        if !body.starts_with(&MAGIC) {
            return Err(Refusal::Damaged("it does not begin as a snapshot"));
        }
        if sum != xxh3_64(body).to_le_bytes() {
            return Err(Refusal::Damaged("its checksum does not hold"));
        }
        let mut fields = Fields::new(&body[MAGIC.len()..]);
        check_version(&mut fields)?;
        Snapshot::decode_fields(&mut fields, stored).ok_or(Refusal::Damaged("its content is wrong"))
    }

    fn decode_fields(fields: &mut Fields<'_>, stored: &Bytes) -> Option<Snapshot> {
        let number = fields.u64()?;
        let revision = Revision::new(fields.u64()?);
        let has_log = fields.u8()?;
        let log = session(fields)?;
        if has_log > 1 || (has_log == 1) != log.is_some() {
            return None;
        }
        let count = fields.u64()?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let key = text(fields)?;
            let created = Revision::new(fields.u64()?);
            let modified = Revision::new(fields.u64()?);
            let session = session(fields)?;
            let value = stored.slice_ref(fields.bytes()?);
            let is_next =
                entries.last_key_value().is_none_or(|(last, _): (&String, _)| last.as_str() < key);
            if !is_next || created > modified || modified > revision {
                return None;
            }
            let found = Versioned { value, created, modified, session };
            entries.insert(key.to_owned(), found);
        }
        fields.is_empty().then_some(Snapshot { number, revision, log, entries })
    }
}

/// The stored form of one transaction's changes.
pub fn encode_record(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(changes.len() as u32).to_le_bytes());
    for change in changes {
        match change {
            Change::Put { key, value, session } => {
                out.push(PUT);
                put_bytes(&mut out, key.as_bytes());
                put_session(&mut out, *session);
                put_bytes(&mut out, value);
            }
            Change::Delete { key } => {
                out.push(DELETE);
                put_bytes(&mut out, key.as_bytes());
            }
        }
    }
    out
}

/// Reads one transaction's changes.
///
/// # Errors
/// See [`Refusal`].
pub fn decode_record(stored: &Bytes) -> Result<Vec<Change>, Refusal> {
    let mut fields = Fields::new(stored);
    check_version(&mut fields)?;
    decode_changes(&mut fields, stored).ok_or(Refusal::Damaged("a record's content is wrong"))
}

fn decode_changes(fields: &mut Fields<'_>, stored: &Bytes) -> Option<Vec<Change>> {
    let count = fields.u32()?;
    // Grows with what is really there: the count is not to be trusted.
    let mut changes = Vec::new();
    for _ in 0..count {
        let kind = fields.u8()?;
        let key = text(fields)?.to_owned();
        changes.push(match kind {
            PUT => Change::Put {
                key,
                session: session(fields)?,
                value: stored.slice_ref(fields.bytes()?),
            },
            DELETE => Change::Delete { key },
            _ => return None,
        });
    }
    fields.is_empty().then_some(changes)
}

fn check_version(fields: &mut Fields<'_>) -> Result<(), Refusal> {
    let (Some(reader), Some(writer)) = (fields.u16(), fields.u16()) else {
        return Err(Refusal::Damaged("it is too short"));
    };
    let needed = reader.max(writer);
    if needed > VERSION {
        return Err(Refusal::TooNew(needed));
    }
    Ok(())
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("a transaction's limit is far below");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_session(out: &mut Vec<u8>, session: Option<SessionId>) {
    let raw = session.map_or(0, SessionId::get);
    out.extend_from_slice(&raw.to_le_bytes());
}

fn text<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    std::str::from_utf8(fields.bytes()?).ok()
}

/// `Some(None)`: bound to no session.
fn session(fields: &mut Fields<'_>) -> Option<Option<SessionId>> {
    let raw = fields.u128()?;
    Some((raw != 0).then_some(SessionId::new(raw)))
}
