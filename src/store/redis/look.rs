//! Looks closely at the states of keys, and changes nothing: [`RedisStore::look`].

use futures_util::future::join_all;
use redis::{FromRedisValue, RedisResult, Value};
use tokio::time::Instant;

use super::failure::{Failure, explain_look};
use super::key_state::KeyState;
use super::keys::StoredKey;
use super::{RedisStore, names, transaction};
use crate::store::StoreError;

/// How many keys are looked at at once.
const AT_ONCE: usize = 64;

impl RedisStore {
    /// How these keys stand, with all that their states tell, and for how long Redis keeps them. Changes nothing.
    ///
    /// Whole states are read, one after the other: of a long log, 8 bytes for each departure. For many keys see
    /// [`glance`](Self::glance), which reads as little as it can; [`peek`](crate::store::Store::peek) asks as a limiter
    /// would. Besides the [rights](mod@crate::redis#rights) of a limiter, it takes that to `PTTL`.
    ///
    /// ```no_run
    /// use tower_throttle::Quota;
    /// use tower_throttle::store::{RedisStore, StoredKey};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = tower_throttle::Limiter::builder().quota(Quota::per_second(10)).build()?;
    /// let store = RedisStore::connect("redis://127.0.0.1/").await?;
    /// let key = StoredKey::new(&"api.example.com".into(), &limiter.policy());
    /// for state in store.look(&[key]).await {
    ///     println!("the line reaches {:?} ahead", state?.delay());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// An answer is an error if the server that holds the key cannot be reached, takes too long, or refuses, or
    /// if something else has written what it holds.
    pub async fn look(&self, keys: &[StoredKey]) -> Vec<Result<KeyState, StoreError>> {
        let mut answers = Vec::with_capacity(keys.len());
        for batch in keys.chunks(AT_ONCE) {
            let deadline = self.deadline();
            let looks = batch.iter().map(|key| self.look_at(key, deadline));
            answers.extend(join_all(looks).await);
        }
        answers
    }

    async fn look_at(&self, key: &StoredKey, deadline: Instant) -> Result<KeyState, StoreError> {
        let names = names::of_tag(&self.prefix, key.policy(), key.encoded());
        let clock = self.clock.as_deref();
        let mut pipe = redis::pipe();
        transaction::with_reads(&mut pipe, names.all(), clock.is_none());
        for name in names.all() {
            pipe.cmd("PTTL").arg(name);
        }
        let server = &**self.couriers.server();
        let slot = server.place(names.aside());
        let answer = server.look(slot, &pipe, deadline).await;
        let mut answers = answer.map_err(Failure::explain_look)?.value.into_iter();
        let now = transaction::now(clock, &mut answers).map_err(explain_look)?;
        let (values, lifetimes) = read(answers, names.len()).map_err(explain_look)?;
        let state = KeyState::read(key.policy(), &names, now, &values, &[])?;
        Ok(state.with_values(&names, &values, &lifetimes))
    }
}

/// What stands under a name, if anything does.
type Stored = Option<Vec<u8>>;

/// So many values, and for how long each is kept.
fn read(
    mut answers: impl Iterator<Item = Value>,
    count: usize,
) -> RedisResult<(Vec<Stored>, Vec<i64>)> {
    let values = answers.by_ref().take(count).map(Option::from_redis_value);
    let values = values.collect::<Result<_, _>>()?;
    let lifetimes = answers
        .map(i64::from_redis_value)
        .collect::<Result<_, _>>()?;
    Ok((values, lifetimes))
}
