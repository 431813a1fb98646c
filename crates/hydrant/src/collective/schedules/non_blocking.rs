//! Collectives that bring elements from member to member, begun and not waited for.
//!
//! Each begins what the blocking call of its name does, with buffers that it owns until its end, and
//! gives them back with the result.

use crate::{
    BackgroundHandle, Pod, Result, TeamRank,
    collective::{Blocks, team::Team},
};

impl Team {
    /// Begins to wait for every member.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`barrier`](Self::barrier).
    pub fn barrier_nb(&self) -> Result<BackgroundHandle<()>> {
        self.begin_queued("barrier_nb", |team| async move {
            team.barrier_async(None).await
        })
    }

    /// As [`barrier_nb`](Self::barrier_nb), and checks that every member gave the same name.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`barrier_named`](Self::barrier_named).
    pub fn barrier_named_nb(&self, name: u64) -> Result<BackgroundHandle<()>> {
        self.begin_queued("barrier_named_nb", |team| async move {
            team.barrier_async(Some(name)).await
        })
    }

    /// Begins to bring the elements of `root` to every member.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`broadcast`](Self::broadcast).
    pub fn broadcast_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        mut data: Vec<T>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("broadcast_nb", |team| async move {
            team.broadcast_async(root, &mut data).await?;
            Ok(data)
        })
    }

    /// Begins to bring what every member gave, by member, to `root`; `None` elsewhere.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`gather`](Self::gather).
    pub fn gather_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        mine: Vec<T>,
    ) -> Result<BackgroundHandle<Option<Vec<T>>>> {
        self.begin_queued("gather_nb", |team| async move {
            team.gather_async(root, &mine).await
        })
    }

    /// Begins to bring what every member gave to its block of a buffer of `root`, which gets it back.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`gather_v_into`](Self::gather_v_into).
    pub fn gather_v_into_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        mine: Vec<T>,
        into: Option<(Vec<T>, Blocks<'_>)>,
    ) -> Result<BackgroundHandle<Option<Vec<T>>>> {
        let mut into = into.map(|(into, blocks)| (into, blocks.keep()));
        self.begin_queued("gather_v_into_nb", |team| async move {
            let room = (into.as_mut()).map(|(into, kept)| (into.as_mut_slice(), kept.blocks()));
            team.gather_v_into_async(root, &mine, room).await?;
            Ok(into.filter(|_| root == team.rank()).map(|(into, _)| into))
        })
    }

    /// Begins to bring what every member gave, by member, to all.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_gather`](Self::all_gather).
    pub fn all_gather_nb<T: Pod + Send + Sync>(
        &self,
        mine: Vec<T>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("all_gather_nb", |team| async move {
            team.all_gather_async(&mine).await
        })
    }

    /// As [`all_gather_nb`](Self::all_gather_nb), in the buffer in which this member's elements are in
    /// their place.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_gather_in_place`](Self::all_gather_in_place).
    pub fn all_gather_in_place_nb<T: Pod + Send + Sync>(
        &self,
        mut data: Vec<T>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("all_gather_in_place_nb", |team| async move {
            team.all_gather_in_place_async(&mut data).await?;
            Ok(data)
        })
    }

    /// Begins to bring what every member gave to its block of `into`, on all.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_gather_v_into`](Self::all_gather_v_into).
    pub fn all_gather_v_into_nb<T: Pod + Send + Sync>(
        &self,
        mine: Vec<T>,
        mut into: Vec<T>,
        blocks: Blocks<'_>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let kept = blocks.keep();
        self.begin_queued("all_gather_v_into_nb", |team| async move {
            team.all_gather_v_into_async(&mine, &mut into, kept.blocks())
                .await?;
            Ok(into)
        })
    }

    /// As [`all_gather_v_into_nb`](Self::all_gather_v_into_nb), in the buffer in which this member's
    /// block is in its place.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_gather_v_in_place`](Self::all_gather_v_in_place).
    pub fn all_gather_v_in_place_nb<T: Pod + Send + Sync>(
        &self,
        mut data: Vec<T>,
        blocks: Blocks<'_>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let kept = blocks.keep();
        self.begin_queued("all_gather_v_in_place_nb", |team| async move {
            team.all_gather_v_in_place_async(&mut data, kept.blocks())
                .await?;
            Ok(data)
        })
    }

    /// Begins to give each member its part of what `root` has: as many elements as `mine` holds, in
    /// their place.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`scatter`](Self::scatter).
    pub fn scatter_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        all: Option<Vec<T>>,
        mut mine: Vec<T>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("scatter_nb", |team| async move {
            team.scatter_async(root, all.as_deref(), &mut mine).await?;
            Ok(mine)
        })
    }

    /// Begins to give each member its block of what `root` has, in the place of `mine`.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`scatter_v`](Self::scatter_v).
    pub fn scatter_v_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        all: Option<(Vec<T>, Blocks<'_>)>,
        mut mine: Vec<T>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let all = all.map(|(all, blocks)| (all, blocks.keep()));
        self.begin_queued("scatter_v_nb", |team| async move {
            let all = (all.as_ref()).map(|(all, kept)| (all.as_slice(), kept.blocks()));
            team.scatter_v_async(root, all, &mut mine).await?;
            Ok(mine)
        })
    }

    /// Begins to give each member its part of what this one has, and to get from each.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_to_all`](Self::all_to_all).
    pub fn all_to_all_nb<T: Pod + Send + Sync>(
        &self,
        mut parts: Vec<T>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("all_to_all_nb", |team| async move {
            team.all_to_all_in_place_async(&mut parts).await?;
            Ok(parts)
        })
    }

    /// As [`all_to_all_nb`](Self::all_to_all_nb), with parts of any length.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_to_all_v`](Self::all_to_all_v).
    pub fn all_to_all_v_nb<T: Pod + Send + Sync>(
        &self,
        parts: Vec<Vec<T>>,
    ) -> Result<BackgroundHandle<Vec<Vec<T>>>> {
        self.begin_queued("all_to_all_v_nb", |team| async move {
            team.all_to_all_v_async(&parts).await
        })
    }

    /// As [`all_to_all_nb`](Self::all_to_all_nb), from blocks of `from` to blocks of `into`.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_to_all_v_into`](Self::all_to_all_v_into).
    pub fn all_to_all_v_into_nb<T: Pod + Send + Sync>(
        &self,
        from: Vec<T>,
        from_blocks: Blocks<'_>,
        mut into: Vec<T>,
        into_blocks: Blocks<'_>,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let kept = (from_blocks.keep(), into_blocks.keep());
        self.begin_queued("all_to_all_v_into_nb", |team| async move {
            let (from_blocks, into_blocks) = (kept.0.blocks(), kept.1.blocks());
            team.all_to_all_v_into_async(&from, from_blocks, &mut into, into_blocks)
                .await?;
            Ok(into)
        })
    }
}
