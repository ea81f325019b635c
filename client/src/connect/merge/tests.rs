//! Every way through the chunk states, legal and not, each as a script of chunks.
//!
//! A script is lines of words: `row=K fam=F q=Q ts=N val=V size=N label=L commit reset`; a line
//! `scanned=K` is a reply of its own; `q=` is an empty qualifier that is present.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

fn chunk(line: &str) -> CellChunk {
    let mut chunk = CellChunk::default();
    for word in line.split_whitespace() {
        let (name, text) = word.split_once('=').unwrap_or((word, ""));
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        match name {
            "row" => chunk.row_key = bytes,
            "fam" => chunk.family_name = Some(text.to_owned()),
            "q" => chunk.qualifier = Some(bytes),
            "ts" => chunk.timestamp_micros = text.parse().unwrap(),
            "val" => chunk.value = bytes,
            "size" => chunk.value_size = text.parse().unwrap(),
            "label" => chunk.labels.push(text.to_owned()),
            "commit" => chunk.row_status = Some(RowStatus::CommitRow(true)),
            "uncommit" => chunk.row_status = Some(RowStatus::CommitRow(false)),
            "reset" => chunk.row_status = Some(RowStatus::ResetRow(true)),
            other => panic!("no such word: {other}"),
        }
    }
    chunk
}

fn run(script: &str) -> Result<Vec<String>> {
    let mut merger = Merger::new();
    let mut rows: Vec<Row> = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let reply = match line.strip_prefix("scanned=") {
            Some(key) => ReadRowsResponse {
                last_scanned_row_key: Bytes::copy_from_slice(key.as_bytes()),
                ..Default::default()
            },
            None => ReadRowsResponse { chunks: vec![chunk(line)], ..Default::default() },
        };
        merger.push(reply, &mut rows)?;
    }
    merger.finish()?;
    Ok(rows.iter().flat_map(print).collect())
}

fn print(row: &Row) -> Vec<String> {
    let mut lines = Vec::new();
    for family in &row.families {
        for cell in &family.cells {
            lines.push(format!(
                "{} {}:{}@{}={}{}",
                row.key.escape_ascii(),
                family.name,
                cell.qualifier.escape_ascii(),
                cell.timestamp.micros(),
                cell.value.escape_ascii(),
                cell.labels.iter().map(|l| format!(" {l}")).collect::<String>()
            ));
        }
    }
    lines
}

fn gives(script: &str, expected: &[&str]) {
    assert_eq!(run(script).unwrap(), expected, "{script}");
}

fn breaks(script: &str, what: &str) {
    let error = run(script).expect_err(script);
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().ends_with(what), "{error} is not {what:?}");
}

#[test]
fn one_cell_in_one_chunk_is_a_row() {
    gives("row=a fam=f q=c ts=100 val=v commit", &["a f:c@100=v"]);
}

#[test]
fn an_empty_answer_has_no_rows() {
    gives("", &[]);
}

#[test]
fn an_empty_qualifier_and_an_empty_value_are_a_cell() {
    gives("row=a fam=f q= commit", &["a f:@0="]);
}

#[test]
fn a_column_is_repeated_by_leaving_it_out() {
    gives(
        "row=a fam=f q=c ts=9 val=x
         ts=8 val=y
         ts=7 val=z commit",
        &["a f:c@9=x", "a f:c@8=y", "a f:c@7=z"],
    );
}

#[test]
fn a_timestamp_is_never_inherited() {
    gives(
        "row=a fam=f q=c ts=9 val=x
         val=y commit",
        &["a f:c@9=x", "a f:c@0=y"],
    );
}

#[test]
fn a_qualifier_alone_stays_in_the_family() {
    gives(
        "row=a fam=f q=c val=x
         q=d val=y
         q= val=z commit",
        &["a f:c@0=x", "a f:d@0=y", "a f:@0=z"],
    );
}

#[test]
fn a_new_family_comes_with_a_qualifier() {
    gives(
        "row=a fam=f q=c val=x
         fam=g q=c val=y commit",
        &["a f:c@0=x", "a g:c@0=y"],
    );
    breaks(
        "row=a fam=f q=c val=x
         fam=g val=y commit",
        "a family without a qualifier",
    );
}

#[test]
fn a_row_may_repeat_everything_in_each_chunk() {
    gives(
        "row=a fam=f q=c ts=2 val=x
         row=a fam=f q=c ts=1 val=y commit",
        &["a f:c@2=x", "a f:c@1=y"],
    );
}

#[test]
fn a_family_that_comes_back_is_joined() {
    gives(
        "row=a fam=f q=c val=1
         fam=g q=c val=2
         fam=f q=d val=3 commit",
        &["a g:c@0=2", "a f:c@0=1", "a f:d@0=3"],
    );
}

#[test]
fn a_value_in_two_pieces_is_joined() {
    gives(
        "row=a fam=f q=c ts=5 val=alpha- size=10
         val=beta commit",
        &["a f:c@5=alpha-beta"],
    );
}

#[test]
fn a_value_in_many_pieces_keeps_its_labels_and_age() {
    gives(
        "row=a fam=f q=c ts=5 label=L val=a size=4
         val=b size=4
         val=c size=4
         val=d
         q=e val=after commit",
        &["a f:c@5=abcd L", "a f:e@0=after"],
    );
}

#[test]
fn a_bare_commit_adds_an_empty_cell() {
    gives(
        "row=a fam=f q=c ts=5 val=x
         commit",
        &["a f:c@5=x", "a f:c@0="],
    );
}

#[test]
fn an_empty_last_piece_ends_a_value() {
    gives(
        "row=a fam=f q=c ts=5 val=x size=1
         commit",
        &["a f:c@5=x"],
    );
}

#[test]
fn a_reset_forgets_the_row() {
    gives(
        "row=a fam=f q=c val=x
         reset
         row=a fam=f q=c val=y commit",
        &["a f:c@0=y"],
    );
}

#[test]
fn a_reset_inside_a_value_forgets_the_row() {
    gives(
        "row=a fam=f q=c val=x size=2
         reset
         row=b fam=g q=d val=y commit",
        &["b g:d@0=y"],
    );
}

#[test]
fn after_a_reset_a_row_begins_with_its_key() {
    breaks(
        "row=a fam=f q=c val=x
         reset
         fam=f q=c val=y commit",
        "a row without a key",
    );
}

#[test]
fn a_reset_stands_alone() {
    for more in ["row=a", "fam=f", "q=c", "ts=1", "val=x", "size=1", "label=l"] {
        breaks(&format!("row=a fam=f q=c val=x\n reset {more}"), "a reset that carries more");
    }
}

#[test]
fn a_reset_outside_a_row_is_refused() {
    breaks("reset", "a reset outside a row");
    breaks(
        "row=a fam=f q=c val=x commit
         reset",
        "a reset outside a row",
    );
}

#[test]
fn rows_follow_one_another() {
    gives(
        "row=a fam=f q=c val=x commit
         row=b fam=f q=c val=y commit",
        &["a f:c@0=x", "b f:c@0=y"],
    );
}

#[test]
fn rows_ascend_and_come_once() {
    breaks(
        "row=b fam=f q=c val=x commit
         row=a fam=f q=c val=y commit",
        "rows out of order",
    );
    breaks(
        "row=a fam=f q=c val=x commit
         row=a fam=f q=c val=y commit",
        "rows out of order",
    );
}

#[test]
fn a_row_needs_key_family_and_qualifier() {
    breaks("fam=f q=c val=x commit", "a row without a key");
    breaks("row=a q=c val=x commit", "a row's first cell without a family");
    breaks("row=a fam=f val=x commit", "a row's first cell without a qualifier");
    breaks("commit", "a row without a key");
}

#[test]
fn a_second_row_does_not_inherit_the_column_of_the_first() {
    breaks(
        "row=a fam=f q=c val=x commit
         row=b val=y commit",
        "a row's first cell without a family",
    );
}

#[test]
fn a_row_is_committed_before_the_next() {
    breaks(
        "row=a fam=f q=c val=x
         row=b fam=f q=c val=y commit",
        "another row before the last was committed",
    );
}

#[test]
fn an_answer_ends_with_a_commit() {
    breaks("row=a fam=f q=c val=x", "the answer ends inside a row");
    breaks("row=a fam=f q=c val=x size=2", "the answer ends inside a row");
    breaks("row=a fam=f q=c val=x uncommit", "the answer ends inside a row");
}

#[test]
fn a_row_is_not_committed_inside_a_value() {
    breaks("row=a fam=f q=c val=x size=2 commit", "a row committed inside a cell");
}

#[test]
fn inside_a_value_nothing_else_comes() {
    for more in ["row=a", "fam=f q=c", "q=c", "ts=1", "label=l"] {
        breaks(
            &format!("row=a fam=f q=c val=x size=2\n {more} val=y commit"),
            "a new cell inside a cell",
        );
    }
}

#[test]
fn a_negative_size_or_age_is_refused() {
    breaks("row=a fam=f q=c val=x size=-1", "a negative value size");
    breaks("row=a fam=f q=c val=x ts=-1 commit", "a negative timestamp");
}

#[test]
fn scanned_rows_are_between_rows_and_ascend() {
    gives(
        "scanned=a
         row=b fam=f q=c val=x commit
         scanned=c",
        &["b f:c@0=x"],
    );
    breaks("scanned=b\n row=a fam=f q=c val=x commit", "rows out of order");
    breaks("scanned=b\n scanned=a", "rows out of order");
    breaks("row=a fam=f q=c val=x\n scanned=b", "a scanned row inside a row");
}

#[test]
fn a_broken_read_resumes_after_the_last_row_and_forgets_the_half_one() {
    let mut merger = Merger::new();
    let mut rows = Vec::new();
    let reply = ReadRowsResponse {
        chunks: vec![
            chunk("row=a fam=f q=c val=x commit"),
            chunk("row=b fam=f q=c val=half size=9"),
        ],
        ..Default::default()
    };
    merger.push(reply, &mut rows).unwrap();
    assert_eq!(merger.last().unwrap(), "a");
    merger.restart();
    let reply = ReadRowsResponse {
        chunks: vec![chunk("row=b fam=f q=c val=whole commit")],
        ..Default::default()
    };
    merger.push(reply, &mut rows).unwrap();
    merger.finish().unwrap();
    assert_eq!(rows.iter().flat_map(print).last().unwrap(), "b f:c@0=whole");
}

#[test]
fn a_row_past_the_limit_is_refused_whatever_it_announces() {
    let mut merger = Merger::with_limit(1000);
    let mut rows: Vec<Row> = Vec::new();
    let mut replies = 0;
    let error = loop {
        let line = match replies {
            0 => "row=a fam=f q=c size=2147483647 val=x",
            _ => "size=2147483647 val=0123456789",
        };
        let reply = ReadRowsResponse { chunks: vec![chunk(line)], ..Default::default() };
        replies += 1;
        if let Err(error) = merger.push(reply, &mut rows) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    assert!(replies > 5, "after {replies} replies");
    assert!(rows.is_empty());
}

#[test]
fn random_chunks_give_rows_or_an_error() {
    const WORDS: &[&str] = &[
        "row=a", "row=b", "row=c", "fam=f", "fam=g", "q=", "q=c", "ts=5", "ts=-5", "val=v",
        "size=3", "size=-3", "label=l", "commit", "reset",
    ];
    let (mut whole, mut broken) = (0, 0);
    for seed in 0..20_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut script = String::new();
        if random.random_bool(0.7) {
            script += "row=a fam=f q=c val=x\n";
        }
        for _ in 0..random.random_range(0..6) {
            for _ in 0..random.random_range(0..4) {
                script += WORDS[random.random_range(0..WORDS.len())];
                script.push(' ');
            }
            script.push('\n');
        }
        match run(&script) {
            Ok(rows) if !rows.is_empty() => whole += 1,
            Ok(_) => {}
            Err(_) => broken += 1,
        }
    }
    assert!(whole > 200 && broken > 200, "{whole} whole, {broken} broken");
}
