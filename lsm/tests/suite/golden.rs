//! Files that pin what must not change by accident. `UPDATE_GOLDENFILES=1` writes them anew: the
//! difference is then reviewed like code.

use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDENFILES").is_some_and(|value| value == "1")
}

/// The content of a golden file.
#[expect(clippy::disallowed_methods, reason = "a test reads its own golden files")]
pub(super) fn read(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|failed| panic!("golden file {name}: {failed}"))
}

/// `found` must be what the golden file has.
#[expect(clippy::disallowed_methods, reason = "a golden file is written anew when asked for")]
pub(super) fn check(name: &str, found: &str) {
    if updating() {
        std::fs::write(path(name), found).unwrap();
        return;
    }
    let expected = String::from_utf8(read(name)).unwrap();
    assert!(expected == found, "{name} differs; found:\n{found}\nexpected:\n{expected}");
}

/// Bytes as a dump of 16 to the line.
pub(super) fn hex_dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let plain: String = chunk.iter().map(plain).collect();
        text.push_str(&format!("{:04x}  {:<47}  {plain}\n", line * 16, hex.join(" ")));
    }
    text
}

/// The bytes that a dump shows.
pub(super) fn from_hex_dump(text: &str) -> Vec<u8> {
    let digits = text.lines().flat_map(|line| line[6..53].split_whitespace());
    digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}
