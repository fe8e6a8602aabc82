//! Imports and times that most of these tests share.

pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::convert::Infallible;
pub(crate) use std::future::{Ready, ready};
pub(crate) use std::io;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;

pub(crate) use axum::{Router, body::Body};
pub(crate) use futures_util::future::join_all;
pub(crate) use futures_util::{FutureExt as _, poll};
pub(crate) use http::{Method, Request, Response, StatusCode};
pub(crate) use serde_json::{Value, json};
pub(crate) use support::cluster::Cluster;
pub(crate) use support::command_stats::CommandStats;
pub(crate) use support::errors::{PATIENCE, assert_readable, bounded, eventually};
pub(crate) use support::errors::{everything, store_error, until_ok};
pub(crate) use support::proxy::Proxy;
pub(crate) use support::redis_server::RedisServer;
pub(crate) use support::spend::{attempt, build, per_second, spend, spend_by, under};
pub(crate) use support::upstream::Upstream;
pub(crate) use tokio::task::{JoinHandle, JoinSet};
pub(crate) use tokio::time::{Instant, advance, sleep, timeout};
pub(crate) use tower::{Layer, Service, ServiceExt as _, service_fn};
pub(crate) use tower_throttle::key::{self, Key};
pub(crate) use tower_throttle::rules::{KeyPart, Rule, Rules, RulesError};
pub(crate) use tower_throttle::store::{Call, MemoryStore, RedisStore, Reply, Store, StoreError};
pub(crate) use tower_throttle::test_util::history::History;
pub(crate) use tower_throttle::test_util::{FailingStore, Fault};
pub(crate) use tower_throttle::tower::BoxError;
pub(crate) use tower_throttle::tower::inbound::{InboundLayer, Refused};
pub(crate) use tower_throttle::{Algorithm, Charge, Cost, Departure, Error, ErrorKind};
pub(crate) use tower_throttle::{FailureMode, Limiter, LimiterBuilder, Lost, Outage, Priority};
pub(crate) use tower_throttle::{Quota, Recovery, ThrottleLayer, ThrottleMiddleware};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
