//! Machines as data: a NIC, a link and a host, each figure with its source beside it.
//!
//! Shipped profiles are the files in `crates/sim/profiles`. Every figure is a table
//! `{ value = 40, unit = "us", source = "…" }`, or with `calibrated = "from …: how"` where no
//! paper gives it. None is calibrated from a table or curve that is to be reproduced.

mod error;
mod figure;

use std::path::Path;

pub use error::ProfileError;
use figure::Section;

use crate::time::{Picos, Rate, Time};

/// A machine of the simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    name: String,
    about: String,
    nic: Nic,
    link: Link,
    host: Host,
    registration: Registering,
    message: Messages,
}

/// The network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nic {
    /// To start a transfer.
    pub send: Picos,
    /// To finish one at the receiver.
    pub receive: Picos,
    /// For each packet, at either end.
    pub packet: Picos,
    /// From data in the target's memory to the initiator knowing, beside the link's latency.
    pub ack: Picos,
    /// Of the DMA between host memory and NIC.
    pub bandwidth: Rate,
    /// To translate the address of a page of a one-sided transfer, at either end.
    pub translate: Picos,
    /// Most bytes of a packet.
    pub mtu: u64,
    /// Messages that may be under way at once.
    pub send_tokens: u64,
    /// Whether it tells when the source of a write was read; if not, the source is free when the
    /// write is acknowledged.
    pub early_local: bool,
    /// Whether it reads remote memory.
    pub reads: bool,
    /// To bring in a page that it has no translation of, where nothing is registered.
    pub page_fault: Picos,
    /// Pages it has translations of at once without registration.
    pub page_table: u64,
    /// Most extents registered at once.
    pub max_extents: Option<u64>,
    /// Most bytes registered at once.
    pub max_bytes: u64,
}

/// The wire and the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// From NIC to NIC.
    pub latency: Picos,
    /// Each way of each rank's link.
    pub bandwidth: Rate,
    /// Packets lost, of 2^32.
    pub loss: u64,
    /// After which a lost packet is sent again.
    pub retransmit: Picos,
}

/// How a host attends to messages while it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attentiveness {
    /// Only when it calls.
    Polling,
    /// The NIC interrupts it.
    Interrupt,
}

/// The processor, its memory and the library on it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// To send a message, beside copying it.
    pub send: Picos,
    /// To receive a message, beside copying it.
    pub receive: Picos,
    /// To find a message's handler and call it.
    pub handler: Picos,
    /// To post a one-sided operation.
    pub post: Picos,
    /// To see that one is complete.
    pub completion: Picos,
    /// To look whether something arrived.
    pub poll: Picos,
    /// To find a registration that is there: what a layer above pays for a hit.
    pub lookup: Picos,
    /// From an arrival to the handler of a rank that computes.
    pub interrupt: Picos,
    /// How a rank that computes hears of messages.
    pub attentiveness: Attentiveness,
    /// Processors of a rank: with a second one, messages do not lengthen computations.
    pub processors: u64,
    /// An operation of a computation.
    pub operation: Picos,
    /// Copy bandwidth by size: up to so many bytes, so fast; the last for all above.
    pub copy: Vec<(usize, Rate)>,
}

/// What registration costs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registering {
    /// To register, for each operation.
    pub register_op: Picos,
    /// To register, for each page.
    pub register_page: Picos,
    /// To deregister, for each operation.
    pub deregister_op: Picos,
    /// To deregister, for each page.
    pub deregister_page: Picos,
}

/// Messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Messages {
    /// Most bytes of payload.
    pub max_payload: u64,
    /// Buffers that a rank keeps for messages of each peer.
    pub buffers: u64,
}

const SHIPPED: &[(&str, &str)] = &[
    ("ideal", include_str!("../../profiles/ideal.toml")),
    ("myrinet-gm", include_str!("../../profiles/myrinet-gm.toml")),
    ("myrinet-pm", include_str!("../../profiles/myrinet-pm.toml")),
    (
        "myrinet-gm-armci",
        include_str!("../../profiles/myrinet-gm-armci.toml"),
    ),
    ("clan-via", include_str!("../../profiles/clan-via.toml")),
    ("connectx", include_str!("../../profiles/connectx.toml")),
];

impl Profile {
    /// The shipped profile of that name, or the one in the file if it is a path to `.toml`.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        if let Some((name, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Self::parse(&format!("{name}.toml"), text);
        }
        if name.ends_with(".toml") {
            return Self::load(Path::new(name));
        }
        Err(ProfileError::Unknown {
            name: name.to_owned(),
            near: error::nearest(name, Self::names()),
            known: Self::names().collect::<Vec<_>>().join(", "),
        })
    }

    /// The names of the shipped profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The text of a shipped profile, with its sources.
    pub fn text(name: &str) -> Option<&'static str> {
        (SHIPPED.iter().find(|(shipped, _)| *shipped == name)).map(|(_, text)| *text)
    }

    /// Reads a profile from a file.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&file, &text),
            Err(cause) => Err(ProfileError::Unreadable {
                file,
                cause: cause.to_string(),
            }),
        }
    }

    /// Reads a profile from text; `file` is what errors call it.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let table = (text.parse()).map_err(|cause: toml::de::Error| ProfileError::Syntax {
            file: file.to_owned(),
            cause: cause.to_string().trim().to_owned(),
        })?;
        let mut all = Section::new(file, "", table);
        let profile = Self {
            name: all.text("name")?,
            about: all.text("about")?,
            nic: Nic::read(all.section("nic")?)?,
            link: Link::read(all.section("link")?)?,
            host: Host::read(all.section("host")?)?,
            registration: Registering::read(all.section("registration")?)?,
            message: Messages::read(all.section("message")?)?,
        };
        all.done()?;
        Ok(profile)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine it describes.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The network interface.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The wire and the switch.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The processor, its memory and the library on it.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// What registration costs.
    pub fn registration(&self) -> &Registering {
        &self.registration
    }

    /// Messages.
    pub fn message(&self) -> &Messages {
        &self.message
    }
}

impl Nic {
    fn read(mut from: Section<'_>) -> Result<Self, ProfileError> {
        let nic = Self {
            send: from.time("send")?,
            receive: from.time("receive")?,
            packet: from.time("packet")?,
            ack: from.time("ack")?,
            bandwidth: from.rate("bandwidth")?,
            translate: from.time("translate")?,
            mtu: from.count("mtu", 64)?,
            send_tokens: from.count("send_tokens", 1)?,
            early_local: from.flag("early_local")?,
            reads: from.flag("reads")?,
            page_fault: from.time("page_fault")?,
            page_table: from.count("page_table", 1)?,
            max_extents: from.limit("max_extents")?,
            max_bytes: from.count("max_bytes", 4096)?,
        };
        from.done()?;
        Ok(nic)
    }
}

impl Link {
    fn read(mut from: Section<'_>) -> Result<Self, ProfileError> {
        let link = Self {
            latency: from.time("latency")?,
            bandwidth: from.rate("bandwidth")?,
            loss: from.chance("loss")?,
            retransmit: from.time("retransmit")?,
        };
        from.done()?;
        Ok(link)
    }
}

impl Host {
    fn read(mut from: Section<'_>) -> Result<Self, ProfileError> {
        let ways = [
            ("polling", Attentiveness::Polling),
            ("interrupt", Attentiveness::Interrupt),
        ];
        let host = Self {
            send: from.time("send")?,
            receive: from.time("receive")?,
            handler: from.time("handler")?,
            post: from.time("post")?,
            completion: from.time("completion")?,
            poll: from.step("poll")?,
            lookup: from.time("lookup")?,
            interrupt: from.time("interrupt")?,
            attentiveness: from.word("attentiveness", &ways, "polling or interrupt")?,
            processors: from.count("processors", 1)?,
            operation: from.pace("operations")?,
            copy: copies(from.list("copy")?)?,
        };
        from.done()?;
        Ok(host)
    }

    /// How long a copy takes.
    pub(crate) fn copying(&self, bytes: usize) -> Time {
        (self.copy.iter())
            .find(|(up_to, _)| bytes <= *up_to)
            .map_or(0, |(_, rate)| rate.of(bytes))
    }
}

fn copies(list: Vec<Section<'_>>) -> Result<Vec<(usize, Rate)>, ProfileError> {
    let mut copies = Vec::new();
    let last = list.len() - 1;
    for (n, mut from) in list.into_iter().enumerate() {
        let up_to = if n == last {
            usize::MAX
        } else {
            from.count(
                "up_to",
                copies.last().map_or(1, |(up_to, _)| *up_to as u64 + 1),
            )? as usize
        };
        copies.push((up_to, from.rate("bandwidth")?));
        from.done()?;
    }
    Ok(copies)
}

impl Registering {
    fn read(mut from: Section<'_>) -> Result<Self, ProfileError> {
        let registration = Self {
            register_op: from.time("register_op")?,
            register_page: from.time("register_page")?,
            deregister_op: from.time("deregister_op")?,
            deregister_page: from.time("deregister_page")?,
        };
        from.done()?;
        Ok(registration)
    }
}

impl Messages {
    fn read(mut from: Section<'_>) -> Result<Self, ProfileError> {
        let message = Self {
            max_payload: from.count("max_payload", 64)?,
            buffers: from.count("buffers", 1)?,
        };
        from.done()?;
        Ok(message)
    }
}
