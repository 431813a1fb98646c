//! Gets of peers that are copied: a message carries own memory out.

use super::{Data, EngineMessage, StepContext, Target};
use crate::{Refusal, RegionNumber};

impl Target {
    /// Answers with a copy of own memory.
    pub(in crate::engine) fn serve_get(
        &mut self,
        from: u32,
        id: u64,
        (region, addr, len): (RegionNumber, u64, u32),
        verdict: Option<Refusal>,
        cx: &mut StepContext<'_>,
    ) {
        let too_long = u64::from(len) > cx.common.most_of_a_chunk();
        let nowhere = cx.limits().geometry.span(addr, u64::from(len)).is_err();
        let refused = verdict
            .or(too_long.then_some(Refusal::Exhausted))
            .or(nowhere.then_some(Refusal::NotMapped));
        let (len, data) = match refused {
            Some(_) => (0, Data::None),
            None => (len, Data::Asked { region, addr, len }),
        };
        let answer = EngineMessage::Fetched {
            id,
            refused,
            len,
            room: cx
                .local
                .room()
                .checked_ilog2()
                .map_or(0, |log| log as u8 + 1),
        };
        cx.send_with(from, answer, data);
    }
}
