//! Machines as data: a NIC, a link and a host. Each figure has its source beside it.
//!
//! Shipped profiles are the files in `crates/sim/profiles`. Every figure is a table `{ value = 40,
//! unit = "us", source = "…" }`. A figure that no paper gives has `calibrated = "from …: how"`
//! instead of a source. No figure is calibrated from a table or curve that is to be reproduced.

mod error;
mod figure;

use std::path::Path;

pub use error::ProfileError;
use figure::FigureTable;

use crate::time::{Picos, Rate};

/// A machine of the simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    name: String,
    about: String,
    nic: NicProfile,
    link: LinkProfile,
    host: HostProfile,
    registration: RegistrationProfile,
    message: MessageProfile,
}

/// The network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicProfile {
    /// Time to start a transfer.
    pub send: Picos,
    /// Time to finish a transfer at the receiver.
    pub receive: Picos,
    /// Time for each packet, at either end.
    pub packet: Picos,
    /// Time from data in the target's memory to the initiator's knowledge, beside the link's
    /// latency.
    pub ack: Picos,
    /// Bandwidth of the DMA between host memory and NIC.
    pub bandwidth: Rate,
    /// Time to translate the address of a page of a one-sided transfer, at either end.
    pub translate: Picos,
    /// Maximum bytes of a packet.
    pub mtu: u64,
    /// Maximum number of messages in flight.
    pub send_tokens: u64,
    /// True if the NIC reports when the source of a write was read. If not, the source is free when
    /// the write is acknowledged.
    pub early_local: bool,
    /// True if the NIC reads remote memory.
    pub reads: bool,
    /// Time to page in an unregistered page without a translation.
    pub page_fault: Picos,
    /// Unregistered pages that the NIC holds translations of.
    pub page_table: u64,
    /// Maximum number of registered extents.
    pub max_extents: Option<u64>,
    /// Maximum of registered bytes.
    pub max_bytes: u64,
}

/// The wire and the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkProfile {
    /// Time from NIC to NIC.
    pub latency: Picos,
    /// Bandwidth of each direction of each rank's link.
    pub bandwidth: Rate,
    /// Probability of losing a packet, in units of 2^-32.
    pub loss: u64,
    /// Time after which a lost packet is sent again.
    pub retransmit: Picos,
}

/// How a host attends to messages while it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attentiveness {
    /// Only in calls of the library.
    Polling,
    /// The NIC interrupts the host.
    Interrupt,
}

/// The processor, its memory and the library on it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostProfile {
    /// Time to send a message, beside copying it.
    pub send: Picos,
    /// Time to receive a message, beside copying it.
    pub receive: Picos,
    /// Time to find a message's handler and call it.
    pub handler: Picos,
    /// Time to post a one-sided operation.
    pub post: Picos,
    /// Time to see that a one-sided operation is complete.
    pub completion: Picos,
    /// Time to poll for arrivals.
    pub poll: Picos,
    /// Time to find an existing registration: the cost of a hit in the layer above.
    pub lookup: Picos,
    /// Time from an arrival to the handler of a computing rank.
    pub interrupt: Picos,
    /// How a computing rank learns of messages.
    pub attentiveness: Attentiveness,
    /// Processors of a rank. With a second one, messages do not lengthen computations.
    pub processors: u64,
    /// Time of one operation of a computation.
    pub operation: Picos,
    /// Copy bandwidth by size: each entry holds up to its bytes, the last entry for all larger
    /// sizes.
    pub copy: Vec<(usize, Rate)>,
}

/// The cost of registration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrationProfile {
    /// Time to register, for each operation.
    pub register_op: Picos,
    /// Time to register, for each page.
    pub register_page: Picos,
    /// Time to deregister, for each operation.
    pub deregister_op: Picos,
    /// Time to deregister, for each page.
    pub deregister_page: Picos,
}

/// The limits on messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageProfile {
    /// Maximum bytes of payload.
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
    /// Returns the shipped profile of this name, or reads a file if the name is a path to `.toml`.
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

    /// Reads a profile from text; errors name it `file`.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let table = (text.parse()).map_err(|cause: toml::de::Error| ProfileError::Syntax {
            file: file.to_owned(),
            cause: cause.to_string().trim().to_owned(),
        })?;
        let mut all = FigureTable::new(file, "", table);
        let profile = Self {
            name: all.text("name")?,
            about: all.text("about")?,
            nic: NicProfile::read(all.section("nic")?)?,
            link: LinkProfile::read(all.section("link")?)?,
            host: HostProfile::read(all.section("host")?)?,
            registration: RegistrationProfile::read(all.section("registration")?)?,
            message: MessageProfile::read(all.section("message")?)?,
        };
        all.done()?;
        Ok(profile)
    }

    /// The profile's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine it describes.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The network interface.
    pub fn nic(&self) -> &NicProfile {
        &self.nic
    }

    /// The wire and the switch.
    pub fn link(&self) -> &LinkProfile {
        &self.link
    }

    /// The processor, its memory and the library on it.
    pub fn host(&self) -> &HostProfile {
        &self.host
    }

    /// The cost of registration.
    pub fn registration(&self) -> &RegistrationProfile {
        &self.registration
    }

    /// The limits on messages.
    pub fn message(&self) -> &MessageProfile {
        &self.message
    }
}

impl NicProfile {
    fn read(mut from: FigureTable<'_>) -> Result<Self, ProfileError> {
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

impl LinkProfile {
    fn read(mut from: FigureTable<'_>) -> Result<Self, ProfileError> {
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

impl HostProfile {
    fn read(mut from: FigureTable<'_>) -> Result<Self, ProfileError> {
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

    /// The picoseconds that a copy takes.
    pub fn copying(&self, bytes: usize) -> u64 {
        (self.copy.iter())
            .find(|(up_to, _)| bytes <= *up_to)
            .map_or(0, |(_, rate)| rate.of(bytes))
    }
}

fn copies(list: Vec<FigureTable<'_>>) -> Result<Vec<(usize, Rate)>, ProfileError> {
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

impl RegistrationProfile {
    fn read(mut from: FigureTable<'_>) -> Result<Self, ProfileError> {
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

impl MessageProfile {
    fn read(mut from: FigureTable<'_>) -> Result<Self, ProfileError> {
        let message = Self {
            max_payload: from.count("max_payload", 64)?,
            buffers: from.count("buffers", 1)?,
        };
        from.done()?;
        Ok(message)
    }
}
