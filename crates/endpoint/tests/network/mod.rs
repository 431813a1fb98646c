//! The two networks on which endpoints are tested: the memory of one host, and TCP by libfabric.

#![allow(dead_code, reason = "each test uses a part")]

use hydrant_endpoint::{Address, Endpoint, EndpointBuilder, Error, HostsOptions};
use hydrant_testing::left_out;

/// How two endpoints of a test reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Host,
    /// TCP on the loopback interface.
    Tcp,
    /// TCP on the interface that the environment names.
    TcpThere,
}

impl Network {
    pub(crate) fn builder(self, name: &str) -> EndpointBuilder {
        let builder = Endpoint::builder().name(name);
        match self {
            Self::Host => builder,
            Self::Tcp => builder.hosts(HostsOptions {
                interface: "lo".to_owned(),
                ..HostsOptions::default()
            }),
            Self::TcpThere => builder.hosts(HostsOptions::from_env()),
        }
    }

    pub(crate) fn endpoint(self, name: &str) -> Endpoint {
        self.builder(name).listen().expect("an endpoint")
    }

    /// Returns the address of an endpoint for a peer that is to use this network.
    pub(crate) fn address(self, endpoint: &Endpoint) -> Address {
        match self {
            Self::Host => endpoint.address().clone(),
            Self::Tcp => endpoint.address().only_far(),
            Self::TcpThere => endpoint.address().clone(),
        }
    }

    /// Returns false, and reports it, if this machine lacks the network.
    pub(crate) fn is_there(self) -> bool {
        match self.builder("").listen() {
            Ok(_) => true,
            Err(why @ Error::System(_)) => {
                left_out(why);
                false
            }
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Tcp => "tcp",
            Self::TcpThere => "there",
        }
    }

    pub(crate) fn of_name(name: &str) -> Self {
        match name {
            "host" => Self::Host,
            "tcp" => Self::Tcp,
            "there" => Self::TcpThere,
            other => panic!("no network: {other}"),
        }
    }
}
