//! Sizes as people write them: `64M`, `1 GiB`, `4096`.

/// Reads a number of bytes: digits, then nothing or one of K, M, G, T (powers of 1024), with or
/// without `iB` or `B`.
///
/// # Errors
/// A text that says what is allowed.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let malformed = || format!("{text:?} is not a size: write for example 256M or 2G");
    let trimmed = text.trim();
    let digits = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = trimmed[..trimmed.len() - digits.len()].parse().map_err(|_| malformed())?;
    let unit = digits.trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(malformed()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_powers_of_1024_with_or_without_their_b() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64M"), Ok(64 << 20));
        assert_eq!(parse("1 GiB"), Ok(1 << 30));
        assert_eq!(parse("2kb"), Ok(2048));
        for bad in ["", "M", "-1", "1X", "1.5G", "99999999999999999999", "99999999T"] {
            parse(bad).unwrap_err();
        }
    }
}
