use std::sync::Arc;

use bytes::Bytes;
use sstable::{Properties, TableMeta};
use storage::Path;
use types::{
    Bloom, CellKey, Compression, Epoch, FamilyId, FileId, GroupSettings, ParsedKey, RangeId,
    RowRange, SeqNo, SessionId, TableId, Timestamp,
};
use xxhash_rust::xxh3::xxh3_64;

use super::input::{Input, put_bytes, put_count};
use super::{FORMAT, Manifest, manifest_number};
use crate::error::{Damage, Error};
use crate::options::StoreOptions;
use crate::version::{Group, TableRef, Version};

const MAGIC: &[u8; 8] = b"TEPUIMF1";
const CHECKSUM_BYTES: usize = 8;

/// Section tags; stored: frozen.
const IDENTITY: u16 = 1;
const BOUNDS: u16 = 2;
const PROGRESS: u16 = 3;
const GROUP: u16 = 4;
const OPTIONS: u16 = 5;
const RESERVED: u16 = 6;
/// Tags from here on may be skipped by a reader that does not know them.
const OPTIONAL: u16 = 0x8000;
const GROUP_SETTINGS: u16 = 0x8001;

/// Fewest bytes of a stored reference: what a hostile count is held against.
const REFERENCE_BYTES_MIN: usize = 8 * 4 + 4 * 2 + 4 + 1 + 4;

enum Refusal {
    Damage(Damage),
    Newer(String),
}

impl From<Damage> for Refusal {
    fn from(damage: Damage) -> Self {
        Refusal::Damage(damage)
    }
}

type Result<T> = std::result::Result<T, Refusal>;

pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&manifest.min_writer.to_le_bytes());
    put_section(&mut out, IDENTITY, |out| {
        out.extend_from_slice(&manifest.table.get().to_le_bytes());
        out.extend_from_slice(&manifest.range.get().to_le_bytes());
        out.extend_from_slice(&manifest.number.to_le_bytes());
        out.extend_from_slice(&manifest.epoch.get().to_le_bytes());
        out.extend_from_slice(&manifest.writer.to_le_bytes());
        out.extend_from_slice(&manifest.session.get().to_le_bytes());
        out.extend_from_slice(&manifest.previous.to_le_bytes());
    });
    put_section(&mut out, BOUNDS, |out| put_rows(out, &manifest.bounds));
    put_section(&mut out, PROGRESS, |out| {
        out.extend_from_slice(&manifest.version.flushed().get().to_le_bytes());
        out.extend_from_slice(&manifest.version.last_timestamp().micros().to_le_bytes());
    });
    let groups = || manifest.version.groups().iter().filter(|group| !group.is_retired);
    for group in groups() {
        put_section(&mut out, GROUP, |out| put_group(out, group));
    }
    if groups().any(|group| group.settings != GroupSettings::default()) {
        put_section(&mut out, GROUP_SETTINGS, |out| {
            put_count(out, groups().count());
            groups().for_each(|group| put_settings(out, &group.settings));
        });
    }
    put_section(&mut out, OPTIONS, |out| {
        let echo = manifest.options.echo();
        put_count(out, echo.len());
        for (name, value) in echo {
            put_bytes(out, name.as_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
    });
    put_section(&mut out, RESERVED, |out| out.extend_from_slice(&[0; 8 + 4 + 1]));
    let checksum = xxh3_64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn put_section(out: &mut Vec<u8>, tag: u16, payload: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&tag.to_le_bytes());
    let length_at = out.len();
    put_count(out, 0);
    payload(out);
    let length = u32::try_from(out.len() - length_at - 4).expect("a section fits 32 bits");
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

fn put_rows(out: &mut Vec<u8>, rows: &RowRange) {
    put_bytes(out, &rows.start);
    out.push(u8::from(rows.end.is_some()));
    put_bytes(out, rows.end.as_deref().unwrap_or_default());
}

fn put_group(out: &mut Vec<u8>, group: &Group) {
    put_bytes(out, group.name.as_bytes());
    put_count(out, group.families.len());
    for family in &group.families {
        out.extend_from_slice(&family.get().to_le_bytes());
    }
    put_count(out, group.tables.len());
    for table in &group.tables {
        out.extend_from_slice(&table.meta.file.session.to_le_bytes());
        out.extend_from_slice(&table.meta.file.counter.to_le_bytes());
        out.extend_from_slice(&table.meta.len.to_le_bytes());
        out.extend_from_slice(&table.meta.checksum.to_le_bytes());
        put_bytes(out, table.meta.smallest.as_bytes());
        put_bytes(out, table.meta.largest.as_bytes());
        out.extend_from_slice(&table.level.to_le_bytes());
        out.push(u8::from(table.clip.is_some()));
        if let Some(clip) = &table.clip {
            put_rows(out, clip);
        }
        put_bytes(out, &table.meta.properties.encode());
    }
}

pub(super) fn decode(path: &Path, stored: &[u8]) -> crate::Result<Manifest> {
    read(path, stored).map_err(|refusal| match refusal {
        Refusal::Damage(what) => Error::CorruptManifest { path: path.clone(), what },
        Refusal::Newer(what) => Error::NewerManifest { path: path.clone(), what },
    })
}

/// The sections as they are met.
#[derive(Default)]
struct Parts {
    identity: Option<Identity>,
    bounds: Option<RowRange>,
    progress: Option<(SeqNo, Timestamp)>,
    groups: Vec<Group>,
    settings: Option<Vec<GroupSettings>>,
    options: Option<StoreOptions>,
    reserved: Option<()>,
}

struct Identity {
    table: TableId,
    range: RangeId,
    number: u64,
    epoch: Epoch,
    writer: u128,
    session: SessionId,
    previous: u64,
}

fn read(path: &Path, stored: &[u8]) -> Result<Manifest> {
    let damage = |offset, what| Refusal::Damage(Damage { offset, what });
    let (content, checksum) =
        stored.split_last_chunk::<CHECKSUM_BYTES>().ok_or(damage(0, "too short"))?;
    let mut input = Input::new(content, 0);
    if input.take(MAGIC.len())? != MAGIC {
        return Err(damage(0, "does not begin as a manifest"));
    }
    if xxh3_64(content) != u64::from_le_bytes(*checksum) {
        return Err(damage(content.len(), "the checksum differs"));
    }
    let (min_reader, min_writer) = (input.u32()?, input.u32()?);
    if min_reader > FORMAT {
        let text = format!("format {min_reader} or later reads it, this is format {FORMAT}");
        return Err(Refusal::Newer(text));
    }
    let mut parts = Parts::default();
    while !input.is_empty() {
        let (tag, len) = (input.u16()?, input.u32()?);
        let start = input.offset();
        let mut section = Input::new(input.take(len as usize)?, start);
        if read_section(&mut parts, tag, &mut section)? && !section.is_empty() {
            return Err(section.damage("bytes are left over in a section").into());
        }
    }
    let end = content.len();
    let identity = parts.identity.ok_or(damage(end, "no identity"))?;
    if manifest_number(path.name()).is_some_and(|number| number != identity.number) {
        return Err(damage(0, "the number is not the file name's"));
    }
    parts.reserved.ok_or(damage(end, "no reserved section"))?;
    let (flushed, last_timestamp) = parts.progress.ok_or(damage(end, "no progress"))?;
    if let Some(settings) = parts.settings {
        if settings.len() != parts.groups.len() {
            return Err(damage(end, "groups and their settings differ in number"));
        }
        parts.groups.iter_mut().zip(settings).for_each(|(group, own)| group.settings = own);
    }
    let version = Version::from_parts(parts.groups, flushed, last_timestamp)
        .map_err(|broken| damage(end, broken))?;
    Ok(Manifest {
        table: identity.table,
        range: identity.range,
        number: identity.number,
        epoch: identity.epoch,
        writer: identity.writer,
        session: identity.session,
        previous: identity.previous,
        bounds: parts.bounds.ok_or(damage(end, "no bounds"))?,
        options: parts.options.ok_or(damage(end, "no options"))?,
        version,
        min_writer,
    })
}

/// Reads one section; `false` when it is one to skip.
fn read_section(parts: &mut Parts, tag: u16, input: &mut Input<'_>) -> Result<bool> {
    let doubled = match tag {
        IDENTITY => parts.identity.replace(read_identity(input)?).is_some(),
        BOUNDS => parts.bounds.replace(read_rows(input)?).is_some(),
        PROGRESS => parts.progress.replace(read_progress(input)?).is_some(),
        GROUP => {
            parts.groups.push(read_group(input)?);
            false
        }
        OPTIONS => parts.options.replace(read_options(input)?).is_some(),
        RESERVED => parts.reserved.replace(read_reserved(input)?).is_some(),
        GROUP_SETTINGS => parts.settings.replace(read_settings(input)?).is_some(),
        OPTIONAL.. => return Ok(false),
        _ => return Err(Refusal::Newer(format!("section {tag} is unknown"))),
    };
    if doubled { Err(input.damage("a section is doubled").into()) } else { Ok(true) }
}

fn read_identity(input: &mut Input<'_>) -> Result<Identity> {
    Ok(Identity {
        table: TableId::new(input.u64()?),
        range: RangeId::new(input.u64()?),
        number: input.u64()?,
        epoch: Epoch::new(input.u64()?),
        writer: input.u128()?,
        session: SessionId::new(input.u128()?),
        previous: input.u64()?,
    })
}

fn read_rows(input: &mut Input<'_>) -> Result<RowRange> {
    let start = Bytes::copy_from_slice(input.bytes()?);
    let has_end = input.flag()?;
    let end = input.bytes()?;
    if !has_end && !end.is_empty() {
        return Err(input.damage("an absent end has bytes").into());
    }
    let rows = RowRange { start, end: has_end.then(|| Bytes::copy_from_slice(end)) };
    if rows.is_empty() {
        return Err(input.damage("a run of rows is empty").into());
    }
    Ok(rows)
}

fn read_progress(input: &mut Input<'_>) -> Result<(SeqNo, Timestamp)> {
    let flushed = SeqNo::from_raw(input.u64()?);
    let flushed = flushed.ok_or_else(|| input.damage("a sequence number is too large"))?;
    let micros = i64::from_le_bytes(input.u64()?.to_le_bytes());
    let last = Timestamp::from_micros(micros);
    Ok((flushed, last.ok_or_else(|| input.damage("a timestamp is negative"))?))
}

fn read_group(input: &mut Input<'_>) -> Result<Group> {
    let name = String::from_utf8(input.bytes()?.to_vec());
    let name = name.map_err(|_| input.damage("a group's name is not text"))?;
    let count = input.count(4)?;
    let mut families = Vec::with_capacity(count);
    for _ in 0..count {
        families.push(FamilyId::new(input.u32()?));
    }
    let count = input.count(REFERENCE_BYTES_MIN)?;
    let mut tables = Vec::with_capacity(count);
    for _ in 0..count {
        tables.push(Arc::new(read_reference(input)?));
    }
    let settings = GroupSettings::default();
    Ok(Group { name, families, settings, is_retired: false, tables })
}

fn put_settings(out: &mut Vec<u8>, settings: &GroupSettings) {
    let GroupSettings { block_bytes, compression, bloom, in_memory } = *settings;
    out.extend_from_slice(&block_bytes.unwrap_or(0).to_le_bytes());
    out.push(compression.map_or(0, |compression| compression as u8 + 1));
    out.push(bloom as u8);
    out.push(u8::from(in_memory));
}

fn read_settings(input: &mut Input<'_>) -> Result<Vec<GroupSettings>> {
    let mut settings = Vec::new();
    for _ in 0..input.count(4 + 3)? {
        let block_bytes = match input.u32()? {
            0 => None,
            bytes => Some(bytes),
        };
        let compression = match input.u8()? {
            0 => None,
            1 => Some(Compression::None),
            2 => Some(Compression::Lz4),
            _ => return Err(input.damage("a compression is unknown").into()),
        };
        let bloom = match input.u8()? {
            0 => Bloom::RowAndColumn,
            1 => Bloom::Row,
            2 => Bloom::None,
            _ => return Err(input.damage("a kind of filter is unknown").into()),
        };
        settings.push(GroupSettings { block_bytes, compression, bloom, in_memory: input.flag()? });
    }
    Ok(settings)
}

fn read_reference(input: &mut Input<'_>) -> Result<TableRef> {
    let file = FileId { session: input.u64()?, counter: input.u64()? };
    let (len, checksum) = (input.u64()?, input.u64()?);
    let smallest = read_key(input)?;
    let largest = read_key(input)?;
    let level = input.u32()?;
    let clip = if input.flag()? { Some(read_rows(input)?) } else { None };
    let properties = Properties::decode(input.bytes()?);
    let properties = properties.ok_or_else(|| input.damage("a file's properties are damaged"))?;
    let meta = TableMeta { file, len, checksum, smallest, largest, properties };
    Ok(TableRef { meta, level, clip })
}

fn read_key(input: &mut Input<'_>) -> Result<CellKey> {
    let key = input.bytes()?;
    if ParsedKey::parse(key).is_none() {
        return Err(input.damage("a bound is not a cell key").into());
    }
    Ok(CellKey::from_valid(key))
}

fn read_options(input: &mut Input<'_>) -> Result<StoreOptions> {
    let mut options = StoreOptions::default();
    for _ in 0..input.count(12)? {
        let name = input.bytes()?;
        let value = input.u64()?;
        if options.set(name, value).is_none() {
            let text = format!("option {:?} = {value} is unknown", name.escape_ascii().to_string());
            return Err(Refusal::Newer(text));
        }
    }
    Ok(options)
}

fn read_reserved(input: &mut Input<'_>) -> Result<()> {
    let unused = input.u64()? == 0 && input.u32()? == 0 && input.u8()? == 0;
    if unused { Ok(()) } else { Err(Refusal::Newer("a reserved field is in use".to_owned())) }
}
