//! [`pass_on!`]: the methods of a store that leave everything to another store inside.

/// Writes these methods of `Store`, each of which asks the store in this field.
///
/// All are named, so that it shows what else there is to a store: what has a default and is not named has it.
macro_rules! pass_on {
    (@reserve $store:tt) => {
        fn reserve(
            &self,
            reserve: &::tower_throttle::store::Reserve<'_>,
        ) -> ::tower_throttle::store::Reply<::tower_throttle::store::Reserved> {
            self.$store.reserve(reserve)
        }
    };
    (@release $store:tt) => {
        fn release(
            &self,
            release: &::tower_throttle::store::Release<'_>,
        ) -> ::tower_throttle::store::Reply<()> {
            self.$store.release(release)
        }
    };
    (@peek $store:tt) => {
        fn peek(
            &self,
            reserve: &::tower_throttle::store::Reserve<'_>,
        ) -> ::tower_throttle::store::Reply<::tower_throttle::store::Reserved> {
            self.$store.peek(reserve)
        }
    };
    (@heed $store:tt) => {
        fn heed(
            &self,
            key: &::tower_throttle::key::Key,
            policy: &::tower_throttle::Policy,
            word: ::tower_throttle::store::Word,
        ) -> ::tower_throttle::store::Reply<::tower_throttle::store::Notice> {
            self.$store.heed(key, policy, word)
        }
    };
    (@reset $store:tt) => {
        fn reset(
            &self,
            key: &::tower_throttle::key::Key,
            policy: &::tower_throttle::Policy,
        ) -> ::tower_throttle::store::Reply<()> {
            self.$store.reset(key, policy)
        }
    };
    (@listen $store:tt) => {
        fn listen(&self, listener: ::std::sync::Weak<dyn ::tower_throttle::store::Listen>) {
            self.$store.listen(listener);
        }
    };
    (@is_listening $store:tt) => {
        fn is_listening(&self) -> bool {
            self.$store.is_listening()
        }
    };
    (@told_until $store:tt) => {
        fn told_until(&self) -> Option<::tokio::time::Instant> {
            self.$store.told_until()
        }
    };
    (@check $store:tt) => {
        fn check(
            &self,
            key: &::tower_throttle::key::Key,
        ) -> ::tower_throttle::store::Reply<()> {
            self.$store.check(key)
        }
    };
    (@part $store:tt) => {
        fn part(&self, key: &::tower_throttle::key::Key) -> u64 {
            self.$store.part(key)
        }
    };
    (@is_local $store:tt) => {
        fn is_local(&self) -> bool {
            self.$store.is_local()
        }
    };
    ($store:tt: $($method:ident),+) => {
        $(pass_on!(@$method $store);)+
    };
}

pub(crate) use pass_on;
