//! The requests of the command by lines to its control port: faults that a host cannot inject into
//! itself.

use rustix::process::Signal;

use super::Error;
use super::machine::RunningMachine;

/// The fate of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Gone at once and for good, as if its power were cut.
    Kill,
    /// Stopped where it is: it answers nothing, and does not notice.
    Stop,
    /// Continued after a stop, as if no time had passed.
    Continue,
}

/// One line, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FateRequest {
    fate: Fate,
    /// Index of the host.
    host: usize,
}

impl FateRequest {
    /// Parses `kill host2` and the like, or returns the problem in it.
    pub(crate) fn parse(line: &str, hosts: usize) -> Result<FateRequest, String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [fate, name] = words[..] else {
            return Err(format!("`{line}` is not `kill|stop|continue hostN`"));
        };
        let fate = match fate {
            "kill" => Fate::Kill,
            "stop" => Fate::Stop,
            "continue" => Fate::Continue,
            _ => return Err(format!("`{fate}` is none of kill, stop, continue")),
        };
        let mut numbers = 0..hosts;
        let host = numbers.find(|it| name == format!("host{}", it + 1));
        let host = host.ok_or_else(|| format!("there is no {name}; the last is host{hosts}"))?;
        Ok(FateRequest { fate, host })
    }

    /// Carries the request out. It is done when this returns.
    pub(crate) fn carry_out(self, hosts: &mut [RunningMachine]) -> Result<(), Error> {
        let host = &mut hosts[self.host];
        match self.fate {
            Fate::Kill => {
                host.was_asked_to_end = self.host > 0;
                host.end();
                Ok(())
            }
            // A killed host can be neither stopped nor continued.
            Fate::Stop | Fate::Continue if host.was_asked_to_end => Ok(()),
            Fate::Stop => host.signal(Signal::STOP),
            Fate::Continue => host.signal(Signal::CONT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_fate_and_an_existing_host() {
        let stop = FateRequest {
            fate: Fate::Stop,
            host: 1,
        };
        assert_eq!(FateRequest::parse("stop host2", 2), Ok(stop));
        for line in [
            "",
            "stop",
            "stop host3",
            "stop host2 now",
            "halt host1",
            "kill 2",
        ] {
            assert!(FateRequest::parse(line, 2).is_err(), "{line:?}");
        }
    }
}
