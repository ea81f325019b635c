//! What the encoder builds, taken apart by the generated decoder and a plain merger.

use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use super::*;

type Cell = (String, Vec<u8>, i64, Vec<u8>);
type Row = (Vec<u8>, Vec<Cell>);

/// Merges chunks as a client does, and refuses what a client must not be sent.
#[derive(Default)]
struct Merger {
    row_keys: RowKeys,
    rows: Vec<Row>,
    row: Option<Row>,
    family: Option<String>,
    qualifier: Option<Vec<u8>>,
    value: Vec<u8>,
    expected: Option<usize>,
}

impl Merger {
    fn add(&mut self, encoded: &[u8]) {
        for (place, chunk) in
            ReadRowsResponse::decode(encoded).unwrap().chunks.into_iter().enumerate()
        {
            if chunk.row_key.is_empty() {
                assert!(self.row.is_some(), "a row begins with its key");
                let may_miss = self.expected.is_some() && self.row_keys == RowKeys::AtCells;
                assert!(place > 0 || may_miss, "a message begins with its row's key");
            } else if let Some((row, _)) = &self.row {
                assert_eq!(*row, chunk.row_key, "a key inside a row is its own");
                assert_eq!(place, 0, "a key is repeated only where a message begins");
                let may_stand = self.expected.is_none() || self.row_keys == RowKeys::AtMessages;
                assert!(may_stand, "no key stands inside a value");
            } else {
                self.row = Some((chunk.row_key.to_vec(), Vec::new()));
                (self.family, self.qualifier) = (None, None);
                assert!(chunk.family_name.is_some() && chunk.qualifier.is_some());
            }
            if let Some(family) = chunk.family_name {
                assert!(chunk.qualifier.is_some(), "a family comes with a qualifier");
                self.family = Some(family);
            }
            if let Some(qualifier) = chunk.qualifier {
                assert!(self.expected.is_none(), "a divided value has one column");
                self.qualifier = Some(qualifier.to_vec());
            }
            let (_, cells) = self.row.as_mut().unwrap();
            if self.expected.is_none() {
                let column = (self.family.clone().unwrap(), self.qualifier.clone().unwrap());
                cells.push((column.0, column.1, chunk.timestamp_micros, Vec::new()));
            } else {
                assert_eq!(chunk.timestamp_micros, 0);
            }
            self.value.extend_from_slice(&chunk.value);
            let size = usize::try_from(chunk.value_size).unwrap();
            if size > 0 {
                assert!(self.expected.is_none_or(|expected| expected == size));
                assert!(chunk.row_status.is_none(), "an unfinished value ends no row");
                self.expected = Some(size);
                continue;
            }
            let whole = self.expected.take();
            assert!(whole.is_none_or(|expected| expected == self.value.len()));
            cells.last_mut().unwrap().3 = std::mem::take(&mut self.value);
            match chunk.row_status {
                None => {}
                Some(RowStatus::CommitRow(true)) => self.rows.push(self.row.take().unwrap()),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

/// Encodes rows with pieces of `piece` bytes; the messages.
fn encode(rows: &[Row], piece: usize, row_keys: RowKeys) -> Vec<ReadReply> {
    let mut encoder = ReplyEncoder::new(row_keys);
    let mut replies = Vec::new();
    for (row, cells) in rows {
        encoder.begin_row(row);
        for (family, qualifier, timestamp, value) in cells {
            encoder.begin_cell(CellHead {
                family: FamilyId::new(family.len() as u32),
                family_name: family,
                qualifier,
                timestamp: Timestamp::from_micros(*timestamp).unwrap(),
                value_len: value.len() as u64,
            });
            for piece in value.chunks(piece) {
                encoder.value_piece(piece);
                if encoder.is_full() {
                    replies.extend(encoder.take());
                }
            }
        }
        encoder.end_row();
        if encoder.is_full() {
            replies.extend(encoder.take());
        }
    }
    replies.extend(encoder.take());
    assert_eq!(encoder.bytes(), 0);
    replies
}

fn check(rows: &[Row], piece: usize) -> usize {
    check_naming(rows, piece, RowKeys::AtMessages);
    check_naming(rows, piece, RowKeys::AtCells)
}

fn check_naming(rows: &[Row], piece: usize, row_keys: RowKeys) -> usize {
    let replies = encode(rows, piece, row_keys);
    let mut merger = Merger { row_keys, ..Merger::default() };
    let mut counted = 0;
    for reply in &replies {
        assert!(reply.encoded.len() <= REPLY_BYTES_MAX);
        merger.add(&reply.encoded);
        counted += usize::try_from(reply.rows).unwrap();
        assert_eq!(merger.rows.len(), counted, "rows that end are counted");
        if reply.rows > 0 {
            assert_eq!(reply.last_row.as_deref(), merger.rows.last().map(|row| &row.0[..]));
        }
    }
    assert_eq!(merger.rows, rows);
    replies.len()
}

#[test]
fn what_is_encoded_merges_to_the_same_rows() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut rows = Vec::new();
        for number in 0..random.random_range(1..20_u32) {
            let row = format!("row{number:04}").into_bytes();
            let mut cells = Vec::new();
            for _ in 0..random.random_range(1..8) {
                let family = ["f", "ff", "fff"][random.random_range(0..3)].to_owned();
                let qualifier = vec![b'q'; random.random_range(0..3)];
                let timestamp = random.random_range(0..3) * 1000;
                let len = match random.random_range(0..20) {
                    0 => random.random_range(0..300_000),
                    1..5 => 0,
                    _ => random.random_range(0..40),
                };
                let mut value = vec![0; len];
                random.fill_bytes(&mut value);
                cells.push((family, qualifier, timestamp, value));
            }
            rows.push((row, cells));
        }
        let piece = [1000, 100_000, CHUNK_VALUE_BYTES_MAX][random.random_range(0..3)];
        println!("seed {seed}");
        check(&rows, piece);
    }
}

#[test]
fn the_largest_cells_stay_within_the_limit_of_a_message() {
    let cell = |size: usize| ("f".repeat(64), vec![b'q'; QUALIFIER_BYTES_MAX], 7, vec![1; size]);
    let sizes = [0, 1, CHUNK_VALUE_BYTES_MAX, CHUNK_VALUE_BYTES_MAX + 1, 16 << 20];
    let cells: Vec<Cell> = sizes.into_iter().map(cell).collect();
    let row = vec![b'r'; ROW_KEY_BYTES_MAX];
    let messages = check(&[(row.clone(), cells.clone()), (row, cells)], CHUNK_VALUE_BYTES_MAX);
    assert!(messages > 64, "{messages}");
}

#[test]
fn one_small_row_has_exactly_these_bytes() {
    let rows = [(b"r".to_vec(), vec![("f".to_owned(), b"q".to_vec(), 1000, b"v".to_vec())])];
    let replies = encode(&rows, 10, RowKeys::AtCells);
    let expected = [
        &[0x0a, 0x15][..],         // one chunk
        &[0x0a, 1, b'r'],          // row_key
        &[0x12, 3, 0x0a, 1, b'f'], // family_name
        &[0x1a, 3, 0x0a, 1, b'q'], // qualifier
        &[0x20, 0xe8, 0x07],       // timestamp_micros
        &[0x32, 1, b'v'],          // value
        &[0x48, 1],                // commit_row
    ];
    assert_eq!(replies[0].encoded, expected.concat());
}

#[test]
fn a_message_does_not_keep_the_memory_of_the_one_before() {
    let mut encoder = ReplyEncoder::default();
    let mut replies = Vec::new();
    for number in 0..1000_u32 {
        encoder.begin_row(&number.to_be_bytes());
        encoder.begin_cell(CellHead {
            family: FamilyId::new(1),
            family_name: "f",
            qualifier: b"q",
            timestamp: Timestamp::ZERO,
            value_len: 1000,
        });
        encoder.value_piece(&[7; 1000]);
        encoder.end_row();
        if encoder.is_full() {
            assert!(encoder.message.capacity() < 2 * REPLY_BYTES_USUAL);
            replies.extend(encoder.take());
            assert_eq!(encoder.message.capacity(), REPLY_BYTES_USUAL);
        }
    }
    assert!(replies.len() > 10, "{} replies", replies.len());
}
