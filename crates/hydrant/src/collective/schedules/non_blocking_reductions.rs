//! Reductions and scans, begun and not waited for.
//!
//! As with [collectives that bring elements](super::non_blocking). Functions that reduce are run, and dropped,
//! by whatever thread goes on with the collective: they are to be as quick as a handler, and what waits
//! is [`Error::InHandler`](crate::Error::InHandler) there, too.

use super::reduce::{reduction_by_function, reduction_by_op};
use crate::{
    BackgroundHandle, Pod, Result, TeamRank,
    collective::{
        Op, Reducible,
        agreement::CollectiveKind,
        fold::fold_with,
        op::{fold_of, identity_of},
        team::Team,
    },
    progress::in_handler,
};

impl Team {
    /// Begins to reduce the members' elements, index by index, to `root`; `None` elsewhere.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce`](Self::reduce).
    pub fn reduce_nb<T: Reducible + Send + Sync>(
        &self,
        root: TeamRank,
        mine: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Option<Vec<T>>>> {
        self.begin_queued("reduce_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::Reduce, op);
            team.reduce_async(root, reduction, &mine, fold_of(op)).await
        })
    }

    /// As [`reduce_nb`](Self::reduce_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_with`](Self::reduce_with).
    pub fn reduce_with_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        mine: Vec<T>,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Option<Vec<T>>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("reduce_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::Reduce);
            team.reduce_async(root, reduction, &mine, fold).await
        })
    }

    /// As [`reduce_nb`](Self::reduce_nb), with the result in the place of what the root gave.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_in_place`](Self::reduce_in_place).
    pub fn reduce_in_place_nb<T: Reducible + Send + Sync>(
        &self,
        root: TeamRank,
        mut data: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("reduce_in_place_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::Reduce, op);
            team.reduce_in_place_async(root, reduction, &mut data, fold_of(op))
                .await?;
            Ok(data)
        })
    }

    /// As [`reduce_in_place_nb`](Self::reduce_in_place_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_in_place_with`](Self::reduce_in_place_with).
    pub fn reduce_in_place_with_nb<T: Pod + Send + Sync>(
        &self,
        root: TeamRank,
        mut data: Vec<T>,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("reduce_in_place_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::Reduce);
            team.reduce_in_place_async(root, reduction, &mut data, fold)
                .await?;
            Ok(data)
        })
    }

    /// Begins to reduce the members' elements, index by index, on every member.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_nb<T: Reducible + Send + Sync>(
        &self,
        mut data: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("all_reduce_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::AllReduce, op);
            team.all_reduce_async(reduction, &mut data, fold_of(op))
                .await?;
            Ok(data)
        })
    }

    /// As [`all_reduce_nb`](Self::all_reduce_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`all_reduce_with`](Self::all_reduce_with).
    pub fn all_reduce_with_nb<T: Pod + Send + Sync>(
        &self,
        mut data: Vec<T>,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("all_reduce_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::AllReduce);
            team.all_reduce_async(reduction, &mut data, fold).await?;
            Ok(data)
        })
    }

    /// Begins to reduce the members' elements, index by index, and to give each member its part, in the
    /// place of `mine`.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_scatter`](Self::reduce_scatter).
    pub fn reduce_scatter_nb<T: Reducible + Send + Sync>(
        &self,
        data: Vec<T>,
        mut mine: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("reduce_scatter_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::ReduceScatter, op);
            team.reduce_scatter_async(reduction, &data, &mut mine, fold_of(op))
                .await?;
            Ok(mine)
        })
    }

    /// As [`reduce_scatter_nb`](Self::reduce_scatter_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_scatter_with`](Self::reduce_scatter_with).
    pub fn reduce_scatter_with_nb<T: Pod + Send + Sync>(
        &self,
        data: Vec<T>,
        mut mine: Vec<T>,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("reduce_scatter_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::ReduceScatter);
            team.reduce_scatter_async(reduction, &data, &mut mine, fold)
                .await?;
            Ok(mine)
        })
    }

    /// As [`reduce_scatter_nb`](Self::reduce_scatter_nb), with parts of any length.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_scatter_v`](Self::reduce_scatter_v).
    pub fn reduce_scatter_v_nb<T: Reducible + Send + Sync>(
        &self,
        data: Vec<T>,
        counts: Vec<usize>,
        mut mine: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("reduce_scatter_v_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::ReduceScatterV, op);
            team.reduce_scatter_v_async(reduction, &data, &counts, &mut mine, fold_of(op))
                .await?;
            Ok(mine)
        })
    }

    /// As [`reduce_scatter_v_nb`](Self::reduce_scatter_v_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`reduce_scatter_v_with`](Self::reduce_scatter_v_with).
    pub fn reduce_scatter_v_with_nb<T: Pod + Send + Sync>(
        &self,
        data: Vec<T>,
        counts: Vec<usize>,
        mut mine: Vec<T>,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("reduce_scatter_v_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::ReduceScatterV);
            team.reduce_scatter_v_async(reduction, &data, &counts, &mut mine, fold)
                .await?;
            Ok(mine)
        })
    }

    /// Begins to reduce, index by index, the elements of the members up to and including this one.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`scan`](Self::scan).
    pub fn scan_nb<T: Reducible + Send + Sync>(
        &self,
        mut data: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("scan_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::Scan, op);
            team.scan_async(reduction, &mut data, None, fold_of(op))
                .await?;
            Ok(data)
        })
    }

    /// As [`scan_nb`](Self::scan_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`scan_with`](Self::scan_with).
    pub fn scan_with_nb<T: Pod + Send + Sync>(
        &self,
        mut data: Vec<T>,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("scan_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::Scan);
            team.scan_async(reduction, &mut data, None, fold).await?;
            Ok(data)
        })
    }

    /// Begins to reduce, index by index, the elements of the members before this one.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`exclusive_scan`](Self::exclusive_scan).
    pub fn exclusive_scan_nb<T: Reducible + Send + Sync>(
        &self,
        mut data: Vec<T>,
        op: Op,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        self.begin_queued("exclusive_scan_nb", |team| async move {
            let reduction = reduction_by_op::<T>(CollectiveKind::ExclusiveScan, op);
            team.scan_async(reduction, &mut data, Some(identity_of(op)), fold_of(op))
                .await?;
            Ok(data)
        })
    }

    /// As [`exclusive_scan_nb`](Self::exclusive_scan_nb), by a function.
    ///
    /// # Errors
    /// As every collective that is [begun](Team#collectives-in-the-background); the handle, as
    /// [`exclusive_scan_with`](Self::exclusive_scan_with).
    pub fn exclusive_scan_with_nb<T: Pod + Send + Sync>(
        &self,
        mut data: Vec<T>,
        first: T,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<BackgroundHandle<Vec<T>>> {
        let fold = quick(fold_with(combine));
        self.begin_queued("exclusive_scan_with_nb", |team| async move {
            let reduction = reduction_by_function(CollectiveKind::ExclusiveScan);
            team.scan_async(reduction, &mut data, Some(first), fold)
                .await?;
            Ok(data)
        })
    }
}

/// A fold by a function of the program's, for whatever thread goes on with a collective: that may be the
/// service thread, and it holds the queue of the team.
fn quick<T: Pod>(fold: impl Fn(&mut [T], &[T])) -> impl Fn(&mut [T], &[T]) {
    /// What is dropped as it is run.
    struct RunAsHandler<F>(Option<F>);
    impl<F> Drop for RunAsHandler<F> {
        fn drop(&mut self) {
            in_handler(|| drop(self.0.take()));
        }
    }
    let fold = RunAsHandler(Some(fold));
    move |into, with| {
        if let RunAsHandler(Some(fold)) = &fold {
            in_handler(|| fold(into, with));
        }
    }
}
