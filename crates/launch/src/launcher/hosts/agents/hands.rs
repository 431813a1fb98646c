//! The supervisor's interface to the agents.

use std::io;
use std::mem;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};

use super::{Agents, PATIENCE, RemoteAgent};
use crate::launcher::Ending;
use crate::launcher::hosts::frame::{AgentOrder, RankStream};
use crate::launcher::signals::Signals;
use crate::launcher::supervise::{Behind, Finished, Hands, Heard, HostFailure, Left, Whom};

impl Hands for Agents {
    fn wait(&mut self, signals: &Signals, until: Option<Instant>) {
        // A caller that asked for ends may have received other reports too.
        let news = !(self.heard.is_empty() && self.ended.is_empty() && self.failed.is_empty());
        let now = || Some(Instant::now());
        self.turn(Some(signals), if news { now() } else { until });
    }

    fn take_heard(&mut self, _whom: Whom) -> Vec<(u32, Heard)> {
        self.heard.drain(..).collect()
    }

    fn take_ended(&mut self) -> Vec<(u32, Ending)> {
        self.turn(None, Some(Instant::now()));
        std::mem::take(&mut self.ended)
    }

    fn take_failed(&mut self) -> Vec<HostFailure> {
        std::mem::take(&mut self.failed)
    }

    fn send(&mut self, rank: u32, line: &str) -> Result<(), String> {
        if let Some(agent) = self.of_rank(rank) {
            let line = line.to_owned();
            agent.tell(&AgentOrder::Line { rank, line });
        }
        Ok(())
    }

    fn hang_up(&mut self, rank: u32) {
        if let Some(agent) = self.of_rank(rank) {
            agent.tell(&AgentOrder::HangUp { rank });
        }
    }

    fn running(&self) -> Vec<u32> {
        (self.agents.iter())
            .flat_map(RemoteAgent::running_ranks)
            .collect()
    }

    fn signal(&mut self, signal: Signal) {
        // A host whose ranks have not begun has none to receive the signal.
        for index in 0..self.agents.len() {
            if self.agents[index].begun {
                self.agents[index].tell(&AgentOrder::Signal(signal.as_raw()));
            } else if [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal) {
                let status = Ending::Killed(signal.as_raw() as u8).status();
                self.fail(index, status, "was abandoned before its ranks began".into());
            }
        }
    }

    fn kill(&mut self) {
        self.killed = Some(Instant::now() + PATIENCE);
        self.tell_all(&AgentOrder::Kill);
    }

    fn give_up(&mut self) -> Vec<(u32, String)> {
        // A host fails if its agent does not end its ranks.
        Vec::new()
    }

    fn note_resumed(&mut self) {
        for agent in &mut self.agents {
            agent.heard = Instant::now();
        }
    }

    fn finish(mut self, left: Left, signals: Signals) -> Finished {
        // From here on a signal ends the launcher, and its agents with it.
        drop(signals);
        self.failed.clear();
        self.tell_all(&AgentOrder::Finish {
            gently: left == Left::Ended,
        });
        while self.agents.iter().any(RemoteAgent::is_live) {
            self.turn(None, None);
            // The supervisor takes no more lines or ends.
            self.heard.clear();
            self.ended.clear();
        }
        let mut behind = Behind::default();
        for agent in &mut self.agents {
            let host = &agent.host;
            let of_host = agent.done.as_mut().map(mem::take).unwrap_or_default();
            behind.ended = behind.ended.saturating_add(of_host.ended);
            let strays = of_host.strays.into_iter();
            behind
                .strays
                .extend(strays.map(|stray| format!("on host {host}, {stray}")));
        }
        for (index, agent) in self.agents.iter_mut().enumerate() {
            for (stream, lines) in [RankStream::Out, RankStream::Err]
                .into_iter()
                .zip(&mut agent.lines)
            {
                let mut text = Vec::new();
                lines.iter_mut().for_each(|lines| lines.finish(&mut text));
                self.printer.print(stream, index, 0, text);
            }
        }
        let lost = self.failed.pop();
        self.end_shells();
        let mut written = self.printer.finish();
        if let Some(lost) = lost {
            let why = format!("host {} {}", lost.host, lost.why);
            written = written.and(Err(io::Error::other(why)));
        }
        self.guard.dismiss();
        Finished { behind, written }
    }
}

impl Agents {
    /// Waits until the remote shells have ended, and kills those that remain.
    fn end_shells(&mut self) {
        let until = Instant::now() + PATIENCE;
        for agent in &mut self.agents {
            agent.link = None;
        }
        while self.agents.iter().any(|agent| agent.exit.is_none()) && Instant::now() < until {
            self.turn(None, Some(Instant::now() + Duration::from_millis(5)));
        }
        for agent in self.agents.iter().filter(|agent| agent.exit.is_none()) {
            let _ = kill_process_group(agent.shell, Signal::KILL);
        }
    }
}
