//! The chunk merger takes any chunks: rows that ascend and come whole, or an error.

use bytes::Bytes;
use client::{Merger, Row};
use prost::Message;
use proto::google::bigtable::v2::ReadRowsResponse;
use proto::google::bigtable::v2::read_rows_response::CellChunk;
use proto::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use rand::Rng;
use rand::rngs::StdRng;

use super::{damage, short_bytes};

/// A chunk that fits where it comes more often than not.
fn chunk(random: &mut StdRng, inside: bool, row: u8) -> CellChunk {
    let mut chunk = CellChunk {
        timestamp_micros: random.random_range(-1..5),
        value: Bytes::from(short_bytes(random, 6)),
        ..CellChunk::default()
    };
    if !inside || random.random_bool(0.1) {
        chunk.row_key = Bytes::from(vec![b'r', row]);
        chunk.family_name = Some("f".to_owned());
        chunk.qualifier = Some(Bytes::from(short_bytes(random, 2)));
    }
    match random.random_range(0..20) {
        0 => chunk.value_size = random.random_range(-1..i32::MAX),
        1 => chunk.value_size = 6,
        2 => chunk.family_name = Some("g".to_owned()),
        3 => chunk.qualifier = None,
        4 => chunk.row_status = Some(RowStatus::ResetRow(random.random())),
        5 => {
            chunk = CellChunk { row_status: Some(RowStatus::ResetRow(true)), ..Default::default() }
        }
        6 => chunk.labels = vec!["label".to_owned()],
        7..=12 => chunk.row_status = Some(RowStatus::CommitRow(random.random_bool(0.9))),
        _ => {}
    }
    chunk
}

/// See the module.
pub(super) fn chunks(random: &mut StdRng) {
    let mut merger = Merger::new();
    let mut rows: Vec<Row> = Vec::new();
    let (mut inside, mut row) = (false, 0);
    for _ in 0..random.random_range(1..6) {
        let mut reply = ReadRowsResponse::default();
        for _ in 0..random.random_range(0..6) {
            let chunk = chunk(random, inside, row);
            let ends = chunk.row_status.is_some();
            inside = !ends;
            row = if ends { row.saturating_add(random.random_range(0..3)) } else { row };
            reply.chunks.push(chunk);
        }
        if random.random_bool(0.1) {
            reply.last_scanned_row_key = Bytes::from(vec![b'r', random.random()]);
        }
        let mut encoded = reply.encode_to_vec();
        if random.random_bool(0.2) {
            damage(random, &mut encoded);
        }
        let Ok(reply) = ReadRowsResponse::decode(Bytes::from(encoded)) else {
            return;
        };
        if merger.push(reply, &mut rows).is_err() {
            break;
        }
    }
    let _ = merger.finish();
    assert!(rows.is_sorted_by(|a, b| a.key < b.key), "rows ascend");
    assert!(rows.iter().all(|row| !row.families.is_empty()), "a row has a cell");
}
