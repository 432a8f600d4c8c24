//! Sizes and durations as people write them: `64MiB`, `10min`.
//!
//! Owns the two notations of Ringlog's own keys. Apache Kafka's property names take plain numbers
//! only and never pass through here. Printing uses the largest unit that divides the value, so
//! what is printed reads back to the same number.

/// Bytes from text: a plain number, or one with `B`, `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024)
/// or `kB`, `KB`, `MB`, `GB`, `TB` (powers of 1000).
///
/// # Errors
/// The reason, to be put behind the key's name.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, BYTE_UNITS)
        .ok_or_else(|| "Expected a size such as 1048576, 64MiB or 2GiB".to_owned())
}

/// The shortest exact text of a number of bytes.
#[must_use]
pub fn print_bytes(bytes: u64) -> String {
    print(bytes, &["TiB", "GiB", "MiB", "KiB"], BYTE_UNITS)
}

/// Milliseconds from text: a plain number of milliseconds, or one with `ms`, `s`, `m`, `min`, `h`
/// or `d`.
///
/// # Errors
/// The reason, to be put behind the key's name.
pub fn parse_milliseconds(text: &str) -> Result<u64, String> {
    parse(text, TIME_UNITS)
        .ok_or_else(|| "Expected a duration such as 1000, 500ms, 30s, 10min, 1h or 7d".to_owned())
}

/// The shortest exact text of a number of milliseconds.
#[must_use]
pub fn print_milliseconds(milliseconds: u64) -> String {
    if milliseconds == 0 {
        return "0ms".to_owned();
    }
    let text = print(milliseconds, &["d", "h", "min", "s"], TIME_UNITS);
    if text.ends_with(|c: char| c.is_ascii_digit()) { text + "ms" } else { text }
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let factor = if unit.is_empty() { 1 } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    number.checked_mul(factor)
}

fn print(value: u64, preferred: &[&str], units: &[(&str, u64)]) -> String {
    for name in preferred {
        let factor = units.iter().find(|(unit, _)| unit == name).map_or(1, |(_, factor)| *factor);
        if value >= factor && value.is_multiple_of(factor) {
            return format!("{}{name}", value / factor);
        }
    }
    value.to_string()
}

const BYTE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const TIME_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print_back() {
        for (text, bytes, printed) in [
            ("0", 0, "0"),
            ("4096", 4096, "4KiB"),
            ("64MiB", 64 << 20, "64MiB"),
            (" 2 GiB ", 2 << 30, "2GiB"),
            ("1TB", 1_000_000_000_000, "976562500KiB"),
            ("7B", 7, "7"),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
            assert_eq!(print_bytes(bytes), printed);
            assert_eq!(parse_bytes(printed), Ok(bytes));
        }
        for text in ["", "MiB", "-1", "1.5GiB", "12 parsecs", "64mib", "99999999999TiB", "1 2"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_read_and_print_back() {
        for (text, milliseconds, printed) in [
            ("0", 0, "0ms"),
            ("1500", 1500, "1500ms"),
            ("30s", 30_000, "30s"),
            ("10m", 600_000, "10min"),
            ("10min", 600_000, "10min"),
            ("24h", 86_400_000, "1d"),
            ("7d", 604_800_000, "7d"),
        ] {
            assert_eq!(parse_milliseconds(text), Ok(milliseconds), "{text}");
            assert_eq!(print_milliseconds(milliseconds), printed);
            assert_eq!(parse_milliseconds(printed), Ok(milliseconds));
        }
        for text in ["", "s", "-5s", "1w", "0.5s"] {
            assert!(parse_milliseconds(text).is_err(), "{text}");
        }
    }
}
