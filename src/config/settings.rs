//! Where every value comes from: layers of settings, the later one winning.
//!
//! Owns the canonical text and origin of each key's value in each layer. Must never hold a key
//! that is not in the table. Layers, lowest first: defaults, file, command line, and alterations
//! made while running (the cluster-wide defaults of Kafka's dynamic configuration).

use std::collections::BTreeMap;

use super::broker::{ALIASES, Alias, KEYS, key};
use super::keys::{FieldValue, Key, Kind, Scope, canonical, invalid, nearest};

/// Which layer a value comes from. Later variants win.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// The table of keys.
    Default,
    /// The configuration file.
    File,
    /// An option or `--set`.
    CommandLine,
    /// An alteration while running.
    Dynamic,
}

impl Origin {
    /// The word for it in `--check`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File => "file",
            Origin::CommandLine => "command line",
            Origin::Dynamic => "dynamic",
        }
    }
}

/// The values of all keys, by layer.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Values that were set, per key with the lowest layer first.
    set: BTreeMap<&'static str, Vec<(Origin, String)>>,
    /// What `auto` stands for on this host.
    automatic: BTreeMap<&'static str, String>,
}

impl Settings {
    /// Sets one key, or the key an alias stands for, in a layer.
    ///
    /// # Errors
    /// One sentence: an unknown key (naming the nearest), a bad value, or two names of one key
    /// with different values in one layer.
    pub fn set(&mut self, origin: Origin, name: &str, value: &str) -> Result<(), String> {
        let (key, value) = match ALIASES.iter().find(|alias| alias.name == name) {
            Some(alias) => (row(alias.target), alias_value(alias, value)?),
            None => (key(name).ok_or_else(|| unknown(name))?, value.to_owned()),
        };
        let text = canonical(key.name, key.kind, key.bounds, &value)?;
        let layers = self.set.entry(key.name).or_default();
        if let Some((_, earlier)) = layers.iter().find(|(layer, _)| *layer == origin) {
            if *earlier == text || origin == Origin::CommandLine {
                layers.retain(|(layer, _)| *layer != origin);
            } else {
                return Err(format!(
                    "`{}` is set twice, to {earlier} and to {text}; remove one",
                    key.name
                ));
            }
        }
        layers.push((origin, text));
        layers.sort_by_key(|(layer, _)| *layer);
        Ok(())
    }

    /// Removes one layer.
    pub fn clear(&mut self, origin: Origin) {
        for layers in self.set.values_mut() {
            layers.retain(|(layer, _)| *layer != origin);
        }
    }

    /// Says what `auto` stands for; the key keeps its origin.
    pub(super) fn set_automatic(&mut self, name: &'static str, value: String) {
        self.automatic.insert(name, value);
    }

    /// Canonical text of the effective value; `None` if the key is unknown or not set.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let (_, text) = self.effective(name)?;
        if text == "auto" {
            return Some(self.automatic.get(name).cloned().unwrap_or(text));
        }
        Some(text)
    }

    /// Canonical text in one layer, without regard to the others.
    #[must_use]
    pub fn text_in(&self, origin: Origin, name: &str) -> Option<String> {
        if origin == Origin::Default {
            let key = key(name)?;
            return Some(default_text(key)?.to_owned());
        }
        let (_, text) = self.set.get(name)?.iter().find(|(layer, _)| *layer == origin)?;
        Some(text.clone())
    }

    /// Where the effective value comes from.
    #[must_use]
    pub fn origin(&self, name: &str) -> Origin {
        self.set
            .get(name)
            .and_then(|layers| layers.last())
            .map_or(Origin::Default, |(layer, _)| *layer)
    }

    /// Reads a typed field.
    pub(super) fn field<T: FieldValue>(&self, name: &str) -> Result<T, String> {
        let text = self.text(name);
        T::from_canonical(text.as_deref())
            .map_err(|reason| invalid(name, text.as_deref().unwrap_or("null"), &reason))
    }

    /// Whether the effective value is the word `auto`.
    pub(super) fn is_automatic(&self, name: &str) -> bool {
        self.effective(name).is_some_and(|(_, text)| text == "auto")
    }

    fn effective(&self, name: &str) -> Option<(Origin, String)> {
        if let Some((origin, text)) = self.set.get(name).and_then(|layers| layers.last()) {
            return Some((*origin, text.clone()));
        }
        let text = default_text(key(name)?)?;
        Some((Origin::Default, text.to_owned()))
    }
}

/// Default of a key in canonical text.
#[must_use]
pub fn default_text(key: &Key) -> Option<String> {
    let text = key.default?;
    Some(canonical(key.name, key.kind, key.bounds, text).unwrap_or_else(|_| text.to_owned()))
}

fn row(name: &str) -> &'static Key {
    key(name).expect("invariant: an alias names a key of the table")
}

fn unknown(name: &str) -> String {
    let names = KEYS.iter().map(|key| key.name).chain(ALIASES.iter().map(|alias| alias.name));
    match nearest(name, names) {
        Some(nearest) => format!("unknown key `{name}`; the nearest known key is `{nearest}`"),
        None => format!("unknown key `{name}`"),
    }
}

/// The value of the key that an alias stands for.
fn alias_value(alias: &Alias, value: &str) -> Result<String, String> {
    let value = value.trim();
    let items: Vec<&str> = value.split(',').map(str::trim).collect();
    let [only] = items.as_slice() else {
        return Err(invalid(alias.name, value, "Expected exactly one entry"));
    };
    if alias.target == "data_dir" {
        return Ok((*only).to_owned());
    }
    let (scheme, address) = only
        .split_once("://")
        .ok_or_else(|| invalid(alias.name, value, "Expected PLAINTEXT://host:port"))?;
    if !scheme.eq_ignore_ascii_case("PLAINTEXT") {
        return Err(invalid(alias.name, value, "Only PLAINTEXT listeners are supported"));
    }
    Ok(match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.to_owned(),
    })
}

/// Effective values as text, one line per key with its origin: what `serve --check` prints.
#[must_use]
pub fn report(settings: &Settings) -> String {
    let mut lines = String::new();
    for key in KEYS {
        if key.scope != Scope::Own && !lines.contains("[kafka]") {
            lines.push_str("\n[kafka]\n");
        }
        let origin = settings.origin(key.name).text();
        let Some(text) = settings.text(key.name) else {
            lines.push_str(&format!("# {} is not set  # {origin}\n", quoted(key.name)));
            continue;
        };
        let value = toml_value(key.kind, &text);
        let automatic = if settings.is_automatic(key.name) { ", auto" } else { "" };
        lines.push_str(&format!("{} = {value}  # {origin}{automatic}\n", quoted(key.name)));
    }
    lines
}

/// A key's value as it is written in the file.
#[must_use]
pub fn toml_value(kind: Kind, canonical: &str) -> String {
    match kind {
        Kind::Boolean | Kind::Short | Kind::Int | Kind::Long => canonical.to_owned(),
        Kind::Double => canonical.to_owned(),
        Kind::AutoInt if canonical != "auto" => canonical.to_owned(),
        _ => format!("{:?}", kind.readable(canonical)),
    }
}

/// A key's name as it is written in the file.
#[must_use]
pub fn quoted(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}
