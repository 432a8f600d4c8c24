//! `HOST:PORT` texts of listeners.
//!
//! Owns their notation only; names are not resolved here. IPv6 hosts stand in brackets.

/// A host and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// Port; 0 lets the system choose.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port`.
    ///
    /// # Errors
    /// The reason, to be put behind the key's name.
    pub fn parse(text: &str) -> Result<HostPort, String> {
        match split(text)? {
            (host, Some(port)) => Ok(HostPort { host, port }),
            (_, None) => Err("Expected HOST:PORT".to_owned()),
        }
    }

    /// Whether listening there means every interface.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "0.0.0.0" | "::")
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Reads `host` or `host:port`.
///
/// # Errors
/// The reason, to be put behind the key's name.
pub fn split(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("Expected a closing bracket")?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err("Expected HOST:PORT".to_owned()),
            }
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let bracketed = text.starts_with('[');
    if host.is_empty() || host.contains(char::is_whitespace) || (!bracketed && host.contains(':')) {
        return Err("Expected HOST:PORT".to_owned());
    }
    let port =
        port.map(|port| port.parse().map_err(|_| format!("`{port}` is not a port"))).transpose()?;
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_print_back() {
        for text in ["127.0.0.1:9092", "localhost:0", "[::1]:9092", "broker-1.example:65535"] {
            assert_eq!(HostPort::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(split("example"), Ok(("example".to_owned(), None)));
        assert_eq!(split("[::1]"), Ok(("::1".to_owned(), None)));
        for text in ["", ":9092", "::1:9092", "host:", "host:70000", "[::1", "[::1]9092", "a b:1"] {
            assert!(HostPort::parse(text).is_err(), "{text}");
        }
        assert_eq!(HostPort::parse("host:x"), Err("`x` is not a port".to_owned()));
    }
}
