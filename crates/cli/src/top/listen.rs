//! Serves OpenMetrics by HTTP: each request for `/metrics` is a look.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use hydrant_report::status::print_message;

use super::look::{Chosen, Looker};
use super::{TopError, metrics};

/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The clients served at once. More are hung up on.
const MOST_CLIENTS: usize = 16;
/// The most bytes of a request.
const MOST_BYTES: usize = 8 << 10;
/// How long to wait when no client can be taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the process ends.
pub(super) fn serve(address: SocketAddr, chosen: Chosen) -> Result<(), TopError> {
    let failed = |cause| TopError::Listen { address, cause };
    let listener = TcpListener::bind(address).map_err(failed)?;
    // The port is the system's choice if it was given as 0.
    let at = listener.local_addr().map_err(failed)?;
    print_message("top", &format!("listening at http://{at}/metrics"));
    let clients = &AtomicUsize::new(0);
    let chosen = &chosen;
    thread::scope(|scope| {
        loop {
            let Ok((client, _)) = listener.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            if clients.fetch_add(1, SeqCst) >= MOST_CLIENTS {
                clients.fetch_sub(1, SeqCst);
                continue;
            }
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                // A client that goes away harms nobody.
                let _ = answer(client, chosen);
                clients.fetch_sub(1, SeqCst);
            });
            if started.is_err() {
                clients.fetch_sub(1, SeqCst);
            }
        }
    })
}

fn answer(mut client: TcpStream, chosen: &Chosen) -> io::Result<()> {
    let request = read_request(&mut client)?;
    let text = respond(&request, chosen);
    write_response(&mut client, text.as_bytes(), PATIENCE)
}

/// Writes a response. All of it takes at most `patience`, however slowly the client reads.
fn write_response(client: &mut TcpStream, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let since = Instant::now();
    while !bytes.is_empty() {
        let left = patience.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left))?;
        match client.write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Reads the head of a request.
fn read_request(client: &mut TcpStream) -> io::Result<String> {
    let since = Instant::now();
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while !bytes.windows(4).any(|it| it == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(since.elapsed());
        if left.is_zero() || bytes.len() > MOST_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&part[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The whole response to a request.
fn respond(request: &str, chosen: &Chosen) -> String {
    let mut words = request.lines().next().unwrap_or_default().split(' ');
    let (method, path) = (words.next(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (Some("GET" | "HEAD"), "/metrics") => match Looker::new(chosen.clone()).look() {
            Ok(look) => ("200 OK", metrics::CONTENT_TYPE, metrics::text(&look)),
            Err(cause) => (
                "500 Internal Server Error",
                "text/plain",
                format!("/proc/net/unix: {cause}\n"),
            ),
        },
        (Some("GET" | "HEAD"), _) => (
            "404 Not Found",
            "text/plain",
            "the metrics are at /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "only GET\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    match method {
        Some("HEAD") => head,
        _ => head + &body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_little_by_little_is_hung_up_on() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("it listens");
        let (mut own, _) = listener.accept().expect("a client");
        // It would take a minute for all, and never makes a single write wait for long.
        thread::spawn(move || {
            let (mut client, mut part) = (client, [0; 16 << 10]);
            while client.read(&mut part).is_ok_and(|len| len > 0) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let since = Instant::now();
        let patience = Duration::from_millis(500);
        let written = write_response(&mut own, &vec![b'x'; 64 << 20], patience);
        assert!(written.is_err());
        assert!(since.elapsed() < 20 * patience, "{:?}", since.elapsed());
    }
}
