//! A job of one rank, which needs no launcher.

use std::collections::HashMap;

use crate::{Bootstrap, Error, check_key, check_rank, check_value};

/// The bootstrap of a process that nobody launched.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    values: HashMap<String, Vec<u8>>,
}

impl Bootstrap for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn name(&self) -> &'static str {
        "alone"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        check_value(key, value)?;
        if self.values.contains_key(key) {
            return Err(Error::KeyTaken { key: key.into() });
        }
        self.values.insert(key.into(), value.into());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        check_rank(from, 1)?;
        self.values
            .get(key)
            .cloned()
            .ok_or_else(|| Error::NoSuchKey {
                from,
                key: key.into(),
            })
    }

    fn abort(&mut self, _status: i32, _why: &str) {}

    fn finalize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
