//! Bytes, ages and tables as text.
//!
//! Keys, qualifiers and values are bytes. They are printed as the text they are, where they are
//! printable UTF-8; a backslash becomes `\\` and every other byte `\xNN`. So different bytes never
//! look alike, and what was printed can be given back as an argument: see [`parse`].

use bytes::Bytes;
use types::Timestamp;

/// Bytes as text: see the module.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                letter if letter.is_control() || !is_plain(letter) => {
                    let mut buffer = [0; 4];
                    push_hex(&mut out, letter.encode_utf8(&mut buffer).as_bytes());
                }
                letter => out.push(letter),
            }
        }
        push_hex(&mut out, chunk.invalid());
    }
    out
}

/// Letters that reorder or hide what is around them are not shown as they are.
fn is_plain(letter: char) -> bool {
    !matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{feff}')
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push_str(&format!("\\x{byte:02x}"));
    }
}

/// Reads what [`shown`] prints: plain text with `\\` and `\xNN`.
///
/// # Errors
/// A text that says which escape is none.
pub(crate) fn parse(text: &str) -> Result<Bytes, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        if let Some(after) = escape.strip_prefix('\\') {
            out.push(b'\\');
            rest = after;
            continue;
        }
        let digits = escape.strip_prefix('x').and_then(|hex| hex.get(..2));
        let byte = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = byte.ok_or_else(|| {
            format!("a backslash is written \\\\ and a byte \\xNN, which \\{escape} is not")
        })?;
        out.push(byte);
        rest = &escape[3..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out.into())
}

/// A moment as `2026-11-30T13:05:00.250Z`; with microseconds where there are any, and as a bare
/// number of microseconds where the year has five digits.
pub(crate) fn moment(at: Timestamp) -> String {
    const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;
    /// The first microsecond of the year 10000.
    const FIVE_DIGITS: i64 = 253_402_300_800_000_000;
    let micros = at.micros();
    if micros >= FIVE_DIGITS {
        return format!("{micros}us");
    }
    let (year, month, day) = date(micros / DAY_MICROS);
    let of_day = micros % DAY_MICROS;
    let seconds = of_day / 1_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = match of_day % 1_000_000 {
        fraction if fraction % 1000 == 0 => format!("{:03}", fraction / 1000),
        fraction => format!("{fraction:06}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction}Z")
}

/// Year, month and day of a count of days since 1970-01-01 that is not negative.
///
/// Years are taken to begin in March, so that a leap day is a year's last.
fn date(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const SHIFT_DAYS: i64 = 719_468;
    let shifted = days + SHIFT_DAYS;
    let (era, of_era) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// Aligns columns: each as wide as it needs to be, titles underlined.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let texts = rows.iter().map(|row| row[column].chars().count());
        texts.chain([titles[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |texts: &mut dyn Iterator<Item = String>| {
        let padded: Vec<String> =
            texts.zip(&widths).map(|(text, width)| format!("{text:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(&mut titles.iter().map(|title| (*title).to_owned()));
    out += &line(&mut widths.iter().map(|width| "-".repeat(*width)));
    for row in rows {
        assert_eq!(row.len(), titles.len(), "one text for each column");
        out += &line(&mut row.iter().cloned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [&b""[..], b"plain", "h\u{e9}\\".as_bytes(), b"\0\xff\x7f\n", b"\\x41"] {
            let text = shown(bytes);
            assert!(!text.contains(char::is_control));
            assert_eq!(parse(&text).unwrap(), bytes, "{text}");
        }
        assert_eq!(shown(b"a\\b\xc3"), "a\\\\b\\xc3");
        assert_eq!(shown("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
    }

    #[test]
    fn a_wrong_escape_is_refused() {
        for bad in ["\\", "a\\n", "\\x", "\\x4", "\\xg0", "\\x+1", "\\x\u{e9}"] {
            parse(bad).expect_err(bad);
        }
    }

    #[test]
    fn moments_are_dates() {
        let show = |micros| moment(Timestamp::from_micros(micros).unwrap());
        assert_eq!(show(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(show(951_782_399_999_000), "2000-02-28T23:59:59.999Z");
        assert_eq!(show(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(show(253_402_300_799_000_000), "9999-12-31T23:59:59.000Z");
        assert_eq!(show(253_402_300_800_000_000), "253402300800000000us");
        assert_eq!(show(i64::MAX), format!("{}us", i64::MAX));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "12".to_owned()], vec!["long".to_owned(), "3".to_owned()]];
        assert_eq!(table(&["name", "n"], &rows), "name  n\n----  --\na     12\nlong  3\n");
    }
}
