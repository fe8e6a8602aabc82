//! Requests of a higher priority depart first, in all processes, and shares divide the capacity.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower::util::BoxCloneService;
use tower_throttle::{HeldBody, Share};

use crate::prelude::*;

type Sender = (Priority, &'static str);
type Throttled = BoxCloneService<Request<Sender>, Response<HeldBody<String>>, BoxError>;

fn priority(request: &Request<Sender>) -> Priority {
    request.body().0
}

fn share(request: &Request<Sender>) -> Option<Share> {
    Some(Share::new(request.body().1, 1))
}

fn recorder(
    departed: UnboundedSender<Sender>,
) -> impl Service<Request<Sender>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(move |request: Request<Sender>| {
        departed.send(*request.body()).expect("a receiver");
        ready(Ok(Response::new(String::new())))
    })
}

/// One request per second, on a store that the dispatcher asks.
fn layer() -> ThrottleLayer {
    let store = FailingStore::new(MemoryStore::new());
    ThrottleLayer::new(build(per_second(1).store(store)))
}

fn by_rule(rule: Rule, departed: UnboundedSender<Sender>) -> Throttled {
    let rules = Rules::new([rule.quota(Quota::per_second(1))]).expect("rules");
    let store = FailingStore::new(MemoryStore::new());
    let limiter = build(Limiter::builder().rules(rules).store(store));
    BoxCloneService::new(ThrottleLayer::new(limiter).layer(recorder(departed)))
}

/// Services, and whether a request has its priority, and its share, in its extensions.
fn services(departed: &UnboundedSender<Sender>) -> [(Throttled, [bool; 2]); 5] {
    let recorder = || recorder(departed.clone());
    let inbound = || layer().inbound(key::constant("a"), FailureMode::Closed);
    let inbound = || inbound().max_wait(60 * SECOND);
    let named = inbound().priority(priority).share(share);
    let (inbound, named) = (inbound().layer(recorder()), named.layer(recorder()));
    let keyed = layer().key(key::constant("a")).layer(recorder());
    let of_client = layer().priority(priority).share(share).layer(recorder());
    let by_tenant = Rule::named("all").share(KeyPart::Header("x-tenant".into()));
    let by_tenant = by_tenant.weight(3);
    [
        (BoxCloneService::new(keyed), [true; 2]),
        (BoxCloneService::new(of_client), [false; 2]),
        (BoxCloneService::new(inbound.map_err(Into::into)), [true; 2]),
        (BoxCloneService::new(named.map_err(Into::into)), [false; 2]),
        (by_rule(by_tenant, departed.clone()), [true, false]),
    ]
}

/// The order in which requests depart that arrive at about the same time.
async fn order(
    (service, [has_priority, has_share]): &(Throttled, [bool; 2]),
    departures: &mut UnboundedReceiver<Sender>,
    senders: &[Sender],
) -> Vec<Sender> {
    for &(priority, tenant) in senders {
        let request = Request::get("https://a/").header("x-tenant", tenant);
        let mut request = request.body((priority, tenant)).expect("a request");
        if *has_share {
            request.extensions_mut().insert(Share::new(tenant, 1));
        }
        // Else it has the priority of its rule, if there is one.
        if *has_priority && priority != Priority::Normal {
            request.extensions_mut().insert(priority);
        }
        tokio::spawn(service.clone().oneshot(request));
        sleep(SECOND / 100).await;
    }
    let mut order = Vec::new();
    for _ in senders {
        order.extend(departures.recv().await);
    }
    order
}

#[tokio::test(start_paused = true)]
async fn adapters_and_rules_read_the_priority_and_the_share_of_a_request() {
    let (departed, mut departures) = unbounded_channel();
    let normal = |tenant| (Priority::Normal, tenant);
    for nth in 0..5 {
        let senders = [[normal("a"); 7].as_slice(), &[normal("b"); 3]].concat();
        let by_share = order(&services(&departed)[nth], &mut departures, &senders).await;
        // The first departs at once. Then one of each tenant departs in two seconds.
        let of_b = by_share[..7].iter().filter(|it| it.1 == "b").count();
        assert_eq!(of_b, 3, "{nth}: {by_share:?}");
        let levels = [Priority::Normal, Priority::Low, Priority::High];
        let senders = levels.map(|it| (it, "a"));
        let by_level = order(&services(&departed)[nth], &mut departures, &senders).await;
        assert_eq!(by_level, [0, 2, 1].map(|nth| senders[nth]), "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_set_the_priority_and_the_reserve() {
    let (departed, mut departures) = unbounded_channel();
    let rule = Rule::named("all").priority(Priority::Low);
    let rule = rule.reserve(Priority::Low, 0.25);
    let service = (by_rule(rule, departed), [true; 2]);
    let (low, high) = ([(Priority::Normal, "a"); 5], [(Priority::High, "a"); 12]);
    let order = order(&service, &mut departures, &[&low[..], &high].concat()).await;
    let low = order[1..14].iter().filter(|it| it.0 == Priority::Normal);
    assert!((2..=4).contains(&low.count()), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn weights_and_reserves_that_cannot_hold_are_refused() {
    let limiter = build(per_second(1));
    for weight in [0, 65_536] {
        let errors = [
            limiter.acquire("a").share("b", weight).await.err(),
            limiter.acquire("a").share("b", weight).peek().await.err(),
            limiter.acquire("a").share("b", weight).now().await.err(),
        ];
        for error in errors.map(|it| it.expect("it cannot hold")) {
            assert_eq!(error.kind(), ErrorKind::InvalidShare);
            let problem =
                format!("the share \"b\" has the weight {weight}, which is not from 1 to 65,535");
            assert_eq!(error.to_string(), problem);
        }
    }
    let reserve = |low: f64| {
        let builder = under(&["1/s"]).reserve(Priority::Low, low);
        builder.reserve(Priority::Lowest, 0.5).build()
    };
    let problem = |low| reserve(low).unwrap_err().to_string();
    for low in [-0.1, 1.5, f64::NAN] {
        assert_eq!(problem(low), format!("reserve: {low} is not from 0 to 1"));
    }
    let too_much = "reserve: 1.25 is reserved in all, which is more than 1";
    assert_eq!(problem(0.75), too_much);
    assert!(reserve(0.5).is_ok());
}

/// A server refuses requests of lower levels and of shares that use more than their part first.
#[tokio::test(start_paused = true)]
async fn a_server_refuses_first_what_would_wait_longest() {
    let layer = ThrottleLayer::new(build(per_second(10)));
    let layer = layer.inbound(key::constant("a"), FailureMode::Closed);
    let layer = layer.max_wait(SECOND * 21 / 10);
    let (departed, _departures) = unbounded_channel();
    let layer = layer.priority(priority).share(share);
    let service = layer.layer(recorder(departed));
    let mut answers = Vec::new();
    // Three times as much as can depart in time. The least and the most that are refused.
    for (sender, count, refused) in [
        ((Priority::Low, "c"), 30, 20..=20),
        ((Priority::Normal, "a"), 50, 30..=50),
        ((Priority::Normal, "b"), 5, 0..=0),
        ((Priority::High, "c"), 5, 0..=0),
    ] {
        let requests = (0..count).map(|_| Request::get("/").body(sender).expect("a request"));
        let sent = requests.map(|it| service.clone().oneshot(it));
        answers.push((sender, tokio::spawn(join_all(sent)), refused));
        sleep(SECOND / 100).await;
    }
    for (sender, answers, expected) in answers {
        let answers = answers.await.expect("no panic").into_iter();
        let refused = answers.filter(|it| it.as_ref().expect("an answer").status() != 200);
        let refused = refused.count();
        assert!(expected.contains(&refused), "{sender:?}: {refused}");
    }
}
