#![doc = include_str!("../FORMAT.md")]

use bytes::Bytes;
use types::{
    Aggregate, Bloom, ColumnFamily, Compression, Epoch, FamilyId, Fields, Generation, Granularity,
    GroupSettings, LocalityGroup, RangeId, Retention, RowRange, SessionId, TableId, TableName,
    TableSchema,
};

/// The newest version that this program reads, and the one that it writes descriptors in.
pub const VERSION: u16 = 2;
/// The version of all other records: their form has not changed since.
const FIRST_VERSION: u16 = 1;

/// How deeply retentions may be nested.
const DEPTH_MAX: u32 = 100;

/// Where the next ids stand.
pub const NEXT_IDS: &str = "/next-ids";
/// What the keys of all descriptors begin with.
pub const TABLES: &str = "/tables/";
/// What the keys of all ranges begin with.
pub const RANGES: &str = "/ranges/";

/// The key of a table's descriptor.
pub fn table_key(name: &TableName) -> String {
    format!("{TABLES}{name}")
}

/// What the keys of the descriptors of one instance begin with.
pub fn instance_prefix(instance: &str) -> String {
    format!("{TABLES}{instance}/tables/")
}

/// What the keys of a table's ranges begin with.
pub fn ranges_prefix(table: TableId) -> String {
    format!("{RANGES}{:020}/", table.get())
}

/// The key of a range.
pub fn range_key(table: TableId, range: RangeId) -> String {
    format!("{}{:020}", ranges_prefix(table), range.get())
}

/// The table and the range that a key stands for.
pub fn parse_range_key(key: &str) -> Option<(TableId, RangeId)> {
    let (table, range) = key.strip_prefix(RANGES)?.split_once('/')?;
    let number = |digits: &str| {
        let plain = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    };
    Some((TableId::new(number(table)?), RangeId::new(number(range)?)))
}

/// Why a stored value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is damaged: what is wrong.
    Damaged(&'static str),
    /// It needs at least this version.
    TooNew(u16),
}

/// Ids that were never given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextIds {
    /// The next table's.
    pub table: TableId,
    /// The next range's.
    pub range: RangeId,
}

impl Default for NextIds {
    fn default() -> NextIds {
        NextIds { table: TableId::new(1), range: RangeId::new(1) }
    }
}

impl NextIds {
    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = begin(FIRST_VERSION);
        out.extend_from_slice(&self.table.get().to_le_bytes());
        out.extend_from_slice(&self.range.get().to_le_bytes());
        Bytes::from(out)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn decode(stored: &Bytes) -> Result<NextIds, Refusal> {
        decode(stored, |fields, _| {
            let table = TableId::new(fields.u64()?);
            let range = RangeId::new(fields.u64()?);
            Some(NextIds { table, range })
        })
    }
}

/// How far a table's life has come. The numbers are stored: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TableState {
    /// Not yet a table: its ranges are being written.
    Creating = 1,
    /// A table.
    Enabled = 2,
    /// No table any more: what it had is being removed.
    Deleting = 3,
}

/// What is known of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How far its life has come.
    pub state: TableState,
    /// Its schema.
    pub schema: TableSchema,
}

impl Descriptor {
    /// The stored form. The table's name stands in the key.
    pub fn encode(&self) -> Bytes {
        let schema = &self.schema;
        let mut out = begin(VERSION);
        out.push(self.state as u8);
        out.extend_from_slice(&schema.id.get().to_le_bytes());
        out.extend_from_slice(&schema.generation.get().to_le_bytes());
        out.push(match schema.granularity {
            Granularity::Millis => 1,
            Granularity::Micros => 2,
        });
        out.extend_from_slice(&schema.next_family.get().to_le_bytes());
        out.extend_from_slice(&(schema.families.len() as u32).to_le_bytes());
        for family in &schema.families {
            out.extend_from_slice(&family.id.get().to_le_bytes());
            put_bytes(&mut out, family.name.as_bytes());
            out.push(u8::from(family.retention.is_some()));
            if let Some(retention) = &family.retention {
                put_retention(&mut out, retention);
            }
            out.push(family.aggregate.map_or(0, |aggregate| aggregate as u8));
        }
        out.extend_from_slice(&(schema.groups.len() as u32).to_le_bytes());
        for group in &schema.groups {
            put_group(&mut out, group);
        }
        Bytes::from(out)
    }

    /// Reads the stored form of the table called `name`.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn decode(stored: &Bytes, name: TableName) -> Result<Descriptor, Refusal> {
        decode(stored, |fields, version| {
            let state = match fields.u8()? {
                1 => TableState::Creating,
                2 => TableState::Enabled,
                3 => TableState::Deleting,
                _ => return None,
            };
            let id = TableId::new(fields.u64()?);
            let generation = Generation::new(fields.u64()?);
            let granularity = match fields.u8()? {
                1 => Granularity::Millis,
                2 => Granularity::Micros,
                _ => return None,
            };
            let next_family = FamilyId::new(fields.u32()?);
            let families = families(fields, next_family, version)?;
            let groups = match version {
                FIRST_VERSION => Vec::new(),
                _ => groups(fields, &families)?,
            };
            let schema =
                TableSchema { id, name, generation, granularity, families, next_family, groups };
            Some(Descriptor { state, schema })
        })
    }
}

fn families(fields: &mut Fields<'_>, next: FamilyId, version: u16) -> Option<Vec<ColumnFamily>> {
    let count = fields.u32()?;
    // Grows with what is really there: the count is not to be trusted.
    let mut families: Vec<ColumnFamily> = Vec::new();
    for _ in 0..count {
        let id = FamilyId::new(fields.u32()?);
        let name = std::str::from_utf8(fields.bytes()?).ok()?.to_owned();
        let retention = match fields.u8()? {
            0 => None,
            1 => Some(retention(fields, 0)?),
            _ => return None,
        };
        let aggregate = match version {
            FIRST_VERSION => None,
            _ => match fields.u8()? {
                0 => None,
                raw => Some(Aggregate::from_raw(raw)?),
            },
        };
        let last = families.last().map_or(FamilyId::ROW, |last| last.id);
        if id <= last || id >= next {
            return None;
        }
        families.push(ColumnFamily { id, name, retention, aggregate });
    }
    Some(families)
}

/// A family that is dropped leaves its group, so groups name declared families only.
fn groups(fields: &mut Fields<'_>, families: &[ColumnFamily]) -> Option<Vec<LocalityGroup>> {
    let count = fields.u32()?;
    let mut groups: Vec<LocalityGroup> = Vec::new();
    for _ in 0..count {
        let name = std::str::from_utf8(fields.bytes()?).ok()?.to_owned();
        let mut members: Vec<FamilyId> = Vec::new();
        for _ in 0..fields.u32()? {
            members.push(FamilyId::new(fields.u32()?));
        }
        let block_bytes = match fields.u32()? {
            0 => None,
            bytes => Some(bytes),
        };
        let compression = match fields.u8()? {
            0 => None,
            1 => Some(Compression::None),
            2 => Some(Compression::Lz4),
            _ => return None,
        };
        let bloom = match fields.u8()? {
            0 => Bloom::RowAndColumn,
            1 => Bloom::Row,
            2 => Bloom::None,
            _ => return None,
        };
        let in_memory = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let known = |id: &FamilyId| families.binary_search_by_key(id, |family| family.id).is_ok();
        let taken = |id: &FamilyId| groups.iter().any(|other| other.families.contains(id));
        let ascend = members.is_sorted_by(|a, b| a < b);
        if !ascend || !members.iter().all(|id| known(id) && !taken(id)) {
            return None;
        }
        let settings = GroupSettings { block_bytes, compression, bloom, in_memory };
        groups.push(LocalityGroup { name, families: members, settings });
    }
    Some(groups)
}

fn put_group(out: &mut Vec<u8>, group: &LocalityGroup) {
    let GroupSettings { block_bytes, compression, bloom, in_memory } = group.settings;
    put_bytes(out, group.name.as_bytes());
    out.extend_from_slice(&(group.families.len() as u32).to_le_bytes());
    for family in &group.families {
        out.extend_from_slice(&family.get().to_le_bytes());
    }
    out.extend_from_slice(&block_bytes.unwrap_or(0).to_le_bytes());
    out.push(match compression {
        None => 0,
        Some(Compression::None) => 1,
        Some(Compression::Lz4) => 2,
    });
    out.push(bloom as u8);
    out.push(u8::from(in_memory));
}

/// What is known of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRecord {
    /// Its rows.
    pub rows: RowRange,
    /// The epoch under which it was granted last; 0 before that.
    pub epoch: Epoch,
    /// To whom.
    pub session: Option<SessionId>,
}

impl RangeRecord {
    /// The stored form. The ids of table and range stand in the key.
    pub fn encode(&self) -> Bytes {
        let mut out = begin(FIRST_VERSION);
        out.extend_from_slice(&self.epoch.get().to_le_bytes());
        out.extend_from_slice(&self.session.map_or(0, SessionId::get).to_le_bytes());
        put_bytes(&mut out, &self.rows.start);
        out.push(u8::from(self.rows.end.is_some()));
        if let Some(end) = &self.rows.end {
            put_bytes(&mut out, end);
        }
        Bytes::from(out)
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn decode(stored: &Bytes) -> Result<RangeRecord, Refusal> {
        decode(stored, |fields, _| {
            let epoch = Epoch::new(fields.u64()?);
            let session = u128::from_le_bytes(fields.array()?);
            let start = stored.slice_ref(fields.bytes()?);
            let end = match fields.u8()? {
                0 => None,
                1 => Some(stored.slice_ref(fields.bytes()?)),
                _ => return None,
            };
            let session = (session != 0).then_some(SessionId::new(session));
            Some(RangeRecord { rows: RowRange { start, end }, epoch, session })
        })
    }
}

fn begin(version: u16) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    out
}

fn decode<T>(
    stored: &Bytes,
    content: impl FnOnce(&mut Fields<'_>, u16) -> Option<T>,
) -> Result<T, Refusal> {
    let mut fields = Fields::new(stored);
    let (Some(reader), Some(writer)) = (fields.u16(), fields.u16()) else {
        return Err(Refusal::Damaged("it is too short"));
    };
    let needed = reader.max(writer);
    if needed > VERSION {
        return Err(Refusal::TooNew(needed));
    }
    let decoded = content(&mut fields, needed).ok_or(Refusal::Damaged("its content is wrong"))?;
    if !fields.is_empty() {
        return Err(Refusal::Damaged("bytes are left over"));
    }
    Ok(decoded)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("keys and names have limits far below");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_retention(out: &mut Vec<u8>, retention: &Retention) {
    match retention {
        Retention::MaxVersions(versions) => {
            out.push(1);
            out.extend_from_slice(&u64::from(*versions).to_le_bytes());
        }
        Retention::MaxAge(micros) => {
            out.push(2);
            out.extend_from_slice(&micros.to_le_bytes());
        }
        Retention::Intersection(parts) => put_parts(out, 3, parts),
        Retention::Union(parts) => put_parts(out, 4, parts),
    }
}

fn put_parts(out: &mut Vec<u8>, kind: u8, parts: &[Retention]) {
    out.push(kind);
    out.extend_from_slice(&(parts.len() as u32).to_le_bytes());
    for part in parts {
        put_retention(out, part);
    }
}

/// Can this retention be stored?
pub(crate) fn is_shallow(retention: &Retention) -> bool {
    fn within(retention: &Retention, depth: u32) -> bool {
        match retention {
            Retention::MaxVersions(_) | Retention::MaxAge(_) => true,
            Retention::Intersection(parts) | Retention::Union(parts) => {
                depth < DEPTH_MAX && parts.iter().all(|part| within(part, depth + 1))
            }
        }
    }
    within(retention, 0)
}

fn retention(fields: &mut Fields<'_>, depth: u32) -> Option<Retention> {
    match fields.u8()? {
        1 => u32::try_from(fields.u64()?).ok().map(Retention::MaxVersions),
        2 => i64::try_from(fields.u64()?).ok().map(Retention::MaxAge),
        3 => parts(fields, depth).map(Retention::Intersection),
        4 => parts(fields, depth).map(Retention::Union),
        _ => None,
    }
}

fn parts(fields: &mut Fields<'_>, depth: u32) -> Option<Vec<Retention>> {
    if depth >= DEPTH_MAX {
        return None;
    }
    let count = fields.u32()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        parts.push(retention(fields, depth + 1)?);
    }
    Some(parts)
}
