//! Rules for the cells that may be dropped, as text: `maxversions=3`, `maxage=30d`, and several of
//! them joined by `or` (any) or `and` (all).

use types::Retention;

/// Units of an age, the largest first, and their microseconds.
const UNITS: [(&str, i64); 5] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
];

/// Reads a rule.
///
/// # Errors
/// A text that says what is allowed.
pub(crate) fn parse(rule: &str) -> Result<Retention, String> {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let joined = |word: &str| words.iter().skip(1).step_by(2).all(|between| *between == word);
    let parts = || words.iter().step_by(2).map(|part| parse_one(part)).collect::<Result<_, _>>();
    match words.len() {
        1 => parse_one(rule.trim()),
        len if len % 2 == 1 && joined("or") => Ok(Retention::Union(parts()?)),
        len if len % 2 == 1 && joined("and") => Ok(Retention::Intersection(parts()?)),
        _ => Err(format!("{rule:?} is no rule: write rules with `or` or `and` between them")),
    }
}

fn parse_one(rule: &str) -> Result<Retention, String> {
    let malformed = || format!("{rule:?} is no rule: write maxversions=3 or maxage=30d");
    match rule.split_once('=').ok_or_else(malformed)? {
        ("maxversions", count) => {
            let count = count.parse().ok().filter(|count| (1..=i32::MAX as u32).contains(count));
            count.map(Retention::MaxVersions).ok_or_else(malformed)
        }
        ("maxage", age) => {
            let digits = age.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = age.split_at(digits);
            let unit = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
            let micros = number.parse().ok().and_then(|number: i64| number.checked_mul(unit.1));
            let micros = micros.filter(|micros| *micros > 0);
            micros.map(Retention::MaxAge).ok_or_else(malformed)
        }
        _ => Err(malformed()),
    }
}

/// Prints a rule as [`parse`] reads it, where it can.
pub(crate) fn text(rule: &Retention) -> String {
    match rule {
        Retention::MaxVersions(count) => format!("maxversions={count}"),
        Retention::MaxAge(micros) => match UNITS.iter().find(|(_, unit)| micros % unit == 0) {
            Some((name, unit)) => format!("maxage={}{name}", micros / unit),
            None => format!("maxage={micros}us"),
        },
        Retention::Union(rules) => joined(rules, " or "),
        Retention::Intersection(rules) => joined(rules, " and "),
    }
}

fn joined(rules: &[Retention], word: &str) -> String {
    let part = |rule: &Retention| match rule {
        Retention::MaxVersions(_) | Retention::MaxAge(_) => text(rule),
        Retention::Union(_) | Retention::Intersection(_) => format!("({})", text(rule)),
    };
    rules.iter().map(part).collect::<Vec<_>>().join(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_back() {
        for rule in [
            "maxversions=1",
            "maxage=30d",
            "maxage=36h",
            "maxage=1500ms",
            "maxversions=3 or maxage=7d",
            "maxversions=3 and maxage=7d and maxage=2d",
        ] {
            assert_eq!(text(&parse(rule).unwrap()), rule);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for bad in [
            "",
            "maxversions",
            "maxversions=0",
            "maxversions=-1",
            "maxage=1",
            "maxage=0d",
            "maxage=99999999999999d",
            "maxage=1y",
            "maxversions=1 or",
            "maxversions=1 xor maxage=1d",
            "maxversions=1 or maxage=1d and maxage=2d",
        ] {
            parse(bad).expect_err(bad);
        }
    }
}
