use types::{FamilyId, ParsedKey, SeqNo, Timestamp};

use crate::coding::{put_varint, take, varint};
use crate::error::Malformed;

/// Ids from here on must be understood by a reader.
const FIRST_BINDING_ID: u64 = 64;
/// Families that are listed at most; of a table that holds more, none is.
const FAMILIES_LISTED_MAX: usize = 32;
/// Bytes of expired cells.
const EXPIRED_ID: u64 = 16;
/// Operands. Binding: who does not know them would misread the table.
const OPERANDS_ID: u64 = 64;

/// What is in a table: counts and bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Entries of any kind, tombstones among them.
    pub cells: u64,
    /// Tombstones of any kind.
    pub tombstones: u64,
    /// Row tombstones.
    pub row_tombstones: u64,
    /// Family tombstones.
    pub family_tombstones: u64,
    /// Rows with at least one entry.
    pub rows: u64,
    /// Bytes of keys and values before any compression.
    pub raw_bytes: u64,
    /// Bytes of values outside the blocks.
    pub value_block_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Bytes of keys and values of cells that retention allowed to drop when the table was
    /// written, and that had to stay for what older tables might hold.
    pub expired_bytes: u64,
    /// Operands of aggregate cells.
    pub operands: u64,
    /// Oldest and newest timestamp of the entries that are no tombstones; `None` if all are.
    pub timestamps: Option<(Timestamp, Timestamp)>,
    /// Smallest sequence number.
    pub smallest_seq: SeqNo,
    /// Largest sequence number.
    pub largest_seq: SeqNo,
    /// Smallest key.
    pub smallest: Vec<u8>,
    /// Largest key.
    pub largest: Vec<u8>,
    /// The families of which there are entries, ascending; a row tombstone is of none. `None`: not
    /// known, it may be any.
    pub families: Option<Vec<FamilyId>>,
}

impl Properties {
    /// The stored form; see FORMAT.md.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(200 + self.smallest.len() + self.largest.len());
        let counts = [
            self.cells,
            self.tombstones,
            self.row_tombstones,
            self.family_tombstones,
            self.rows,
            self.raw_bytes,
            self.value_block_bytes,
            self.data_blocks,
        ];
        for (id, count) in (1..).zip(counts) {
            put_field(&mut out, id, &count.to_le_bytes());
        }
        if let Some((oldest, newest)) = self.timestamps {
            put_field(&mut out, 9, &oldest.micros().to_le_bytes());
            put_field(&mut out, 10, &newest.micros().to_le_bytes());
        }
        put_field(&mut out, 11, &self.smallest_seq.get().to_le_bytes());
        put_field(&mut out, 12, &self.largest_seq.get().to_le_bytes());
        put_field(&mut out, 13, &self.smallest);
        put_field(&mut out, 14, &self.largest);
        if let Some(families) = &self.families {
            let ids = families.iter().flat_map(|family| family.get().to_le_bytes());
            put_field(&mut out, 15, &ids.collect::<Vec<u8>>());
        }
        for (id, count) in [(EXPIRED_ID, self.expired_bytes), (OPERANDS_ID, self.operands)] {
            if count > 0 {
                put_field(&mut out, id, &count.to_le_bytes());
            }
        }
        out
    }

    /// May the table hold anything that a reader of these families must know: an entry of one of
    /// them, or a tombstone of a row? `families` ascend.
    pub fn may_concern(&self, families: &[FamilyId]) -> bool {
        self.row_tombstones > 0 || self.may_hold(families)
    }

    /// May the table hold an entry of one of these families? They ascend.
    pub fn may_hold(&self, families: &[FamilyId]) -> bool {
        let held = self.families.as_ref();
        held.is_none_or(|held| held.iter().any(|family| families.binary_search(family).is_ok()))
    }

    /// Those of a table without an entry yet.
    pub(crate) fn begun() -> Properties {
        Properties { families: Some(Vec::new()), ..Properties::default() }
    }

    /// Reads the stored form. `None` when it is damaged, incomplete, contradicts itself, or has a
    /// field that a reader must know and this one does not.
    pub fn decode(stored: &[u8]) -> Option<Properties> {
        let mut numbers = [None; 13];
        let mut keys = [None, None];
        let mut families = None;
        let (mut expired_bytes, mut operands) = (0, 0);
        let (mut at, mut last_id) = (0, 0);
        while at < stored.len() {
            let id = varint(stored, &mut at)?;
            let len = usize::try_from(varint(stored, &mut at)?).ok()?;
            let content = take(stored, &mut at, len)?;
            if id <= last_id {
                return None;
            }
            last_id = id;
            let number = || Some(u64::from_le_bytes(content.try_into().ok()?));
            match id {
                1..=12 => numbers[id as usize] = Some(number()?),
                13 | 14 => keys[id as usize - 13] = Some(content.to_vec()),
                15 => families = Some(decode_families(content)?),
                EXPIRED_ID => expired_bytes = number()?,
                OPERANDS_ID => operands = number()?,
                _ if id >= FIRST_BINDING_ID => return None,
                _ => {}
            }
        }
        let timestamp = |raw: u64| Timestamp::from_micros(i64::try_from(raw).ok()?);
        let timestamps = match (numbers[9], numbers[10]) {
            (Some(oldest), Some(newest)) => Some((timestamp(oldest)?, timestamp(newest)?)),
            (None, None) => None,
            _ => return None,
        };
        let [smallest, largest] = keys;
        let properties = Properties {
            cells: numbers[1]?,
            tombstones: numbers[2]?,
            row_tombstones: numbers[3]?,
            family_tombstones: numbers[4]?,
            rows: numbers[5]?,
            raw_bytes: numbers[6]?,
            value_block_bytes: numbers[7]?,
            data_blocks: numbers[8]?,
            expired_bytes,
            operands,
            timestamps,
            smallest_seq: SeqNo::from_raw(numbers[11]?)?,
            largest_seq: SeqNo::from_raw(numbers[12]?)?,
            smallest: smallest?,
            largest: largest?,
            families,
        };
        properties.is_consistent().then_some(properties)
    }

    /// Adds an entry, which is larger than every one before it.
    pub(crate) fn count(&mut self, key: &ParsedKey<'_>, key_len: usize, value_len: u64) {
        self.smallest_seq = match self.cells {
            0 => key.seq,
            _ => self.smallest_seq.min(key.seq),
        };
        self.largest_seq = self.largest_seq.max(key.seq);
        self.cells += 1;
        self.raw_bytes += key_len as u64 + value_len;
        self.note_family(key.family);
        match key.kind {
            types::Kind::DeleteRow => self.row_tombstones += 1,
            types::Kind::DeleteFamily => self.family_tombstones += 1,
            types::Kind::Add => self.operands += 1,
            types::Kind::Put | types::Kind::DeleteCells => {}
        }
        if key.kind.is_tombstone() {
            self.tombstones += 1;
            return;
        }
        let at = key.timestamp;
        self.timestamps = Some(match self.timestamps {
            Some((oldest, newest)) => (oldest.min(at), newest.max(at)),
            None => (at, at),
        });
    }

    fn note_family(&mut self, family: FamilyId) {
        let Some(families) = &mut self.families else {
            return;
        };
        // Most entries are of the family of the one before.
        if family == FamilyId::ROW || families.last() == Some(&family) {
            return;
        }
        if let Err(place) = families.binary_search(&family) {
            families.insert(place, family);
        }
        if families.len() > FAMILIES_LISTED_MAX {
            self.families = None;
        }
    }

    fn is_consistent(&self) -> bool {
        let marks = self.row_tombstones.checked_add(self.family_tombstones);
        let keys = [&self.smallest, &self.largest];
        (1..=self.cells).contains(&self.rows)
            && self.tombstones <= self.cells
            && marks.is_some_and(|marks| marks <= self.tombstones)
            && self.operands <= self.cells - self.tombstones
            && self.expired_bytes <= self.raw_bytes
            && (self.tombstones == self.cells) == self.timestamps.is_none()
            && self.timestamps.is_none_or(|(oldest, newest)| oldest <= newest)
            && self.smallest_seq <= self.largest_seq
            && self.smallest <= self.largest
            && keys.iter().all(|key| ParsedKey::parse(key).is_some())
            && self.families.as_ref().is_none_or(|families| {
                families.is_empty() == (self.row_tombstones == self.cells)
                    && families.first() != Some(&FamilyId::ROW)
            })
    }
}

pub(crate) fn decode(stored: &[u8]) -> std::result::Result<Properties, Malformed> {
    Properties::decode(stored).ok_or(Malformed("the properties are damaged"))
}

fn decode_families(content: &[u8]) -> Option<Vec<FamilyId>> {
    let (ids, rest) = content.as_chunks::<4>();
    let families: Vec<FamilyId> =
        ids.iter().map(|id| FamilyId::new(u32::from_le_bytes(*id))).collect();
    let ascend = families.is_sorted_by(|a, b| a < b);
    let plausible = rest.is_empty() && ascend && families.len() <= FAMILIES_LISTED_MAX;
    plausible.then_some(families)
}

fn put_field(out: &mut Vec<u8>, id: u64, content: &[u8]) {
    put_varint(out, id);
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use types::{CellKey, FamilyId};

    use super::*;
    use crate::coding::u64_at;

    fn sample() -> Properties {
        let at = Timestamp::from_micros(5).unwrap();
        let seq = SeqNo::from_raw(3).unwrap();
        let key = CellKey::put(b"r", FamilyId::new(1), b"", at, seq);
        let mut properties = Properties {
            rows: 1,
            smallest: key.as_bytes().to_vec(),
            largest: key.as_bytes().to_vec(),
            ..Properties::default()
        };
        let parsed = ParsedKey::parse(key.as_bytes()).unwrap();
        properties.count(&parsed, key.as_bytes().len(), 4);
        properties
    }

    #[test]
    fn listed_families_read_back_and_must_agree_with_the_counts() {
        let listed = |ids: &[u32]| {
            let families = Some(ids.iter().map(|id| FamilyId::new(*id)).collect());
            Properties::decode(&Properties { families, ..sample() }.encode())
        };
        assert_eq!(listed(&[1, 7]).unwrap().families.unwrap().len(), 2);
        for bad in [&[][..], &[0, 1], &[7, 1], &[1, 1]] {
            assert_eq!(listed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn properties_read_back_skip_unknown_fields_and_refuse_binding_ones() {
        let properties = sample();
        let stored = properties.encode();
        assert_eq!(Properties::decode(&stored), Some(properties.clone()));
        let with = |id| {
            let mut stored = stored.clone();
            put_field(&mut stored, id, b"new");
            Properties::decode(&stored)
        };
        assert_eq!(with(FIRST_BINDING_ID - 1), Some(properties));
        assert_eq!(with(FIRST_BINDING_ID + 1), None);
        assert_eq!(with(3), None, "ids ascend");
    }

    #[test]
    fn the_families_of_a_table_are_listed_until_they_are_too_many() {
        let mut properties = Properties::begun();
        for number in [3, 1, 3, 2, 2] {
            properties.note_family(FamilyId::new(number));
        }
        properties.note_family(FamilyId::ROW);
        let ids = |numbers: &[u32]| -> Vec<FamilyId> {
            numbers.iter().map(|number| FamilyId::new(*number)).collect()
        };
        assert_eq!(properties.families, Some(ids(&[1, 2, 3])));
        assert!(properties.may_concern(&ids(&[2, 9])) && !properties.may_concern(&ids(&[4, 9])));
        let marked = Properties { row_tombstones: 1, ..properties.clone() };
        assert!(marked.may_concern(&ids(&[4])), "a row's tombstone concerns every family");
        (0..40).for_each(|number| properties.note_family(FamilyId::new(number + 1)));
        assert_eq!(properties.families, None);
        assert!(properties.may_concern(&ids(&[99])), "not known is any");
    }

    #[test]
    fn operands_and_expired_bytes_are_told_only_if_there_are_any() {
        let properties = sample();
        let plain = properties.encode();
        let more = Properties { expired_bytes: 3, operands: 1, ..properties.clone() };
        let stored = more.encode();
        assert_eq!(stored.len(), plain.len() + 2 * (1 + 1 + 8));
        assert_eq!(Properties::decode(&stored), Some(more));
        for wrong in [
            Properties { operands: properties.cells + 1, ..properties.clone() },
            Properties { expired_bytes: properties.raw_bytes + 1, ..properties },
        ] {
            assert_eq!(Properties::decode(&wrong.encode()), None);
        }
    }

    #[test]
    fn damaged_properties_are_refused_without_panic() {
        let stored = sample().encode();
        for len in 0..stored.len() {
            assert_eq!(Properties::decode(&stored[..len]), None, "{len} bytes");
        }
        for place in 0..stored.len() {
            let mut bad = stored.clone();
            bad[place] ^= 0x80;
            let _ = Properties::decode(&bad);
        }
        assert_eq!(u64_at(&stored, 2), Some(1), "the count of cells comes first");
    }
}
