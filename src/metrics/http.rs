//! As much of HTTP/1.1 as a scrape and a probe need.
//!
//! Owns what a request's head means and the head of its response. One request per connection, GET
//! only, no body. Must never look at more than [`HTTP_HEAD_BYTES_MAX`] bytes.
//! Source: RFC 9112.

use crate::limits::HTTP_HEAD_BYTES_MAX;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// `/metrics`
    Metrics,
    /// `/ready`
    Ready,
}

/// What has arrived of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// Its head has not ended yet.
    Partial,
    /// It is refused.
    Refused(Status),
    /// It asks for this.
    Asks(Page),
}

/// Status of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// 200
    Ok,
    /// 400
    BadRequest,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 408
    TimedOut,
    /// 431
    HeadTooLarge,
    /// 503
    Unavailable,
}

impl Status {
    /// Number and reason.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::TimedOut => "408 Request Timeout",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Reads the head of a request, as far as it has arrived.
#[must_use]
pub fn read_head(bytes: &[u8]) -> Head {
    let seen = &bytes[..bytes.len().min(HTTP_HEAD_BYTES_MAX)];
    let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") else {
        return match bytes.len() < HTTP_HEAD_BYTES_MAX {
            true => Head::Partial,
            false => Head::Refused(Status::HeadTooLarge),
        };
    };
    let line = seen[..end].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return Head::Refused(Status::BadRequest) };
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Head::Refused(Status::BadRequest);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Head::Refused(Status::BadRequest);
    }
    if method != "GET" {
        return Head::Refused(Status::MethodNotAllowed);
    }
    match target.split('?').next() {
        Some("/metrics") => Head::Asks(Page::Metrics),
        Some("/ready") => Head::Asks(Page::Ready),
        _ => Head::Refused(Status::NotFound),
    }
}

/// The head of a response, after which the connection is closed.
#[must_use]
pub fn response_head(status: Status, content_type: &str, body_bytes: usize) -> String {
    let allow = if status == Status::MethodNotAllowed { "Allow: GET\r\n" } else { "" };
    format!(
        "HTTP/1.1 {}\r\n{allow}Content-Type: {content_type}\r\nContent-Length: {body_bytes}\r\n\
         Connection: close\r\n\r\n",
        status.text()
    )
}

/// Type of the text of metrics.
pub const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of every other text.
pub const PLAIN_TYPE: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_when_their_head_has_ended() {
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..request.len() {
            assert_eq!(read_head(&request[..end]), Head::Partial);
        }
        assert_eq!(read_head(request), Head::Asks(Page::Metrics));
        assert_eq!(read_head(b"GET /ready HTTP/1.0\r\n\r\n"), Head::Asks(Page::Ready));
        assert_eq!(read_head(b"GET /metrics?a=b HTTP/1.1\r\n\r\n"), Head::Asks(Page::Metrics));
    }

    #[test]
    fn everything_else_is_refused() {
        let cases: [(&[u8], Status); 7] = [
            (b"POST /metrics HTTP/1.1\r\n\r\n", Status::MethodNotAllowed),
            (b"GET / HTTP/1.1\r\n\r\n", Status::NotFound),
            (b"GET metrics HTTP/1.1\r\n\r\n", Status::BadRequest),
            (b"GET /metrics\r\n\r\n", Status::BadRequest),
            (b"GET /metrics HTTP/2\r\n\r\n", Status::BadRequest),
            (b"GET /metrics HTTP/1.1 x\r\n\r\n", Status::BadRequest),
            (b"\xff /metrics HTTP/1.1\r\n\r\n", Status::BadRequest),
        ];
        for (request, status) in cases {
            assert_eq!(read_head(request), Head::Refused(status), "{request:?}");
        }
    }

    #[test]
    fn a_head_is_bounded() {
        let mut request = b"GET /metrics HTTP/1.1\r\nA: ".to_vec();
        request.resize(HTTP_HEAD_BYTES_MAX - 1, b'a');
        assert_eq!(read_head(&request), Head::Partial);
        request.push(b'a');
        assert_eq!(read_head(&request), Head::Refused(Status::HeadTooLarge));
        request.extend_from_slice(b"\r\n\r\n");
        assert_eq!(read_head(&request), Head::Refused(Status::HeadTooLarge));
    }

    #[test]
    fn a_response_says_its_length_and_that_it_is_the_last() {
        let expected = "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Type: a\r\n\
                        Content-Length: 3\r\nConnection: close\r\n\r\n";
        assert_eq!(response_head(Status::MethodNotAllowed, "a", 3), expected);
    }
}
