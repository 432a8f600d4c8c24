//! What a configuration key is: its kind, its bounds, and the canonical text of its values.
//!
//! Owns the reading of a value's text and Apache Kafka's wording of what is wrong with it. Knows
//! no particular key: the tables are `broker.rs` and `topic.rs`. A canonical text is what Kafka's
//! `ConfigDef.convertToString` prints, so that stored, described and compared values agree.

use std::path::PathBuf;

use super::units;

/// Kafka's types of configuration values, with their numbers in DescribeConfigs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum ValueType {
    /// `BOOLEAN`
    Boolean = 1,
    /// `STRING`
    String = 2,
    /// `INT`
    Int = 3,
    /// `SHORT`
    Short = 4,
    /// `LONG`
    Long = 5,
    /// `DOUBLE`
    Double = 6,
    /// `LIST`
    List = 7,
    /// `CLASS`
    Class = 8,
    /// `PASSWORD`
    Password = 9,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Boolean,
    /// 16-bit number.
    Short,
    /// 32-bit number.
    Int,
    /// 64-bit number.
    Long,
    /// Floating-point number.
    Double,
    /// Any text, trimmed.
    Text,
    /// Comma-separated texts.
    List,
    /// A size with an optional unit; canonical text is the number of bytes.
    Bytes,
    /// A duration with an optional unit; canonical text is the number of milliseconds.
    Milliseconds,
    /// `auto` or a number.
    AutoInt,
    /// `auto` or a size.
    AutoBytes,
}

/// Which values of a kind are allowed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bounds {
    /// All.
    Any,
    /// Not below this.
    AtLeast(i64),
    /// Not outside these two.
    Between(i64, i64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A list of these texts, none twice.
    Subset(&'static [&'static str]),
    /// A list without repetitions.
    Distinct,
    /// gzip's levels: 1 to 9, or -1 for the default.
    GzipLevel,
    /// `*`, or a list of `partition:broker`.
    ThrottledReplicas,
}

/// One row of the table of broker keys.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name as written in files and requests.
    pub name: &'static str,
    /// How its values are written.
    pub kind: Kind,
    /// Default in canonical or readable text; `None` means not set.
    pub default: Option<&'static str>,
    /// Which values are allowed.
    pub bounds: Bounds,
    /// Where the key comes from and whether it may change while running.
    pub scope: Scope,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
}

/// Whose name a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Ringlog's own; at the top level of the file.
    Own,
    /// Apache Kafka's; in the `[kafka]` table.
    Kafka,
    /// Apache Kafka's, and alterable while running (as the cluster-wide default).
    Dynamic,
}

impl Kind {
    /// The type that DescribeConfigs reports.
    #[must_use]
    pub fn value_type(self) -> ValueType {
        match self {
            Kind::Boolean => ValueType::Boolean,
            Kind::Short => ValueType::Short,
            Kind::Int => ValueType::Int,
            Kind::Long | Kind::Bytes | Kind::Milliseconds => ValueType::Long,
            Kind::Double => ValueType::Double,
            Kind::Text | Kind::AutoInt | Kind::AutoBytes => ValueType::String,
            Kind::List => ValueType::List,
        }
    }

    /// Readable text of a canonical value, with units where the kind has them.
    #[must_use]
    pub fn readable(self, canonical: &str) -> String {
        match (self, canonical.parse::<u64>()) {
            (Kind::Bytes | Kind::AutoBytes, Ok(bytes)) => units::print_bytes(bytes),
            (Kind::Milliseconds, Ok(milliseconds)) => units::print_milliseconds(milliseconds),
            _ => canonical.to_owned(),
        }
    }
}

/// Reads `text` as a value of `kind` within `bounds` and returns its canonical text.
///
/// # Errors
/// The sentence Apache Kafka answers, naming `name` and the value.
pub fn canonical(name: &str, kind: Kind, bounds: Bounds, text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    let value = match kind {
        Kind::Boolean => boolean(name, trimmed)?.to_string(),
        Kind::Short => integer::<i16>(name, trimmed, "SHORT")?.to_string(),
        Kind::Int => integer::<i32>(name, trimmed, "INT")?.to_string(),
        Kind::Long => integer::<i64>(name, trimmed, "LONG")?.to_string(),
        Kind::Double => double(name, trimmed)?,
        Kind::Text => trimmed.to_owned(),
        Kind::List => split_list(trimmed).join(","),
        Kind::AutoInt | Kind::AutoBytes if trimmed == "auto" => return Ok("auto".to_owned()),
        Kind::AutoInt => integer::<i32>(name, trimmed, "INT")?.to_string(),
        Kind::Bytes | Kind::AutoBytes => units::parse_bytes(trimmed)
            .map_err(|reason| invalid(name, trimmed, &reason))?
            .to_string(),
        Kind::Milliseconds => units::parse_milliseconds(trimmed)
            .map_err(|reason| invalid(name, trimmed, &reason))?
            .to_string(),
    };
    check_bounds(name, bounds, &value)?;
    Ok(value)
}

/// Kafka's sentence about a value.
#[must_use]
pub fn invalid(name: &str, value: &str, reason: &str) -> String {
    format!("Invalid value {value} for configuration {name}: {reason}")
}

/// The elements of a list value; an empty text is an empty list.
#[must_use]
pub fn split_list(text: &str) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::trim).collect()
}

/// The candidate with the smallest edit distance to `name`.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates.min_by_key(|candidate| edit_distance(name, candidate))
}

/// A typed field read from a canonical text.
pub trait FieldValue: Sized {
    /// The value, or why the text does not fit the field.
    ///
    /// # Errors
    /// The reason, to be put behind the key's name.
    fn from_canonical(text: Option<&str>) -> Result<Self, String>;
}

macro_rules! field_from_str {
    ($($type:ty),*) => {$(
        impl FieldValue for $type {
            fn from_canonical(text: Option<&str>) -> Result<Self, String> {
                let text = text.ok_or("Value must be non-null")?;
                text.parse().map_err(|_| "Value is out of range".to_owned())
            }
        }
    )*};
}

field_from_str!(bool, i16, i32, i64, u16, u32, u64, usize, f64, String, PathBuf);

impl<T: FieldValue> FieldValue for Option<T> {
    fn from_canonical(text: Option<&str>) -> Result<Self, String> {
        text.map(|text| T::from_canonical(Some(text))).transpose()
    }
}

impl FieldValue for Vec<String> {
    fn from_canonical(text: Option<&str>) -> Result<Self, String> {
        Ok(split_list(text.unwrap_or("")).into_iter().map(str::to_owned).collect())
    }
}

fn boolean(name: &str, text: &str) -> Result<bool, String> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(invalid(name, text, "Expected value to be either true or false"))
    }
}

fn integer<T: std::str::FromStr>(name: &str, text: &str, type_name: &str) -> Result<T, String> {
    text.parse().map_err(|_| invalid(name, text, &format!("Not a number of type {type_name}")))
}

fn double(name: &str, text: &str) -> Result<String, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(java_text(value)),
        _ => Err(invalid(name, text, "Not a number of type DOUBLE")),
    }
}

/// A number as Java prints it: with an exponent from ten millions on and below a thousandth.
fn java_text(value: f64) -> String {
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

fn check_bounds(name: &str, bounds: Bounds, value: &str) -> Result<(), String> {
    match bounds {
        Bounds::Any => Ok(()),
        Bounds::AtLeast(least) => check_range(name, value, Some(least), None),
        Bounds::Between(least, most) => check_range(name, value, Some(least), Some(most)),
        Bounds::OneOf(allowed) => check_one_of(name, value, allowed),
        Bounds::Subset(allowed) => {
            check_distinct(name, value)?;
            split_list(value).into_iter().try_for_each(|item| check_one_of(name, item, allowed))
        }
        Bounds::Distinct => check_distinct(name, value),
        Bounds::GzipLevel => match value.parse::<i32>() {
            Ok(-1 | 1..=9) => Ok(()),
            _ => Err(invalid(name, value, "Value must be between 1 and 9 or equal to -1")),
        },
        Bounds::ThrottledReplicas => check_throttled_replicas(name, value),
    }
}

fn check_range(
    name: &str,
    value: &str,
    least: Option<i64>,
    most: Option<i64>,
) -> Result<(), String> {
    // Whole numbers are compared as such: a 64-bit one does not fit a double.
    let (below, above) = match value.parse::<i64>() {
        Ok(number) => (least.is_some_and(|l| number < l), most.is_some_and(|m| number > m)),
        Err(_) => {
            let number: f64 = value.parse().unwrap_or(f64::INFINITY);
            (least.is_some_and(|l| number < l as f64), most.is_some_and(|m| number > m as f64))
        }
    };
    match (below, above, least, most) {
        (true, _, Some(least), _) => {
            Err(invalid(name, value, &format!("Value must be at least {least}")))
        }
        (_, true, _, Some(most)) => {
            Err(invalid(name, value, &format!("Value must be no more than {most}")))
        }
        _ => Ok(()),
    }
}

fn check_one_of(name: &str, value: &str, allowed: &[&str]) -> Result<(), String> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let reason = format!("String must be one of: {}", allowed.join(", "));
    Err(invalid(name, value, &reason))
}

fn check_distinct(name: &str, value: &str) -> Result<(), String> {
    let items = split_list(value);
    let repeated = items.iter().enumerate().any(|(index, item)| items[..index].contains(item));
    if repeated {
        return Err(format!("Configuration '{name}' values must not be duplicated."));
    }
    Ok(())
}

fn check_throttled_replicas(name: &str, value: &str) -> Result<(), String> {
    let items = split_list(value);
    let is_pair = |item: &&str| {
        item.split_once(':').is_some_and(|(partition, broker)| {
            [partition, broker]
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    if items.as_slice() == ["*"] || items.iter().all(is_pair) {
        return Ok(());
    }
    let reason = format!(
        "{name} must be the literal '*' or a list of replicas in the following format: \
         [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    );
    Err(invalid(name, &format!("[{}]", items.join(", ")), &reason))
}

fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (left_index, left_char) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = left_index + 1;
        for (right_index, right_char) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(left_char != *right_char);
            diagonal = row[right_index + 1];
            row[right_index + 1] = substituted.min(diagonal + 1).min(row[right_index] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, bounds: Bounds, text: &str, expected: Result<&str, &str>) {
        let got = canonical("k", kind, bounds, text);
        assert_eq!(got.as_deref().map_err(String::as_str), expected, "{kind:?} {text:?}");
    }

    #[test]
    fn values_get_their_canonical_text() {
        check(Kind::Boolean, Bounds::Any, " TRUE ", Ok("true"));
        check(Kind::Int, Bounds::Any, "+5", Ok("5"));
        check(Kind::Long, Bounds::AtLeast(-1), "-1", Ok("-1"));
        check(Kind::Double, Bounds::Between(0, 1), "1", Ok("1.0"));
        check(Kind::Double, Bounds::Any, "1.7976931348623157e308", Ok("1.7976931348623157E308"));
        check(Kind::Double, Bounds::Any, "10000000", Ok("1.0E7"));
        check(Kind::Double, Bounds::Any, "0.0005", Ok("5.0E-4"));
        check(Kind::List, Bounds::Any, "a , b,c", Ok("a,b,c"));
        check(Kind::List, Bounds::Any, "  ", Ok(""));
        check(Kind::Bytes, Bounds::Any, "1MiB", Ok("1048576"));
        check(Kind::Milliseconds, Bounds::Any, "1s", Ok("1000"));
        check(Kind::AutoInt, Bounds::AtLeast(1), "auto", Ok("auto"));
        check(Kind::AutoBytes, Bounds::AtLeast(1), "2KiB", Ok("2048"));
        check(Kind::List, Bounds::ThrottledReplicas, "*", Ok("*"));
        check(Kind::List, Bounds::ThrottledReplicas, "0:1, 1:0", Ok("0:1,1:0"));
    }

    #[test]
    fn faults_are_told_in_kafkas_words() {
        check(
            Kind::Boolean,
            Bounds::Any,
            "yes",
            Err("Invalid value yes for configuration k: Expected value to be either true or false"),
        );
        check(
            Kind::Int,
            Bounds::Any,
            "2147483648",
            Err("Invalid value 2147483648 for configuration k: Not a number of type INT"),
        );
        check(
            Kind::Long,
            Bounds::AtLeast(1),
            "0",
            Err("Invalid value 0 for configuration k: Value must be at least 1"),
        );
        check(
            Kind::Double,
            Bounds::Between(0, 1),
            "1.5",
            Err("Invalid value 1.5 for configuration k: Value must be no more than 1"),
        );
        check(
            Kind::Double,
            Bounds::Any,
            "NaN",
            Err("Invalid value NaN for configuration k: Not a number of type DOUBLE"),
        );
        check(
            Kind::List,
            Bounds::Subset(&["compact", "delete"]),
            "compact,foo",
            Err("Invalid value foo for configuration k: String must be one of: compact, delete"),
        );
        check(
            Kind::List,
            Bounds::Subset(&["compact", "delete"]),
            "compact,compact",
            Err("Configuration 'k' values must not be duplicated."),
        );
        check(
            Kind::List,
            Bounds::ThrottledReplicas,
            "0:1,x",
            Err("Invalid value [0:1, x] for configuration k: k must be the literal '*' or a list \
                 of replicas in the following format: \
                 [partitionId]:[brokerId],[partitionId]:[brokerId],..."),
        );
        check(
            Kind::Int,
            Bounds::GzipLevel,
            "0",
            Err(
                "Invalid value 0 for configuration k: Value must be between 1 and 9 or equal to -1",
            ),
        );
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        let names = ["num.partitions", "num.io.threads"];
        assert_eq!(nearest("num.partition", names.into_iter()), Some("num.partitions"));
    }
}
