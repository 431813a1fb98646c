//! A page server whose guests come and go: processes that nobody launched as a job.
//!
//! The server lends each page as a region of its own, and makes pages anew all the time: it revokes the old region. A
//! guest asks where a page is by a message, reads it by itself again and again, and asks anew once it is revoked. It
//! never sees anything but its page. The server kills some guests in the middle, and hears of each.
//!
//! `target/release/examples/guests [READS OF A GUEST]`

use std::{
    env,
    error::Error,
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use hydrant::endpoint::{self, Endpoint, EndpointEvent, HostsOptions, Peer, Region, Rights};

/// Bytes of a page.
const PAGE: usize = 4096;
const PAGES: usize = 16;
/// Guests at a time, and those that are killed.
const GUESTS: usize = 3;
const KILLED: usize = 3;

/// The word that a page has all over: which it is, and how often it was made anew.
fn content(page: usize, edition: u32) -> u64 {
    (page as u64) << 32 | u64::from(edition)
}

/// Makes an endpoint, for other hosts, too, if there is libfabric.
fn listen(name: &str) -> endpoint::Result<Endpoint> {
    let hosts = HostsOptions {
        optional: true,
        ..HostsOptions::from_env()
    };
    Endpoint::builder().name(name).hosts(hosts).listen()
}

/// Reads pages of the server at an address. Returns how often a page that was known had gone.
fn guest(address: &str, name: &str, reads: usize) -> Result<usize, Box<dyn Error>> {
    let me = listen(name)?;
    let server = me.connect(&address.parse()?)?;
    let (mut known, mut gone) = ([const { None }; PAGES], 0);
    let mut bytes = [0; PAGE];
    let mut done = 0;
    while done < reads {
        let page = done * 7 % PAGES;
        let remote = match &known[page] {
            Some(remote) => remote,
            None => {
                server.send(&[page as u8])?;
                let descriptor = loop {
                    if let EndpointEvent::Message { bytes, .. } = me.next_event()? {
                        break endpoint::Descriptor::from_bytes(&bytes)?;
                    }
                };
                match server.open(&descriptor) {
                    Ok(remote) => known[page].insert(remote),
                    // The page was made anew meanwhile.
                    Err(endpoint::Error::Revoked { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        match remote.read(0, &mut bytes) {
            Ok(()) => {}
            Err(endpoint::Error::Revoked { .. }) => {
                known[page] = None;
                gone += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let (words, _) = bytes.as_chunks::<8>();
        let first = u64::from_le_bytes(words[0]);
        if first >> 32 != page as u64 || words.iter().any(|word| *word != words[0]) {
            return Err(format!("page {page} has the content {first:016x}").into());
        }
        done += 1;
    }
    Ok(gone)
}

/// A page, and how often it was made.
struct Page {
    region: Region,
    edition: u32,
}

impl Page {
    fn new(server: &Endpoint, page: usize, edition: u32) -> endpoint::Result<Self> {
        let word = content(page, edition).to_le_bytes();
        let region = server.expose(word.repeat(PAGE / 8))?;
        Ok(Self { region, edition })
    }
}

/// What the server has heard.
#[derive(Default)]
struct ServerTally {
    connected: usize,
    returned: usize,
    left: usize,
    lost: usize,
    asked: usize,
    made: usize,
}

fn answer(pages: &[Page], peer: &Peer, question: &[u8]) -> endpoint::Result<()> {
    let page = question
        .first()
        .and_then(|page| pages.get(usize::from(*page)));
    match page {
        Some(page) => {
            let descriptor = page.region.descriptor(Rights::READ);
            match peer.send(&descriptor.to_bytes()) {
                // Guests may have gone since they asked.
                Err(endpoint::Error::Lost { .. } | endpoint::Error::Left { .. }) => Ok(()),
                sent => sent,
            }
        }
        None => Ok(()),
    }
}

fn start(address: &str, number: usize, reads: usize) -> Result<Child, Box<dyn Error>> {
    let mut command = Command::new(env::current_exe()?);
    command.args([
        "guest",
        address,
        &format!("guest {number}"),
        &reads.to_string(),
    ]);
    Ok(command.stdout(Stdio::inherit()).spawn()?)
}

/// Serves until all guests have ended.
fn serve(reads: usize) -> Result<ServerTally, Box<dyn Error>> {
    let server = listen("pages")?;
    let address = server.address().to_string();
    let mut pages = (0..PAGES)
        .map(|page| Page::new(&server, page, 0))
        .collect::<endpoint::Result<Vec<_>>>()?;
    let mut guests = (0..GUESTS)
        .map(|number| start(&address, number, reads))
        .collect::<Result<Vec<_>, _>>()?;
    let mut tally = ServerTally::default();
    let mut killed = 0;
    while tally.left < GUESTS {
        match server.next_event_within(Duration::from_millis(1))? {
            Some(EndpointEvent::Connected(_)) => tally.connected += 1,
            Some(EndpointEvent::Returned { .. }) => tally.returned += 1,
            Some(EndpointEvent::Left(_)) => tally.left += 1,
            Some(EndpointEvent::Lost { peer, cause }) => {
                println!("{} is lost: {cause}", peer.name());
                tally.lost += 1;
                if tally.lost > killed {
                    return Err("a guest ended that nobody killed".into());
                }
            }
            Some(EndpointEvent::Message { peer, bytes }) => {
                answer(&pages, &peer, &bytes)?;
                tally.asked += 1;
                // A guest that asks is in the middle of its work.
                if killed < KILLED && killed == tally.lost && tally.asked > 50 * (killed + 1) {
                    let number = peer.name().split(' ').nth(1).and_then(|it| it.parse().ok());
                    let number: usize = number.ok_or("a guest without a number")?;
                    guests[number].kill()?;
                    guests[number].wait()?;
                    killed += 1;
                    guests[number] = start(&address, number, reads)?;
                }
            }
            _ => {}
        }
        let page = tally.made % PAGES;
        let edition = pages[page].edition + 1;
        pages[page].region.revoke()?;
        pages[page] = Page::new(&server, page, edition)?;
        tally.made += 1;
    }
    for mut guest in guests {
        if !guest.wait()?.success() {
            return Err("a guest failed".into());
        }
    }
    if (tally.lost, tally.returned) != (KILLED, KILLED) {
        let [lost, returned] = [tally.lost, tally.returned];
        return Err(format!("{KILLED} were killed, {lost} lost, {returned} returned").into());
    }
    Ok(tally)
}

/// Does what the words say: a guest's, or the server's.
pub(crate) fn play(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let reads = |text: Option<&&str>| text.and_then(|text| text.parse().ok()).unwrap_or(20_000);
    match words {
        ["guest", address, name, count] => {
            let gone = guest(address, name, reads(Some(count)))?;
            println!("{name} has read {count} pages; {gone} times one that it knew had gone");
        }
        _ => report(&serve(reads(words.first()))?),
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests play the program themselves")]
fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match play(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guests: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report(tally: &ServerTally) {
    println!("guests that connected      {:>8}", tally.connected);
    println!("  were killed and lost     {:>8}", tally.lost);
    println!("  returned                 {:>8}", tally.returned);
    println!("  left                     {:>8}", tally.left);
    println!("questions for pages        {:>8}", tally.asked);
    println!("pages made anew            {:>8}", tally.made);
}
