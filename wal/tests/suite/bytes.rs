//! The bytes themselves: golden ones, and hostile ones.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use storage::memory::MemoryFileSystem;
use storage::{FileSystem, LogFile};
use tepui_wal::format::{
    FRAME_HEADER_BYTES, FrameHeader, HeaderError, Place, Predecessor, SEGMENT_HEADER_BYTES,
    SegmentHeader, decode_entries, payload_matches, put_end_mark, put_frame,
};
use tepui_wal::{Entry, OwnedEntry, SegmentName};
use types::{SessionId, Splice};

use super::session::{entry, folder, random_group, read_all, run};

const NAME: SegmentName = SegmentName { number: 1, seed: 0x0102_0304_0506_0708 };

fn place(offset: u64) -> Place {
    Place { seed: NAME.seed, offset }
}

fn small_segment() -> Vec<u8> {
    let header = SegmentHeader { session: SessionId::new(7), name: NAME, predecessor: None };
    let mut out = header.encode().to_vec();
    let batch = entry(3, 42, b"hello".to_vec());
    assert!(put_frame(&mut out, place(88), 1, 0, &[batch.as_entry()]).is_empty());
    put_end_mark(&mut out, place(176), 2, 176);
    out
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&digits.join(" "));
        text.push('\n');
    }
    text
}

#[test]
fn a_small_segment_has_exactly_these_bytes() {
    let found = hex(&small_segment());
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/segment.hex");
        #[expect(clippy::disallowed_methods, reason = "the golden file is the source tree's")]
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, include_str!("../golden/segment.hex"));
    assert_eq!(small_segment().len(), 224, "as FORMAT.md says");
}

/// The file is never written anew: it is what the first release wrote.
#[test]
fn a_segment_of_format_1_is_read_for_ever() {
    let digits = include_str!("../golden/segment_v1.hex").split_whitespace();
    let stored: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let disk = MemoryFileSystem::new();
    run(async {
        let path = folder(7).join(&NAME.to_string());
        let LogFile::Blocking(mut log) = disk.create_log(&path, 0).await.unwrap();
        log.append(&stored).unwrap();
        log.sync().unwrap();
        let (frames, ended_cleanly) = read_all(&disk, 7).await.unwrap();
        assert!(ended_cleanly);
        let found: Vec<_> = frames.into_iter().flat_map(|frame| frame.entries).collect();
        assert_eq!(found, [entry(3, 42, b"hello".to_vec())]);
    });
}

#[test]
fn a_name_reads_back_and_no_other_form_does() {
    let text = "00000000000000000001-0102030405060708.log";
    assert_eq!(NAME.to_string(), text);
    assert_eq!(SegmentName::parse(text), Some(NAME));
    for bad in [
        "",
        "00000000000000000001.log",
        "1-0102030405060708.log",
        "00000000000000000001-010203040506070A.log",
        "00000000000000000001-0102030405060708",
        "99999999999999999999-0102030405060708.log",
        "+0000000000000000001-0102030405060708.log",
    ] {
        assert_eq!(SegmentName::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_header_is_read_under_its_own_name_only() {
    let before = Predecessor { seed: 9, len: 4096, last_frame: 17 };
    let name = SegmentName { number: 2, seed: 5 };
    let header = SegmentHeader { session: SessionId::new(7), name, predecessor: Some(before) };
    let stored = header.encode();
    assert_eq!(SegmentHeader::decode(&stored, name), Ok(header));
    assert_eq!(SegmentHeader::decode(&stored[..87], name), Err(HeaderError::Absent));
    let other_seed = SegmentName { number: 2, seed: 6 };
    assert_eq!(SegmentHeader::decode(&stored, other_seed), Err(HeaderError::Absent));
    let other_number = SegmentName { number: 3, seed: 5 };
    let wrong = SegmentHeader::decode(&stored, other_number).unwrap_err();
    assert!(matches!(wrong, HeaderError::Wrong(_)), "{wrong:?}");
    for at in 0..SEGMENT_HEADER_BYTES {
        let mut flipped = stored;
        flipped[at] ^= 0x10;
        assert_eq!(SegmentHeader::decode(&flipped, name), Err(HeaderError::Absent), "byte {at}");
    }
}

fn read_frame(bytes: &[u8], place: Place) -> Option<(FrameHeader, Vec<OwnedEntry>)> {
    let header = FrameHeader::decode(bytes, place)?;
    let len = usize::try_from(header.frame_len()).ok()?;
    let padded = bytes.get(FRAME_HEADER_BYTES..len)?;
    if !payload_matches(&header, place, padded) {
        return None;
    }
    let entries = decode_entries(&header, &Bytes::copy_from_slice(padded)).ok()?;
    Some((header, entries))
}

#[test]
fn a_frame_of_large_parts_is_the_same_as_one_of_copied_parts() {
    let here = place(88);
    let large = Bytes::from((0..700_001_u32).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    let head = vec![3; 300 << 10];
    let splices = [
        Splice { at: 5, bytes: Bytes::from_static(b"small") },
        Splice { at: 290 << 10, bytes: large },
    ];
    let whole: Vec<u8> = Splice::parts(&head, &splices).flatten().copied().collect();
    let first = entry(2, 7, b"before".to_vec());
    let second = entry(3, 8, whole);
    let spliced = Entry { payload: &head, splices: &splices, ..second.as_entry() };
    let mut out = Vec::new();
    let borrowed = put_frame(&mut out, here, 1, 0, &[first.as_entry(), spliced]);
    assert_eq!(borrowed.len(), 2, "what is large is not copied");
    let (mut frame, mut from) = (Vec::new(), 0);
    for (at, part) in borrowed {
        frame.extend_from_slice(&out[from..at]);
        frame.extend_from_slice(part);
        from = at;
    }
    frame.extend_from_slice(&out[from..]);
    assert_eq!(frame.len() % 8, 0);
    let (_, found) = read_frame(&frame, here).unwrap();
    assert!(found == [first, second]);
}

#[test]
fn frames_read_back_at_their_own_place_only() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let group = random_group(&mut random, 100);
        let entries: Vec<_> = group.iter().map(OwnedEntry::as_entry).collect();
        let here = Place { seed: random.next_u64(), offset: random.random_range(1..1000) * 8 };
        let mut out = Vec::new();
        assert!(put_frame(&mut out, here, seed + 1, here.offset - 8, &entries).is_empty());
        assert_eq!(out.len() % 8, 0);
        let (header, found) = read_frame(&out, here).unwrap();
        assert_eq!((header.number, header.synced_to), (seed + 1, here.offset - 8));
        assert_eq!(found, group, "seed {seed}");
        let moved = Place { offset: here.offset + 8, ..here };
        assert_eq!(FrameHeader::decode(&out, moved), None, "seed {seed}");
        let recycled = Place { seed: random.next_u64(), ..here };
        assert_eq!(FrameHeader::decode(&out, recycled), None, "seed {seed}");
        let at = random.random_range(0..out.len());
        out[at] ^= 1 << random.random_range(0..8);
        assert_eq!(read_frame(&out, here), None, "seed {seed}, byte {at}");
    }
}

/// The checksums hold and the content is nonsense: what only a bug or a forger writes.
#[test]
fn entries_that_lie_are_refused() {
    for seed in 0..2_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut payload = vec![0; random.random_range(0..80)];
        random.fill_bytes(&mut payload);
        if let Some(kind) = payload.first_mut() {
            *kind = random.random_range(0..5);
        }
        let header = FrameHeader {
            number: 1,
            synced_to: 0,
            payload_checksum: 0,
            payload_len: random.random_range(0..100),
            entries: if random.random_bool(0.5) { 1 } else { random.next_u32() },
            is_end: random.random_bool(0.1),
            unknown_flags: false,
        };
        // Any answer but a panic or a huge allocation; what is accepted is whole.
        let padded = Bytes::from(payload);
        if let Ok(entries) = decode_entries(&header, &padded) {
            let bytes: usize = entries.iter().map(|entry| entry.payload.len() + 33).sum();
            assert_eq!(bytes, header.payload_len as usize, "seed {seed}");
        }
    }
}
