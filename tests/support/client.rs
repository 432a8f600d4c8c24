//! A blocking protocol client that can also misbehave.
//!
//! Typed requests of any version with any correlation id and client id, pipelining, raw frames,
//! garbage, half-closed connections. Headers are written here by hand.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Message, Request};

/// Longest wait for anything the broker owes, unless [`Client::set_timeout`] says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// One connection.
pub struct Client {
    stream: TcpStream,
    next_correlation_id: i32,
    client_id: Option<String>,
}

/// A request on its way: what is needed to read its response.
#[must_use = "the response is still to be received"]
pub struct Sent<R> {
    /// The id the response must carry.
    pub correlation_id: i32,
    /// The version of both bodies.
    pub version: i16,
    request: PhantomData<R>,
}

impl Client {
    /// Connects; panics if the broker does not accept in time.
    pub fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).unwrap_or_else(|error| panic!("connect {address}: {error}"))
    }

    /// Connects.
    pub fn try_connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Client { stream, next_correlation_id: 1, client_id: Some("raw-client".to_owned()) })
    }

    /// The client id of further requests; `None` is null on the wire.
    pub fn set_client_id(&mut self, client_id: Option<&str>) {
        self.client_id = client_id.map(str::to_owned);
    }

    /// The longest wait of further reads and writes.
    pub fn set_timeout(&mut self, timeout: Duration) {
        let both = (self.stream.set_read_timeout(Some(timeout)))
            .and_then(|()| self.stream.set_write_timeout(Some(timeout)));
        both.expect("a socket timeout can be set");
    }

    /// The correlation id of the next request; further ones count up from it.
    pub fn set_next_correlation_id(&mut self, correlation_id: i32) {
        self.next_correlation_id = correlation_id;
    }

    /// This end's address.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("connected")
    }

    /// Sends a request and waits for its response.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let sent = self.send(version, request);
        self.receive(sent)
    }

    /// The same where the broker may die meanwhile.
    pub fn try_call<R: Request>(&mut self, version: i16, request: &R) -> io::Result<R::Response> {
        let sent = self.try_send(version, request)?;
        self.try_receive(sent)
    }

    /// Sends a request, where the broker may die, and does not wait.
    pub fn try_send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<Sent<R>> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        let frame = request_frame(version, correlation_id, self.client_id.as_deref(), request);
        self.try_send_bytes(&(frame.len() as u32).to_be_bytes())?;
        self.try_send_bytes(&frame)?;
        Ok(Sent { correlation_id, version, request: PhantomData })
    }

    /// Receives the response of `sent`, which must be the next one, if there is any.
    pub fn try_receive<R: Request>(&mut self, sent: Sent<R>) -> io::Result<R::Response> {
        let frame = self.try_receive_frame()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let response = decode_response::<R>(sent.version, sent.correlation_id, frame);
        Ok(response.expect("a sound answer"))
    }

    /// Sends a request and does not wait: several may be under way, received in order.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> Sent<R> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        let frame = request_frame(version, correlation_id, self.client_id.as_deref(), request);
        self.send_frame(&frame);
        Sent { correlation_id, version, request: PhantomData }
    }

    /// Receives the response of `sent`, which must be the next one on this connection.
    pub fn receive<R: Request>(&mut self, sent: Sent<R>) -> R::Response {
        let frame = self.receive_frame();
        decode_response::<R>(sent.version, sent.correlation_id, frame)
            .unwrap_or_else(|error| panic!("API {} v{}: {error}", R::KEY, sent.version))
    }

    /// Sends `frame` behind its length.
    pub fn send_frame(&mut self, frame: &[u8]) {
        let mut bytes = BytesMut::with_capacity(4 + frame.len());
        bytes.put_i32(i32::try_from(frame.len()).expect("a frame under 2 GiB"));
        bytes.put_slice(frame);
        self.send_bytes(&bytes);
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).expect("the broker reads");
    }

    /// Sends bytes as they are, where the broker may have closed already.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives a frame without its length; panics if the connection ends or time runs out.
    pub fn receive_frame(&mut self) -> Bytes {
        match self.try_receive_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => panic!("the broker closed the connection where a response was due"),
            Err(error) => panic!("no whole response: {error}"),
        }
    }

    /// Receives a frame without its length; `None` if the broker closed cleanly before it.
    pub fn try_receive_frame(&mut self) -> io::Result<Option<Bytes>> {
        let mut prefix = [0; 4];
        let mut filled = 0;
        while filled < prefix.len() {
            match self.stream.read(&mut prefix[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        let length = usize::try_from(i32::from_be_bytes(prefix))
            .map_err(|_| io::Error::other("negative response length"))?;
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(Some(frame.into()))
    }

    /// Ends the sending direction; responses can still be received.
    pub fn half_close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Waits until the broker has closed the connection; panics if it sends a response instead
    /// or keeps the connection open.
    pub fn expect_closed(&mut self) {
        match self.try_receive_frame() {
            Ok(None) => {}
            Ok(Some(frame)) => panic!("a response where a close was due: {frame:02x?}"),
            Err(error) if is_reset(&error) => {}
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }

    /// Requires that nothing arrives, and the connection stays open, for as long as `time`.
    pub fn expect_silence(&mut self, time: Duration) {
        let before = self.stream.read_timeout().expect("readable option");
        let deadline = Instant::now() + time;
        (self.stream.set_read_timeout(Some(time))).expect("a socket timeout can be set");
        let mut byte = [0];
        match self.stream.peek(&mut byte) {
            Ok(0) => panic!("the broker closed the connection"),
            Ok(_) => panic!("the broker sent something"),
            Err(error) if is_timeout(&error) => {}
            Err(error) => panic!("the connection broke: {error}"),
        }
        assert!(Instant::now() + Duration::from_millis(50) >= deadline);
        (self.stream.set_read_timeout(before)).expect("a socket timeout can be set");
    }
}

/// A request frame without its length, from a typed request. A version one above what the codec
/// library knows is written in its newest layout (ListOffsets 11 is such a one).
pub fn request_frame<R: Request>(
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    request: &R,
) -> Vec<u8> {
    let mut body = BytesMut::new();
    request
        .encode(&mut body, version.min(R::VERSIONS.max))
        .unwrap_or_else(|error| panic!("API {} v{version}: {error}", R::KEY));
    raw_request_frame(
        R::KEY,
        version,
        R::header_version(version),
        correlation_id,
        client_id.map(str::as_bytes),
        &body,
    )
}

/// A request frame without its length, every part as given.
pub fn raw_request_frame(
    api_key: i16,
    version: i16,
    header_version: i16,
    correlation_id: i32,
    client_id: Option<&[u8]>,
    body: &[u8],
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(16 + body.len());
    frame.put_i16(api_key);
    frame.put_i16(version);
    frame.put_i32(correlation_id);
    match client_id {
        Some(client_id) => {
            frame.put_i16(i16::try_from(client_id.len()).expect("a short client id"));
            frame.put_slice(client_id);
        }
        None => frame.put_i16(-1),
    }
    if header_version >= 2 {
        frame.put_u8(0);
    }
    frame.put_slice(body);
    frame
}

/// The typed response in `frame`, which must carry `correlation_id` and end with the body.
pub fn decode_response<R: Request>(
    version: i16,
    correlation_id: i32,
    mut frame: Bytes,
) -> Result<R::Response, String> {
    if frame.len() < 4 {
        return Err(format!("a response of {} bytes", frame.len()));
    }
    let received = frame.get_i32();
    if received != correlation_id {
        return Err(format!("correlation id {received}, not {correlation_id}"));
    }
    if R::Response::header_version(version) >= 1 && (frame.is_empty() || frame.get_u8() != 0) {
        return Err("a response header without an empty tag section".to_owned());
    }
    let codec_version = version.min(R::Response::VERSIONS.max);
    let response =
        R::Response::decode(&mut frame, codec_version).map_err(|error| error.to_string())?;
    if frame.is_empty() {
        Ok(response)
    } else {
        Err(format!("{} bytes after the response body", frame.len()))
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
