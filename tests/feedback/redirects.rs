//! Redirects that the client follows by itself are not counted.

use tower_throttle::ThrottleMiddleware;

use super::client;
use support::spend::{build, per_second};
use support::upstream::{Answer, Upstream};

#[tokio::test]
async fn what_the_client_follows_by_itself_is_one_request() {
    let provider = Upstream::answering(|number| match number {
        0 | 1 => Answer::new(307).header("Location", format!("/{number}")),
        _ => Answer::new(200),
    })
    .await;
    let limiter = build(per_second(9).buffer(std::time::Duration::from_secs(60)));
    let client = client(ThrottleMiddleware::new(limiter.clone()));
    let answer = client.get(provider.uri()).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(provider.arrivals().len(), 3);
    let host = provider.uri().replace("http://", "");
    let snapshot = limiter.peek(host).await.expect("an answer");
    assert_eq!(snapshot.remaining(), 8);
}
